"""Records in an order that never ties, and compares what two runs have written, time by time."""

from strandline.replay.clock import CLOCK, Timestamper, add_node, nodes
from strandline.replay.comparison import ChangedRow, Comparison, TimeDifference, assert_same, compare
from strandline.replay.replayed import Replayed, ReplayedInput
from strandline.replay.restamp import ORIGINAL, recorded

__all__ = [
    "CLOCK",
    "ORIGINAL",
    "ChangedRow",
    "Comparison",
    "Replayed",
    "ReplayedInput",
    "TimeDifference",
    "Timestamper",
    "add_node",
    "assert_same",
    "compare",
    "nodes",
    "recorded",
]
