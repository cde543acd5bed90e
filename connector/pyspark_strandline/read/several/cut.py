"""A cut of a source: a position in each of its channels, and the frontier of all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_strandline.read.offset import Offset
from strandline.loop import Entered, Rounds, Waiting
from strandline.time.antichain import Antichain

__all__ = ["Cut", "LoopPosition"]


@dataclass(frozen=True)
class LoopPosition:
    """What an offset of a loop has beside the positions in its channels.

    Attributes:
        rounds: The frontier of the query, and the times that may still come round.
        rows: How many rows have come round without a pause.
        outside_rows: How many rows have come from outside since the last pause.
        writers: For each channel of the loop that the query reads, the id of the query whose rows have come, once it is known.
            There is one for a loop's whole life.
        consumed: For each of these channels, the first version that the query has not taken in completely.
        has_begun: Whether a batch of the loop has been planned.
        waiting: For each looping link that comes round later by a duration, the rows that wait on it.
        entered: Where rows from outside have entered the loop, if these have the coordinates that count rounds.
    """

    rounds: Rounds
    rows: int = 0
    outside_rows: int = 0
    writers: Mapping[str, str] = field(default_factory=dict)
    consumed: Mapping[str, int] = field(default_factory=dict)
    has_begun: bool = True
    entered: Entered = field(default_factory=Entered)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """A position in each channel, by name. The channel of a source of one has the empty name.

    Attributes:
        positions: The position in each channel.
        frontier: The frontier of all channels together, in their common domain: a time is closed when every channel has closed
            it. In a loop, what may still come round holds it back too.
        first: The number of the channel that the next limited batch serves first.
        loop: What a loop adds; ``None`` outside of loops.
    """

    positions: Mapping[str, Offset]
    frontier: Antichain
    first: int = 0
    loop: LoopPosition | None = None
