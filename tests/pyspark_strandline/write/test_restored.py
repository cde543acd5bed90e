"""A channel is restored to an earlier state, and a query has read or written more: it stops, and says how to continue."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from helpers import contents, make_channel, rows, run, say, settings, settle, stream
from ingest_files import Feed, finish
from pyspark_strandline import ingest, write_outputs
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from pyspark_strandline.write.channel.channel_output import ChannelOutput
from pyspark_strandline.write.channel.written_files import WrittenFiles
from pyspark_strandline.write.commit_record import CommitRecord, record_of
from strandline.channel import Channel
from strandline.channel.statements.inputs import Input
from strandline.errors import LogError, StrandlineError
from strandline.ingest import ordered
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import int64

REPLACED = "STRANDLINE_CHANNEL_REPLACED.*is not the one that was read before"


def back_up(path: Path) -> Callable[[], None]:
    """Back up a folder; the result restores it."""
    backup = path.with_name(f"{path.name}-backup")
    shutil.copytree(path, backup)

    def restore() -> None:
        shutil.rmtree(path)
        shutil.copytree(backup, path)

    return restore


def repeat_from(checkpoint: Path, batch: int) -> None:
    """What STRANDLINE_OUTPUT_BEHIND says: remove what the checkpoint has of a batch and all later ones."""
    for folder in ("commits", "offsets"):
        for file in (checkpoint / folder).iterdir():
            number = file.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= batch:
                file.unlink()


# ---------------------------------------------------------------------------------------------------- outputs


@pytest.mark.drawn
@pytest.mark.spark
def test_a_query_does_not_go_on_in_an_output_that_lost_commits(spark: Any, tmp_path: Path) -> None:
    """And it writes them again, each row once, if its checkpoint is set back."""
    channel, out, checkpoint = make_channel(tmp_path / "in", producers=("a",)), tmp_path / "out", tmp_path / "checkpoint"
    frame = stream(spark, tmp_path / "in", maxFilesPerTrigger="1").groupBy("time").agg(F.sum("n").alias("n"))

    def deliver(*hours: int) -> None:
        for hour in hours:
            say(channel, "a", (hour, 10 + hour), (hour + 1, 100), then=[hour])
        run(frame, out, checkpoint)

    deliver(0, 1)
    restore = back_up(out)
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    has = Channel.open(out).transaction_version(query)
    assert has is not None
    deliver(2, 3)
    wanted, version = contents(out), Channel.open(out).version
    restore()
    say(channel, "a", (5, 15), then=[6])
    message = f"STRANDLINE_OUTPUT_BEHIND.*version was {version} then.*only the batches up to {has} of.*from batch {has + 1} on"
    with pytest.raises(StreamingQueryException, match=message):
        run(frame, out, checkpoint)
    assert contents(out) != wanted
    repeat_from(checkpoint, has + 1)
    run(frame, out, checkpoint)
    assert contents(out) == [*wanted, (3, 113), (4, 100), (5, 15)]
    assert Channel.open(out).frontier.to_json() == [6]


@pytest.mark.drawn
@pytest.mark.spark
def test_a_query_whose_checkpoint_was_restored_takes_no_other_rows_for_those_it_has_written(spark: Any, tmp_path: Path) -> None:
    """A batch has the number of one that the output has, and may have more rows. They would be lost."""
    channel, out, checkpoint = make_channel(tmp_path / "in", producers=("a",)), tmp_path / "out", tmp_path / "checkpoint"

    def deliver(hour: int) -> None:
        say(channel, "a", (hour, hour), then=[hour + 1])
        run(stream(spark, tmp_path / "in"), out, checkpoint)

    deliver(0)
    restore = back_up(checkpoint)
    deliver(1)
    shutil.copytree(checkpoint, tmp_path / "newest")
    refused = "STRANDLINE_REPLAY_DIFFERS.*restored to an earlier state"
    restore()
    with pytest.raises(StreamingQueryException, match=refused):
        deliver(2)
    repeat_from(checkpoint, 0)
    with pytest.raises(StreamingQueryException, match=refused):  # Spark begins anew at batch 0
        deliver(3)
    assert contents(out) == [(0, "k", 0), (1, "k", 1)]
    shutil.rmtree(checkpoint)
    (tmp_path / "newest").rename(checkpoint)
    deliver(4)
    assert [n for *_, n in contents(out)] == [0, 1, 2, 3, 4]


def test_sources_that_read_one_channel_do_not_take_each_others_positions(tmp_path: Path) -> None:
    """Both positions are in the channel's statement. But which source was where decides on the rows."""
    output = ChannelOutput(str(tmp_path / "out"), pa.schema([time_field("t", int64)]), "t", int64)
    record = CommitRecord("q", str(tmp_path))
    one, two, other = (Input(*position) for position in (("same", 5, 0), ("same", 3, 0), ("other", 4, 0)))
    for number, reads in enumerate([[two, two, other], [one, two, other]]):
        output.check(output.batch(("q", number), WrittenFiles(), reads), record, "")
        output.commit(output.batch(("q", number), WrittenFiles(), reads), Antichain(int64, [number]))
    for wrong in ([two, one, other], [one, one, two, other], [one, other]):
        with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_DIFFERS"):
            output.check(output.batch(("q", 1), WrittenFiles(), wrong), record, "")
    for same in ([one, two, other], [other, one, two]):
        output.check(output.batch(("q", 1), WrittenFiles(), same), record, "")


