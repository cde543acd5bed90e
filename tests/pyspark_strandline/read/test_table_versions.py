"""The tables that a stream joins: a batch reads each at one version, and a repeated batch the same one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import contents, make_channel, run, say, settings, stream
from loop_lake import channel_of
from pyspark_strandline import iterate
from strandline.channel import Channel, Log

pytestmark = pytest.mark.spark


def forget(checkpoint: Path, folder: str = "commits") -> int:
    """Remove the newest file of a folder of the checkpoint, as a crash before it was written leaves it. Returns its number."""
    last = max(int(p.name) for p in (checkpoint / folder).iterdir() if p.name.isdigit())
    (checkpoint / folder / str(last)).unlink()
    (checkpoint / folder / f".{last}.crc").unlink(missing_ok=True)
    return last


class Case:
    """A stream of rows, a table that it is joined with, and the channel ``out`` with the numbers that the table has."""

    def __init__(self, spark: Any, folder: Path, kind: str) -> None:
        self.spark, self.folder, self.kind = spark, folder, kind
        self.source = make_channel(folder / "in", producers=("a",))
        self.dim: Channel | None = None if kind == "delta" else make_channel(folder / "dim", producers=("a",))
        self.moment, self.column = 0, "n"

    def grow(self, n: int) -> None:
        """Add a row to the table."""
        if self.dim is not None:
            say(self.dim, "a", (n, n), then=[n + 1])
        else:
            row = self.spark.createDataFrame([(n, "k", n)], "time long, key string, n long")
            row.write.format("delta").mode("append").save(str(self.folder / "dim"))

    def send(self) -> None:
        """One row, a moment later."""
        say(self.source, "a", (self.moment, 1000), then=[self.moment + 1])
        self.moment += 1

    def frame(self) -> Any:
        reader = self.spark.read.format("delta" if self.kind == "delta" else "strandline")
        own = {"nativeScan": "off"} if self.kind == "python" else {}
        table = reader.options(**own).load(str(self.folder / "dim")).select("key", F.col(self.column).alias("m"))
        return stream(self.spark, self.folder / "in").join(table, "key").select("time", "key", F.col("m").alias("n"))

    def run(self) -> None:
        run(self.frame(), self.folder / "out", self.folder / "c")

    def out(self) -> list[Any]:
        return [(time, n) for time, _, n in contents(self.folder / "out")]

    @property
    def tables(self) -> Path:
        return self.folder / "c" / "strandline" / "tables"


@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["delta", "channel", "python"])
def test_each_batch_reads_the_newest_version_and_a_repeated_one_what_it_read(spark: Any, tmp_path: Path, kind: str) -> None:
    case = Case(spark, tmp_path, kind)
    case.grow(1)
    case.send()
    case.run()
    assert case.out() == [(0, 1)]
    case.grow(2)
    case.send()
    shutil.copytree(tmp_path / "out", tmp_path / "before")
    case.run()
    assert case.out() == [(0, 1), (1, 1), (1, 2)]
    forget(tmp_path / "c")  # a crash between the sink's commit and Spark's
    version = Channel.open(tmp_path / "out").version
    case.grow(3)
    case.run()
    assert case.out() == [(0, 1), (1, 1), (1, 2)]
    assert Channel.open(tmp_path / "out").version == version
    forget(tmp_path / "c")  # a crash before the sink's commit
    shutil.rmtree(tmp_path / "out")
    shutil.move(tmp_path / "before", tmp_path / "out")
    case.run()
    assert case.out() == [(0, 1), (1, 1), (1, 2)]
    case.send()
    case.run()
    assert case.out() == [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]
    _states(case)


def _states(case: Case) -> None:
    """The commit states what the batch has read, as the checkpoint's file does."""
    log = Log(case.folder / "out")
    statement = log.require(Channel.open(case.folder / "out").version).statement
    written = json.loads((case.tables / "2").read_text())["tables"]
    assert statement is not None
    assert [(each.table, each.version) for each in statement.tables] == [(each["table"], each["version"]) for each in written]
    assert statement.tables[0].path == str(case.folder / "dim")


