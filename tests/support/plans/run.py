"""Runs a plan in Spark, batch by batch, and holds every batch to the model."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from helpers import stream
from plans.environment import AND_A_PLAIN_ONE, QUERIES, SETTINGS, TWO_ALIKE, Environment
from plans.foreign import FOLDER, PlainQuery
from plans.history import Row, write
from plans.plan import Model, Plan, Position, domain_of, frame_of
from plans.refusal import NEVER, condition_of, kind_of
from plans.shrink import shrink
from plans.times import Domain
from strandline.channel import Channel
from strandline.errors import StrandlineError

TOO_BUSY, STARTS = "Python worker failed to connect back", 4
"""Spark gives a Python process ten seconds to start: where it has not, nothing is known of the plan, and it is run anew."""


@dataclass(frozen=True)
class Outcome:
    """A plan that passed: how many batches it had, and the condition by which a start was refused, if one was."""

    batches: int
    refused: str | None = None

    def __str__(self) -> str:
        return f"{self.batches} batches" + (f", then {self.refused}" if self.refused else "")


def check_plan(plan: Plan, spark: Any, folder: Path) -> Outcome:
    """Run it, and raise an error where it is not as the model says."""
    paths = [folder / f"channel-{i}" for i in range(len(plan.histories))]
    queries = [Query(plan, folder / "first", plan.sink)]
    if any(environment[QUERIES] == TWO_ALIKE for environment in plan.environments):
        queries.append(Query(plan, folder / "second", "foreachBatch"))
    refused = None
    for phase in range(plan.phases):
        session = session_of(spark, plan.environments[phase], folder)
        ids = [write(history, phase, path).table_id for history, path in zip(plan.histories, paths, strict=True)]
        beside = plan.environments[phase][QUERIES]
        plain = PlainQuery(session, folder / str(phase)) if beside == AND_A_PLAIN_ONE else None
        both = beside == TWO_ALIKE and (queries[1].phases or plan.environments[phase].begins)
        refused = _run(plan, phase, session, paths, queries if both else queries[:1])
        if plain is not None:
            plain.check()
        if refused is not None:
            break
    for query in queries:
        query.check(ids, ended=refused is None)
    return Outcome(len(queries[0].phases), refused)


def check_and_shrink(plan: Plan, spark: Any, folder: Path, tries: int) -> Outcome:
    """:func:`check_plan`; when it fails, the error says with which smaller plan it does so as well."""
    places = count()

    def check(plan: Plan, starts: int = STARTS) -> Outcome:
        try:
            return check_plan(plan, spark, folder / str(next(places)))
        except PySparkException as error:
            if TOO_BUSY not in str(error) or starts == 1:
                raise
        return check(plan, starts - 1)

    try:
        return check(plan)
    except Exception as error:
        if TOO_BUSY in str(error):
            raise  # smaller plans would tell no more
        kind = kind_of(error)

        def fails(smaller: Plan) -> bool:
            try:
                check(smaller)
            except Exception as other:  # whatever it is, it is judged by its kind
                return kind_of(other) == kind
            return False

        raise AssertionError(f"{error}\n{shrink(plan, fails, tries)}") from error


def session_of(spark: Any, environment: Environment, folder: Path) -> Any:
    """A session with an environment's settings, in which the plan may put files of its own into a folder."""
    session = spark.newSession()
    # Spark finds a Python sink by the thread's active session, and a new thread has none.
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)
    for setting in SETTINGS:
        if setting.of_spark:
            session.conf.set(setting.name, environment[setting.name])
    session.conf.set(FOLDER, str(folder))
    return session


def _run(plan: Plan, phase: int, session: Any, paths: list[Path], queries: list[Query]) -> str | None:
    """Start the queries and wait for their end; the condition by which one was refused, where the plan lets it be."""
    native = {"nativeScan": plan.environments[phase]["nativeScan"]}
    limits: list[dict[str, str]] = [{} if n is None else {"maxFilesPerTrigger": str(n)} for n in plan.files]
    started: list[Any] = []
    refused = None
    try:
        for query in queries:
            sources = [stream(session, path, **native, **limit) for path, limit in zip(paths, limits, strict=True)]
            started.append(query.start(frame_of(plan.tree, sources), phase))
        for running in started:
            running.awaitTermination()
    except (PySparkException, StrandlineError) as error:
        refused = condition_of(error)
        if refused is None or refused in NEVER or refused not in plan.refusals(phase):
            raise
    finally:
        for running in started:
            running.stop()
        for query in queries:
            query.ran(phase)
    return refused


