"""Who holds a time open: each as it is found, and those with one cause as one ailment."""

from strandline.report.ailments.causes import Ailment, Causes, ailments
from strandline.report.ailments.holder import Behind, Holder, called, moment

__all__ = ["Ailment", "Behind", "Causes", "Holder", "ailments", "called", "moment"]
