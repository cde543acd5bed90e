"""``advance``, ``truncate`` and ``project`` in plans."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pyspark_strandline
from plans.stream import Operator, Stream
from plans.times import DOMAINS, EVENT, FAR, INT64, LEX, PRODUCT, SECOND, TIMESTAMP, Domain, Time

LEAST = -(1 << 63)
"""What the coordinate after one that moves becomes in a ``lex`` time."""
COORDINATES: dict[Domain, tuple[tuple[str, Domain], ...]] = {
    PRODUCT: (("epoch", INT64), ("iter", INT64)),
    LEX: (("tick", INT64), ("iter", INT64)),
    EVENT: (("event", TIMESTAMP), ("iter", INT64)),
}


@dataclass(frozen=True)
class Moved(Operator):
    """Rows at other times, of the whole time or of one coordinate: ``place``, ``None`` for the whole."""

    how: str
    place: int | None
    by: int
    """Seconds, or a number; 0 for a projection."""
    domains = DOMAINS
    stateful = False

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Moved:
        composite = domain in COORDINATES
        how = r.choice(("advance", "truncate", "project") if composite else ("advance", "truncate"))
        place = r.randrange(2) if composite else None
        if domain is LEX and how == "project":
            place = 0
        return cls(how, place, 0 if how == "project" else r.choice((1, 2, 3, 5)))

    def output(self, domain: Domain) -> Domain:
        return COORDINATES[domain][self.place or 0][1] if self.how == "project" else domain

    def frame(self, *inputs: Any) -> Any:
        names = [field.name for field in inputs[0].schema["time"].dataType] if self.place is not None else []
        name = names[self.place] if self.place is not None else None
        if self.how == "project":
            return pyspark_strandline.project(inputs[0], name)
        part = inputs[0].schema["time"].dataType
        part = part if self.place is None else part[self.place].dataType
        by = f"{self.by} seconds" if part.typeName() == "timestamp" else self.by
        return getattr(pyspark_strandline, self.how)(inputs[0], by, name)

    def stream(self, *inputs: Stream) -> Stream:
        domain, before = inputs[0].domain, inputs[0]
        rows = [((self._moved(domain, time), key, n), batch) for (time, key, n), batch in before.rows]
        greatest = self._greatest
        return before.derived(self.output(domain), lambda batch, time: before.closed(batch, greatest(domain, time))).with_rows(
            rows
        )

    def _unit(self, domain: Domain) -> int:
        part = domain if self.place is None else COORDINATES[domain][self.place][1]
        return self.by * (SECOND if part is TIMESTAMP else 1)

    def _moved(self, domain: Domain, time: Time) -> Time:
        if self.how == "project":
            return time[self.place or 0]
        unit = self._unit(domain)
        value = time if self.place is None else time[self.place]
        value = value + unit if self.how == "advance" else value - value % unit
        if self.place is None:
            return value
        if self.place == 0:
            return (value, LEAST if domain is LEX else time[1])
        return (time[0], value)

    def _greatest(self, domain: Domain, time: Time) -> Time:
        """The greatest that is moved to ``time`` or below: while it may appear, so may ``time``."""
        if self.how == "project":
            return (time, FAR * SECOND) if self.place == 0 else (FAR * SECOND, time)
        unit = self._unit(domain)
        value = time if self.place is None else time[self.place]
        value = value - unit if self.how == "advance" else value - value % unit + unit - 1
        if self.place is None:
            return value
        if self.place == 0:
            return (value, FAR * SECOND if domain is LEX else time[1])
        return (time[0], value)
