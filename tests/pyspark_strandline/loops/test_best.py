"""The operator behind ``iterate(best=…)``: its results against plain Python, whatever the batches, and what is refused."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from helpers import settings
from pyspark_strandline import iterate
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.time.arrow import time_field
from strandline.time.domain import int64

pytestmark = pytest.mark.spark

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
COLUMNS = [("k", pa.string()), ("f", pa.float64()), ("cost", pa.float64()), ("name", pa.string()), ("size", pa.decimal128(9, 2))]
ORDER = {"cost": "min", "name": "max", "size": "min"}


def channel_of(path: Path) -> Channel:
    schema = pa.schema([time_field("time", int64), *COLUMNS])
    return Channel.create(path, schema, time="time", producers=["p"], at=0)


def round_trip(spark: Any, folder: Path, body: Any, best: dict[str, str] = ORDER, **options: Any) -> None:
    writer = iterate(spark, str(folder / "seeds"), body, folder / "out", best=best, **options)
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def rows_of(r: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "time": r.randrange(3),
            "k": r.choice(["a", "b", None]),
            "f": r.choice([0.0, -0.0, float("nan"), None]),
            "cost": r.choice([-1.5, 0.0, -0.0, 2.0, float("inf")]),
            "name": r.choice(["x", "Z", "ä", ""]),
            "size": Decimal(r.randrange(4)) / 4,
        }
        for _ in range(count)
    ]


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    """The best row of each time and key. The zeros are one key, as are all NaN."""
    best: dict[Any, tuple[Any, ...]] = {}

    def rank(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["cost"], [-ord(c) for c in row["name"]] + [1], row["size"]

    for row in rows:
        key = (row["time"], row["k"], repr(row["f"] + 0.0) if row["f"] is not None else None)
        best[key] = min(best.get(key, rank(row)), rank(row))
    return sorted((*(map(str, key)), repr(rank_[0] + 0.0), rank_[1], rank_[2]) for key, rank_ in best.items())


@pytest.mark.drawn
@pytest.mark.parametrize("store", [pytest.param("", marks=pytest.mark.soak), ROCKS])
def test_the_best_rows_do_not_depend_on_batches(spark: Any, tmp_path: Path, store: str) -> None:
    """Seeds in several commits, a batch each, with a restart; a body that sends improvements round, a little worse."""
    r = random.Random(11)
    seeds = channel_of(tmp_path / "seeds")
    sent: list[dict[str, Any]] = []

    def body(rows: Any) -> Any:
        return rows.withColumn("cost", F.col("cost") + 1)

    chosen = {"spark.sql.streaming.stateStore.providerClass": store} if store else {}
    with settings(spark, chosen):
        with seeds.producer("p") as producer:
            for commits in (2, 1):
                for _ in range(commits):
                    sent += (rows := rows_of(r, 9))
                    producer.send(pa.Table.from_pylist(rows, schema=seeds.schema))
                    producer.commit()
                round_trip(spark, tmp_path, body, maxFilesPerTrigger=1)
            producer.delay([])
        round_trip(spark, tmp_path, body, maxFilesPerTrigger=1)
    found = Channel.open(tmp_path / "out" / "result").read().to_pylist()
    assert expected(found) == expected(sent)
    assert len(found) == len(expected(sent))


@pytest.mark.drawn
def test_only_the_best_row_of_a_batch_goes_round(spark: Any, tmp_path: Path) -> None:
    seeds = channel_of(tmp_path / "seeds")
    with seeds.producer("p") as producer:
        rows = [{"time": 0, "k": "a", "f": 0.0, "cost": float(n % 7), "name": "x", "size": 0} for n in range(50)]
        producer.send(pa.Table.from_pylist(rows, schema=seeds.schema))
        producer.delay([])
    round_trip(spark, tmp_path, lambda rows: rows)
    assert [row["cost"] for row in Channel.open(tmp_path / "out" / "rounds").read().to_pylist()] == [0.0]
    assert [row["cost"] for row in Channel.open(tmp_path / "out" / "result").read().to_pylist()] == [0.0]


@pytest.mark.drawn
@pytest.mark.parametrize("column", ["cost", "name"])
def test_rows_that_are_neither_better_nor_worse_are_refused(spark: Any, tmp_path: Path, column: str) -> None:
    seeds = channel_of(tmp_path / "seeds")
    row: dict[str, Any] = {"time": 0, "k": "a", "f": 0.0, "cost": 1.0, "name": "x", "size": 0}
    row[column] = float("nan") if column == "cost" else None
    with seeds.producer("p") as producer:
        producer.send(pa.Table.from_pylist([row], schema=seeds.schema))
        producer.delay([])
    with pytest.raises(Exception, match=r"STRANDLINE_RESULT_INVALID.*values \(.*(NaN|null).*\) of \(cost, name, size\)"):
        round_trip(spark, tmp_path, lambda rows: rows)
    assert not (tmp_path / "out" / "result").exists()


@pytest.mark.drawn
def test_an_order_that_is_none_is_refused(spark: Any, tmp_path: Path) -> None:
    fields = [("k", pa.string()), ("tags", pa.map_(pa.string(), pa.int64()))]
    Channel.create(tmp_path / "seeds", pa.schema([time_field("time", int64), *fields]), producers=["p"], at=0)
    for best in ({}, {"time": "min"}, {"none": "min"}, {"k": "least"}, {"tags": "max"}):
        with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_INVALID") as caught:
            round_trip(spark, tmp_path, lambda rows: rows, best=best)
        assert "best" in str(caught.value)


@pytest.mark.parametrize("name", ["_best", "_TO", "_strandline", "_Strandline_x"])
def test_names_that_iterate_uses_are_refused(spark: Any, tmp_path: Path, name: str) -> None:
    fields = [time_field("time", int64), ("k", pa.string()), (name, pa.int64())]
    Channel.create(tmp_path / "seeds", pa.schema(fields), producers=["p"], at=0)
    with pytest.raises(StrandlineError, match="STRANDLINE_COLUMN_RESERVED"):
        round_trip(spark, tmp_path, lambda rows: rows, best={name: "min"})


@pytest.mark.drawn
@pytest.mark.parametrize("generated", ["true", "false"])
def test_a_table_that_cannot_change_is_broadcast_once(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], generated: str
) -> None:
    """The body joins a path of nodes: as a checkpoint, as rows of the plan, and as files, which may change between rounds."""
    steps = spark.sql("SELECT * FROM VALUES (0L, 1L), (1L, 2L), (2L, 3L) AS steps (n, next)")
    steps.write.parquet(str(tmp_path / "steps"))
    tables = {
        "checkpoint": (steps.localCheckpoint(), "KeptBroadcast"),
        "rows": (steps, "KeptBroadcast"),
        "files": (spark.read.parquet(str(tmp_path / "steps")), "BroadcastExchange"),
    }
    for name, (table, kind) in tables.items():
        schema = pa.schema([time_field("time", int64), ("n", pa.int64()), ("far", pa.int64())])
        seeds = Channel.create(tmp_path / name / "seeds", schema, producers=["p"], at=0)
        with seeds.producer("p") as producer:
            producer.send(pa.table({"time": [0], "n": [0], "far": [0]}, schema=schema))
            producer.delay([])

        def body(rows: Any, table: Any = table) -> Any:
            return rows.join(F.broadcast(table), "n").select("time", F.col("next").alias("n"), (F.col("far") + 1).alias("far"))

        with settings(spark, {"spark.sql.codegen.wholeStage": generated}):
            writer = iterate(spark, str(tmp_path / name / "seeds"), body, tmp_path / name / "out", best={"far": "min"})
            query = writer.option("checkpointLocation", str(tmp_path / name / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination()
        capfd.readouterr()
        query.explain()
        plan = capfd.readouterr().out
        assert [each for each in ("KeptBroadcast", "BroadcastExchange") if each in plan] == [kind], plan
        found = Channel.open(tmp_path / name / "out" / "result").read().to_pylist()
        assert sorted((row["n"], row["far"]) for row in found) == [(n, n) for n in range(4)]
