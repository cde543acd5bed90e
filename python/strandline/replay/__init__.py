"""Compares what two runs have written, time by time."""

from strandline.replay.comparison import ChangedRow, Comparison, TimeDifference, assert_same, compare
from strandline.replay.replayed import Replayed, ReplayedInput

__all__ = ["ChangedRow", "Comparison", "Replayed", "ReplayedInput", "TimeDifference", "assert_same", "compare"]
