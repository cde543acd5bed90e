"""Runs a plan live into a channel, plays the recorded channels again at other settings, and compares the two outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from pyspark.errors import PySparkException

from helpers import stream
from plans.environment import QUERIES, Environment, random_environments
from plans.plan import Plan, frame_of, operators_of
from plans.refusal import NEVER, condition_of
from plans.run import check_plan, session_of
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.replay import compare

__all__ = ["check_replayed", "not_replayed"]


def not_replayed(plan: Plan) -> str | None:
    """Why a plan has no output that a replay must have too; ``None`` if it has one."""
    for operator in operators_of(plan.tree):
        name = type(operator).__name__
        if operator.chooses:
            return f"{name}: Spark chooses among rows"
        if operator.modes != ("append",):
            return f"{name}: what it gives depends on the batches"
        if operator.last:
            return f"{name}: no channel can have its rows"
    if not plan.closes:
        return "a source that is no channel"
    return None


def check_replayed(plan: Plan, spark: Any, folder: Path) -> str:
    """Hold a replay to the live run. Return what was found, as text: ``equal``, or why the plan was not compared."""
    if reason := not_replayed(plan):
        return reason
    live = [environment.with_setting(QUERIES, "one") for environment in plan.environments]
    outcome = check_plan(replace(plan, sink="channel", environments=tuple(live)), spark, folder)
    if outcome.refused is not None:
        return f"live run refused with {outcome.refused}"
    recorded = folder / "first" / "out"
    if not Channel.exists(recorded):
        return "no batch"
    r = Random(f"replay of {plan.seed}")
    starts = r.choice((1, 1, 2))
    environments = random_environments(r, Environment(), starts, None)
    files = [r.choice((1, 2, 3, None)) for _ in plan.histories]
    refused = _replay(plan, spark, folder, environments, files, r)
    if refused is not None:
        return f"replay refused with {refused}"
    again = folder / "again" / "out"
    found = compare(recorded, again)
    assert found.equal, f"{found.to_text()}\nreplayed with {[str(each) for each in environments]}, files {files}"
    ends = Channel.open(recorded).frontier, Channel.open(again).frontier
    assert ends[0] == ends[1], f"the recorded run ended at {ends[0].format()}, and the replay at {ends[1].format()}"
    rows = Channel.open(recorded).read().num_rows, Channel.open(again).read().num_rows
    assert rows[0] == rows[1], f"the recorded run has {rows[0]} rows, and the replay {rows[1]}"
    return "equal" if found.rows_a else "equal, without rows"


def _replay(
    plan: Plan, spark: Any, folder: Path, environments: Sequence[Environment], files: Sequence[int | None], r: Random
) -> str | None:
    """Play all that is recorded, in as many starts; all but the last are stopped after a batch. Return what refused it."""
    begin = {"startingVersion": "0"} if r.random() < 0.5 else {}
    for number, environment in enumerate(environments):
        session = session_of(spark, environment.with_setting(QUERIES, "one"), folder / "again")
        limits = [{} if n is None else {"maxFilesPerTrigger": str(n)} for n in files]
        options = {"replay": "max", "nativeScan": environment["nativeScan"], **begin}
        sources = [stream(session, folder / f"channel-{i}", **options, **limit) for i, limit in enumerate(limits)]
        try:
            writer = frame_of(plan.tree, sources).writeStream.format("strandline").trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(folder / "again" / "checkpoint")).start(str(folder / "again" / "out"))
            if number < len(environments) - 1:
                while query.isActive and query.lastProgress is None:
                    query.awaitTermination(0.1)
                query.stop()
            query.awaitTermination()
        except (PySparkException, StrandlineError) as error:
            refused = condition_of(error)
            allowed = replace(plan, environments=tuple(environments)).refusals(number)
            if refused is None or refused in NEVER or refused not in allowed:
                raise
            return refused
    return None