def cleaned(tmp_path: Path, *queries: str) -> ChannelOutput:
    """An output of queries that wrote batches 0 and 1 as ``q``. Others wrote on, and the log was cleaned up beyond that."""
    out = make_channel(tmp_path / "out", producers=("q", "other"))
    output = ChannelOutput(out.path, out.schema, "time", int64, producer="q")
    for query in queries:
        for number in range(2):
            output.commit(output.batch((query, number), one_row(output), [Input("in", number, 0)]), Antichain(int64, [0]))
    for n in range(130):
        say(out, "other", (0, n), then=[0])
    assert out.clean_log(timedelta(0)) > 50
    channel = Channel.open(out.path)
    assert all(channel.transaction_version(query) == 1 and channel.commit_of((query, 1)) is None for query in queries)
    return output


def one_row(output: ChannelOutput) -> WrittenFiles:
    with output.file_writer(0) as writer:
        writer.write(rows(int64, (0, 1)))
        return WrittenFiles.of(writer)


@pytest.mark.drawn("core")
def test_a_batch_whose_commit_was_cleaned_away_is_compared_all_the_same(tmp_path: Path) -> None:
    output, record = cleaned(tmp_path, "q"), CommitRecord("q", str(tmp_path))
    output.check(output.batch(("q", 1), one_row(output), [Input("in", 1, 0)]), record, "")
    with pytest.raises(StrandlineError, match=r"STRANDLINE_REPLAY_DIFFERS.*it had 1 row\(s\) then, and has 0 now"):
        output.check(output.batch(("q", 1), WrittenFiles(), [Input("in", 1, 0)]), record, "")
    for wrong in (Input("in", 2, 0), Input("in", 1, 1), Input("another", 1, 0)):
        with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_DIFFERS.*had not read the same"):
            output.check(output.batch(("q", 1), WrittenFiles(), [wrong]), record, "")
    with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_DIFFERS"):
        output.check(output.batch(("q", 0), one_row(output), [Input("in", 0, 0)]), record, "")
    channel = Channel.open(output.path)
    stated = channel.producers["q"].state
    assert isinstance(stated, dict)
    for wrote, says in (
        ("damaged", "is damaged"),
        ({"batch": 1, "rows": [True, 0]}, "is damaged"),
        ({"batch": 0, "rows": [1, 7]}, "is damaged.*not of batch 1"),
        (None, None),
    ):
        state = {key: value for key, value in {**stated, "strandline:wrote": wrote}.items() if value is not None}
        channel.append([], statements={"q": [0]}, states={"q": state}, owner="q", take_over=True, always=True)
        if says is None:  # such is the first batch of a query that goes on, whose rows the output had
            output.check(output.batch(("q", 1), one_row(output), [Input("in", 1, 0)]), record, "")
        else:
            with pytest.raises(StrandlineError, match=f"STRANDLINE_REPLAY_DIFFERS.*{says}"):
                output.check(output.batch(("q", 1), one_row(output), [Input("in", 1, 0)]), record, "")
    for state in (None, {"strandline:batch": "0:0123456789abcdef"}, {"batch": 41}, "a program's"):
        channel.append([], statements={"q": [0]}, states={"q": state}, owner="q", take_over=True, always=True)
        with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_DIFFERS.*does not say any more what the batch had read"):
            output.check(output.batch(("q", 1), WrittenFiles(), [Input("in", 1, 0)]), record, "")


