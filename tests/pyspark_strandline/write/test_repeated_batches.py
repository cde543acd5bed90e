"""A batch that Spark repeats wrote the same rows before, or the query is refused by name and writes nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from helpers import contents, make_channel, run, say, stream
from pyspark_strandline import iterate, write_outputs
from strandline.channel import Channel, Log

pytestmark = pytest.mark.spark


def forget(checkpoint: Path) -> None:
    """Remove what a crash between the sink's last commit and Spark's leaves out."""
    last = max((p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def undo(path: Path, checkpoint: Path) -> None:
    """Remove the newest commit of an output, and the record of it: the crash came before."""
    max((path / "_delta_log").glob("*.json")).unlink()
    shutil.rmtree(checkpoint / "strandline", ignore_errors=True)


def refused(call: Callable[[], Any], condition: str = "STRANDLINE_REPLAY_DIFFERS") -> str:
    with pytest.raises(Exception, match=condition) as caught:
        call()
    return re.sub(r"\s+", " ", str(caught.value))


def three_rows(path: Path) -> Channel:
    channel = make_channel(path, producers=("a",))
    say(channel, "a", (1, 1), (2, 2), (2, 3), then=[3])
    return channel


def table_of(spark: Any, folder: Path, *rows: tuple[int, int]) -> None:
    spark.createDataFrame(list(rows), "id long, v long").coalesce(1).write.mode("append").parquet(str(folder))


def joined(spark: Any, folder: Path) -> Any:
    table = spark.read.schema("id long, v long").parquet(str(folder / "table"))
    return stream(spark, folder / "in").join(F.broadcast(table), F.col("n") == F.col("id")).select("time", "n", "v")


@pytest.mark.drawn
def test_a_repeated_batch_with_other_rows_is_refused_with_its_first_time(spark: Any, tmp_path: Path) -> None:
    three_rows(tmp_path / "in")
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    table_of(spark, tmp_path / "table", (1, 10), (2, 20), (3, 30))
    run(joined(spark, tmp_path), out, checkpoint)
    had, files = contents(out), sorted(out.glob("*.parquet"))
    version = Channel.open(out).version
    forget(checkpoint)
    table_of(spark, tmp_path / "table", (2, 21))
    message = refused(lambda: run(joined(spark, tmp_path), out, checkpoint))
    assert "first the time 2: it had 2 row(s) then, and has 3 now" in message
    assert (contents(out), sorted(out.glob("*.parquet")), Channel.open(out).version) == (had, files, version)
    # What the error says: keep what the channel has.
    say(Channel.open(tmp_path / "in"), "a", (3, 2), then=[4])
    again = stream(spark, tmp_path / "in", resume=str(out))
    table = spark.read.schema("id long, v long").parquet(str(tmp_path / "table"))
    frame = again.join(F.broadcast(table), F.col("n") == F.col("id")).select("time", "n", "v")
    refused(lambda: run(frame, out, tmp_path / "c1", resume="true"), "STRANDLINE_RESUME_DIFFERS")
    run(frame, out, tmp_path / "c2", resume="changed")
    assert contents(out) == sorted([*had, (3, 2, 20), (3, 2, 21)])


@pytest.mark.drawn
def test_values_that_differ_are_found_by_their_first_time(spark: Any, tmp_path: Path) -> None:
    three_rows(tmp_path / "in")
    frame = stream(spark, tmp_path / "in").withColumn("n", (F.rand() * 1e9).cast("long"))
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    forget(tmp_path / "checkpoint")
    message = refused(lambda: run(frame.withColumn("n", F.col("n") + 1), tmp_path / "out", tmp_path / "checkpoint"))
    assert "first the time 1: its 1 row(s) have other values" in message


@pytest.mark.drawn
def test_a_batch_that_had_no_rows_has_none_when_it_is_repeated(spark: Any, tmp_path: Path) -> None:
    three_rows(tmp_path / "in")
    (tmp_path / "table").mkdir()
    run(joined(spark, tmp_path), tmp_path / "out", tmp_path / "checkpoint")
    forget(tmp_path / "checkpoint")
    table_of(spark, tmp_path / "table", (2, 21))
    assert "it had 0 row(s) then, and has 1 now" in refused(
        lambda: run(joined(spark, tmp_path), tmp_path / "out", tmp_path / "checkpoint")
    )


VALUES = {
    "a float among many": "SELECT time, n, CAST(IF(id = 77, 100 - v, 100) AS float) AS x FROM rows CROSS JOIN v CROSS JOIN many",
    "a map": "SELECT time, n, map('cash', double(v), 'card', double(1 - v)) AS x FROM rows CROSS JOIN v",
    "a vector": "SELECT time, n, array(double(1 - v / 2), double(v / 2)) AS x FROM rows CROSS JOIN v",
    "a function of a row": "SELECT time, n, same(double(1 + v / 250000)) AS x FROM rows CROSS JOIN v",
}


@pytest.mark.drawn
@pytest.mark.parametrize("case", VALUES)
def test_values_of_single_rows_are_compared_to_the_last_bit(spark: Any, tmp_path: Path, case: str) -> None:
    """Only what adds rows in any order may have other roundings."""
    three_rows(tmp_path / "in")
    stream(spark, tmp_path / "in").createOrReplaceTempView("rows")
    spark.range(20_000).createOrReplaceTempView("many")
    spark.udf.register("same", lambda x: x, "double")

    def start(value: int) -> None:
        spark.sql(f"SELECT {value} AS v").createOrReplaceTempView("v")
        run(spark.sql(VALUES[case]), tmp_path / "out", tmp_path / "checkpoint")

    start(0)
    forget(tmp_path / "checkpoint")
    start(0)
    forget(tmp_path / "checkpoint")
    assert "have other values" in refused(lambda: start(1))


@pytest.mark.drawn
def test_the_committed_rows_are_kept_if_the_user_says_so(spark: Any, tmp_path: Path) -> None:
    """A sketch, or a sum whose large terms cancel, may have another value that is as good."""
    three_rows(tmp_path / "in")

    def start(terms: tuple[float, ...], **options: str) -> None:
        spark.createDataFrame([(each,) for each in terms], "x double").coalesce(1).createOrReplaceTempView("terms")
        rows = stream(spark, tmp_path / "in").crossJoin(spark.table("terms")).groupBy("time").agg(F.sum("x").alias("x"))
        run(rows, tmp_path / "out", tmp_path / "checkpoint", **options)

    start((1e16, -1e16, 1.0))
    assert contents(tmp_path / "out") == [(1, 1.0), (2, 2.0)]
    (stated,) = (each.statement.digest for each in Channel.open(tmp_path / "out").log.tail(1) if each.statement and each.files)
    assert stated is not None
    assert stated.exact is not None  # beside what is compared when the batch is repeated
    forget(tmp_path / "checkpoint")
    message = refused(lambda: start((1.0, 1e16, -1e16)))
    assert "the values of the column 'x' are others" in message
    accepts = re.search(r"set the option (acceptReplay) to (\d+)", message)
    assert accepts
    refused(lambda: start((1.0, 1e16, -1e16), acceptReplay="7"))
    refused(lambda: start((1.0, 1e16, -1e16), acceptReplay="some"), "STRANDLINE_OPTION_INVALID")
    start((1.0, 1e16, -1e16), **{accepts[1]: accepts[2]})
    assert contents(tmp_path / "out") == [(1, 1.0), (2, 2.0)]
    say(Channel.open(tmp_path / "in"), "a", (3, 1), then=[4])
    start((3.0,))
    assert contents(tmp_path / "out") == [(1, 1.0), (2, 2.0), (3, 3.0)]


@pytest.mark.drawn
def test_of_two_outputs_none_is_written_if_one_differs(spark: Any, tmp_path: Path) -> None:
    """The crash came between the two commits. The rows of the first output are the same; those of the second one are not."""
    three_rows(tmp_path / "in")
    table_of(spark, tmp_path / "table", (1, 10), (2, 20))
    checkpoint = tmp_path / "checkpoint"

    def start() -> None:
        rows = stream(spark, tmp_path / "in").select("time", "n")
        outputs = {"a": (rows, tmp_path / "a"), "b": (joined(spark, tmp_path), tmp_path / "b")}
        writer = write_outputs(outputs).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    start()
    say(Channel.open(tmp_path / "in"), "a", (3, 1), then=[4])
    start()
    had = contents(tmp_path / "a")
    forget(checkpoint)
    undo(tmp_path / "b", checkpoint)
    table_of(spark, tmp_path / "table", (1, 11))
    before = Channel.open(tmp_path / "b").version
    message = refused(start)
    assert "for the output b" in message
    assert (contents(tmp_path / "a"), Channel.open(tmp_path / "b").version) == (had, before)


@pytest.mark.drawn
def test_sums_of_floats_and_gathered_lists_may_come_in_another_order(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    for part in range(4):
        say(channel, "a", *((1, 7 * part + i) for i in range(7)), then=[1])
    say(channel, "a", then=[2])
    rows = stream(spark, tmp_path / "in")
    sums = rows.groupBy("time").agg(
        F.sum(F.col("n") * 0.1).alias("x"), F.avg(F.col("n") / 3).alias("y"), F.collect_list("n").alias("all")
    )
    run(sums, tmp_path / "out", tmp_path / "checkpoint")
    forget(tmp_path / "checkpoint")
    turned = (
        rows.repartition(3, "n")
        .groupBy("time")
        .agg(  # the same groups, by another way
            F.sum(F.col("n") * 0.1).alias("x"), F.avg(F.col("n") / 3).alias("y"), F.reverse(F.collect_list("n")).alias("all")
        )
    )
    version = Channel.open(tmp_path / "out").version
    run(turned, tmp_path / "out", tmp_path / "checkpoint")
    assert Channel.open(tmp_path / "out").version == version
    forget(tmp_path / "checkpoint")
    assert "the values of the column 'x' are others" in refused(
        lambda: run(turned.withColumn("x", F.col("x") * 1.001), tmp_path / "out", tmp_path / "checkpoint")
    )


@pytest.mark.drawn
@pytest.mark.parametrize("lost", ["result", "rounds"])
def test_in_a_loop_a_row_is_in_the_result_if_and_only_if_it_went_round(spark: Any, tmp_path: Path, lost: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (0, 0), then=[1])
    edges, checkpoint = tmp_path / "edges", tmp_path / "checkpoint"
    table_of(spark, edges, *((i, i + 1) for i in range(4)))

    def start(**options: str) -> None:
        table = spark.read.schema("id long, v long").parquet(str(edges))

        def follow(rows: Any) -> Any:
            return rows.join(F.broadcast(table), rows.n == table.id).select("time", "key", F.col("v").alias("n"))

        writer = iterate(spark, tmp_path / "in", follow, tmp_path / "loop").options(**options)
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    start()
    logs = {name: tmp_path / "loop" / name / "_delta_log" for name in ("rounds", "result")}
    # Go back to the batch that wrote the vertex 2, which one of the two channels has, and the other one has not.
    batch = 2
    for name, log in logs.items():
        for path in sorted(log.glob("*.json")):
            commit = Log(log.parent).require(int(path.stem))
            newest = max(commit.transactions.values(), default=-1)
            if newest > batch or (newest == batch and name == lost):
                path.unlink()
    for folder, keep in (("commits", batch - 1), ("offsets", batch)):
        for path in (checkpoint / folder).iterdir():
            if path.name.strip(".").removesuffix(".crc").isdigit() and int(path.name.strip(".").removesuffix(".crc")) > keep:
                path.unlink()
    shutil.rmtree(checkpoint / "strandline", ignore_errors=True)
    before = {name: len(list(log.glob("*.json"))) for name, log in logs.items()}
    table_of(spark, edges, *((i, 100 + i) for i in range(4)))
    assert "start the loop anew" in refused(start)
    refused(lambda: start(acceptReplay=str(batch)), "STRANDLINE_OPTION_INVALID")
    assert {name: len(list(log.glob("*.json"))) for name, log in logs.items()} == before


def test_a_run_says_once_what_its_results_depend_on(spark: Any, tmp_path: Path) -> None:
    log4j, name = spark._jvm.org.apache.logging.log4j, "strandline.spark.tables.Dependence"
    log4j.core.config.Configurator.setLevel(name, log4j.Level.WARN)
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%m%n").build()
    builder = log4j.core.appender.FileAppender.newBuilder().withFileName(str(tmp_path / "log"))
    appender = builder.setName("told").setLayout(layout).build()
    appender.start()
    logger = log4j.LogManager.getContext(False).getLogger(name)
    logger.addAppender(appender)
    try:
        source = three_rows(tmp_path / "in")
        for extra in (0, 1):
            say(source, "a", (4 + extra, 4), then=[5 + extra])
            frame = stream(spark, tmp_path / "in", maxFilesPerTrigger=1).where(F.rand() >= 0)
            run(frame, tmp_path / "out", tmp_path / "checkpoint")
        run(stream(spark, tmp_path / "in"), tmp_path / "plain", tmp_path / "other")
    finally:
        logger.removeAppender(appender)
        appender.stop()
    told = (tmp_path / "log").read_text().splitlines()
    assert len(told) == 2
    assert all("its results depend on more than" in line and "rand()" in line for line in told)
