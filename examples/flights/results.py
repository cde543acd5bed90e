"""The results of the pipeline, read from its channels' logs and checkpoints, and compared with pandas over the same file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from flights.data import AIRPORTS, DAY, FIRST_DAY, HOUR, expected
from flights.manifest import DOMAIN, Manifest, describe, schedule
from flights.model import Outcome
from strandline.channel import Channel
from strandline.channel.statements.log import Commit, Log
from strandline.time.domain import Time

__all__ = [
    "AirportProgress",
    "ExpectedProgress",
    "check_days",
    "check_hours",
    "emitted",
    "hourly_outcome",
    "offset_of",
    "offsets",
    "open_hours",
]

_MICROSECONDS = 60_000_000
State = tuple[int, tuple[Time, ...]]


class ExpectedProgress:
    """The state of each airport after each model hour: how many rows it has sent, and which capabilities it holds."""

    def __init__(self, flights: pd.DataFrame, arrivals: pd.DataFrame) -> None:
        self.steps = [int(step) for step in np.unique(arrivals["step"])]
        self.rows = int((~arrivals["cancelled"]).sum())
        self._states: dict[str, dict[State, int]] = {}
        self._after: dict[str, dict[int, State]] = {}
        for airport in AIRPORTS:
            manifest = Manifest(airport, schedule(flights, airport))
            states: dict[State, int] = {}
            after: dict[int, State] = {}
            rows = 0
            for step, sent in arrivals[arrivals["airport"] == airport].groupby("step"):
                rows += int((~sent["cancelled"]).sum())
                manifest.settle(sent["hour"].tolist(), now=(int(step) + 1) * HOUR - 1)
                after[int(step)] = (rows, tuple(manifest.holds()))
                states.setdefault(after[int(step)], int(step))
            self._states[airport], self._after[airport] = states, after

    def step_of(self, airport: str, state: State) -> int | None:
        """Return the model hour after which an airport has this state; ``None`` at the beginning."""
        return self._states[airport].get(state)

    def last_report(self, airport: str, step: int) -> int | None:
        """Return the last model hour up to ``step`` in which an airport sends something."""
        reports = [at for at in self._after[airport] if at <= step]
        return max(reports, default=None)

    def state(self, airport: str, step: int) -> State:
        """Return an airport's state after one of its own model hours."""
        return self._after[airport][step]


class AirportProgress:
    """What the airports have stated so far, read commit by commit from the channel's log."""

    def __init__(self, path: Path, expected_progress: ExpectedProgress) -> None:
        self.expected_progress = expected_progress
        self.log = Log(str(path))
        self.version = -1
        self.rows = dict.fromkeys(AIRPORTS, 0)
        self.holds: dict[str, tuple[Time, ...] | None] = dict.fromkeys(AIRPORTS)
        self.steps: dict[str, int | None] = dict.fromkeys(AIRPORTS)
        self.versions: dict[tuple[str, int], int] = {}
        """The commit in which an airport sent a model hour."""

    def refresh(self) -> None:
        """Read the new commits."""
        for commit in self.log.tail(self.version + 1):
            self._take(commit)
            self.version = commit.version

    def _take(self, commit: Commit) -> None:
        commit_statement = commit.statement
        if commit_statement is None:
            return
        for time, rows in commit_statement.times:
            self.rows[describe(time)[0]] += rows
        for airport, statement in commit_statement.statements.items():
            if airport not in self.rows:
                continue
            self.holds[airport] = statement.holds
            step = self.expected_progress.step_of(airport, (self.rows[airport], statement.holds))
            if step is not None and step != self.steps[airport]:
                self.steps[airport] = step
                self.versions[airport, step] = commit.version

    @property
    def has_begun(self) -> bool:
        """Whether every airport has stated its schedule."""
        return all(holds not in (None, (DOMAIN.minimum,)) for holds in self.holds.values())

    def has_reported(self, step: int) -> bool:
        """Whether every airport has sent all its events up to the model hour ``step``."""
        for airport in AIRPORTS:
            last = self.expected_progress.last_report(airport, step)
            if last is None:
                continue
            stated = (self.rows[airport], self.holds[airport])
            if stated != self.expected_progress.state(airport, last) and (self.steps[airport] or -1) < last:
                return False
        return True


def offset_of(path: Path) -> int | None:
    """The first commit that a logged batch leaves out; ``None`` while the file is being written.

    The log's third line is the source's offset.
    """
    lines = path.read_text().splitlines()
    return int(json.loads(lines[2])["commit"]) if len(lines) > 2 else None


def offsets(checkpoint: Path) -> dict[int, int]:
    """For every batch of a query, the first commit of its channel that it leaves out."""
    found = {}
    for path in (checkpoint / "offsets").iterdir() if (checkpoint / "offsets").exists() else ():
        if path.name.isdigit() and (offset := offset_of(path)) is not None:
            found[int(path.name)] = offset
    return dict(sorted(found.items()))


