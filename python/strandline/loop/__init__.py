"""Loops over channels: what may still come round, and the frontier that follows. No Spark here."""

from strandline.loop.feedback import Feedback
from strandline.loop.rounds import Rounds, Taken

__all__ = ["Feedback", "Rounds", "Taken"]