@pytest.mark.parametrize("state", [[1, 2, 3], "cursor-17", 5, {"batch": 41, "position": 17}, None])
def test_a_query_leaves_the_state_of_a_program_that_was_the_producer(tmp_path: Path, state: Any) -> None:
    out = make_channel(tmp_path / "out", producers=("q",))
    out.append([], statements={"q": [0]}, states={"q": state}, owner="program", always=True)
    output = ChannelOutput(out.path, out.schema, "time", int64, producer="q", take_over=True)
    for number in range(2):
        channel = output.commit(
            output.batch(("query", number), one_row(output), [Input("in", number, 0)]), Antichain(int64, [number])
        )
    found = channel.producers["q"].state
    if isinstance(found, dict):
        assert found.pop("strandline:batch").startswith("1:")
        assert found.pop("strandline:wrote")["rows"][0] == 1
    assert found == ({} if state is None else state)


def test_a_query_that_was_taken_over_is_refused_though_its_successor_does_not_run(tmp_path: Path) -> None:
    """A scheduler starts both, one after the other. Without the refusal they took turns, and each row came twice."""
    out = make_channel(tmp_path / "out", producers=("q",))

    def commit(query: str, batch: int, *, take_over: bool = False) -> None:
        output = ChannelOutput(out.path, out.schema, "time", int64, producer="q", take_over=take_over)
        output.check(
            output.batch((query, batch), WrittenFiles(), [Input("in", batch, 0)]), CommitRecord(query, str(tmp_path)), ""
        )
        output.commit(output.batch((query, batch), one_row(output), [Input("in", batch, 0)]), Antichain(int64, [0]))

    commit("old", 0)
    commit("new", 0, take_over=True)
    for batch, take_over in ((1, False), (2, True)):
        with pytest.raises(StrandlineError, match="STRANDLINE_PRODUCER_FENCED.*Query new goes on with"):
            commit("old", batch, take_over=take_over)
    commit("new", 1)
    commit("third", 0, take_over=True)
    with pytest.raises(StrandlineError, match="STRANDLINE_PRODUCER_FENCED.*Query third goes on with"):
        commit("new", 2)
    assert Channel.open(out.path).read().num_rows == 4


@pytest.mark.drawn("core")
def test_a_new_query_under_an_old_name_is_refused_also_where_the_log_was_cleaned_up(tmp_path: Path) -> None:
    """It would write the rows of open times again."""
    output, record = cleaned(tmp_path, "first"), CommitRecord("second", str(tmp_path))
    written = one_row(output)
    with pytest.raises(StrandlineError, match="STRANDLINE_PRODUCER_EXISTS.*query first has written as producer 'q'"):
        output.check(output.batch(("second", 0), written, [Input("in", 3, 0)]), record, "")
    assert not [file for file in written.files if (tmp_path / "out" / file.path).exists()]
    replace(output, take_over=True).check(output.batch(("second", 0), WrittenFiles(), [Input("in", 3, 0)]), record, "")
    unused = make_channel(tmp_path / "unused", producers=("q",))
    replace(output, path=unused.path).check(output.batch(("second", 0), WrittenFiles(), [Input("in", 3, 0)]), record, "")


