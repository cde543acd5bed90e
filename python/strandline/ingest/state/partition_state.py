"""What an ingest remembers of a partition: the state of its producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from strandline.channel import Progress
from strandline.errors import IngestError
from strandline.ingest.state.readers import anything, count, flag, listed, moment
from strandline.ingest.state.record import Key, Record
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

__all__ = ["IdleState", "PartitionState", "idle_states", "states_of_partitions"]


@dataclass(frozen=True)
class IdleState(Record):
    """Why an ingest does not wait for a partition.

    Attributes:
        was: The times that it had promised, in JSON.
        since: Since when it is not waited for, in ms since 1970.
        listened: What the listening clock showed then.
        silent: For how many ms it had been silent by the wall clock, if that clock counts.
        rejoins: Whether it joins again with the next batch of its ingest.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {
        "was": Key("was", listed(), required=True),
        "since": Key("since", moment, required=True),
        "listened": Key("listened", count),
        "silent": Key("silent", count),
        "rejoins": Key("rejoins", flag),
    }
    was: Sequence[Any] = ()
    since: int = 0
    listened: int | None = None
    silent: int | None = None
    rejoins: bool | None = None

    def promised(self, domain: TimeDomain) -> list[Time]:
        """Return the times that the partition had promised. Raises :class:`TimeError` for what is not a time of the domain."""
        return [domain.from_json(time) for time in self.was]


@dataclass(frozen=True)
class PartitionState(Record):
    """The state of a partition.

    Attributes:
        at: When it last delivered anything, in ms since 1970.
        aside: How many of its rows were set aside.
        own: The state that its policy keeps.
        heard: What the listening clock showed at ``at``, if that clock counts its silence.
        heard_wall: What the wall clock of silence showed then, if that one counts.
        idle: Why it is not waited for; ``None`` while it is.
        soon: While its source is in its first snapshot, what it has promised: the times in JSON.
        dropped: When an operator dropped it, in ms since 1970.
        future: How many of the rows of ``aside`` were dated too far ahead of the clock.
        generation: How often it has joined.
        aside_at: When rows of it were last set aside, in ms since 1970.
        aside_rows: How many were set aside then.
        aside_why: Why most of them were: the reason's place among those of the late table.
        only_aside: Since when all rows that it delivers are set aside, in ms since 1970; ``None`` if its newest rows were not.

    >>> PartitionState.of("a", {"at": 5, "x": [1], "aside": 2}).changed(aside=3, heard=7).to_json()
    {'at': 5, 'x': [1], 'aside': 3, 'heard': 7}
    >>> PartitionState.of("a", {"at": "noon"})
    Traceback (most recent call last):
    strandline.errors.IngestError: [STRANDLINE_INGEST_STATE_INVALID] ...
    """

    KEYS: ClassVar[Mapping[str, Key]] = {
        "at": Key("at", moment),
        "aside": Key("aside", count),
        "own": Key("own", anything),
        "heard": Key("heard", count),
        "heardWall": Key("heard_wall", count),
        "idle": Key("idle", IdleState.inner),
        "soon": Key("soon", listed()),
        "dropped": Key("dropped", anything),
        "future": Key("future", count),
        "generation": Key("generation", count),
        "asideAt": Key("aside_at", moment),
        "asideRows": Key("aside_rows", count),
        "asideWhy": Key("aside_why", count),
        "onlyAside": Key("only_aside", moment),
    }
    at: int | None = None
    aside: int | None = None
    own: Any = None
    heard: int | None = None
    heard_wall: int | None = None
    idle: IdleState | None = None
    soon: Sequence[Any] | None = None
    dropped: Any = None
    future: int | None = None
    generation: int | None = None
    aside_at: int | None = None
    aside_rows: int | None = None
    aside_why: int | None = None
    only_aside: int | None = None

    @classmethod
    def of(cls, name: str, value: Any) -> PartitionState:
        """Read the state of a partition. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
        return cls.from_json(value, f"the state of {name!r}")

    def promised(self, holds: Antichain) -> list[Time]:
        """Return what the partition has promised: what it holds, or held when it fell silent."""
        return list(holds) if self.idle is None else self.idle.promised(holds.domain)

    def counted(self, aside: int, future: int, at: int, why: int, *, only: bool) -> PartitionState:
        """Return the state after a batch of which rows were set aside.

        Args:
            aside: How many. Nothing changes if there are none, but that the partition delivered other rows.
            future: How many of them were dated too far ahead of the clock.
            at: The moment, in ms since 1970.
            why: Why most of them were set aside.
            only: Whether it delivered nothing else.
        """
        state = self if only or self.only_aside is None else self.changed(only_aside=None)
        if not aside:
            return state
        if only and state.only_aside is None:
            state = state.changed(only_aside=at)
        if future:
            state = state.changed(future=(state.future or 0) + future)
        return state.changed(aside=(state.aside or 0) + aside, aside_at=at, aside_rows=aside, aside_why=why)


def states_of_partitions(progress: Progress, states: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, PartitionState]]:
    """Yield the states of partitions, and an empty one for a producer of no ingest whose state has another form."""
    for name, value in states:
        try:
            yield name, PartitionState.of(name, value)
        except IngestError:  # noqa: PERF203 - the other states are of ingests
            known = progress.get(name)
            if known is not None and known.owner is not None and known.owner.id in RegistrarState.of(progress).entries:
                raise
            yield name, PartitionState()


def idle_states(progress: Progress) -> dict[str, IdleState]:
    """Return the partitions that are not waited for, with what their states say about that.

    Raises:
        IngestError: ``STRANDLINE_INGEST_STATE_INVALID``.
        TimeError: A promise is not a time of the channel's domain.
    """
    queries = RegistrarState.of(progress).entries.keys()
    found = {}
    for name, value in progress.remembering("idle"):
        known = progress.get(name)
        # The state of a producer that belongs to no ingest is its own affair.
        if known is not None and known.owner is not None and known.owner.id in queries:
            idle = PartitionState.of(name, {"idle": value}).idle
            if idle is not None:
                idle.promised(progress.domain)  # raises
                found[name] = idle
    return found
