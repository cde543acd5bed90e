"""What queries have not read of their inputs: the commits after where they are, by their own commits and by their checkpoints."""

from strandline.report.unread.checkpoints import Checkpoints
from strandline.report.unread.unread_rows import UnreadRows

__all__ = ["Checkpoints", "UnreadRows"]
