"""A query whose checkpoint is lost goes on with its output: each row comes once, and what does not fit is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from helpers import contents, make_channel, run, settle, stream
from pyspark_strandline import read_channels
from pyspark_strandline.resume.errors import as_before
from resumed import send
from strandline.channel import Channel
from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.inputs import Input
from strandline.report import verify

IMPOSSIBLE, DIFFERS = "STRANDLINE_RESUME_IMPOSSIBLE", "STRANDLINE_RESUME_DIFFERS"
RESUME, EXACT = {"resume": "stateful"}, {"resume": "true"}


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


@pytest.mark.drawn
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


@pytest.mark.drawn
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


@pytest.mark.drawn
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


@pytest.mark.drawn
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


@pytest.mark.spark
def test_a_query_that_began_with_a_frontier_does_not_go_on_from_a_commit(spark: Any, tmp_path: Path) -> None:
    """The first commit has rows before the frontier, which the query before has not read."""
    story = Story(spark, tmp_path, sums)
    send(story.input, [(3, 1), (5, 2)], then=1)
    story.run(startingFrontier="5")
    began = newest_reads(story.out).began
    assert began is not None
    story.lose()
    send(story.input, [(6, 4)], then=2)
    for sink in (EXACT, RESUME):
        story.refused(
            f"{DIFFERS}.*but the query that wrote .* began {re.escape(str(began))}", sink=sink, startingVersion=str(began.commit)
        )


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


@pytest.mark.drawn
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


@pytest.mark.drawn
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
