"""``advance``, ``truncate``, ``project`` and ``enter`` in plans."""

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
INNER: dict[Domain, tuple[Domain, ...]] = {INT64: (PRODUCT, LEX), TIMESTAMP: (EVENT,)}
"""What the times of a domain may enter."""


@dataclass(frozen=True)
class Moved(Operator):
    """Rows at other times, of the whole time or of one coordinate: ``place``, ``None`` for the whole."""

    how: str
    place: int | None
    by: int
    """Seconds, or a number; 0 for a projection; which of the domains for an entry."""
    domains = DOMAINS
    stateful = False

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Moved:
        composite = domain in COORDINATES
        how = r.choice(("advance", "truncate", "project") if composite else ("advance", "truncate"))
        place = r.randrange(2) if composite else None
        if domain is LEX and how == "project":
            place = 0
        by = 0 if how == "project" else r.choice((1, 2, 3, 5))
        if not composite and (how, by) == ("truncate", 1):  # to truncate would change little
            return cls("enter", None, r.randrange(len(INNER[domain])))
        return cls(how, place, by)

    def output(self, domain: Domain) -> Domain:
        if self.how == "enter":
            return INNER[domain][self.by]
        return COORDINATES[domain][self.place or 0][1] if self.how == "project" else domain

    def frame(self, *inputs: Any) -> Any:
        if self.how == "enter":
            outer = TIMESTAMP if inputs[0].schema["time"].dataType.typeName() == "timestamp" else INT64
            return pyspark_strandline.enter(inputs[0], domain=self.output(outer).text)
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
        if self.how == "enter":
            return (time, 0)
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
        if self.how == "enter":
            return time[0] if time[1] >= 0 else time[0] - 1
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
