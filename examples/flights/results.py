"""What the pipeline gave, read back from its channels' logs and checkpoints, and held against pandas over the same file."""

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

__all__ = ["Story", "Telling", "check_days", "check_hours", "emitted", "hourly_outcome", "offset_of", "offsets", "open_hours"]

_MICROSECONDS = 60_000_000
State = tuple[int, tuple[Time, ...]]


class Story:
    """What each airport will have said after each model hour: how many rows, and which capabilities it holds."""

    def __init__(self, flights: pd.DataFrame, told: pd.DataFrame) -> None:
        self.steps = [int(step) for step in np.unique(told["step"])]
        self.rows = int((~told["cancelled"]).sum())
        self._states: dict[str, dict[State, int]] = {}
        self._after: dict[str, dict[int, State]] = {}
        for airport in AIRPORTS:
            manifest = Manifest(airport, schedule(flights, airport))
            states: dict[State, int] = {}
            after: dict[int, State] = {}
            rows = 0
            for step, news in told[told["airport"] == airport].groupby("step"):
                rows += int((~news["cancelled"]).sum())
                manifest.settle(news["hour"].tolist(), now=(int(step) + 1) * HOUR - 1)
                after[int(step)] = (rows, tuple(manifest.holds()))
                states.setdefault(after[int(step)], int(step))
            self._states[airport], self._after[airport] = states, after

    def step_of(self, airport: str, state: State) -> int | None:
        """The model hour after which an airport has said this; ``None`` at the beginning."""
        return self._states[airport].get(state)

    def last_news(self, airport: str, step: int) -> int | None:
        """The last model hour up to ``step`` in which an airport had something to say."""
        heard = [at for at in self._after[airport] if at <= step]
        return max(heard, default=None)

    def state(self, airport: str, step: int) -> State:
        """What an airport has said after one of its own model hours."""
        return self._after[airport][step]


