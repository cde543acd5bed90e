"""A query whose checkpoint is lost goes on with its output: each row comes once, and what does not fit is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from helpers import contents, make_channel, rows, run, settle, stream
from pyspark_strandline import read_channels
from pyspark_strandline.options import IngestOptions, ReadOptions, WriteOptions
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.several.source import SeveralReader
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.resume.beginnings import as_before, check_beginnings
from pyspark_strandline.resume.first_batch import FirstBatch
from pyspark_strandline.resume.written import Rows, rows_of, written
from pyspark_strandline.schema import spark_schema
from pyspark_strandline.write.channel_output import ChannelOutput, WrittenFiles
from pyspark_strandline.write.commit_record import CommitRecord
from strandline.channel import Channel
from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.inputs import Input
from strandline.errors import StrandlineError
from strandline.report import verify
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

IMPOSSIBLE, DIFFERS = "STRANDLINE_RESUME_IMPOSSIBLE", "STRANDLINE_RESUME_DIFFERS"
RESUME, EXACT = {"resume": "stateful"}, {"resume": "true"}
LEAST = int64.minimum


def send(path: Path, *batches: list[tuple[int, int]], then: int) -> None:
    """One commit with a file for each batch of rows."""
    channel, files, times = Channel.open(path), [], []
    for entries in batches:
        with channel.file_writer() as writer:
            writer.write(rows(int64, *entries))
            found = writer.finish()
        files, times = files + found[0], times + found[1]
    channel.append(files, statements={"a": [then]}, times=times, owner="a", take_over=True)


class Story:
    """A query from one channel into another. It loses its checkpoint whenever it is told to."""

    def __init__(self, spark: Any, folder: Path, plan: Callable[[Any], Any]) -> None:
        self.spark, self.folder, self.plan = spark, folder, plan
        self.input, self.out = folder / "in", folder / "out"
        self.lost = 0
        make_channel(self.input, producers=("a",))

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.lost}"

    def lose(self) -> None:
        self.lost += 1

    def run(
        self,
        plan: Callable[[Any], Any] | None = None,
        sink: Mapping[str, str] = RESUME,
        source_resumes: bool = True,
        **source: str,
    ) -> list[dict[str, Any]]:
        """Run the query to the end. After its first loss it has the options to go on."""
        resume = {"resume": str(self.out)} if self.lost and source_resumes else {}
        frame = (plan or self.plan)(stream(self.spark, self.input, **{**resume, **source}))
        return run(frame, self.out, self.checkpoint, **(sink if self.lost else {}))

    def refused(self, match: str, *args: Any, **options: Any) -> None:
        """The query does not go on, writes nothing, and its checkpoint is thrown away."""
        version, files = Channel.open(self.out).version, sorted(self.out.glob("*.parquet"))
        with pytest.raises(StreamingQueryException, match=match):
            self.run(*args, **options)
        assert (Channel.open(self.out).version, sorted(self.out.glob("*.parquet"))) == (version, files)
        shutil.rmtree(self.checkpoint)


def newest_reads(out: Path) -> Input:
    """How far the query that writes a channel has read its only input."""
    channel = Channel.open(out)
    statement = channel.log.require(channel.version).statement
    assert statement is not None
    [read] = statement.reads
    return read


def few(frame: Any) -> Any:
    return frame.where("n % 2 = 1").select("time", "n")


def sums(frame: Any) -> Any:
    return frame.groupBy("time").agg(F.sum("n").alias("n"))


@pytest.mark.spark
def test_a_query_goes_on_again_and_again_and_its_readers_notice_nothing(spark: Any, tmp_path: Path) -> None:
    """Its options stay. The queries before are fenced."""
    story, seen, frontiers = Story(spark, tmp_path, few), [], []

    def step(hour: int, **options: Any) -> None:
        send(story.input, [(hour, hour), (hour + 1, 101)], [(hour, 2)], then=hour + 1)
        story.run(**options)
        run(stream(spark, story.out), tmp_path / "copy", tmp_path / "reader")
        seen.append(contents(tmp_path / "copy"))
        frontiers.append(list(Channel.open(story.out).frontier))

    step(3)
    first = set(Channel.open(story.out).producers)
    story.lose()
    step(5)
    out = Channel.open(story.out)
    [went_on] = [c for c in out.log.tail(0) if c.statement and c.transactions and 0 in c.transactions.values()][1:]
    assert not len(went_on.files)
    step(7)  # the options are still there
    story.lose()
    step(9)
    wanted = sorted([(hour, hour) for hour in (3, 5, 7, 9)] + [(hour + 1, 101) for hour in (3, 5, 7, 9)])
    assert contents(story.out) == seen[-1] == wanted
    assert frontiers == [[4], [6], [8], [10]]
    assert set(Channel.open(story.out).producers) == first
    assert verify(story.out).violation is None
    for before in (0, 1):
        story.lost = before
        send(story.input, [(11 + before, 5)], then=11)
        with pytest.raises(StreamingQueryException, match="STRANDLINE_PRODUCER_FENCED.*goes on with the producer"):
            story.run()
    assert contents(story.out) == wanted


@pytest.mark.spark
def test_open_times_are_filled_again_whatever_the_limits_are(spark: Any, tmp_path: Path) -> None:
    story = Story(spark, tmp_path, sums)
    send(story.input, [(0, 1), (2, 1)], [(1, 10), (2, 2)], then=1)
    story.run(maxFilesPerTrigger="1")
    story.lose()
    send(story.input, [(1, 20)], [(2, 4)], then=2)
    assert [each["numInputRows"] for each in story.run(maxFilesPerTrigger="1", startingVersion="0")] == [4, 1, 1]
    assert contents(story.out) == [(0, 1), (1, 30)]
    send(story.input, [(3, 8)], then=4)
    story.run()
    assert contents(story.out) == [(0, 1), (1, 30), (2, 7), (3, 8)]


@pytest.mark.spark
def test_a_query_goes_on_within_a_commit(spark: Any, tmp_path: Path) -> None:
    story = Story(spark, tmp_path, few)
    send(story.input, [(0, 1)], [(1, 3)], then=1)
    send(story.input, [(2, 5)], [(2, 6)], then=1)  # the second file makes no row, so no commit says that it was read
    story.run(maxFilesPerTrigger="1")
    assert newest_reads(story.out).file == 1
    story.lose()
    send(story.input, [(2, 8)], [(2, 9)], then=3)
    assert [each["numInputRows"] for each in story.run(maxFilesPerTrigger="1")] == [3, 1, 1, 1]
    assert contents(story.out) == [(0, 1), (1, 3), (2, 5), (2, 9)]


@pytest.mark.spark
def test_a_crash_between_the_two_commits_repeats_the_first_batch(spark: Any, tmp_path: Path) -> None:
    """And one before both of them: a query that was refused is let in later."""
    story = Story(spark, tmp_path, sums)
    send(story.input, [(0, 1), (1, 2)], then=1)
    writer = sums(stream(spark, story.input)).writeStream.format("strandline")
    query = writer.option("checkpointLocation", str(story.checkpoint)).start(str(story.out))
    settle(query)
    story.lose()
    with pytest.raises(StreamingQueryException, match="STRANDLINE_PRODUCER_LIVE"):
        story.run()
    assert (story.checkpoint / "offsets" / "0").exists()
    query.stop()
    story.run()
    version = Channel.open(story.out).version
    for name in ("0", ".0.crc"):
        (story.checkpoint / "commits" / name).unlink(missing_ok=True)
    story.run()
    assert Channel.open(story.out).version == version
    send(story.input, [(1, 3)], then=2)
    story.run()
    assert contents(story.out) == [(0, 1), (1, 5)]


@pytest.mark.drawn
@pytest.mark.spark
@pytest.mark.parametrize("together", [False, True], ids=["two sources", "one source"])
def test_a_join_goes_on(spark: Any, tmp_path: Path, together: bool) -> None:
    for name in ("left", "right"):
        make_channel(tmp_path / name, producers=("a",))
    out = tmp_path / "out"

    def join(number: int) -> None:
        options = {"resume": str(out)} if number else {}
        if together:
            streams = read_channels(spark, {name: str(tmp_path / name) for name in ("left", "right")}, **options)
            left, right = streams["left"], streams["right"]
        else:
            left, right = (stream(spark, tmp_path / name, **options) for name in ("left", "right"))
        frame = left.join(right.select("time", F.col("n").alias("m")), "time", "leftOuter").select("time", "n", "m")
        run(frame, out, tmp_path / f"checkpoint-{number}", **(RESUME if number else {}))

    send(tmp_path / "left", [(0, 1), (1, 2), (2, 3)], then=2)
    send(tmp_path / "right", [(0, 10)], then=1)
    join(0)
    before = contents(out)
    assert before == [(0, 1, 10)]
    send(tmp_path / "right", [(1, 20), (2, 30)], then=3)
    send(tmp_path / "left", [(3, 4)], then=4)
    join(1)
    assert contents(out) == [(0, 1, 10), (1, 2, 20), (2, 3, 30)]
    send(tmp_path / "right", [], then=5)
    join(1)
    assert contents(out) == [(0, 1, 10), (1, 2, 20), (2, 3, 30), (3, 4, None)]


@pytest.mark.drawn
@pytest.mark.spark
def test_a_query_that_would_write_something_else_does_not_go_on(spark: Any, tmp_path: Path) -> None:
    story = Story(spark, tmp_path, few)
    send(story.input, [(0, 1), (0, 2), (1, 3)], then=1)
    send(story.input, [(1, 4), (2, 5), (2, 7)], then=2)
    story.run()
    with pytest.raises(StreamingQueryException, match="STRANDLINE_PRODUCER_UNKNOWN.*set the option resume"):
        run(story.plan(stream(spark, story.input)), story.out, tmp_path / "without")
    story.lose()
    send(story.input, [(2, 9)], then=3)
    story.refused(f"{DIFFERS}.*has written 4 rows, but query .* makes 6 rows", lambda frame: frame.select("time", "n"))
    story.refused(f"{DIFFERS}.*has written 1 rows at 0, but query .* makes 2", lambda f: f.where("n < 5").select("time", "n"))
    story.refused(f"{DIFFERS}.*has written 4 rows, but query .* makes 2", startingVersion="2")
    story.refused(f"{IMPOSSIBLE}.*Set the option resume on every source", source_resumes=False)
    story.refused("STRANDLINE_PRODUCER_UNKNOWN", sink={})
    with pytest.raises(StreamingQueryException, match=f"{IMPOSSIBLE}.*There is no channel at"):
        run(few(stream(spark, story.input)), tmp_path / "nothing", tmp_path / "c2", **RESUME)
    story.run()
    assert contents(story.out) == [(0, 1), (1, 3), (2, 5), (2, 7), (2, 9)]


@pytest.mark.drawn
@pytest.mark.spark
@pytest.mark.parametrize("start", [*(pytest.param(v, marks=pytest.mark.soak) for v in "03"), "snapshot"])
def test_a_query_with_state_goes_on_only_from_where_it_began(spark: Any, tmp_path: Path, start: str) -> None:
    """What is in the operators cannot be compared, but where the rows in it begin can. A restart does not forget it."""
    story = Story(spark, tmp_path, sums)
    send(story.input, [(0, 1)], then=1)
    send(story.input, [(5, 2)], then=1)
    send(story.input, [(5, 4)], then=1)
    story.run(startingVersion=start)
    first = {"0": Beginning(commit=0), "3": Beginning(commit=3), "snapshot": Beginning(snapshot=3)}[start]
    assert newest_reads(story.out).began == first
    [moment] = [commit.timestamp_ms for commit in Channel.open(story.input).log.tail(0) if commit.version == 2]
    for number, more in ((1, [(5, 8)]), (2, [(5, 16)])):
        send(story.input, more, then=1 + number)
        story.run(startingVersion=start)  # a restart, before the checkpoint is lost
        began = newest_reads(story.out).began
        had, remedy = str(began), as_before(began)
        story.lose()
        for sink in (EXACT, RESUME):
            differs = f"{DIFFERS}.*with commit 2, but the query that wrote .* began {had}.*{remedy}"
            story.refused(differs, sink=sink, startingVersion="2")
        at = datetime.fromtimestamp(moment / 1000, timezone.utc).isoformat()
        story.refused(f"{DIFFERS}.* with commit [12], but the query that wrote .* began {had}", sink=EXACT, startingTimestamp=at)
        story.refused(f"{DIFFERS}.*with commit [0-9]+, but .* began {had}", sink=EXACT, startingVersion="latest")
        send(story.input, [(5, 0)], then=1 + number)
        story.refused(f"{IMPOSSIBLE}.*begins at commit .*{remedy}", sink=EXACT, startingVersion="latest")
        if start == "3":
            story.refused(f"{DIFFERS}.*with commit 0, but .*began with commit 3", sink=EXACT)
        else:
            story.run(sink=EXACT, startingVersion=start)
            story.lose()  # begun with the first commit or with a snapshot, it has all rows
        story.run(sink=EXACT, startingVersion={"0": "snapshot", "snapshot": "0"}.get(start, start))
    send(story.input, [(5, 32), (6, 1)], then=6)
    story.run(sink=EXACT, startingVersion=start)
    assert contents(story.out) == ([(5, 60)] if start == "3" else [(0, 1), (5, 62)])


@pytest.mark.drawn
@pytest.mark.spark
def test_rows_that_were_deleted_between_are_no_state(spark: Any, tmp_path: Path) -> None:
    """Unless the user answers for them. Files that were only rearranged have the same rows."""
    story = Story(spark, tmp_path, sums)
    send(story.input, [(5, 1)], then=1)
    send(story.input, [(5, 2)], then=1)
    story.run()
    DeltaTable(story.input).optimize.compact()
    send(story.input, [(5, 4)], then=2)
    story.run()
    story.lose()
    story.run(sink=EXACT)
    story.lose()
    DeltaTable(story.input).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    story.run(sink=EXACT)  # the files of the first commits are gone, but the snapshot has their rows
    assert newest_reads(story.out).began == Beginning(snapshot=4)
    DeltaTable(story.input).delete("n = 4")
    send(story.input, [(5, 8)], then=3)
    story.run(ignoreDeletes="true")
    story.run()
    assert newest_reads(story.out).began == Beginning(snapshot=4, removed=7)
    story.lose()
    removed = f"{IMPOSSIBLE}.*Commit 7 of .*in has deleted or rewritten rows.*resume to stateful"
    story.refused(removed, sink=EXACT)
    story.refused(removed, sink=EXACT, ignoreDeletes="true")
    story.run()  # with stateful: the snapshot has no row of 4 any more
    send(story.input, [(6, 1)], then=6)
    story.run()
    assert contents(story.out) == [(5, 11)]


@pytest.mark.spark
def test_rows_that_were_deleted_before_a_snapshot_are_not_in_it(spark: Any, tmp_path: Path) -> None:
    """A query that reads commit by commit has them, so it is another one."""
    story = Story(spark, tmp_path, sums)
    send(story.input, [(5, 1)], then=1)
    send(story.input, [(5, 2)], then=1)
    DeltaTable(story.input).delete("n = 1")
    story.run(startingVersion="snapshot")
    story.lose()
    story.refused(f"{IMPOSSIBLE}.*Commit 3 .*startingVersion to snapshot", sink=EXACT, ignoreDeletes="true")
    story.run(sink=EXACT, startingVersion="snapshot")
    send(story.input, [(6, 1)], then=6)
    story.run(startingVersion="snapshot")
    assert contents(story.out) == [(5, 2)]


@pytest.mark.drawn
@pytest.mark.spark
@pytest.mark.parametrize("is_told_alone", [False, True], ids=["with a batch of rows", "without news"])
def test_a_query_that_has_passed_over_missing_files_goes_on_only_if_the_user_answers(
    spark: Any, tmp_path: Path, is_told_alone: bool
) -> None:
    """The option may come with a batch that was planned without it, and may be gone before the next one."""
    story = Story(spark, tmp_path, sums)
    send(story.input, [(0, 1), (5, 1)], then=1)
    story.run()
    if is_told_alone:
        story.run(failOnDataLoss="false")
    else:
        send(story.input, [(5, 2)], then=1)
        [lost] = [file.path for file in Channel.open(story.input).log.require(2).files]
        (story.input / lost).rename(tmp_path / "lost")
        send(story.input, [(1, 4)], then=2)
        with pytest.raises(StreamingQueryException, match="STRANDLINE_DATA_FILE_MISSING"):
            story.run()
        story.run(failOnDataLoss="false")
        (tmp_path / "lost").rename(story.input / lost)
        began = newest_reads(story.out).began
        assert began is not None
        assert began.lossy
    send(story.input, [(2, 8)], then=3)
    story.run()
    story.lose()
    story.refused(f"{IMPOSSIBLE}.*with failOnDataLoss = false.*resume to stateful", sink=EXACT)
    with pytest.raises(Exception, match=f"{IMPOSSIBLE}.*failOnDataLoss"):
        story.run(failOnDataLoss="false")
    shutil.rmtree(story.checkpoint)
    story.run()


@pytest.mark.drawn
@pytest.mark.spark
def test_each_of_several_channels_begins_where_it_began(spark: Any, tmp_path: Path) -> None:
    names, out = ("left", "right"), tmp_path / "out"
    for name in names:
        make_channel(tmp_path / name, producers=("a",))
        send(tmp_path / name, [(5, 1)], then=1)

    def both(number: int, sink: Mapping[str, str], **options: str) -> None:
        resume = {"resume": str(out)} if number else {}
        streams = read_channels(spark, {name: str(tmp_path / name) for name in names}, **resume, **options)
        united = streams["left"].unionByName(streams["right"])
        run(sums(united), out, tmp_path / f"checkpoint-{number}", **(sink if number else {}))

    both(0, {})
    send(tmp_path / "right", [(5, 2)], then=1)
    send(tmp_path / "left", [(5, 4)], then=2)
    both(0, {})
    [moment] = [commit.timestamp_ms for commit in Channel.open(tmp_path / "right").log.tail(0) if commit.version == 2]
    at = datetime.fromtimestamp(moment / 1000, timezone.utc).isoformat()
    with pytest.raises(StreamingQueryException, match=f"{DIFFERS}.*(left|right) with commit 2, but .* began with commit 0"):
        both(1, EXACT, startingTimestamp=at)
    shutil.rmtree(tmp_path / "checkpoint-1")
    both(1, EXACT)
    for name in names:
        send(tmp_path / name, [(6, 1)], then=6)
    both(1, EXACT)
    assert contents(out) == [(5, 8)]


@pytest.mark.spark
def test_rows_that_are_written_at_once_need_no_answer(spark: Any, tmp_path: Path) -> None:
    plain = Story(spark, tmp_path / "plain", few)
    send(plain.input, [(0, 1), (2, 3)], then=1)
    plain.run()
    plain.lose()
    send(plain.input, [(3, 5)], then=3)
    plain.run(sink=EXACT)
    assert contents(plain.out) == [(0, 1), (2, 3), (3, 5)]


@pytest.mark.drawn
@pytest.mark.spark
def test_an_input_may_be_read_from_a_snapshot(spark: Any, tmp_path: Path) -> None:
    """Because its log was cleaned up since, or because the query reads so; and the output's log may have been cleaned up too."""
    story = Story(spark, tmp_path, sums)
    send(story.input, [(0, 1), (1, 2)], then=1)
    Channel.open(story.input).clean_log(timedelta(0))
    send(story.input, [(1, 4)], then=1)
    story.run(startingVersion="snapshot")
    story.lose()
    send(story.input, [(1, 8), (2, 3)], then=2)
    story.run()
    Channel.open(story.out).clean_log(timedelta(0))
    send(story.input, [(2, 16)], then=3)
    story.run()
    story.lose()
    story.run(startingVersion="snapshot")
    send(story.input, [(3, 32)], then=4)
    story.run(startingVersion="snapshot")
    assert contents(story.out) == [(0, 1), (1, 14), (2, 19), (3, 32)]


