"""``evaluate``: what it refuses at the call, what it makes, and that strata with nothing to do cost no batch."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from helpers import contents
from loop_lake import channel_of, finish
from pyspark_strandline import evaluate
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.program import Program, col
from strandline.time.arrow import time_field
from strandline.time.domain import int64, timestamp

pytestmark = pytest.mark.spark


def filled(path: Path, ticks: dict[int, list[int]]) -> Path:
    channel = channel_of(path, ("x", pa.int64()))
    with channel.producer("p") as producer:
        for tick, rows in ticks.items():
            producer.send(pa.table({"time": [tick] * len(rows), "x": rows}, schema=channel.schema))
            producer.delay(tick + 1)
            producer.commit()
        producer.delay([])
    return path


def counting() -> Program:
    p = Program("counting")
    number, total = p.input("number", "x long"), p.relation("total", "n long, s long")
    p.rule(total, number.group_by().agg(n=("count", None), s=("sum", "x")))
    return p


def test_bad_arguments_are_refused_by_name_and_nothing_is_made(spark: Any, tmp_path: Path) -> None:
    numbers, out = filled(tmp_path / "numbers", {0: [1]}), tmp_path / "out"
    times = pa.schema([time_field("time", timestamp), ("x", pa.int64())])
    Channel.create(tmp_path / "moments", times, producers=["p"])
    channel_of(tmp_path / "texts", ("x", pa.string()))

    def refused(what: str, inputs: Any, program: Program | None = None, **options: Any) -> None:
        with pytest.raises(StrandlineError, match=what):
            evaluate(spark, program or counting(), inputs, out, **options)
        assert not out.exists()

    refused(r"PROGRAM_ROWS_INVALID.*Input number has no channel", {})
    refused(r"PROGRAM_ROWS_INVALID.*no input numbers\. Its inputs are number", {"numbers": numbers})
    refused(r"PROGRAM_ROWS_INVALID.*times of timestamp.*ticks are of int64", {"number": tmp_path / "moments"})
    refused(r"PROGRAM_ROWS_INVALID.*x: int64 instead of string", {"number": tmp_path / "texts"})
    refused(r"OPTION_INVALID.*buffering is 'some'", {"number": numbers}, buffering="some")
    reserved = Program("reserved")
    reserved.input("number", "x long")
    reserved.relation("late", "Time long")
    refused(r"COLUMN_RESERVED.*late.*Time", {"number": numbers}, reserved)
    refused(r"PROGRAM_ROWS_INVALID.*program nothing has no rules", {}, Program("nothing"))
    twice = counting()
    twice.input("other", "x long")
    refused(r"PROGRAM_ROWS_INVALID.*inputs number and other have one channel", {"number": numbers, "other": numbers}, twice)
    own = Program("own")
    own.rule(own.relation("_round", "x long"), own.input("number", "x long"))
    refused(r"COLUMN_RESERVED.*_round.*begins with _", {"number": numbers}, own)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        refused(r"PROGRAM_SESSION_INVALID.*ansi", {"number": numbers})
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.drawn
def test_a_folder_belongs_to_one_program_and_one_checkpoint(spark: Any, tmp_path: Path) -> None:
    inputs = {"number": filled(tmp_path / "numbers", {0: [1, 2], 1: [], 2: [5]})}
    finish(evaluate(spark, counting(), inputs, tmp_path / "out"), tmp_path / "checkpoint")
    assert contents(tmp_path / "out" / "total") == [(0, 2, 3), (2, 1, 5)]  # no row at a tick without rows
    other = counting()
    other.rule("total", other.input("more", "n long, s long"))
    more = channel_of(tmp_path / "more", ("n", pa.int64()), ("s", pa.int64())).path
    with pytest.raises(StrandlineError, match=r"STRANDLINE_PROGRAM_DIFFERS.*another relations"):
        evaluate(spark, other, {**inputs, "more": more}, tmp_path / "out")
    with pytest.raises(StrandlineError, match=r"STRANDLINE_PROGRAM_DIFFERS.*another buffering: 'none' instead of 'tick'"):
        evaluate(spark, counting(), inputs, tmp_path / "out", buffering="tick")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_LOOP_CHANNEL_USED"):
        finish(evaluate(spark, counting(), inputs, tmp_path / "out"), tmp_path / "another")


@pytest.mark.drawn
def test_values_are_equal_on_spark_as_in_one_process(spark: Any, tmp_path: Path) -> None:
    """-0.0, NaN, null, moments far from today, and a constant moment with microseconds."""
    far = datetime(2300, 1, 1, 1, 2, 3, 123457, tzinfo=timezone.utc)
    p = Program("values")
    value = p.input("value", "f double, t timestamp")
    kept, once = p.relation("kept", "f double", keep="always"), p.relation("once", "f double")
    late, paired = p.relation("late", "t timestamp"), p.relation("paired", "f double, t timestamp")
    p.rule(kept, value.select("f"))
    p.rule(once, value.select("f"))
    p.rule(late, value.where(col("t") == far).select("t"))
    p.rule(paired, kept.meet(value, on="f"))
    rows = [(0.0, far), (-0.0, far.replace(microsecond=123458)), (float("nan"), None), (None, far), (-1.5, far)]
    schema = pa.schema([time_field("time", int64), ("f", pa.float64()), ("t", pa.timestamp("us", "UTC"))])
    with Channel.create(tmp_path / "value", schema, producers=["p"], at=0).producer("p") as producer:
        producer.send(pa.table({"time": [0] * 5, "f": [f for f, _ in rows], "t": [t for _, t in rows]}, schema=schema))
        producer.delay([])
    want = p.run({"value": {0: rows}})
    finish(evaluate(spark, p, {"value": tmp_path / "value"}, tmp_path / "out"), tmp_path / "checkpoint")
    for name, ticks in want.items():
        found = [tuple(row.values())[1:] for row in Channel.open(tmp_path / "out" / name).read().to_pylist()]
        in_utc = [tuple(v.astimezone(timezone.utc) if isinstance(v, datetime) else v for v in row) for row in found]
        assert sorted(map(repr, in_utc)) == sorted(map(repr, ticks[0])), name


@pytest.mark.drawn
def test_ticks_may_be_moments(spark: Any, tmp_path: Path) -> None:
    p = Program("hours", tick="timestamp", step="1 hour")
    item, fresh, before = p.input("item", "x long"), p.relation("fresh", "x long"), p.relation("before", "x long")
    p.rule(fresh, item.subtract(before))
    p.rule(before, item, next_tick=True)
    hour, schema = 3_600_000_000, pa.schema([time_field("time", timestamp), ("x", pa.int64())])
    facts = {0: [1, 2], hour: [2, 3], 3 * hour: [3]}
    with Channel.create(tmp_path / "item", schema, producers=["p"], at=0).producer("p") as producer:
        for tick, rows in facts.items():
            times = pa.array([tick] * len(rows), pa.int64()).cast(pa.timestamp("us", "UTC"))
            producer.send(pa.table({"time": times, "x": rows}, schema=schema))
        producer.delay([])
    want = p.run({"item": {tick: [(x,) for x in rows] for tick, rows in facts.items()}})
    finish(evaluate(spark, p, {"item": tmp_path / "item"}, tmp_path / "out"), tmp_path / "checkpoint")
    for name, ticks in want.items():
        found: dict[int, set[tuple[int]]] = {}
        rows = Channel.open(tmp_path / "out" / name).read()
        for tick, x in zip(rows.column("time").cast(pa.int64()).to_pylist(), rows.column("x").to_pylist(), strict=True):
            found.setdefault(tick, set()).add((x,))
        assert found == ticks, name


@pytest.mark.drawn
def test_an_integer_beyond_64_bits_stops_the_query(spark: Any, tmp_path: Path) -> None:
    inputs = {"number": filled(tmp_path / "numbers", {0: [2**62, 2**62 + 1]})}
    with pytest.raises(StreamingQueryException, match="ARITHMETIC_OVERFLOW"):
        finish(evaluate(spark, counting(), inputs, tmp_path / "out"), tmp_path / "checkpoint")


@pytest.mark.drawn
def test_strata_with_nothing_to_do_cost_no_batch(spark: Any, tmp_path: Path) -> None:
    """A program of 5 strata whose first one gives nothing."""
    p = Program("idle")
    number = p.input("number", "x long")
    last = number.where(col("x") > 10)
    for stratum in range(4):
        relation = p.relation(f"r{stratum}", "n long")
        p.rule(relation, last.group_by().agg(n=("count", None)))
        last = relation
    inputs = {"number": filled(tmp_path / "numbers", {tick: [1] for tick in range(5)})}
    assert [len(stratum) for stratum in p.strata] == [1, 1, 1, 1, 1]
    query = finish(evaluate(spark, p, inputs, tmp_path / "out"), tmp_path / "checkpoint")
    batches = [progress for progress in query.recentProgress if "addBatch" in progress["durationMs"]]
    assert len(batches) <= 8, len(batches)  # one that takes the rows in, one for the rows that went to the next stratum a tick
    assert not Channel.open(tmp_path / "out" / "r3").frontier