@pytest.mark.drawn
@pytest.mark.spark
def test_a_running_query_notices_that_its_output_was_restored(spark: Any, tmp_path: Path) -> None:
    """Its checkpoint is a setting of the session."""
    with settings(spark, {"spark.sql.streaming.checkpointLocation": str(tmp_path)}):
        channel = make_channel(tmp_path / "in", producers=("a",))
        writer = stream(spark, tmp_path / "in").writeStream.format("strandline")
        say(channel, "a", (0, 0), then=[1])
        query = writer.queryName("checkpoint").start(str(tmp_path / "out"))
        settle(query)
        assert (tmp_path / "checkpoint" / "strandline" / "commits").exists()
        restore = back_up(tmp_path / "out")
        say(channel, "a", (1, 1), then=[2])
        settle(query)
        restore()
        say(channel, "a", (2, 2), then=[3])
        with pytest.raises(StreamingQueryException, match="STRANDLINE_OUTPUT_BEHIND"):
            settle(query)
        assert contents(tmp_path / "out") == [(0, "k", 0)]


@pytest.mark.drawn
@pytest.mark.spark
def test_what_is_no_loss_stops_no_query(spark: Any, tmp_path: Path) -> None:
    """Batches that commit nothing, a batch that is repeated after its commit, and a log that was cleaned."""
    channel, out, checkpoint = make_channel(tmp_path / "in", producers=("a",)), tmp_path / "out", tmp_path / "checkpoint"
    frame = stream(spark, tmp_path / "in").groupBy("time").agg(F.sum("n").alias("n"))

    def deliver(hour: int, n: int, then: int) -> None:
        say(channel, "a", (hour, n), then=[then])
        run(frame, out, checkpoint)

    deliver(0, 1, 1)
    deliver(1, 2, 1)  # commits nothing
    deliver(1, 3, 2)
    version = Channel.open(out).version
    repeat_from(checkpoint, 2)  # a crash after the sink's commit
    run(frame, out, checkpoint)
    assert (contents(out), Channel.open(out).version) == ([(0, 1), (1, 5)], version)
    Channel.open(out).clean_log(timedelta(0))
    deliver(2, 4, 3)
    assert contents(out) == [(0, 1), (1, 5), (2, 4)]


@pytest.mark.drawn
@pytest.mark.spark
def test_each_of_several_outputs_must_have_its_batches(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))

    def start() -> None:
        frame = stream(spark, tmp_path / "in")
        outputs = {"all": (frame, str(tmp_path / "all")), "few": (frame.where("n > 1"), str(tmp_path / "few"))}
        writer = write_outputs(outputs).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    say(channel, "a", (0, 1), then=[1])
    start()
    restore = back_up(tmp_path / "few")
    say(channel, "a", (1, 2), then=[2])
    start()
    restore()
    say(channel, "a", (2, 3), then=[3])
    with pytest.raises(StreamingQueryException, match=f"STRANDLINE_OUTPUT_BEHIND.*{tmp_path}/few"):
        start()
    assert contents(tmp_path / "all") == [(0, "k", 1), (1, "k", 2)]


@pytest.mark.drawn
@pytest.mark.spark
def test_an_ingest_does_not_go_on_in_a_channel_that_lost_commits(spark: Any, tmp_path: Path) -> None:
    feed, path = Feed(tmp_path / "files"), tmp_path / "c"

    def deliver(hour: int) -> None:
        feed.add([(hour, "a", hour), (hour, "b", 10 + hour)])
        finish(ingest(feed.stream(spark), str(path), time="t", partition="p", policy=ordered()), tmp_path / "cp")

    deliver(0)
    restore = back_up(path)
    deliver(1)
    restore()
    with pytest.raises(StreamingQueryException, match="STRANDLINE_OUTPUT_BEHIND.*up to 0 of.*from batch 1 on"):
        deliver(2)
    repeat_from(tmp_path / "cp", 1)
    deliver(3)
    assert [row[0] for row in contents(path)] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.fixture
