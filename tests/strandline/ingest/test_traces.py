"""Outside traces against a plain model: every row in the channel once or set aside once, promises exactly as by the law."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from column_forms import columns_for
from ingest_bench import Bench
from ingest_model import Model, announce, trace
from strandline.channel import Channel
from strandline.channel.progress.progress import Progress
from strandline.ingest import Ingest, Settings, bounded, composed, heartbeat, manifest, ordered, punctuated
from strandline.time.antichain import Antichain

SCHEMA = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("mark", pa.int64()), ("flag", pa.bool_())])
KINDS = ("ordered", "bounded", "punctuated", "heartbeat", "manifest", "composed")


class CrashError(Exception):
    """The process is gone."""


class _DiesBetween(Ingest):
    """Dies when the late table has the batch and the channel has not."""

    def _append(self, *_: Any) -> int | None:
        raise CrashError


def check_log(path: str) -> None:
    """Each commit's rows are in advance of the frontier before it, and the frontier never moves back."""
    channel = Channel.open(path)
    progress, frontier = Progress(channel.domain), Antichain.least(channel.domain)
    for version in range(channel.version + 1):
        commit = channel.log.require(version)
        said = commit.statement
        assert said is not None
        for time in [*(t for t, _ in said.times), *(span.low for span in said.spans)]:
            assert frontier.less_equal(time), (version, time, frontier)
        progress.apply(commit)
        assert frontier.dominates(progress.frontier), version
        frontier = progress.frontier.copy()


def run(seed: int, path: Path) -> None:
    with columns_for(all_=seed % 2 == 0) if seed % 3 else nullcontext():
        run_trace(seed, path)


def run_trace(seed: int, path: Path) -> None:
    random_ = random.Random(seed)
    kind = random_.choice(KINDS)
    partitions = [f"p{i}" for i in range(random_.randint(1, 6))]
    batches = trace(random_, partitions, random_.randint(3, 14))
    delay = random_.randint(0, 6)
    expected = announce(batches, random_) if kind == "manifest" else {}
    kinds = {
        "ordered": (ordered(), ("ordered", 0)),
        "bounded": (bounded(delay), ("bounded", delay)),
        "punctuated": (punctuated("mark"), ("punctuated", None)),
        "heartbeat": (heartbeat("flag"), ("heartbeat", None)),
    }
    if kind == "manifest":
        policy: Any = manifest({(p, t): n for p, times in expected.items() for t, n in times.items()}, cancelled="flag")
        policy.save(str(path / "manifest"), Settings.of(str(path / "channel"), SCHEMA, time="t", partition="p", policy=policy))
        model = Model(lambda _: ("manifest", None), tuple(expected), True, expected)
        batches = [[row for row in rows if row[1] in expected or not row[1]] for rows in batches]
        options: dict[str, Any] = {}
    else:
        named = tuple(partitions) if random_.random() < 0.5 else ()
        if kind == "composed":
            parts = {f"p{i}": random_.choice(sorted(kinds)) for i in range(3)}
            policy = composed({**{p: kinds[k][0] for p, k in parts.items()}, "*": ordered()})
            rule = {p: kinds[k][1] for p, k in parts.items()}
        else:
            policy, rule = kinds[kind][0], dict.fromkeys(partitions, kinds[kind][1])
        model = Model(lambda name: rule.get(name, ("ordered", 0)), named, bool(named))
        options = {"partitions": named} if named else {}
    bench = Bench(path, policy, SCHEMA, **options)
    for rows in batches:
        tasks = random_.randint(1, 3)
        fate = random_.random()
        if fate < 0.1:  # the tasks are done, and then the machine goes down
            reports = bench.take(rows, tasks)
            if random_.random() < 0.5:
                bench.ingest.abort((bench.query, bench.batch), reports)
            bench.restart()
        elif fate < 0.25:
            reports = bench.take(rows, tasks)
            dying = _DiesBetween(bench.settings)
            with pytest.raises(CrashError):
                dying.commit((bench.query, bench.batch), reports, bench.owner)
            if random_.random() < 0.5:
                dying.abort((bench.query, bench.batch), reports)
            bench.restart()
        bench.run(*rows, tasks=tasks)
        if fate > 0.85:  # Spark never heard of the commit: the batch comes again
            version = bench.channel.version
            bench.restart()
            bench.batch -= 1
            assert bench.run(*rows, tasks=tasks) is None
            assert bench.channel.version == version
        model.batch(rows)
        held = bench.holds()
        assert held == {name: [] if h is None else [h] for name, h in model.holds.items()}
        assert bench.frontier() == ([] if model.frontier is None else [model.frontier])
    assert Counter(bench.rows(key=repr)) == Counter(model.rows)
    assert Counter(bench.late(*SCHEMA.names, "_reason")) == Counter((*row, reason) for row, reason in model.late)
    counted = sum((state.state or {}).get("aside", 0) for state in bench.channel.producers.values())
    assert counted == sum(1 for row, _ in model.late if row[1])
    assert len(list((path / "channel").glob("*.parquet"))) >= len(bench.channel.snapshot_files())
    check_log(str(path / "channel"))


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(16))
def test_a_trace_is_taken_in_as_the_model_says(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


@pytest.mark.soak
def test_many_traces(tmp_path: Path) -> None:
    first = random.randrange(1 << 30)
    for seed in range(first, first + 3000):
        print(f"\rseed {seed}", end="", flush=True)
        run(seed, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))