def test_a_query_without_tables_writes_no_file(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "c")
    assert not (tmp_path / "c" / "strandline" / "tables").exists()


@pytest.mark.drawn
def test_only_files_of_batches_that_may_be_repeated_are_kept(spark: Any, tmp_path: Path) -> None:
    case = Case(spark, tmp_path, "delta")
    case.grow(1)
    with settings(spark, {"spark.sql.streaming.minBatchesToRetain": "2"}):
        for _ in range(5):
            case.send()
            case.run()
    assert sorted(p.name for p in case.tables.iterdir() if p.name.isdigit()) == ["2", "3", "4"]


@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["delta", "channel"])
@pytest.mark.parametrize("loss", ["made anew", "no data file"])
def test_a_version_that_is_gone_is_named(spark: Any, tmp_path: Path, kind: str, loss: str) -> None:
    if (kind, loss) == ("channel", "no data file"):
        pytest.skip("a channel keeps its files, and its source looks for them")
    case = Case(spark, tmp_path, kind)
    case.grow(1)
    case.send()
    case.run()
    shutil.rmtree(tmp_path / "out")
    forget(tmp_path / "c")
    if loss == "made anew":
        shutil.rmtree(tmp_path / "dim")
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        if kind == "channel":
            case.dim = make_channel(tmp_path / "dim", producers=("a",))
        case.grow(2)
    else:
        old = list((tmp_path / "dim").glob("*.parquet"))
        row = spark.createDataFrame([(2, "k", 2)], "time long, key string, n long")
        row.write.format("delta").mode("overwrite").save(str(tmp_path / "dim"))
        for file in old:  # one of them has rows
            file.unlink()
    with pytest.raises(StreamingQueryException, match="STRANDLINE_TABLE_VERSION_UNAVAILABLE") as error:
        case.run()
    assert str(case.tables / "0") in str(error.value)
    assert not (tmp_path / "out").exists()
    (case.tables / "0").unlink()  # the remedy, where no output has the batch
    (case.tables / ".0.crc").unlink(missing_ok=True)
    case.run()
    assert case.out() == [(0, 2)]


MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode'='name', 'delta.minReaderVersion'='2', 'delta.minWriterVersion'='5')"
CHANGES = {
    "a name is written otherwise": ["RENAME COLUMN n TO x", "RENAME COLUMN x TO N"],
    "a partition's name is written otherwise": ["RENAME COLUMN n TO x", "RENAME COLUMN x TO N"],
    "a partition's column and another take each other's names": [
        "RENAME COLUMN n TO old",
        "RENAME COLUMN other TO n",
        "RENAME COLUMN old TO other",
    ],
    "a column is dropped, and added under its name": ["DROP COLUMN n", "ADD COLUMN n long"],
    "another column takes its name": ["RENAME COLUMN n TO old", "RENAME COLUMN other TO n"],
    "the table is made anew": [],
}


@pytest.mark.drawn
@pytest.mark.parametrize("change", CHANGES)
def test_a_repeated_batch_reads_the_columns_that_the_version_had(spark: Any, tmp_path: Path, change: str) -> None:
    case = Case(spark, tmp_path, "delta")
    at = f"delta.`{tmp_path / 'dim'}`"
    by = "PARTITIONED BY (n)" if "partition" in change else ""
    spark.sql(f"CREATE TABLE {at} (key string, n long, other long) USING delta {by} {MAPPED}")
    spark.sql(f"INSERT INTO {at} VALUES ('k', 1, 100)")
    case.send()
    case.run()
    assert case.out() == [(0, 1)]
    shutil.rmtree(tmp_path / "out")
    forget(tmp_path / "c")
    for each in CHANGES[change]:
        spark.sql(f"ALTER TABLE {at} {each}")
    if not CHANGES[change]:
        spark.sql(f"CREATE OR REPLACE TABLE {at} USING delta AS SELECT 'k' AS key, 2L AS n")
    case.run()
    assert case.out() == [(0, 1)]
    case.send()
    case.run()
    others = {"a column is dropped, and added under its name": None, "the table is made anew": 2}
    now = 1 if "otherwise" in change else others.get(change, 100)
    assert case.out() == [(0, 1), (1, now)]


