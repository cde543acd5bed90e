"""The exact result of each rule of progress on the same flights: Spark's watermark, the manifest, a total order.

The model of Spark: after each batch the watermark is the greatest event time so far minus the delay. A row whose hour has
ended by the watermark that its batch began with is dropped in silence; an hour is emitted with the first batch after which
the watermark has passed its end. ``watermark.py`` runs Spark itself on the same batches, and the two must agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from flights.data import HOUR

__all__ = ["Outcome", "exact", "exact_in_order", "open_at_once", "percentiles", "watermark"]

_NEVER = -(1 << 60)


@dataclass(frozen=True)
class Outcome:
    """One rule's result: a row for each (hour, airport) that has a departure, and what was lost.

    ``hours`` has the index (hour, airport) and the columns ``flights`` (true), ``counted``, ``last`` (minute at which the last
    departure arrived), ``result`` (minute of the result, NaN when it never came) and ``batches`` (from the one with the last
    departure to the one that gave the result). ``lost`` are the rows dropped; ``moves`` the watermark after each step.
    """

    hours: pd.DataFrame
    lost: pd.DataFrame
    moves: pd.DataFrame

    @property
    def rows_lost(self) -> int:
        """Rows that no result counts, though their hour was emitted or they were dropped."""
        return len(self.lost)

    @property
    def right(self) -> pd.DataFrame:
        """The hours that were emitted with the true count."""
        return self.hours[(self.hours["counted"] == self.hours["flights"]) & self.hours["result"].notna()]

    @property
    def hours_wrong(self) -> int:
        """Hours that were emitted with a wrong count, or never."""
        return len(self.hours) - len(self.right)

    @property
    def minutes(self) -> npt.NDArray[np.float64]:
        """From an hour's last departure to its result, for the hours that came out right."""
        return np.asarray(self.right["result"] - self.right["last"], dtype=np.float64)


def percentiles(values: npt.ArrayLike) -> tuple[float, float]:
    """Median and 99th percentile; NaN when there is nothing."""
    array = np.asarray(values, dtype=np.float64)
    if not len(array):
        return float("nan"), float("nan")
    median, high = np.percentile(array, [50, 99])
    return float(median), float(high)


def _truth(arrivals: pd.DataFrame) -> pd.DataFrame:
    left = arrivals[~arrivals["cancelled"]]
    return left.groupby(["hour", "airport"]).agg(flights=("arrives", "size"), last=("arrives", "max")).sort_index()


def watermark(arrivals: pd.DataFrame, delay: int) -> Outcome:
    """Spark's ``withWatermark`` at ``delay`` minutes over hourly windows, fed a model hour a batch."""
    left = arrivals[~arrivals["cancelled"]]
    hours = _truth(arrivals)
    first, count = int(left["step"].min()), int(left["step"].max() - left["step"].min()) + 1
    batch = left["step"].to_numpy() - first
    newest = np.full(count, _NEVER)
    np.maximum.at(newest, batch, left["scheduled"].to_numpy())
    after = np.maximum.accumulate(newest) - delay
    before = np.concatenate([[_NEVER], after[:-1]])
    lost = left[left["hour"].to_numpy() + HOUR <= before[batch]]
    counted = left.drop(lost.index).groupby(["hour", "airport"]).size().reindex(hours.index, fill_value=0)
    closing = np.searchsorted(after, hours.index.get_level_values("hour").to_numpy() + HOUR, side="left")
    # An hour whose rows were all lost has no state, so nothing is emitted for it.
    emitted = (closing < count) & (counted.to_numpy() > 0)
    hours["counted"] = counted.where(emitted, 0)
    hours["result"] = np.where(emitted, (first + closing + 1) * HOUR, np.nan)
    fed = np.unique(batch)
    # Emission needs one more batch than the one that moved the watermark: Spark runs an empty one for it.
    waited = np.searchsorted(fed, closing) + 1 - np.searchsorted(fed, hours["last"].to_numpy() // HOUR - first)
    hours["batches"] = np.where(emitted, waited, np.nan)
    return Outcome(hours, lost, pd.DataFrame({"minute": (first + fed + 1) * HOUR, "watermark": after[fed]}))


def exact(arrivals: pd.DataFrame, *, batch: int = HOUR) -> Outcome:
    """The manifest as a partial order: an hour at an airport is complete when its last flight has left or been cancelled.

    ``batch`` is how many minutes of events a batch has: 60 as in the pipeline, or 1 for events minute by minute.
    """
    done = arrivals.groupby(["hour", "airport"])["arrives"].max()
    return _exact(arrivals, done, batch)


def exact_in_order(arrivals: pd.DataFrame, *, batch: int = HOUR) -> Outcome:
    """The same manifest as a total order, one exact scalar watermark: an hour waits for the earlier hours of all airports."""
    done = arrivals.groupby("hour")["arrives"].max().sort_index().cummax()
    hours = _truth(arrivals).index
    return _exact(arrivals, pd.Series(done.reindex(hours.get_level_values("hour")).to_numpy(), index=hours), batch)


def _exact(arrivals: pd.DataFrame, done: pd.Series, batch: int) -> Outcome:
    hours = _truth(arrivals)
    hours["counted"] = hours["flights"]
    closed = done.reindex(hours.index).to_numpy() // batch
    if batch == 1:
        hours["result"] = closed.astype(float)
    else:
        hours["result"] = (closed + 1.0) * batch
    hours["batches"] = closed - hours["last"] // batch
    return Outcome(hours, arrivals.iloc[:0], pd.DataFrame({"minute": [], "watermark": []}))


def open_at_once(arrivals: pd.DataFrame) -> npt.NDArray[np.int64]:
    """How many (hour, airport) are open in each minute, from the first scheduled hour to the last departure."""
    left = arrivals[~arrivals["cancelled"]]
    spans = left.groupby(["hour", "airport"])["arrives"].max().reset_index()
    origin = int(min(spans["hour"].min(), spans["arrives"].min()))
    change = np.zeros(int(spans["arrives"].max()) - origin + 2, dtype=np.int64)
    np.add.at(change, spans["hour"].to_numpy() - origin, 1)
    np.add.at(change, np.maximum(spans["arrives"], spans["hour"]).to_numpy() - origin, -1)
    return np.cumsum(change)[:-1]