def out(tmp_path: Path) -> Channel:
    (tmp_path / "checkpoint").mkdir()
    return make_channel(tmp_path / "out", producers=("query",))


def batch(out: Channel, number: int, record: CommitRecord, *, moves: bool = True) -> None:
    """A batch of a sink: check, commit, note."""
    record.check("", number, out, out.path)
    out.append([], statements={"query": [number]}, transaction=("q", number), owner="q", always=moves)
    record.add("", number, out)
    record.save()


def opened(tmp_path: Path, query: str = "q") -> CommitRecord:
    """The record as a new process reads it."""
    return CommitRecord(query, str(tmp_path / "checkpoint"))


def test_the_record_knows_which_batches_have_commits(out: Channel, tmp_path: Path) -> None:
    """Also where no frontier moved: then nothing else tells a lost commit from one that never was."""
    for number in range(3):
        batch(out, number, opened(tmp_path))
    restore = back_up(tmp_path / "out")
    out.append([], statements={"query": [2]}, transaction=("q", 5), owner="q", always=True)
    record = opened(tmp_path)
    record.add("", 5, out)
    record.save()
    opened(tmp_path).check("", 6, out, out.path)
    restore()
    lost = Channel.open(out.path)
    with pytest.raises(StrandlineError, match="STRANDLINE_OUTPUT_BEHIND.*batch 5 .*only the batches up to 2 .*from batch 3 on"):
        opened(tmp_path).check("", 6, lost, lost.path)
    with pytest.raises(StrandlineError, match="STRANDLINE_OUTPUT_MISSING"):
        opened(tmp_path).check("", 6, None, lost.path)
    for number in range(3, 6):
        opened(tmp_path).check("", number, lost, lost.path)  # the query repeats its batches from there
    opened(tmp_path).check("another output", 6, lost, lost.path)
    opened(tmp_path, "another query").check("", 6, lost, lost.path)


def test_a_repetition_begins_after_what_the_output_has_and_is_offered_only_where_spark_can(out: Channel, tmp_path: Path) -> None:
    """Whatever the record lacks: there is none, a write of it failed, more was lost than it keeps."""
    checkpoint = tmp_path / "checkpoint"
    for number in range(2):
        batch(out, number, opened(tmp_path))
    restore = back_up(tmp_path / "out")
    file = checkpoint / "strandline" / "commits"
    before = file.read_bytes()
    for number in range(2, 4):
        batch(out, number, opened(tmp_path))
    file.write_bytes(before)  # these two are not in it
    batch(out, 4, opened(tmp_path))
    restore()

    def message(output: str = "", may_repeat: bool = True) -> str:
        record = opened(tmp_path)
        record._outputs[output] = record._outputs[""]
        lost = Channel.open(out.path)
        with pytest.raises(StrandlineError, match="STRANDLINE_OUTPUT_BEHIND.*up to 1 of.*from batch 2 on is missing") as caught:
            record.check(output, 5, lost, lost.path, lambda _: may_repeat)
        return str(caught.value)

    offer = "remove 2 and later"
    assert offer not in message()  # Spark would begin anew at batch 0
    for folder in ("commits", "offsets"):
        assert offer not in message()
        (checkpoint / folder).mkdir()
        (checkpoint / folder / "1").touch()
    assert offer in message()
    assert offer not in message(may_repeat=False)
    assert offer not in message(output="one of several")


def test_what_a_batch_was_before_it_was_repeated_is_forgotten(out: Channel, tmp_path: Path) -> None:
    for number in range(2):
        batch(out, number, opened(tmp_path))
    restore = back_up(tmp_path / "out")
    for number in range(2, 4):
        batch(out, number, opened(tmp_path))
    restore()
    lost = Channel.open(out.path)
    record = opened(tmp_path)
    record.check("", 2, lost, lost.path)
    record.add("", 2, lost)  # this time there is nothing to commit
    record.save()
    opened(tmp_path).check("", 3, lost, lost.path)


