"""``evaluate``: what it refuses at the call, what it makes, and that strata with nothing to do cost no batch."""

from __future__ import annotations

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
from strandline.time.domain import timestamp

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
    reserved.relation("late", "time long")
    refused(r"COLUMN_RESERVED.*late.*time", {"number": numbers}, reserved)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        refused(r"PROGRAM_SESSION_INVALID.*ansi", {"number": numbers})
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.drawn
def test_a_checkpoint_belongs_to_one_program(spark: Any, tmp_path: Path) -> None:
    inputs = {"number": filled(tmp_path / "numbers", {0: [1, 2], 1: [], 2: [5]})}
    finish(evaluate(spark, counting(), inputs, tmp_path / "out"), tmp_path / "checkpoint")
    assert contents(tmp_path / "out" / "total") == [(0, 2, 3), (2, 1, 5)]  # no row at a tick without rows
    other = counting()
    other.rule("total", other.input("more", "n long, s long"))
    more = channel_of(tmp_path / "more", ("n", pa.int64()), ("s", pa.int64())).path
    with pytest.raises((StrandlineError, StreamingQueryException), match=r"STRANDLINE_(CHECKPOINT_MISMATCH|SCHEMA_MISMATCH)"):
        finish(evaluate(spark, other, {**inputs, "more": more}, tmp_path / "out"), tmp_path / "checkpoint")


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
