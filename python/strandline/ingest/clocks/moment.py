"""The time of a batch, and how long the ingest has listened until then."""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.ingest.clocks.tick import Tick

__all__ = ["Clock", "Moment"]

_ROUNDING_MS = 10
"""Clocks are compared in whole ms, and are not read at one moment. Up to this, the monotonic clocks confirm the wall clock."""
_MOST_AGE_MS = 60_000
_DRIFT_MS = 60_000
_BELIEVED_AFTER_MS = 3_600_000


@dataclass(frozen=True)
class Moment:
    """The time of a batch, and what is known about how it was read.

    ``planned_ms`` is when the batch was planned, and ``now_ms`` is when it is committed, both on the driver's clock. ``run``
    names the query's run. ``read_ms`` is when Spark determined what the batch reads, the same for each attempt of it, or ``None``
    if that is not known. ``to_end`` says that a batch reads everything that the source has. ``in_snapshot`` says that the batch
    ends within a source's first snapshot. The rows of that snapshot arrive in the order of its files. ``None`` says that this is
    not known. Then a snapshot that has begun has neither ended nor not: the batch is refused. ``tick`` is what the monotonic
    clocks showed at ``planned_ms``, if that is known.
    """

    now_ms: int
    planned_ms: int | None = None
    run: str = ""
    to_end: bool = False
    in_snapshot: bool | None = False
    read_ms: int | None = None
    tick: Tick | None = None


@dataclass(frozen=True)
class Clock:
    """The clocks by which an ingest counts silence, as of its newest batch. No correction of the wall clock moves them.

    ``listened`` is the listening time. It does not advance while the query does not run. ``wall_ms`` (``counts=wall``) began as a
    reading of the wall clock. It advances by the monotonic clock of the machine, also between runs. Where that says nothing,
    because the machine was started again or is another one, it advances as the wall clock did, and never goes back.

    ``planned_ms`` and ``real_ms`` are what the wall clock showed when the batch was planned, and when Spark determined what it
    reads. ``tick`` is what the monotonic clocks showed then. ``offset`` is how far the wall clock is ahead of ``wall_ms``, as far
    as it is believed: that it is further ahead is believed once it has been so for an hour, since ``doubted`` on ``wall_ms``.

    >>> clock = Clock().at(Moment(now_ms=1_500, planned_ms=1_000, run="r"))
    >>> clock = clock.at(Moment(now_ms=4_500, planned_ms=4_000, run="r"))
    >>> clock.listened, clock.at(Moment(now_ms=99_500, planned_ms=99_000, run="another")).listened
    (3000, 3000)

    The wall clock is set forward by a year, in 2 seconds:

    >>> year = 31_536_000_000
    >>> clock = Clock().at(Moment(now_ms=1_000, run="r", tick=Tick("boot", 0, 0)))
    >>> clock = clock.at(Moment(now_ms=3_000 + year, run="r", tick=Tick("boot", 2_000, 2_000)))
    >>> clock.listened, clock.wall_ms, clock.trusted_ms
    (2000, 3000, 3000)
    """

    listened: int = 0
    run: str = ""
    planned_ms: int = 0
    wall_ms: int | None = None
    real_ms: int = 0
    tick: Tick | None = None
    offset: int = 0
    doubted: int | None = None

    @property
    def trusted_ms(self) -> int:
        """What the wall clock shows, as far as it is believed. Promises that the clock alone makes go by it."""
        return (self.wall_ms or 0) + self.offset

    def at(self, moment: Moment) -> Clock:
        """Return the clock at the commit of a batch."""
        planned = moment.now_ms if moment.planned_ms is None else moment.planned_ms
        real = planned if moment.read_ms is None else moment.read_ms
        passed = None if moment.tick is None else moment.tick.since(self.tick)
        same_run = moment.run == self.run and bool(self.planned_ms)
        listened = self.listened
        if same_run:
            listened += max(0, planned - self.planned_ms) if passed is None else passed.awake
        age = _age(real, planned, _MOST_AGE_MS if passed is None else passed.uptime)
        tick = None if moment.tick is None else moment.tick._replace(uptime=max(0, moment.tick.uptime - age))
        wall = real if self.wall_ms is None else self.wall_ms
        if self.wall_ms is not None:
            stepped = real - self.real_ms
            ticked = max(0, stepped) if passed is None else passed.uptime - age
            wall += stepped if stepped >= 0 and abs(stepped - ticked) <= _ROUNDING_MS else ticked
        offset = real - wall
        if same_run and passed is None:  # nothing but the wall clock is known: until it catches up, no time passes
            planned, real = max(planned, self.planned_ms), max(real, self.real_ms)
        return Clock(listened, moment.run, planned, wall, real, tick, self.offset, self.doubted)._believing(offset)

    def _believing(self, offset: int) -> Clock:
        """Return the clock with how far the wall clock is ahead of :attr:`wall_ms` now, as far as it is believed."""
        if offset <= self.offset + _DRIFT_MS:
            return replace(self, offset=offset, doubted=None)
        now = self.wall_ms or 0
        doubted = now if self.doubted is None else self.doubted
        if now - doubted >= _BELIEVED_AFTER_MS:
            return replace(self, offset=offset, doubted=None)
        return replace(self, doubted=doubted)


def _age(real: int, planned: int, passed: int) -> int:
    """Return how long before its planning Spark determined what a batch reads, at most ``passed``.

    The batch may repeat one that was determined days ago. What came since is not in it, so that time is no silence yet. If the
    wall clock was set back meanwhile, it is not known how long ago that was.
    """
    return passed if planned < real else min(passed, planned - real)