def test_a_write_of_the_record_that_fails_is_tried_again(out: Channel, tmp_path: Path) -> None:
    record = opened(tmp_path)
    batch(out, 0, record)
    shutil.rmtree(tmp_path / "checkpoint")
    batch(out, 1, record)
    (tmp_path / "checkpoint").mkdir()
    batch(out, 2, record)
    assert [each.batch for each in opened(tmp_path)._outputs[""]] == [0, 1, 2]


def test_a_workers_record_has_what_another_worker_has_committed(out: Channel, tmp_path: Path) -> None:
    place = str(tmp_path / "checkpoint")
    batch(out, 0, record_of("q", place))
    batch(out, 1, opened(tmp_path))
    batch(out, 2, record_of("q", place))
    [entries] = json.loads((tmp_path / "checkpoint" / "strandline" / "commits").read_text())["outputs"].values()
    assert [number for number, *_ in entries] == [0, 1, 2]


def test_a_record_that_is_missing_or_damaged_stops_nothing(out: Channel, tmp_path: Path) -> None:
    batch(out, 0, opened(tmp_path))
    file = tmp_path / "checkpoint" / "strandline" / "commits"
    for text in ("", "[]", '{"query":"q"', '{"query":"q","outputs":{"":[[1]]}}', '{"query":"q","outputs":[]}'):
        file.write_text(text)
        opened(tmp_path).check("", 9, out, out.path)
    shutil.rmtree(file.parent)  # there is none
    batch(out, 1, opened(tmp_path))
    assert file.exists()
    elsewhere = tmp_path / "no" / "checkpoint"
    for place in (None, str(elsewhere), "hdfs://nowhere/checkpoint"):
        batch(out, 2, CommitRecord("q", place))
    assert not elsewhere.parent.exists()


@pytest.mark.drawn
def test_a_record_is_small_and_has_the_newest_batches(out: Channel, tmp_path: Path) -> None:
    record = opened(tmp_path)
    for number in range(130):
        batch(out, number, record)
    [entries] = json.loads((tmp_path / "checkpoint" / "strandline" / "commits").read_text())["outputs"].values()
    assert [number for number, *_ in entries] == list(range(30, 130))


# ---------------------------------------------------------------------------------------------------- inputs


def reader(channel: Channel, **options: str) -> StreamReader:
    parsed = ReadOptions.parse({"path": str(channel.path), **options})
    return StreamReader(parsed, spark_schema(channel.schema, channel.time_column, channel.domain))


@pytest.fixture
def source(tmp_path: Path) -> tuple[Channel, Callable[[], None]]:
    """A channel with two commits of two files each after its backup, and what restores the backup and writes on."""
    channel = make_channel(tmp_path / "in", producers=("a",))

    def commit(*numbers: int) -> None:
        files, own = [], Channel.open(tmp_path / "in")
        for n in numbers:
            with own.file_writer() as writer:
                writer.write(rows(int64, (0, n)))
                files += writer.finish()[0]
        own.append(files, statements={"a": [0]}, times=[(0, len(files))], owner="one")

    commit(0, 1)
    restore = back_up(tmp_path / "in")
    commit(2, 3)
    commit(4, 5)

    def replace() -> None:
        restore()
        for n in range(102, 110, 2):
            commit(n, n + 1)

    return channel, replace


