"""Compares what two runs have written, time by time."""

from strandline.replay.comparison import ChangedRow, Comparison, TimeDifference, assert_same, compare

__all__ = ["ChangedRow", "Comparison", "TimeDifference", "assert_same", "compare"]