def emitted(path: Path) -> pd.DataFrame:
    """The rows of a query's channel, with the batch that gave each. Raises ``ValueError`` if a batch committed twice."""
    channel = Channel.open(str(path))
    parts, seen = [], set()
    for commit in Log(str(path)).tail(0):
        if not commit.files:
            continue
        (batch,) = commit.transactions.values()
        if batch in seen:
            raise ValueError(f"batch {batch} was committed twice to {path.name}")
        seen.add(batch)
        for file in commit.files:
            rows = pd.read_parquet(path / file.path)
            parts.append(rows.assign(batch=batch))
    columns = [*channel.schema.names, "batch"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _minutes(times: pd.Series) -> pd.Series:
    return (times - pd.Timestamp(0, tz="UTC")) // pd.Timedelta("1min")


def hourly_outcome(
    flights: pd.DataFrame, arrivals: pd.DataFrame, airports: AirportProgress, hourly: Path, checkpoint: Path
) -> tuple[Outcome, list[str]]:
    """Return the first query's results in the terms of :mod:`flights.model`, and the problems with them."""
    given = emitted(hourly)
    given["hour"] = _minutes(given["time"].map(lambda time: pd.Timestamp(time["hour"])).dt.tz_convert("UTC"))
    problems = []
    twice = given[given.duplicated(["hour", "airport"])]
    if len(twice):
        problems.append(f"{len(twice)} results were emitted a second time, first {_first(twice)}")
    given = given.drop_duplicates(["hour", "airport"]).set_index(["hour", "airport"]).sort_index()
    problems += check_hours(flights, given)
    left = arrivals[~arrivals["cancelled"]]
    hours = left.groupby(["hour", "airport"]).agg(flights=("arrives", "size"), last=("arrives", "max")).sort_index()
    hours["counted"] = given["flights"].reindex(hours.index, fill_value=0)
    # Which batch read a commit, and how far an airport had sent when a batch ended.
    begins = np.array(list(offsets(checkpoint).values()))
    batches = np.array(list(offsets(checkpoint)))
    done = arrivals.groupby(["hour", "airport"])["step"].max().reindex(hours.index)
    batch = given["batch"].reindex(hours.index)

    def batch_of(airport: str, step: int) -> int:
        return int(batches[np.searchsorted(begins, airports.versions[airport, step], side="right")])

    reports = {a: sorted((v, s) for (airport, s), v in airports.versions.items() if airport == a) for a in AIRPORTS}
    results, waited, late = [], [], 0
    for (hour, airport), came in batch.items():
        if np.isnan(came):
            results.append(np.nan)
            waited.append(np.nan)
            continue
        before = begins[np.searchsorted(batches, int(came))]
        versions = [v for v, _ in reports[airport]]
        results.append((reports[airport][int(np.searchsorted(versions, before)) - 1][1] + 1) * HOUR)
        waited.append(int(came) - batch_of(airport, int(hours.loc[(hour, airport), "last"]) // HOUR))
        late += int(came) != batch_of(airport, int(done.loc[(hour, airport)]))
    if late:
        problems.append(f"{late} results were emitted in another batch than the one that closed their hour")
    hours["result"], hours["batches"] = results, waited
    return Outcome(hours, arrivals.iloc[:0], pd.DataFrame({"minute": [], "watermark": []})), problems


def check_hours(flights: pd.DataFrame, given: pd.DataFrame) -> list[str]:
    """Compare results, indexed by (hour, airport), with pandas: every count, mean and sum."""
    return _compare("hour", expected(flights), given)


def check_days(flights: pd.DataFrame, daily: Path) -> list[str]:
    """Compare the second query's results with pandas over the flights' own calendar days."""
    left = flights[flights["departed"].notna()].copy()
    left["day"] = (left["hour"] - FIRST_DAY) // DAY * DAY + FIRST_DAY
    right = (
        left.groupby(["day", "airport"])
        .agg(flights=("delay", "size"), delay=("delay", "mean"), minutes=("delay", "sum"))
        .sort_index()
    )
    given = emitted(daily)
    problems = []
    given["day"] = _minutes(given["time"])
    if given.duplicated(["day", "airport"]).any():
        problems.append("a day's result was emitted a second time")
    return problems + _compare("day", right, given.drop_duplicates(["day", "airport"]).set_index(["day", "airport"]).sort_index())


def _compare(what: str, right: pd.DataFrame, given: pd.DataFrame) -> list[str]:
    problems = []
    missing, surplus = right.index.difference(given.index), given.index.difference(right.index)
    if len(missing):
        problems.append(f"{len(missing)} of {len(right)} {what}s have no result, first {missing[0]}")
    if len(surplus):
        problems.append(f"{len(surplus)} {what}s have a result but no departure, first {surplus[0]}")
    both = right.index.intersection(given.index)
    for column in ("flights", "minutes", "delay"):
        want, have = right.loc[both, column].to_numpy(dtype=float), given.loc[both, column].to_numpy(dtype=float)
        wrong = np.flatnonzero(~np.isclose(want, have, rtol=1e-12, atol=0))
        if len(wrong):
            at = wrong[0]
            problems.append(
                f"{len(wrong)} {what}s have a wrong {column}: {both[at]} has {have[at]:g}, but pandas has {want[at]:g}"
            )
    return problems


def _first(rows: pd.DataFrame) -> Any:
    return tuple(rows.iloc[0][["hour", "airport"]])


def open_hours(holds: Iterable[Time] | None) -> list[int]:
    """The hours that capabilities keep open one by one, oldest first, without the box of hours still to begin."""
    boxes = [describe(time) for time in holds or ()]
    return sorted(first for _, first, last in boxes if first == last)