@pytest.mark.parametrize("restarts", [False, True], ids=["runs on", "restarts"])
@pytest.mark.parametrize("options", [{}, {"maxFilesPerTrigger": "1"}, {"maxFilesPerTrigger": "1", "startingVersion": "snapshot"}])
def test_a_source_does_not_go_on_in_another_log(
    source: tuple[Channel, Callable[[], None]], restarts: bool, options: dict[str, str]
) -> None:
    """Wherever it stands: after a commit, within one, or within its first snapshot."""
    channel, replace = source
    own = reader(channel, **options)
    at = own.initialOffset()
    limit = ReadMaxFiles(1) if options else ReadAllAvailable()
    for _ in range(5 if options else 1):
        start, at = at, own.latestOffset(at, limit)
    assert isinstance(at["after"], str)
    replace()
    own = reader(channel, **options) if restarts else own
    with pytest.raises(LogError, match=REPLACED):
        own.latestOffset(json.loads(json.dumps(at)), limit)
    if restarts:
        with pytest.raises(LogError, match=REPLACED):
            reader(channel, **options).partitions(start, at)  # a batch that is repeated


@pytest.mark.parametrize("restarts", [False, True], ids=["runs on", "restarts"])
def test_a_source_of_several_channels_does_not_go_on_if_one_is_another(
    source: tuple[Channel, Callable[[], None]], tmp_path: Path, restarts: bool
) -> None:
    channel, replace = source
    say(make_channel(tmp_path / "other", producers=("a",)), "a", (0, 0))
    paths = {"other": str(tmp_path / "other"), "in": str(channel.path)}
    options = ReadOptions.parse({"channels": json.dumps(paths), "strandline.extension": "0"}).for_stream()
    own = StreamReader(options, Inputs(options).schema())
    at = own.latestOffset(own.initialOffset(), ReadAllAvailable())
    assert own.latestOffset(at, ReadAllAvailable()) == at
    replace()
    own = StreamReader(options, Inputs(options).schema()) if restarts else own
    with pytest.raises(LogError, match=REPLACED):
        own.latestOffset(json.loads(json.dumps(at)), ReadAllAvailable())


def test_an_offset_of_an_earlier_release_is_continued(source: tuple[Channel, Callable[[], None]]) -> None:
    channel, _ = source
    first = reader(channel).latestOffset(reader(channel).initialOffset(), ReadAllAvailable())
    old = {key: value for key, value in first.items() if key != "after"}
    own = reader(channel)
    assert own.latestOffset(old, ReadAllAvailable()) == old
    with Channel.open(channel.path).producer("a", owner="one") as session:
        session.send(rows(int64, (0, 6)))
    end = own.latestOffset(old, ReadAllAvailable())
    assert end == reader(channel).latestOffset(first, ReadAllAvailable())
    assert [batch.column("n").to_pylist() for part in own.partitions(old, end) for batch in own.read(part)] == [[6]]


@pytest.mark.spark
def test_a_query_of_an_input_that_was_restored_stops(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (0, 0), then=[1])
    restore = back_up(tmp_path / "in")
    say(channel, "a", (1, 1), then=[2])
    run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint")
    restore()
    for n in (101, 102, 103):
        say(Channel.open(tmp_path / "in"), "a", (n, n), then=[n])
    with pytest.raises(StreamingQueryException, match=REPLACED):
        run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(0, "k", 0), (1, "k", 1)]
    run(stream(spark, tmp_path / "in"), tmp_path / "out2", tmp_path / "checkpoint2")  # what the message says
    assert contents(tmp_path / "out2") == contents(tmp_path / "in")


# ---------------------------------------------------------------------------------------------------- remedies and names


@pytest.mark.spark
def test_rows_without_a_statement_are_restored_away_and_the_rest_is_read(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[2])
    version = channel.version
    write_deltalake(str(tmp_path / "in"), rows(int64, (1, 99)).cast(channel.schema), mode="append")
    for restored in (False, True):
        if restored:
            DeltaTable(str(tmp_path / "in")).restore(version)
        with pytest.raises(StreamingQueryException, match=f"RESTORE the table to version {version}, .*startingVersion=snapshot"):
            run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / f"checkpoint{restored}")
    frame = stream(spark, tmp_path / "in", startingVersion="snapshot")
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    say(Channel.open(tmp_path / "in"), "a", (2, 2), then=[3])
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert contents(tmp_path / "out") == [(1, "k", 1), (2, "k", 2)]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [3]


