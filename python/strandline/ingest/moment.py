"""When a batch is, and how long an ingest has listened by then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Clock", "Moment"]


@dataclass(frozen=True)
class Moment:
    """When a batch is, and what is known of how it was read.

    ``planned_ms`` and ``now_ms`` are when it was planned and when it is committed, on the driver's clock; ``run`` names the
    query's run; ``to_end`` says that a batch takes all that the source has; ``in_snapshot`` that it ends within a source's first
    snapshot, whose rows come in the order of its files.
    """

    now_ms: int
    planned_ms: int | None = None
    run: str = ""
    to_end: bool = False
    in_snapshot: bool = False


@dataclass(frozen=True)
class Clock:
    """The listening time of an ingest, which stands still while the query does not run.

    >>> clock = Clock().at(Moment(now_ms=1_500, planned_ms=1_000, run="r"))
    >>> clock = clock.at(Moment(now_ms=4_500, planned_ms=4_000, run="r"))
    >>> clock.listened, clock.at(Moment(now_ms=99_500, planned_ms=99_000, run="another")).listened
    (3000, 3000)
    """

    listened: int = 0
    run: str = ""
    planned_ms: int = 0

    def at(self, moment: Moment) -> Clock:
        """The clock at the commit of a batch."""
        planned = moment.now_ms if moment.planned_ms is None else moment.planned_ms
        if moment.run != self.run or not self.planned_ms:
            return replace(self, run=moment.run, planned_ms=planned)
        passed = max(0, planned - self.planned_ms)
        return Clock(self.listened + passed, moment.run, max(planned, self.planned_ms))

    def to_json(self) -> dict[str, Any]:
        """The form that a statement carries."""
        return {"listened": self.listened, "run": self.run, "planned": self.planned_ms}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Clock:
        """Read what :meth:`to_json` wrote; nothing gives a clock at 0."""
        said = value or {}
        return cls(said.get("listened", 0), said.get("run", ""), said.get("planned", 0))