@pytest.mark.drawn
@pytest.mark.parametrize("by", ["", "PARTITIONED BY (n)"], ids=["not partitioned", "partitioned"])
def test_where_case_counts_a_name_that_was_written_otherwise_is_refused(spark: Any, tmp_path: Path, by: str) -> None:
    case = Case(spark, tmp_path, "delta")
    at = f"delta.`{tmp_path / 'dim'}`"
    spark.sql(f"CREATE TABLE {at} (key string, n long) USING delta {by}")
    spark.sql(f"INSERT INTO {at} VALUES ('k', 1)")
    case.send()
    case.run()
    shutil.rmtree(tmp_path / "out")
    forget(tmp_path / "c")
    spark.sql(f"CREATE OR REPLACE TABLE {at} USING delta AS SELECT 'k' AS key, 2L AS N")
    case.column = "N"
    spark.conf.set("spark.sql.caseSensitive", True)
    try:
        with pytest.raises(
            StreamingQueryException, match=r"(?s)STRANDLINE_TABLE_VERSION_UNAVAILABLE.*column N has the name n there"
        ):
            case.run()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    case.run()
    assert case.out() == [(0, 1)]


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("before", "after"),
    [(["n"], ["other"]), (["n", "other"], ["other", "n"]), (["n"], []), ([], ["n"]), (["gone"], []), (["gone", "n"], ["n"])],
    ids=["by another column", "in another order", "not any more", "newly", "by a gone column", "by a gone one, too"],
)
def test_a_repeated_batch_reads_the_partitions_that_the_version_had(
    spark: Any, tmp_path: Path, before: list[str], after: list[str]
) -> None:
    case = Case(spark, tmp_path, "delta")

    def overwrite(n: int, columns: list[str]) -> None:
        row = spark.createDataFrame([("k", n, 100)], "key string, n long, other long")
        if "gone" in columns:
            row = row.selectExpr("key", "'g' AS gone", "n", "other")
        writer = row.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        (writer.partitionBy(*columns) if columns else writer).save(str(tmp_path / "dim"))

    overwrite(1, before)
    case.send()
    case.run()
    shutil.rmtree(tmp_path / "out")
    forget(tmp_path / "c")
    overwrite(2, after)
    case.run()
    assert case.out() == [(0, 1)]
    case.send()
    case.run()
    assert case.out() == [(0, 1), (1, 2)]


@pytest.mark.drawn
def test_a_file_without_its_clock_is_damaged(spark: Any, tmp_path: Path) -> None:
    case = Case(spark, tmp_path, "delta")
    case.grow(1)
    case.send()
    case.run()
    forget(tmp_path / "c")
    fields = json.loads((case.tables / "0").read_text())
    del fields["clock"]
    (case.tables / "0").write_text(json.dumps(fields))
    (case.tables / ".0.crc").unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match="STRANDLINE_TABLE_VERSIONS_INVALID"):
        case.run()
    (case.tables / "0").unlink()  # the remedy
    case.run()
    assert case.out() == [(0, 1)]


@pytest.mark.drawn
def test_another_program_does_not_repeat_a_batch(spark: Any, tmp_path: Path) -> None:
    case = Case(spark, tmp_path, "delta")
    case.grow(1)
    case.send()
    case.run()
    forget(tmp_path / "c")
    spark.range(3).withColumn("key", F.lit("k")).write.format("delta").save(str(tmp_path / "more"))
    more = case.frame().join(spark.read.format("delta").load(str(tmp_path / "more")), "key").select("time", "key", "n")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_TABLES_CHANGED"):
        run(more, tmp_path / "out", tmp_path / "c")
    case.run()  # the program that began the batch ends it
    case.send()
    run(more, tmp_path / "out", tmp_path / "c")
    assert case.out() == [(0, 1), (1, 1), (1, 1), (1, 1)]