@pytest.mark.spark
def test_after_rows_were_deleted_a_query_begins_with_what_is_left_or_with_what_comes(spark: Any, tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    say(channel, "a", (1, 1), then=[1])
    say(channel, "a", (1, 2), then=[1])
    DeltaTable(str(tmp_path / "in")).delete("n = 1")
    deleted = DeltaTable(str(tmp_path / "in")).version()
    say(Channel.open(tmp_path / "in"), "a", (1, 3), then=[2])
    with pytest.raises(StreamingQueryException, match=f"startingVersion=snapshot .*startingVersion={deleted + 1} "):
        run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint")
    for start, expected in (("snapshot", [2, 3]), (str(deleted + 1), [3])):
        run(stream(spark, tmp_path / "in", startingVersion=start), tmp_path / f"out-{start}", tmp_path / f"checkpoint-{start}")
        assert contents(tmp_path / f"out-{start}") == [(1, "k", n) for n in expected]


@pytest.mark.drawn
@pytest.mark.spark
def test_the_message_of_a_query_names_what_is_wrong_with_its_output(spark: Any, tmp_path: Path) -> None:
    """To remove the batch's files, the sink's abort looks into the same damaged log."""
    say(make_channel(tmp_path / "in", producers=("a",)), "a", (1, 1), then=[2])
    out = make_channel(tmp_path / "out", producers=("x",))
    out.append([], statements={"x": [0]}, always=True)
    newest = max((tmp_path / "out" / "_delta_log").glob("*.json"))
    newest.write_text("")
    with pytest.raises(StreamingQueryException, match="STRANDLINE_COMMIT_TORN"):
        run(stream(spark, tmp_path / "in"), tmp_path / "out", tmp_path / "checkpoint", producer="x")


# ---------------------------------------------------------------------------------------------------- cleaned logs


def source_of(path: Path) -> StreamReader:
    channel = Channel.open(path)
    return StreamReader(ReadOptions.parse({"path": str(path)}), spark_schema(channel.schema, channel.time_column, channel.domain))


def test_a_reader_that_has_read_everything_starts_again_after_the_log_was_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a",))
    for n in range(3):
        say(channel, "a", (n, n), then=[n + 1])
    reader = source_of(path)
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert Channel.open(path).clean_log(timedelta(0)) == at["commit"] - 2  # closing the session brought nothing
    assert source_of(path).latestOffset(at, ReadAllAvailable()) == at
    say(channel, "a", (3, 3), then=[4])
    running, again = reader.latestOffset(at, ReadAllAvailable()), source_of(path).latestOffset(at, ReadAllAvailable())
    assert running == again != at
    assert again["frontier"] == [4]


def test_a_running_reader_goes_on_when_a_table_is_altered_after_its_log_was_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a",))
    reader = source_of(path)
    at = reader.initialOffset()
    for n in range(3):
        say(channel, "a", (10 + n, n))
    at = reader.latestOffset(at, ReadAllAvailable())
    Channel.open(path).clean_log(timedelta(0))
    say(channel, "a", (21, 1), then=[22])
    DeltaTable(str(path)).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    say(channel, "a", (23, 2), then=[24])
    end = reader.latestOffset(at, ReadAllAvailable())
    assert end["frontier"] == [24]
    assert sum(len(json.loads(part.value)["paths"]) for part in reader.partitions(at, end)) == 2


def test_a_reader_of_a_channel_that_was_restored_and_not_written_since_says_so(tmp_path: Path) -> None:
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a",))
    say(channel, "a", (0, 0), then=[1])
    restore = back_up(path)
    say(channel, "a", (1, 1), then=[2])
    reader = source_of(path)
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    restore()
    with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED.*was restored to an earlier.*new checkpoint and a new out"):
        source_of(path).latestOffset(at, ReadAllAvailable())