class Query:
    """A query of the plan, over all its starts: what each of its batches gave, and which start ran it."""

    def __init__(self, plan: Plan, folder: Path, sink: str) -> None:
        self.plan = plan
        self.checkpoint, self.out = folder / "checkpoint", folder / "out"
        self.sink = sink
        self.seen: dict[int, Counter[Row]] = {}
        self.phases: list[int] = []
        self.failure: AssertionError | None = None

    def start(self, frame: Any, phase: int) -> Any:
        """Start it; it stops when it has read all."""
        plan = self.plan
        if self.phases and plan.replays(phase, self.phases[-1]):
            _forget_last_commit(self.checkpoint)
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        writer = writer.outputMode(plan.mode(phase))
        if self.sink == "channel":
            return writer.format("strandline").start(str(self.out))
        actions = int(plan.environments[phase]["actions in foreachBatch"])

        def take(rows: Any, batch: int) -> None:
            try:
                self.take(rows, batch, actions)
            except AssertionError as error:  # Spark would only have its text
                self.failure = error
                raise

        return writer.foreachBatch(take).start()

    def take(self, rows: Any, batch: int, actions: int) -> None:
        """Note what a batch gave; ``actions``: how often it is computed."""
        domain = domain_of(self.plan.tree, self.plan.domain)
        counts = [rows.count() for _ in range(actions - 1)]
        found = Counter((domain.plain(time), key, n) for time, key, n in rows.collect())
        if self.plan.chooses:
            self.seen[batch] = found
            return
        before = self.seen.setdefault(batch, found)
        assert before == found, f"batch {batch} was run again, and gave {found} after {before}"
        assert all(count == found.total() for count in counts), f"batch {batch} had {counts} rows, and then {found}"

    def ran(self, phase: int) -> None:
        """A start has ended: the batches since the one before are of it."""
        if self.failure is not None:
            raise self.failure
        self.phases += [phase] * (_count(self.checkpoint / "offsets") - len(self.phases))

    def check(self, ids: list[str], *, ended: bool) -> None:
        """Hold all batches to the model; ``ended``: it was not refused, and has taken everything."""
        plan = self.plan
        ends, stated = _offsets(self.checkpoint, ids, len(self.phases))
        if self.sink == "channel" and self.out.exists():
            _read_back(plan, self.out, self.seen)
        if not ended and _count(self.checkpoint / "commits") < len(ends) and len(ends) - 1 not in self.seen:
            ends, stated = ends[:-1], stated[:-1]  # the batch that was refused
        model = Model(plan, ends, self.phases)
        for batch, (said, meant) in enumerate(zip(stated, model.frontiers, strict=True)):
            met = plan.domain.minimal(plan.domain.plain(_tuples(t)) for each in said for t in each)
            assert met == meant, f"batch {batch} ended at {met}, but the channels' commits say {meant}"
        if ended and self.phases and self.phases[-1] == plan.phases - 1:
            for history, (version, file) in zip(plan.histories, ends[-1], strict=True):
                rest = history.after(version, file)  # a commit that brings nothing starts no batch
                assert not rest, f"the last batch ended at {version}, {file}, but the channel goes on: {rest}"
        if self.sink == "channel" and self.out.exists():
            _check_frontiers(plan, model, self.out)
        assert self.seen.keys() <= set(range(len(ends))), f"rows of batches {sorted(self.seen)}, of {len(ends)}"
        model.check([self.seen.get(batch, Counter()) for batch in range(len(ends))])


def _count(folder: Path) -> int:
    return len(list(folder.glob("[0-9]*")))


def _forget_last_commit(checkpoint: Path) -> None:
    """As when Spark is killed between the sink's commit and its own."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()
    with suppress(FileNotFoundError):
        newest.with_name(f".{newest.name}.crc").unlink()


def _offsets(checkpoint: Path, ids: list[str], batches: int) -> tuple[list[list[Position]], list[list[Any]]]:
    """Where each batch ended, in each channel: its position, and the frontier that the offset states."""
    ends: list[list[Position]] = []
    stated: list[list[Any]] = []
    for batch in range(batches):
        text = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]
        offsets: dict[str, Any] = {}
        for offset in (json.loads(line) for line in text if line.startswith("{")):
            if "channel" in offset:  # others are of files
                assert offsets.setdefault(offset["channel"], offset) == offset  # a channel that is read twice
        ends.append([(offsets[i]["commit"], offsets[i]["file"]) for i in ids])
        stated.append([offsets[i]["frontier"] for i in ids])
    return ends, stated


def _tuples(json_time: Any) -> Any:
    return tuple(map(_tuples, json_time)) if isinstance(json_time, list) else json_time


def _read_back(plan: Plan, out: Path, seen: dict[int, Counter[Row]]) -> None:
    """The rows of each batch, from the output channel."""
    channel, domain = Channel.open(out), domain_of(plan.tree, plan.domain)
    for commit in channel.log.tail(1):
        if commit.transactions:
            (batch,) = commit.transactions.values()
            table = channel.read_files(commit.files)
            assert batch not in seen, f"batch {batch} was committed twice"
            seen[batch] = Counter((domain.plain(r["time"]), r["key"], r["n"]) for r in table.to_pylist())


def _check_frontiers(plan: Plan, model: Model, out: Path) -> None:
    """The output channel's frontier closes exactly what the model says is closed."""
    channel, result = Channel.open(out), model.stream(plan.tree)
    domain = result.domain
    for commit in channel.log.tail(1):
        if commit.transactions:
            (batch,) = commit.transactions.values()
            _check_frontier(domain, [domain.plain(t) for t in channel.frontier_at(commit.version)], batch, result, plan)
    if result.batches:
        _check_frontier(domain, [domain.plain(t) for t in channel.frontier], result.batches - 1, result, plan)


def _check_frontier(domain: Domain, frontier: list[Any], batch: int, result: Any, plan: Plan) -> None:
    times = {time for (time, _, _), _ in result.rows} | set(frontier)
    times |= {row[0] for h in plan.histories for c in h.commits for part in c.files for row in part if plan.domain is domain}
    if domain.text in ("int64", "timestamp"):
        times |= {t + d for t in times for d in (-1, 1)}
    for time in times:
        assert domain.open(frontier, time) != result.closed(batch, time), f"batch {batch} left the frontier {frontier}: {time}"