@pytest.mark.spark
def test_a_chosen_name_stays(spark: Any, tmp_path: Path) -> None:
    """And tells apart two producers that have read the same."""
    story = Story(spark, tmp_path, few)
    send(story.input, [(0, 1)], then=1)
    make = make_channel(tmp_path / "made", producers=())
    Channel.create(story.out, make.schema.remove(1), sealed=False)
    for name in ("one", "two"):
        run(few(stream(spark, story.input)), story.out, tmp_path / name, producer=name)
    story.lose()
    story.refused(f"{IMPOSSIBLE}.*Several producers .*'one', 'two'.*Name it")
    send(story.input, [(1, 3)], then=2)
    story.run(producer="two", sink={**RESUME, "producer": "two"})
    story.run(producer="two", sink=RESUME)  # the name is found again
    assert contents(story.out) == [(0, 1), (0, 1), (1, 3)]
    assert {name: list(state.holds) for name, state in Channel.open(story.out).producers.items()} == {"one": [1], "two": [2]}


# ---------------------------------------------------------------------------------------------------- without Spark


@pytest.mark.parametrize(
    ("parse", "options", "message"),
    [
        (
            WriteOptions.parse,
            {
                "outputs": json.dumps({"a": dict.fromkeys(("path", "column", "time", "domain"), "t") | {"fields": {"t": "t"}}}),
                "resume": "true",
            },
            f"{IMPOSSIBLE}.*outputs a",
        ),
        (IngestOptions.parse, {"path": "/c", "policy": "ordered()", "time": "t", "Resume": "true"}, f"{IMPOSSIBLE}.*ingest"),
        (ReadOptions.parse, {"channels": '{"a": "/a"}', "feedback": '{"a": {"iter": 1}}', "resume": "/o"}, f"{IMPOSSIBLE}.*loop"),
        (ReadOptions.parse, {"path": "/c", "producer": "p"}, "STRANDLINE_OPTION_CONFLICT.*resume"),
        (lambda options: ReadOptions.parse(options).for_batch(), {"path": "/c", "resume": "/o"}, "STRANDLINE_OPTION_UNKNOWN"),
        (WriteOptions.parse, {"path": "/c", "resume": "/o"}, "STRANDLINE_OPTION_INVALID.*true, stateful or false"),
    ],
)
def test_what_cannot_be_resumed_is_refused_where_it_is_given(
    parse: Callable[[dict[str, str]], Any], options: dict[str, str], message: str
) -> None:
    with pytest.raises(StrandlineError, match=message):
        parse(options)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Channel, Channel]:
    """A channel of three commits, the second with two files, and an output of it that has none of them."""
    source = make_channel(tmp_path / "in", producers=("a",))
    send(tmp_path / "in", [(0, 1)], then=1)
    send(tmp_path / "in", [(1, 2)], [(1, 3)], then=2)
    send(tmp_path / "in", [(2, 4)], then=3)
    source.refresh()
    return source, make_channel(tmp_path / "out", producers=("q", "r"))


