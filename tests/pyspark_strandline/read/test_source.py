"""The source: which rows and which frontier every batch has, from any start, under any limit, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable

from helpers import make_channel, rows, run, say, settle, stream
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.batch import ProgressReader
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel, DataFile, Log
from strandline.time.domain import int64, product

pytestmark = pytest.mark.spark


def ends(progress: list[dict[str, Any]]) -> list[tuple[int, list[Any]]]:
    """Of each batch: its input rows, and the frontier in its end offset."""
    return [(p["numInputRows"], json.loads(p["sources"][0]["endOffset"])["frontier"]) for p in progress]


def test_rows_and_frontier_come_together(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", product(epoch="int64", iter="int64"))
    say(channel, "a", ((0, 0), 1), ((0, 1), 2), then=[(1, 0)])
    say(channel, "b", ((0, 0), 3), then=[(0, 1), (1, 0)])
    progress = run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint")
    assert ends(progress) == [(3, [[0, 1], [1, 0]])]


def test_a_move_of_the_frontier_without_rows_makes_a_batch(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in")
    frame = stream(spark, tmp_path / "in")
    say(channel, "a", (1, 1), then=[5])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    say(channel, "b", then=[4])
    assert ends(run(frame, tmp_path / "out", tmp_path / "checkpoint")) == [(0, [4])]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [4]


def test_nothing_new_makes_no_batch(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in")
    say(channel, "a", (1, 1), then=[5])
    frame = stream(spark, tmp_path / "in")
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    say(channel, "a", then=[6])  # b still holds 0: the frontier stays
    assert run(frame, tmp_path / "out", tmp_path / "checkpoint") == []


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("limit", "value"), [("maxFilesPerTrigger", "1"), ("maxFilesPerTrigger", "2"), ("maxBytesPerTrigger", "1")]
)
def test_limits_split_commits_and_the_frontier_waits_for_whole_ones(spark: Any, tmp_path: Path, limit: str, value: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    for start in (0, 10):
        files = []
        for n in range(3):
            writer = channel.file_writer()
            writer.write(rows(int64, (start + n, n)))
            files += writer.finish()[0]
        channel.append(files, statements={"a": [start + 10]}, times=[(start + n, 1) for n in range(3)])
    progress = run(stream(spark, tmp_path / "in", **{limit: value}), tmp_path / "out", tmp_path / "checkpoint")
    step = 2 if value == "2" else 1
    assert [n for n, _ in ends(progress) if n] == [step] * (6 // step)
    seen = 0
    for n, frontier in ends(progress):
        seen += n
        allowed = {[0, 10, 20][seen // 3], [0, 10, 20][max(0, (seen - 1) // 3)]}
        assert frontier[0] in allowed or frontier == [-(1 << 63)]
    assert ends(progress)[-1][1] == [20]
    assert Channel.open(tmp_path / "out").read().num_rows == 6


def test_starting_version_takes_that_commit_first(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[5])
    version = channel.version
    second = say(channel, "a", (6, 2), then=[8])
    assert second is not None
    frame = stream(spark, tmp_path / "in", startingVersion=str(version + 1))
    progress = run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert ends(progress) == [(1, [8])]
    assert Channel.open(tmp_path / "out").read().column("n").to_pylist() == [2]


def test_starting_at_latest_takes_only_what_comes_later(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[5])
    frame = stream(spark, tmp_path / "in", startingVersion="latest")
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        settle(query)
        say(channel, "a", (6, 2), then=[8])
        settle(query)
        assert [n for n, _ in ends(query.recentProgress) if n] == [1]
    finally:
        query.stop()


def test_where_a_stream_begins_is_said_once(tmp_path: Path) -> None:
    """Spark asks twice before the first batch, and a commit may come in between."""
    channel = make_channel(tmp_path / "in")
    options = ReadOptions.parse({"path": str(tmp_path / "in"), "startingVersion": "latest"})
    reader = StreamReader(options, spark_schema(channel.schema, channel.time_column, channel.domain))
    first = reader.initialOffset()
    say(channel, "a", (1, 1), then=[2])
    assert reader.initialOffset() == first
    assert reader.latestOffset(first, ReadAllAvailable())["commit"] > first["commit"]


def test_a_commit_that_is_taken_in_parts_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    files: list[DataFile] = []
    for i in range(5):
        with channel.file_writer() as writer:
            writer.write(rows(int64, (i, i)))
            files += writer.finish()[0]
    version = channel.append(files, statements={"a": [5]}, times=[(i, 1) for i in range(5)])
    options = ReadOptions.parse({"path": str(tmp_path / "in"), "startingVersion": str(version), "maxFilesPerTrigger": "2"})
    reader = StreamReader(options, spark_schema(channel.schema, channel.time_column, channel.domain))
    at, ends, read = reader.initialOffset(), [], []
    original = Log.read
    monkeypatch.setattr(Log, "read", lambda self, version: read.append(version) or original(self, version))
    for _ in range(4):
        at = reader.latestOffset(at, reader.getDefaultReadLimit())
        ends.append((at["commit"], at["file"], at["frontier"]))
    assert ends == [(version, 2, [0]), (version, 4, [0])] + [(version + 1, 0, [5])] * 2
    assert read.count(version) == 1


def test_starting_timestamp_finds_the_first_commit_not_before_it(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[5])
    frame = stream(spark, tmp_path / "in", startingTimestamp="1999-01-01")
    assert ends(run(frame, tmp_path / "out", tmp_path / "checkpoint")) == [(1, [5])]
    later = stream(spark, tmp_path / "in", startingTimestamp="2999-01-01T00:00:00Z")
    assert ends(run(later, tmp_path / "out2", tmp_path / "checkpoint2")) == [(0, [5])]


def test_a_starting_version_that_is_not_there_is_refused(spark: Any, tmp_path: Path) -> None:
    make_channel(tmp_path / "in")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_VERSION_MISSING"):
        run(stream(spark, tmp_path / "in", startingVersion="99"), tmp_path / "out", tmp_path / "checkpoint")


def test_a_stream_begun_by_a_snapshot_goes_on_with_the_log(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    for n in range(4):
        say(channel, "a", (n, n), then=[n + 1])
    frame = stream(spark, tmp_path / "in", startingVersion="snapshot", maxFilesPerTrigger="3")
    progress = run(frame, tmp_path / "out", tmp_path / "checkpoint")
    # The frontier is not known to hold before the whole snapshot is in.
    assert ends(progress) == [(3, [-(1 << 63)]), (1, [4])]
    say(channel, "a", (7, 7), then=[8])
    assert ends(run(frame, tmp_path / "out", tmp_path / "checkpoint")) == [(1, [8])]
    assert Channel.open(tmp_path / "out").read().num_rows == 5


@pytest.mark.drawn
def test_optimized_and_vacuumed_channels_are_read_by_default(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    for n in range(4):
        say(channel, "a", (n, n), then=[n + 1])
    spark.sql(f"OPTIMIZE delta.`{tmp_path / 'in'}`")
    frame = stream(spark, tmp_path / "in")
    assert sum(n for n, _ in ends(run(frame, tmp_path / "out", tmp_path / "checkpoint"))) == 4
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{tmp_path / 'in'}` RETAIN 0 HOURS")
    say(channel, "a", (9, 9), then=[10])
    assert ends(run(frame, tmp_path / "out", tmp_path / "checkpoint")) == [(1, [10])]
    progress = run(frame, tmp_path / "out2", tmp_path / "checkpoint2")
    assert ends(progress)[-1][1] == [10]
    assert Channel.open(tmp_path / "out2").read().num_rows == 5


def test_a_missing_data_file_stops_the_query_unless_loss_is_accepted(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    say(channel, "a", (2, 2), then=[3])
    (tmp_path / "in" / channel.snapshot_files()[0].path).unlink()
    with pytest.raises(StreamingQueryException, match="STRANDLINE_DATA_FILE_MISSING"):
        run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint")
    run(stream(spark, tmp_path / "in", failOnDataLoss="false"), tmp_path / "out", tmp_path / "checkpoint")
    assert Channel.open(tmp_path / "out").read().num_rows == 1


@pytest.mark.drawn
def test_a_plain_append_to_the_channel_stops_the_reader_and_names_the_commit(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    spark.read.format("delta").load(str(tmp_path / "in")).write.format("delta").mode("append").save(str(tmp_path / "in"))
    with pytest.raises(StreamingQueryException, match=f"STRANDLINE_STATEMENT_MISSING.*Commit {channel.version + 1} "):
        run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint")


@pytest.mark.drawn
def test_deleted_rows_stop_the_reader_unless_it_is_told_to_pass_over_them(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    frame = stream(spark, tmp_path / "in")
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    spark.sql(f"DELETE FROM delta.`{tmp_path / 'in'}` WHERE n = 1")
    say(channel, "a", (2, 2), then=[3])
    with pytest.raises(StreamingQueryException, match="STRANDLINE_ROWS_CHANGED"):
        run(frame, tmp_path / "out", tmp_path / "checkpoint")
    passing = stream(spark, tmp_path / "in", ignoreDeletes="true")
    assert ends(run(passing, tmp_path / "out", tmp_path / "checkpoint")) == [(1, [3])]


def test_a_checkpoint_of_another_channel_is_refused(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "in")
    say(make_channel(tmp_path / "in", producers=("a",)), "a", (1, 1), then=[2])
    with pytest.raises(StreamingQueryException, match="STRANDLINE_CHECKPOINT_MISMATCH"):
        run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint")


def test_columns_are_chosen_by_option_and_the_time_column_stays(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 7), then=[2])
    frame = stream(spark, tmp_path / "in", columns="n")
    assert frame.columns == ["time", "n"]
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert Channel.open(tmp_path / "out").read().to_pylist() == [{"time": 1, "n": 7}]
    with pytest.raises(Exception, match="STRANDLINE_OPTION_INVALID.*nope"):
        stream(spark, tmp_path / "in", columns="nope")


def test_a_path_that_is_no_channel_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="STRANDLINE_NOT_A_TABLE"):
        stream(spark, tmp_path / "nothing")
    spark.range(3).write.format("delta").save(str(tmp_path / "plain"))
    with pytest.raises(Exception, match="STRANDLINE_TIME_DOMAIN_MISSING"):
        stream(spark, tmp_path / "plain")


@pytest.mark.drawn
def test_processing_time_triggers_follow_the_channel(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    frame = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n"))
    writer = frame.writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start(str(tmp_path / "out"))
    try:
        for n in range(3):
            say(channel, "a", (n, n), (n, 10), then=[n + 1])
            settle(query)
            assert Channel.open(tmp_path / "out").read().to_pylist()[-1] == {"time": n, "n": n + 10}
    finally:
        query.stop()


def test_batch_reads_are_as_of_any_version(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in")
    first = say(channel, "a", (1, 1), then=[2])
    say(channel, "a", (2, 2), then=[3])
    read = spark.read.format("strandline")
    assert read.load(str(tmp_path / "in")).count() == 2
    assert spark.read.format("strandline").option("asOfVersion", first).load(str(tmp_path / "in")).count() == 1
    shown = spark.read.format("strandline").option("show", "progress").load(str(tmp_path / "in")).orderBy("producer").collect()
    assert [(r.producer, r.holds, r.frontier, r.holdsFrontierBack) for r in shown] == [
        ("a", ["3"], ["0"], False),
        ("b", ["0"], ["0"], True),
    ]


def test_one_capability_in_the_frontier_holds_it_back(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", product(epoch="int64", iter="int64"))
    say(channel, "a", then=[(1, 5), (5, 1)])
    say(channel, "b", then=[(1, 4)])
    reader = ProgressReader(ReadOptions.parse({"path": str(tmp_path / "in")}))

    def back() -> dict[str | None, bool]:
        return {row[2]: row[5] for partition in reader.partitions() for row in reader.read(partition)}

    assert back() == {"a": True, "b": True}
    say(channel, "b", then=[(1, 6)])
    say(channel, "b", then=[(2, 7)])
    assert back() == {"a": True, "b": False}


def test_no_plan_shows_what_opens_a_store(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    channel = make_channel(tmp_path / "in")
    say(channel, "a", (1, 1), then=[2])
    names = ["AWS_ACCESS_KEY_ID", "AZURE_STORAGE_ACCOUNT_KEY", "google_service_account_key", "anything"]
    options = {f"storage.{name}": "SEKRIT" for name in names}
    streaming, batch = (
        reader.format("strandline").options(**options).load(str(tmp_path / "in")) for reader in (spark.readStream, spark.read)
    )
    for frame in (streaming, batch):
        frame.explain("extended")
    query = (
        streaming.writeStream.format("strandline")
        .options(**options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    query.explain(extended=True)
    shown = capsys.readouterr().out
    assert "storage.anything" in shown
    assert "SEKRIT" not in shown
