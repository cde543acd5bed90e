"""Runs a plan in Spark, batch by batch, and holds every batch to the model."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from plans.history import Row, write
from plans.plan import Model, Plan, Position, domain_of, frame_of
from plans.times import Domain
from strandline.channel import Channel
from support import stream

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def check_plan(plan: Plan, spark: Any, folder: Path) -> int:
    """Run it, and raise ``AssertionError`` where it is not as the model says; the number of batches."""
    session = spark.newSession()
    # Spark finds a Python sink by the thread's active session, and a new thread has none.
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)
    session.conf.set("spark.sql.shuffle.partitions", str(plan.partitions))
    if plan.rocks:
        session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    checkpoint, paths = folder / "checkpoint", [folder / f"channel-{i}" for i in range(len(plan.histories))]
    seen: dict[int, Counter[Row]] = {}
    for phase in range(plan.phases):
        ids = [write(history, phase, path).table_id for history, path in zip(plan.histories, paths, strict=True)]
        if phase and plan.replay:
            _forget_last_commit(checkpoint)
        native = {"nativeScan": "auto" if plan.native else "off"}
        limits: list[dict[str, str]] = [{} if n is None else {"maxFilesPerTrigger": str(n)} for n in plan.files]
        sources = [stream(session, path, **native, **limit) for path, limit in zip(paths, limits, strict=True)]
        _run(plan, frame_of(plan.tree, sources), checkpoint, folder / "out", seen)
    ends, stated = _offsets(checkpoint, ids)
    model = Model(plan, ends)
    for batch, (said, meant) in enumerate(zip(stated, model.frontiers, strict=True)):
        met = plan.domain.minimal(plan.domain.plain(_tuples(t)) for each in said for t in each)
        assert met == meant, f"batch {batch} ended at {met}, but the channels' commits say {meant}"
    for history, (version, file) in zip(plan.histories, ends[-1], strict=True):
        rest = history.after(version, file)  # a commit that brings nothing starts no batch
        assert not rest, f"the last batch ended at {version}, {file}, but the channel goes on: {rest}"
    if plan.sink == "channel":
        _read_back(plan, model, folder / "out", seen)
    model.check([seen.get(batch, Counter()) for batch in range(len(ends))])
    return len(ends)


def _run(plan: Plan, frame: Any, checkpoint: Path, out: Path, seen: dict[int, Counter[Row]]) -> None:
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).outputMode(plan.mode)
    domain = domain_of(plan.tree, plan.domain)

    def take(rows: Any, batch: int) -> None:
        found = Counter((domain.plain(time), key, n) for time, key, n in rows.collect())
        assert seen.setdefault(batch, found) == found, f"batch {batch} was replayed, and gave {found} after {seen[batch]}"

    query = writer.format("strandline").start(str(out)) if plan.sink == "channel" else writer.foreachBatch(take).start()
    query.awaitTermination()


def _forget_last_commit(checkpoint: Path) -> None:
    """As when Spark is killed between the sink's commit and its own."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()
    with suppress(FileNotFoundError):
        newest.with_name(f".{newest.name}.crc").unlink()


def _offsets(checkpoint: Path, ids: list[str]) -> tuple[list[list[Position]], list[list[Any]]]:
    """Where each batch ended, in each channel: its position, and the frontier that the offset states."""
    ends: list[list[Position]] = []
    stated: list[list[Any]] = []
    for batch in range(len(list((checkpoint / "offsets").glob("[0-9]*")))):
        text = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]
        offsets: dict[str, Any] = {}
        for offset in map(json.loads, text):
            assert offsets.setdefault(offset["channel"], offset) == offset  # a channel that is read twice
        ends.append([(offsets[i]["commit"], offsets[i]["file"]) for i in ids])
        stated.append([offsets[i]["frontier"] for i in ids])
    return ends, stated


def _tuples(json_time: Any) -> Any:
    return tuple(map(_tuples, json_time)) if isinstance(json_time, list) else json_time


def _read_back(plan: Plan, model: Model, out: Path, seen: dict[int, Counter[Row]]) -> None:
    """The output channel: the rows of each batch, and a frontier that closes exactly what the model says is closed."""
    channel, result = Channel.open(out), model.stream(plan.tree)
    domain = result.domain
    for commit in channel.log.tail(1):
        if commit.transactions:
            (batch,) = commit.transactions.values()
            table = channel.read_files(commit.files)
            rows = [(domain.plain(r["time"]), r["key"], r["n"]) for r in table.to_pylist()]
            assert batch not in seen, f"batch {batch} was committed twice"
            seen[batch] = Counter(rows)
            _check_frontier(domain, [domain.plain(t) for t in channel.frontier_at(commit.version)], batch, result, plan)
    _check_frontier(domain, [domain.plain(t) for t in channel.frontier], len(model.batches) - 1, result, plan)


def _check_frontier(domain: Domain, frontier: list[Any], batch: int, result: Any, plan: Plan) -> None:
    times = {time for (time, _, _), _ in result.rows} | set(frontier)
    times |= {row[0] for h in plan.histories for c in h.commits for part in c.files for row in part if plan.domain is domain}
    if domain.text in ("int64", "timestamp"):
        times |= {t + d for t in times for d in (-1, 1)}
    for time in times:
        assert domain.open(frontier, time) != result.closed(batch, time), f"batch {batch} left the frontier {frontier}: {time}"
