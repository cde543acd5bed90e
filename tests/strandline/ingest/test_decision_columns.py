"""An ingest that judges its partitions as columns, beside one that judges them one by one: the same in all that can be seen."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from column_forms import columns_for
from ingest_bench import Bench
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.ingest import Ingest, Observation, Policy, bounded, composed, drop_partitions, idle, ordered, status
from strandline.ingest.names import PARKED
from strandline.time.domain import parse_domain

PARTITIONS = ["a", "b", "c", "d"]
POLICIES: dict[str, Policy] = {
    "ordered": ordered(),
    "bounded": bounded(3),
    "far": bounded((1 << 62) - 1),
    "idle": idle(bounded(2), "5 seconds"),
    "idle ordered": idle(ordered(), "1 second"),
    "idle wall": idle(bounded(2), "5 seconds", counts="wall"),
    "composed": composed({"a": ordered(), "*": idle(bounded(2), "5 seconds")}),
}
LEAST, MOST = -(1 << 63), (1 << 63) - 1
AHEAD = st.integers(-2, 6) | st.sampled_from([*range(4)] * 4 + [None, LEAST, LEAST + 2, MOST])
"""How far a row is beyond where its batch is; or no such row."""
ROWS = st.lists(st.tuples(AHEAD, st.sampled_from(PARTITIONS), st.integers(0, 9)), max_size=6)
BATCHES = st.fixed_dictionaries(
    {
        "rows": ROWS,
        "tasks": st.integers(1, 3),
        "pause": st.sampled_from([0, 1, 1_000, 5_000, 6_000]),
        "to_end": st.sampled_from([True, True, True, False]),
        "in_snapshot": st.sampled_from([False] * 9 + [True]),
        "before": st.sampled_from([""] * 9 + ["restart", "drop", "another ingest", "another session"]),
    }
)


def states(channel: Channel) -> dict[str, Any]:
    """Who holds and remembers what; of parked rows how many and when, for their files have names of their own."""
    result: dict[str, Any] = {}
    for name, (seq, holds, owner, state) in channel.producers.items():
        if name.startswith(PARKED) and state:
            state = {**state, "parked": [p["rows"] if isinstance(p, dict) else p[1:] for p in state["parked"]]}
        result[name] = (seq, holds, owner, state)
    return result


def story(folder: Path, policy: Policy, batches: list[dict[str, Any]], options: dict[str, Any]) -> list[Any]:
    """All that is to be seen of an ingest, batch after batch."""
    bench = Bench(folder, policy, **options)
    path, now, others = bench.settings.path, 0, False
    told: list[Any] = []
    for at, batch in enumerate(batches):
        now += batch["pause"]
        rows = [(t if t is None or abs(t) > 99 else t + 3 * at, name, n) for t, name, n in batch["rows"]]
        try:
            if batch["before"] == "restart":
                bench.restart()
            elif batch["before"].startswith("another"):
                bench.query = "q" if bench.query == "r" else "r"
                bench.owner = type(bench.owner).here(bench.query)
                bench.restart()
                others = batch["before"] == "another ingest" and bench.query == "r"
            elif batch["before"] == "drop" and Channel.exists(path):
                drop_partitions(path, ["b"])
            version = bench.run(
                *((t, name.upper() if others else name, n) for t, name, n in rows),
                tasks=batch["tasks"],
                now=now,
                run="r",
                read_ms=now,
                to_end=batch["to_end"],
                in_snapshot=batch["in_snapshot"],
            )
            told.append(version)
        except StrandlineError as error:
            # Of several partitions that are refused, the one that is met first is named.
            told.append(re.sub("'[a-dA-D]'", "", str(error).replace(str(folder), "")))
        if Channel.exists(path):
            channel = Channel.open(path)
            said = channel.log.require(channel.version).statement
            assert said is not None
            told.append((channel.version, channel.frontier, channel.registrar, states(channel), set(said.statements), said.times))
            told.append(str(status(path)).replace(str(folder), ""))
    if Channel.exists(path):
        told.append((bench.rows(key=repr), bench.late("t", "p", "n", "_reason", "_partition", "_frontier")))
    return told


def plain(*rows: tuple[int, str, int], pause: int = 0, before: str = "") -> dict[str, Any]:
    """A batch of these rows, and nothing else."""
    return {"rows": list(rows), "tasks": 1, "pause": pause, "to_end": True, "in_snapshot": False, "before": before}


WITHOUT_NEWS = [
    plain((6, "a", 0)),
    plain(),
    plain((6, "a", 0), (2, "a", 0), (5, "a", 0)),
    plain((MOST, "a", 0), (6, "b", 0)),
    plain((0, "b", 0)),
]
"""The last batch has a row and no news, so one of its producers repeats what it said: the same one in each form."""

TWO_DONORS = [
    plain((3, "b", 0), (3, "c", 0), (3, "d", 0)),
    plain((3, "b", 0), (3, "d", 0), pause=6_000),
    plain((0, "c", 0)),
    plain((-3, "c", 0), (-3, "d", 0), pause=5_000),
    plain((-6, "b", 0)),
    plain((-6, "b", 0), (-6, "d", 0), pause=5_000, before="restart"),
    plain((-9, "c", 0)),
]
"""At the end ``c`` resumes at what two others hold. One of them gives it that: the same one in each form, though each form knows
the partitions in another order after the restart."""

STORIES = given(
    st.sampled_from(sorted(POLICIES)),
    st.lists(BATCHES, min_size=3, max_size=10),
    st.fixed_dictionaries(
        {},
        optional={
            "partitions": st.sampled_from([["a", "b", "c", "d"], ["a", "b"], ["a", "c*"]]),
            "max_ahead": st.sampled_from([0, 10]),
            "on_late": st.just("fail"),
            "take_over": st.just(True),
        },
    ),
)


def check_story(kind: str, batches: list[dict[str, Any]], options: dict[str, Any]) -> None:
    for batch in batches:  # an operator's call reads the clock
        batch["before"] = "" if batch["before"] == "drop" and kind == "composed" else batch["before"]
    folder = Path(tempfile.mkdtemp())
    try:
        stories = []
        for all_ in (False, True):
            with columns_for(all_=all_), pytest.MonkeyPatch.context() as patch:
                patch.setattr("strandline.ingest.admin.time.time_ns", lambda: 5_000_000)
                stories.append(story(folder / str(all_), POLICIES[kind], batches, options))
        assert stories[0] == stories[1]
        event(f"{kind}: {len(stories[0])} things told")
    finally:
        shutil.rmtree(folder)


@pytest.mark.drawn("core")
@settings(max_examples=4)
@example("bounded", WITHOUT_NEWS, {"max_ahead": 0})
@example("composed", TWO_DONORS, {})
@example("idle", TWO_DONORS, {})
@STORIES
def test_columns_end_where_one_by_one_does(kind: str, batches: list[dict[str, Any]], options: dict[str, Any]) -> None:
    check_story(kind, batches, options)


@pytest.mark.soak
@settings(max_examples=1000)
@STORIES
def test_columns_end_where_one_by_one_does_in_many_stories(
    kind: str, batches: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    check_story(kind, batches, options)


def test_many_partitions_are_said_in_columns_and_a_reader_knows_them_all(tmp_path: Path) -> None:
    """The form that is written without being told to, when there are enough partitions for it."""
    names = [f"device-{i}" for i in range(200)]
    bench = Bench(tmp_path, bounded(5))
    bench.run(*((10 + i % 7, name, 0) for i, name in enumerate(names)))
    bench.run(*((30 + i % 7, name, 1) for i, name in enumerate(names)), now=7)
    said = bench.channel.log.require(bench.channel.version)
    assert '"columns"' in said.info["userMetadata"]
    assert said.statement is not None
    assert set(names) <= set(said.statement.statements)
    assert bench.holds() == {name: [25 + i % 7] for i, name in enumerate(names)}
    assert bench.frontier() == [25]
    assert {p.last_ms for p in status(bench.settings.path).partitions} == {7}


def test_who_changes_how_a_policy_promises_is_asked_one_by_one(tmp_path: Path) -> None:
    class Cautious(type(bounded(0))):  # type: ignore[misc]
        def promise(self, seen: Any, state: Any) -> Any:
            return [seen.greatest - 20], state

    with columns_for(all_=True):
        for i, policy in enumerate((Cautious(5), idle(Cautious(5), "1 hour"))):
            bench = Bench(tmp_path / str(i), policy)
            for time in (50, 60):
                bench.run((time, "a", 0))
            assert bench.frontier() == [40]


def test_a_batch_of_many_partitions_overtaken_by_an_operator_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    names = [f"p{i}" for i in range(100)]
    bench.run(*((5, name, 0) for name in names))
    reports = bench.take([(9, name, 1) for name in names])
    drop_partitions(bench.settings.path, ["p7"])
    with pytest.raises(StrandlineError, match=r"STRANDLINE_INGEST_OVERTAKEN.*'p7'"):
        bench.commit(reports)
    other = Ingest(bench.settings)
    with pytest.raises(StrandlineError, match="STRANDLINE_PRODUCER_LIVE.*process"):
        bench.ingest.commit(("x", 0), bench.take([(9, names[0], 1)]), type(bench.owner).here("x"))
    assert other.start().of("p7") == ()
    assert other.start().of("p8") == (5,)
    assert pa.table({"t": bench.channel.read().column("t")}).num_rows == 100


@given(
    st.sampled_from(["int8", "int32", "int64"]),
    st.sampled_from([ordered(), *map(bounded, (0, 3, 200, (1 << 62) - 1)), idle(bounded(3), "1 second")]),
    st.data(),
)
def test_to_promise_all_at_once_is_to_promise_one_by_one(name: str, policy: Policy, data: st.DataObject) -> None:
    domain = parse_domain(name)
    policy.bind(domain)
    edges = [domain.minimum + n for n in range(5)] + [domain.maximum - n for n in range(5)]
    times = data.draw(st.lists(st.sampled_from(edges) | st.integers(domain.minimum, domain.maximum), max_size=9))
    promised = policy.promise_all(np.array(times, dtype=np.int64))
    assert promised is not None
    assert [([time], 7) for time in promised.tolist()] == [policy.promise(Observation("a", 1, t, t), 7) for t in times]
