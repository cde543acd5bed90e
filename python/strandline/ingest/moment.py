"""The time of a batch, and how long the ingest has listened until then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Clock", "Moment"]


@dataclass(frozen=True)
class Moment:
    """The time of a batch, and what is known about how it was read.

    ``planned_ms`` is when the batch was planned, and ``now_ms`` is when it is committed, both on the driver's clock. ``run``
    names the query's run. ``read_ms`` is when Spark determined what the batch reads, the same for each attempt of it, or ``None``
    if that is not known. ``to_end`` says that a batch reads everything that the source has. ``in_snapshot`` says that the batch
    ends within a source's first snapshot. The rows of that snapshot arrive in the order of its files. ``None`` says that this is
    not known. Then a snapshot that has begun has neither ended nor not: the batch is refused.
    """

    now_ms: int
    planned_ms: int | None = None
    run: str = ""
    to_end: bool = False
    in_snapshot: bool | None = False
    read_ms: int | None = None


@dataclass(frozen=True)
class Clock:
    """The listening time of an ingest. It does not advance while the query does not run.

    >>> clock = Clock().at(Moment(now_ms=1_500, planned_ms=1_000, run="r"))
    >>> clock = clock.at(Moment(now_ms=4_500, planned_ms=4_000, run="r"))
    >>> clock.listened, clock.at(Moment(now_ms=99_500, planned_ms=99_000, run="another")).listened
    (3000, 3000)
    """

    listened: int = 0
    run: str = ""
    planned_ms: int = 0

    def at(self, moment: Moment) -> Clock:
        """Return the clock at the commit of a batch."""
        planned = moment.now_ms if moment.planned_ms is None else moment.planned_ms
        if moment.run != self.run or not self.planned_ms:
            return replace(self, run=moment.run, planned_ms=planned)
        passed = max(0, planned - self.planned_ms)
        return Clock(self.listened + passed, moment.run, max(planned, self.planned_ms))

    def to_json(self) -> dict[str, Any]:
        """Return the form that a statement carries."""
        return {"listened": self.listened, "run": self.run, "planned": self.planned_ms}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Clock:
        """Read what :meth:`to_json` wrote. An absent value gives a clock at 0."""
        values = value or {}
        return cls(values.get("listened", 0), values.get("run", ""), values.get("planned", 0))