class Telling:
    """What the airports have said so far, followed commit by commit in the channel's log."""

    def __init__(self, path: Path, story: Story) -> None:
        self.story = story
        self.log = Log(str(path))
        self.version = -1
        self.rows = dict.fromkeys(AIRPORTS, 0)
        self.holds: dict[str, tuple[Time, ...] | None] = dict.fromkeys(AIRPORTS)
        self.steps: dict[str, int | None] = dict.fromkeys(AIRPORTS)
        self.versions: dict[tuple[str, int], int] = {}
        """The commit in which an airport told of a model hour."""

    def refresh(self) -> None:
        """Take up the new commits."""
        for commit in self.log.tail(self.version + 1):
            self._take(commit)
            self.version = commit.version

    def _take(self, commit: Commit) -> None:
        said = commit.statement
        if said is None:
            return
        for time, rows in said.times:
            self.rows[describe(time)[0]] += rows
        for airport, statement in said.statements.items():
            if airport not in self.rows:
                continue
            self.holds[airport] = statement.holds
            step = self.story.step_of(airport, (self.rows[airport], statement.holds))
            if step is not None and step != self.steps[airport]:
                self.steps[airport] = step
                self.versions[airport, step] = commit.version

    @property
    def has_begun(self) -> bool:
        """Whether every airport has stated its schedule."""
        return all(holds not in (None, (DOMAIN.minimum,)) for holds in self.holds.values())

    def has_told(self, step: int) -> bool:
        """Whether every airport has told all its news up to the model hour ``step``."""
        for airport in AIRPORTS:
            news = self.story.last_news(airport, step)
            if news is None:
                continue
            said = (self.rows[airport], self.holds[airport])
            if said != self.story.state(airport, news) and (self.steps[airport] or -1) < news:
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
    flights: pd.DataFrame, told: pd.DataFrame, telling: Telling, hourly: Path, checkpoint: Path
) -> tuple[Outcome, list[str]]:
    """The first query's results in the terms of :mod:`flights.model`, and what is wrong with them, if anything is."""
    given = emitted(hourly)
    given["hour"] = _minutes(given["time"].map(lambda time: pd.Timestamp(time["hour"])).dt.tz_convert("UTC"))
    problems = []
    twice = given[given.duplicated(["hour", "airport"])]
    if len(twice):
        problems.append(f"{len(twice)} results came a second time, the first being {_first(twice)}")
    given = given.drop_duplicates(["hour", "airport"]).set_index(["hour", "airport"]).sort_index()
    problems += check_hours(flights, given)
    left = told[~told["cancelled"]]
    hours = left.groupby(["hour", "airport"]).agg(flights=("arrives", "size"), last=("arrives", "max")).sort_index()
    hours["counted"] = given["flights"].reindex(hours.index, fill_value=0)
    # Which batch took a commit in, and how far an airport had told when a batch ended.
    begins = np.array(list(offsets(checkpoint).values()))
    batches = np.array(list(offsets(checkpoint)))
    done = told.groupby(["hour", "airport"])["step"].max().reindex(hours.index)
    batch = given["batch"].reindex(hours.index)

    def batch_of(airport: str, step: int) -> int:
        return int(batches[np.searchsorted(begins, telling.versions[airport, step], side="right")])

    heard = {a: sorted((v, s) for (airport, s), v in telling.versions.items() if airport == a) for a in AIRPORTS}
    results, waited, late = [], [], 0
    for (hour, airport), came in batch.items():
        if np.isnan(came):
            results.append(np.nan)
            waited.append(np.nan)
            continue
        before = begins[np.searchsorted(batches, int(came))]
        versions = [v for v, _ in heard[airport]]
        results.append((heard[airport][int(np.searchsorted(versions, before)) - 1][1] + 1) * HOUR)
        waited.append(int(came) - batch_of(airport, int(hours.loc[(hour, airport), "last"]) // HOUR))
        late += int(came) != batch_of(airport, int(done.loc[(hour, airport)]))
    if late:
        problems.append(f"{late} results came in another batch than the one that closed their hour")
    hours["result"], hours["batches"] = results, waited
    return Outcome(hours, told.iloc[:0], pd.DataFrame({"minute": [], "watermark": []})), problems


def check_hours(flights: pd.DataFrame, given: pd.DataFrame) -> list[str]:
    """Hold results, indexed by (hour, airport), against pandas: every count, mean and sum, and nothing besides."""
    return _compare("hour", expected(flights), given)


def check_days(flights: pd.DataFrame, daily: Path) -> list[str]:
    """Hold the second query's results against pandas over the flights' own calendar days."""
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
        problems.append("a day's result came a second time")
    return problems + _compare("day", right, given.drop_duplicates(["day", "airport"]).set_index(["day", "airport"]).sort_index())


def _compare(what: str, right: pd.DataFrame, given: pd.DataFrame) -> list[str]:
    problems = []
    missing, surplus = right.index.difference(given.index), given.index.difference(right.index)
    if len(missing):
        problems.append(f"{len(missing)} of {len(right)} {what}s have no result, the first being {missing[0]}")
    if len(surplus):
        problems.append(f"{len(surplus)} {what}s have a result and no departure, the first being {surplus[0]}")
    both = right.index.intersection(given.index)
    for column in ("flights", "minutes", "delay"):
        want, have = right.loc[both, column].to_numpy(dtype=float), given.loc[both, column].to_numpy(dtype=float)
        wrong = np.flatnonzero(~np.isclose(want, have, rtol=1e-12, atol=0))
        if len(wrong):
            at = wrong[0]
            problems.append(f"{len(wrong)} {what}s have a wrong {column}: {both[at]} has {have[at]:g}, pandas says {want[at]:g}")
    return problems


def _first(rows: pd.DataFrame) -> Any:
    return tuple(rows.iloc[0][["hour", "airport"]])


def open_hours(holds: Iterable[Time] | None) -> list[int]:
    """The hours that capabilities keep open one by one, oldest first, without the box of hours still to begin."""
    boxes = [describe(time) for time in holds or ()]
    return sorted(first for _, first, last in boxes if first == last)