def commit(out: Channel, producer: str, batch: int, reads: list[Input], *entries: tuple[int, int], then: int = 0) -> None:
    """A batch of a query."""
    with out.file_writer() as writer:
        if entries:
            writer.write(rows(int64, *entries))
        files, times = writer.finish()
    out.append(
        files, statements={producer: [then]}, times=times, transaction=(producer, batch), owner=producer, reads=reads, always=True
    )


def reader(source: Channel, out: Channel, **options: str) -> StreamReader:
    parsed = ReadOptions.parse({"path": str(source.path), "resume": str(out.path), **options})
    return StreamReader(parsed, spark_schema(source.schema, source.time_column, source.domain))


def first_end(source: Channel, out: Channel, **options: str) -> dict[str, Any]:
    own = reader(source, out, **options)
    end = own.latestOffset(own.initialOffset(), ReadMaxFiles(1))
    own.initialOffset()
    own.partitions(own.initialOffset(), end)
    assert own.latestOffset(end, ReadAllAvailable())["commit"] == source.version + 1 or "snapshot" in end
    return end


@pytest.mark.parametrize(("at", "frontier"), [((0, 0), [LEAST]), ((1, 0), [0]), ((2, 0), [1]), ((2, 1), [1]), ((4, 0), [3])])
def test_the_first_batch_ends_where_the_query_had_stopped(
    pair: tuple[Channel, Channel], at: tuple[int, int], frontier: list[int]
) -> None:
    source, out = pair
    commit(out, "q", 0, [Input(source.table_id, *at)])
    end = first_end(source, out)
    assert ((end["commit"], end["file"]), end["frontier"]) == (at, frontier)