@pytest.mark.drawn
def test_a_batch_whose_offsets_were_removed_is_another_batch(spark: Any, tmp_path: Path) -> None:
    case = Case(spark, tmp_path, "delta")
    case.grow(1)
    case.send()
    case.run()
    shutil.copytree(tmp_path / "out", tmp_path / "before")
    case.send()
    case.run()
    shutil.rmtree(tmp_path / "out")
    shutil.move(tmp_path / "before", tmp_path / "out")
    assert forget(tmp_path / "c") == forget(tmp_path / "c", "offsets") == 1
    case.grow(2)
    case.run()
    assert case.out() == [(0, 1), (1, 1), (1, 2)]


@pytest.mark.drawn
@pytest.mark.parametrize("damage", ["{", '{"strandline": 2, "tables": []}'])
def test_a_damaged_file_is_not_believed(spark: Any, tmp_path: Path, damage: str) -> None:
    case = Case(spark, tmp_path, "delta")
    case.grow(1)
    case.send()
    case.run()
    forget(tmp_path / "c")
    (case.tables / "0").write_text(damage)
    (case.tables / ".0.crc").unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match="STRANDLINE_TABLE_VERSIONS_INVALID"):
        case.run()


@pytest.mark.drawn
def test_a_foreach_batch_gets_pinned_rows_and_reads_by_itself_what_is_there(spark: Any, tmp_path: Path) -> None:
    """The batch's own join is repeated at its version. What the function reads is the user's, and sees what it has written."""
    case = Case(spark, tmp_path, "delta")
    case.grow(1)
    case.send()
    seen: list[Any] = []

    def write(rows: Any, batch: int) -> None:
        own = spark.read.format("delta").load(str(tmp_path / "dim"))
        before = own.count()
        case.grow(before + 1)
        seen.append((sorted(row.n for row in rows.collect()), before, own.count()))
        if len(seen) == 1:
            raise RuntimeError("once")

    for _ in range(2):
        query = case.frame().writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c"))
        try:
            query.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException:
            assert len(seen) == 1
    assert seen == [([1], 1, 2), ([1], 2, 3)]


@pytest.mark.drawn
@pytest.mark.parametrize("block", ["rounds", "result"])
def test_a_loop_goes_on_with_the_edges_that_its_batch_began_with(spark: Any, tmp_path: Path, block: str) -> None:
    """One of a loop's channels lost a batch that the other one has. The edges grow before the batch is repeated."""
    seeds = channel_of(tmp_path / "s", ("v", pa.int64()))
    with seeds.producer("p") as producer:
        producer.send(pa.table({"time": [0], "v": [0]}, schema=seeds.schema))
        producer.delay(1)

    def edges(pairs: list[tuple[int, int]]) -> None:
        spark.createDataFrame(pairs, "a long, b long").write.format("delta").mode("append").save(str(tmp_path / "edges"))

    def go() -> None:
        table = spark.read.format("delta").load(str(tmp_path / "edges"))

        def body(rows: Any) -> Any:
            return rows.join(F.broadcast(table), rows.v == table.a).select("time", F.col("b").alias("v"))

        writer = iterate(spark, tmp_path / "s", body, tmp_path / "o").option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    edges([(i, i + 1) for i in range(3)])
    go()
    logs = tmp_path / "o" / block / "_delta_log"
    newest = max(logs.glob("*.json"))
    batch = max(int(p.name) for p in (tmp_path / "c" / "commits").iterdir() if p.name.isdigit())
    transaction = [json.loads(line)["txn"]["version"] for line in newest.read_text().splitlines() if '"txn"' in line]
    assert transaction == [batch]
    newest.unlink()
    for crc in (*logs.glob(f"{newest.stem}.crc"), *logs.glob(f".{newest.name}.crc")):
        crc.unlink()
    forget(tmp_path / "c")
    edges([(i, 100 + i) for i in range(5)])
    go()
    rounds = sorted((r["time"]["outer"], r["v"]) for r in Channel.open(tmp_path / "o" / "rounds").read().to_pylist())
    result = sorted((r["time"], r["v"]) for r in Channel.open(tmp_path / "o" / "result").read().to_pylist())
    assert rounds == result == [(0, v) for v in range(4)]