def test_the_first_batch_ends_within_a_snapshot(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    commit(out, "q", 0, [Input(source.table_id, 3, 2, snapshot=2)])
    own = reader(source, out, startingVersion="snapshot")
    start = own.initialOffset()
    end = own.latestOffset(start, ReadAllAvailable())
    assert (end["commit"], end["file"], end["snapshot"], end["frontier"]) == (3, 2, 2, [LEAST])
    with pytest.raises(
        StrandlineError, match=f"{IMPOSSIBLE}.*up to file 2 of the snapshot of version 2.*startingVersion to snap"
    ):
        first_end(source, out)


def test_a_snapshot_that_is_not_in_the_log_any_more_is_refused(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    commit(out, "q", 0, [Input(source.table_id, 3, 0)])
    source.clean_log(timedelta(0))
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*up to commit 3, but the new query cannot read it there any more"):
        first_end(source, out)


@pytest.mark.parametrize("several", [False, True], ids=["one channel", "several channels"])
def test_a_batch_that_is_repeated_begins_where_it_was_planned(pair: tuple[Channel, Channel], several: bool) -> None:
    """After a crash in a query's first batch, Spark asks again where the query begins, and ``latest`` is elsewhere then."""
    source, other = pair

    def latest() -> StreamReader | SeveralReader:
        if several:
            names = json.dumps({"in": str(source.path), "out": str(other.path)})
            options = ReadOptions.parse({"channels": names, "startingVersion": "latest"})
            return SeveralReader(options, Inputs(options).schema())
        options = ReadOptions.parse({"path": str(source.path), "startingVersion": "latest"})
        return StreamReader(options, spark_schema(source.schema, source.time_column, source.domain))

    before = latest()
    start = before.initialOffset()
    send(Path(source.path), [(3, 7), (4, 8)], then=5)
    end = before.latestOffset(start, ReadAllAvailable())
    assert (end["channels"]["in"] if several else end)["began"] == {"commit": 4}
    for own, begin in ((before, start), (latest(), latest().initialOffset())):
        assert sum(batch.num_rows for part in own.partitions(begin, end) for batch in own.read(part)) == 2


def test_an_offset_of_a_release_before_stays_without_a_beginning(pair: tuple[Channel, Channel]) -> None:
    """And what a later release says of a beginning may mean something else."""
    source, out = pair
    start = first = reader(source, out).initialOffset()
    assert first["began"] == {"commit": 0}
    for began in (None, {"commit": 0, "since": 5}):
        start = {key: value for key, value in first.items() if key != "began"} | ({} if began is None else {"began": began})
        assert "began" not in reader(source, out).latestOffset(start, ReadAllAvailable())
    read = Input(source.table_id, 2, 0)
    commit(out, "q", 0, [read], (0, 1), then=1)
    for had, has in ((None, Beginning(commit=0)), (Beginning(commit=0), None)):
        batch = FirstBatch("new", [read._replace(began=has)], Antichain(int64, [1]), Rows(1, {0: 1}), state="rows")
        commit(out, "q", 1, [read._replace(began=had)], then=1)
        with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*do not say where the query before began.*resume to stateful"):
            batch.producer(out, None)
        assert replace(batch, trusted=True).producer(out, None).producer == "q"


@pytest.mark.parametrize(
    ("was", "new", "message"),
    [
        (Beginning(0), Beginning(0), None),
        (Beginning(0), Beginning(None, 4), None),
        (Beginning(None, 2), Beginning(None, 4), None),
        (Beginning(None, 2), Beginning(0), None),
        (Beginning(3), Beginning(3), None),
        (Beginning(3), Beginning(4), f"{DIFFERS}.*with commit 4, but .* began with commit 3"),
        (Beginning(3), Beginning(0), f"{DIFFERS}.*with commit 0, but .* began with commit 3"),
        (Beginning(3), Beginning(None, 4), f"{DIFFERS}.*with the snapshot of version 4, but .* began with commit 3"),
        (Beginning(None, 4), Beginning(3), f"{DIFFERS}.*with commit 3, but .* began with the snapshot of version 4"),
        (Beginning(3, None, 5), Beginning(3, None, 5), f"{IMPOSSIBLE}.*Commit 5 .*to stateful"),
        (Beginning(0, None, 5), Beginning(None, 7), f"{IMPOSSIBLE}.*Commit 5 .*to stateful"),
        (Beginning(None, 4), Beginning(0, None, 2), f"{IMPOSSIBLE}.*Commit 2 .*startingVersion to snapshot"),
        (Beginning(None, 4, 6), Beginning(0, None, 6), f"{IMPOSSIBLE}.*Commit 6 .*to stateful"),
        (Beginning(0, lossy=True), Beginning(0), f"{IMPOSSIBLE}.*failOnDataLoss.*to stateful"),
    ],
)
def test_which_beginnings_have_the_same_rows(was: Beginning, new: Beginning, message: str | None) -> None:
    had, has = ([Input("7c1f", 9, 0, "/in", began=began)] for began in (was, new))
    for trusted in (False, True):
        if message is None or (trusted and IMPOSSIBLE in message):
            check_beginnings("/out", "q", had, has, trusted=trusted)
        else:
            with pytest.raises(StrandlineError, match=message):
                check_beginnings("/out", "q", had, has, trusted=trusted)


def test_two_sources_of_one_channel_are_compared_each_with_its_own(pair: tuple[Channel, Channel]) -> None:
    source, _ = pair
    reads = [Input(source.table_id, 4, 0, began=Beginning(commit=at)) for at in (0, 2)]
    check_beginnings("out", "q", reads, reads, trusted=False)
    for other in (reads[::-1], reads[:1], reads[1:]):
        with pytest.raises(StrandlineError, match=f"{DIFFERS}.*begin"):
            check_beginnings("out", "q", reads, other, trusted=False)


def test_a_query_that_has_begun_does_not_look_for_its_output(pair: tuple[Channel, Channel], tmp_path: Path) -> None:
    """Also at the position where it began: Spark asks for the initial offset only of a new query."""
    source, out = pair
    commit(out, "q", 0, [Input(source.table_id, 1, 0)])
    start = reader(source, out).initialOffset()
    shutil.rmtree(tmp_path / "out")
    own = reader(source, out)
    assert own.latestOffset(start, ReadAllAvailable())["commit"] == 4
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*There is no channel at"):
        first_end(source, out)


@pytest.mark.parametrize(
    ("read", "options", "message"),
    [
        ({"commit": 9}, {}, "STRANDLINE_CHANNEL_REPLACED.*has read commit 8 .*newest commit is now 3"),
        ({"after": "0" * 32}, {}, "STRANDLINE_CHANNEL_REPLACED.*is not the one that was read before"),
        ({"commit": 2, "file": 3}, {}, "STRANDLINE_OFFSET_INVALID.*only 2 file"),
        ({"commit": 2, "file": 1}, {"startingVersion": "snapshot"}, f"{IMPOSSIBLE}.*between two commits"),
        ({"commit": 2}, {"startingVersion": "latest"}, f"{IMPOSSIBLE}.*new query begins at commit 4"),
        ({"commit": 2}, {"startingVersion": "3"}, f"{IMPOSSIBLE}.*up to commit 2, but the new query begins at commit 3"),
        ({"table": "other"}, {}, f"{IMPOSSIBLE}.*No producer of .* has read all of them"),
        ({"table": "other", "path": "in"}, {}, f"{IMPOSSIBLE}.*was made anew"),
        ({}, {"producer": "r"}, f"{IMPOSSIBLE}.*has no commit of 'r'"),
        ({}, {"producer": "s"}, f"{IMPOSSIBLE}.*has no producer 's'. Its producers: 'q', 'r'"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(
    pair: tuple[Channel, Channel], tmp_path: Path, read: dict[str, Any], options: dict[str, str], message: str
) -> None:
    source, out = pair
    if "path" in read:
        read = {**read, "path": str(tmp_path / read["path"])}
    commit(out, "q", 0, [Input(source.table_id, 4, 0)._replace(**read)])
    with pytest.raises(StrandlineError, match=message):
        first_end(source, out, **options)


def test_what_the_log_of_an_output_says(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    inputs, read = {source.table_id: source.path}, Input(source.table_id, 2, 0)
    commit(out, "r", 0, [], (0, 1))
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*newest commit of producer 'r' .* does not say"):
        written(out, inputs)
    commit(out, "q", 0, [read, read._replace(commit=3)], (0, 1), (0, 2), then=1)
    assert written(out, inputs).producer == "q"
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*two sources of the channel"):
        written(out, inputs).position(*next(iter(inputs.items())))
    commit(out, "q", 1, [read._replace(commit=3)], (1, 1), then=2)
    with out.producer("q", take_over=True) as by_hand:
        by_hand.delay([3])
    assert written(out, inputs).reads == (read._replace(commit=3),)
    assert rows_of(out, "q") == Rows(3, {0: 2, 1: 1})
    commit(out, "r", 1, [read], then=2)
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*Several producers .*'q', 'r'"):
        written(out, inputs)
    assert written(out, inputs, "r").reads == (read,)
    out.clean_log(timedelta(0))
    assert rows_of(out, "q") is None


def test_rows_of_very_many_times_are_compared_time_by_time(pair: tuple[Channel, Channel]) -> None:
    """Their statement has spans, so the times are read from the commit's files, as long as these exist."""
    source, out = pair
    read, most = Input(source.table_id, 2, 0), 3000
    commit(out, "q", 0, [read], (0, 1), (0, 2))
    commit(out, "q", 1, [read], *((time, 1) for time in range(1, most)), then=most)
    written_by_q = dict.fromkeys(range(1, most), 1) | {0: 2}
    assert rows_of(out, "q") == Rows(most + 1, written_by_q)
    batch = FirstBatch("new", [read], Antichain(int64, [most]), Rows(most + 1, written_by_q | {7: 0, 8: 2}), state="none")
    with pytest.raises(StrandlineError, match=f"{DIFFERS}.*has written 1 rows at 7, but query new makes 0"):
        batch.check(out, batch.producer(out, None))
    [file] = [file.path for commit in out.log.tail(2) for file in commit.files]
    Path(out.path, file).unlink()
    assert rows_of(out, "q") == Rows(most + 1, None)


def test_a_query_that_another_overtakes_between_its_check_and_its_commit_writes_nothing(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    read = Input(source.table_id, 2, 0)
    commit(out, "q", 0, [read], (0, 1), then=1)
    before = ChannelOutput(str(out.path), out.schema, "time", int64, producer="q", take_over=True)
    first = FirstBatch("new", [read], Antichain(int64, [1]), Rows(1, {0: 1}), state="none")
    before.check(("q", 1), [], CommitRecord("q", None), "", [read._replace(commit=3)])
    replace(before, resume=True).go_on(first)
    with pytest.raises(StrandlineError, match="STRANDLINE_PRODUCER_FENCED"):
        before.commit(("q", 1), Antichain(int64, [2]), WrittenFiles(), reads=[read._replace(commit=3)])
    out.refresh()
    assert out.frontier.to_json() == [0]  # of "r"
    assert list(out.producers["q"].holds) == [1]
    with pytest.raises(StrandlineError, match="STRANDLINE_PRODUCER_LIVE"):
        replace(before, resume=True, take_over=False).go_on(replace(first, query="other"))


def test_the_first_batch_is_compared_with_what_the_output_has(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    read = Input(source.table_id, 2, 0)
    commit(out, "q", 0, [read], (0, 1), (1, 2), then=1)

    def first(holds: list[int], rows: Rows, others: int = 0, **at: Any) -> None:
        batch = FirstBatch("new", [read._replace(**at)], Antichain(int64, holds), rows, others, state="rows", trusted=True)
        batch.check(out, batch.producer(out, None))
        with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*how rows are cut into batches"):
            replace(batch, state="batches").producer(out, None)

    good = Rows(2, {0: 1, 1: 1})
    first([1], good)
    first([1], Rows(2, None))
    for message, holds, found, others, at in (
        (f"{DIFFERS}.*frontier is .*1.*that of query new is .*2", [2], good, 0, {}),
        (f"{DIFFERS}.*2 rows, but query new makes 3", [1], Rows(3, None), 0, {}),
        (f"{DIFFERS}.*1 rows at 0, but query new makes 2", [1], Rows(2, {0: 2}), 0, {}),
        (f"{IMPOSSIBLE}.*1 of the query's sources are not channels", [1], good, 1, {}),
        (f"{IMPOSSIBLE}.*on every source", [1], good, 0, {"commit": 3}),
    ):
        with pytest.raises(StrandlineError, match=message):
            first(holds, found, others, **at)
