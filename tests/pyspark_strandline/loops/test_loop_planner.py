"""The planner of a loop through several queries, without Spark: what others commit while a batch is planned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_strandline.operators.loop_times import LoopTimes
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.several.loop_logs import LoopLogs
from pyspark_strandline.read.source import StreamReader
from strandline.channel import Channel
from strandline.channel.write.file_writer import FileWriter
from strandline.errors import LogError, StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, int64, product

DOMAIN = product(epoch="int64", iter="int64")
QUERIES = {
    "ask": {"reads": ["numbers", "back"], "writes": {"there": {}}},
    "answer": {"reads": ["there"], "writes": {"back": {"iter": 1}}},
}


class Loop:
    """The channels of a loop through two queries, and what each commits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        Channel.create(folder / "numbers", pa.schema([time_field("time", int64), ("n", pa.int64())]), producers=["p"], at=0)
        for name, query in (("there", "ask"), ("back", "answer")):
            Channel.create(folder / name, pa.schema([time_field("time", DOMAIN), ("n", pa.int64())]), producers=[query])
        self.batches = 0

    def given(self, query: str) -> dict[str, str]:
        channels = {name: str(self.folder / name) for name in ("numbers", "there", "back")}
        return {"channels": json.dumps(channels), "queries": json.dumps(QUERIES), "query": query, "domain": str(DOMAIN)}

    def options(self, query: str) -> ReadOptions:
        return ReadOptions.parse(self.given(query)).for_stream()

    def reader(self, query: str) -> StreamReader:
        return StreamReader(self.options(query), Inputs(self.options(query)).schema())

    def commit(self, query: str, channel: str, state: dict[str, Any], *times: Time) -> None:
        """Commit rows of a query with its state, as its sink does."""
        opened = Channel.open(self.folder / channel)
        files, counts = [], []
        if times:
            with FileWriter(opened.path, opened.schema, "time", DOMAIN) as writer:
                rows = [array_of(list(times), DOMAIN), pa.array([0] * len(times), pa.int64())]
                writer.write(pa.RecordBatch.from_arrays(rows, names=["time", "n"]))
                files, counts = writer.finish()
        self.batches += 1
        opened.append(
            files,
            statements={query: opened.frontier},
            times=counts,
            states={query: {"loop": {"query": query, "definition": Inputs(self.options(query)).definition, **state}}},
            transaction=(query, self.batches),
            take_over=True,
        )


def test_a_commit_between_the_look_at_rows_and_at_states_closes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other query commits a row, and that it has nothing more to write, while this one plans a batch."""
    loop = Loop(tmp_path)
    with Channel.open(tmp_path / "numbers").producer("p") as producer:
        producer.send(pa.table({"time": [0], "n": [5]}))
        producer.delay(1)
    ask = loop.reader("ask")
    first = ask.latestOffset(ask.initialOffset(), ReadAllAvailable())
    assert first["frontier"] == [[0, 1], [1, 0]]
    loop.commit("ask", "there", {**first["loop"], "held": {"there": []}}, (0, 0))
    answered = {"outside": [], "consumed": {"there": 2}, "held": {"back": []}}
    look = LoopLogs.look

    def late(self: LoopLogs, positions: dict[str, int]) -> Any:
        if loop.batches == 1:
            loop.commit("answer", "back", answered, (0, 1))
        return look(self, positions)

    monkeypatch.setattr(LoopLogs, "look", late)
    second = ask.latestOffset(first, ReadAllAvailable())
    assert loop.batches == 2
    assert second["channels"]["back"] == first["channels"]["back"]  # the row is not taken
    assert not Antichain.from_json(DOMAIN, second["frontier"]).closed((0, 1))


class Turns:
    """A query of the loop that passes every row on, batch by batch. Planning and committing are two steps."""

    def __init__(self, loop: Loop, query: str, channel: str, **options: Any) -> None:
        self.loop, self.query, self.channel = loop, query, channel
        self.reader = StreamReader(
            ReadOptions.parse({**loop.given(query), **{name: str(value) for name, value in options.items()}}).for_stream(),
            Inputs(loop.options(query)).schema(),
        )
        self.offset = self.reader.initialOffset()
        self.rows: list[Time] = []

    def plan(self) -> bool:
        """Plan a batch and read its rows. Returns whether there is one."""
        end = self.reader.latestOffset(self.offset, ReadAllAvailable())
        if end == self.offset:
            return False
        self.rows = []
        for part in self.reader.partitions(self.offset, end):
            for batch in self.reader.read(part):
                for row in batch.to_pylist():
                    time = next(value["time"] for value in row.values() if isinstance(value, dict))
                    self.rows.append((time["epoch"], time["iter"] + (self.query == "answer")))
        self.offset = json.loads(json.dumps(end))
        return True

    def commit(self) -> None:
        self.loop.commit(self.query, self.channel, self.offset["loop"], *self.rows)

    def turn(self) -> bool:
        if not self.plan():
            return False
        self.commit()
        return True


@pytest.fixture
def started(tmp_path: Path) -> Loop:
    """A loop with one row at 0."""
    loop = Loop(tmp_path)
    with Channel.open(tmp_path / "numbers").producer("p") as producer:
        producer.send(pa.table({"time": [0], "n": [5]}))
        producer.delay(1)
    return loop


@pytest.mark.drawn
def test_rows_that_go_round_without_a_pause_are_bounded_however_the_queries_take_turns(started: Loop) -> None:
    """Each query plans before the other one commits, so each sees a round without rows again and again."""
    ask, answer = Turns(started, "ask", "there", maxLoopRows=5), Turns(started, "answer", "back", maxLoopRows=5)
    with pytest.raises(StrandlineError, match="STRANDLINE_LOOP_UNBOUNDED.*maxLoopRows is 5"):
        for _ in range(40):
            planned = [query for query in (ask, answer) if query.plan()]
            for query in planned:
                query.commit()


def test_rounds_are_counted_in_a_query_whose_own_channel_does_not_advance(started: Loop) -> None:
    ask, answer = Turns(started, "ask", "there"), Turns(started, "answer", "back", maxRounds=3)
    with pytest.raises(StrandlineError, match=r"STRANDLINE_LOOP_UNBOUNDED.*\(epoch=0, iter=4\)"):
        for _ in range(40):
            ask.turn()
            answer.turn()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ({"consumed": {"there": 99}}, "has consumed version 98"),
        ({"consumed": {"there": 2**70}}, "which does not exist"),
        ({"consumed": {"there": 0}}, "went back"),
    ],
)
def test_states_that_cannot_be_true_are_refused(started: Loop, damage: dict[str, Any], why: str) -> None:
    ask, answer = Turns(started, "ask", "there"), Turns(started, "answer", "back")
    assert ask.turn()
    assert answer.turn()
    assert ask.turn()
    started.commit("answer", "back", {**answer.offset["loop"], **damage})
    with pytest.raises(StrandlineError, match=f"STRANDLINE_LOOP_STATE_INVALID.*{why}"):
        ask.plan()


def test_a_channel_between_the_queries_must_have_the_commits_that_were_followed(started: Loop) -> None:
    """It is followed for what its writer states, also by a query that reads no row of it."""
    ask, answer = Turns(started, "ask", "there"), Turns(started, "answer", "back")
    there, backup = started.folder / "there", started.folder / "backup"
    shutil.copytree(there, backup)
    assert ask.turn()
    assert answer.turn()
    assert ask.turn()
    shutil.rmtree(there)
    shutil.copytree(backup, there)
    for _ in range(4):
        started.commit("ask", "there", ask.offset["loop"], (0, 0))
    with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED.*/there is not the one that was read before"):
        ask.plan()


def test_what_is_consumed_follows_whenever_anything_changes(started: Loop) -> None:
    """Otherwise a start would read the whole log of a channel that seldom has rows."""
    ask, answer = Turns(started, "ask", "there"), Turns(started, "answer", "back")
    for epoch in range(2, 6):
        assert ask.turn()
        answer.turn()
        with Channel.open(started.folder / "numbers").producer("p") as producer:
            producer.delay(epoch)
    assert ask.offset["loop"]["consumed"]["back"] == ask.offset["channels"]["back"]["commit"]
    assert ask.offset["channels"]["back"]["commit"] >= 4


@pytest.mark.drawn
def test_a_commit_of_very_many_times_goes_through_a_query_that_advances_none(started: Loop) -> None:
    """It states a range of times. The other query advances what it leads to out of the range."""
    with Channel.open(started.folder / "numbers").producer("p") as producer:
        producer.send(pa.table({"time": list(range(1, 1501)), "n": [0] * 1500}))
        producer.delay(700)
    ask, answer = Turns(started, "ask", "there"), Turns(started, "answer", "back")
    assert ask.turn()
    assert len(ask.rows) == 1500 + 1
    assert ask.offset["loop"]["held"] == {"there": [[700, 0]]}
    assert answer.turn()
    assert [0, 0] not in answer.offset["frontier"]
    for turns in (ask, answer, ask):
        assert turns.turn()  # reads the rows, and would refuse one behind the frontier
    assert ask.offset["frontier"] == [[0, 3], [700, 0]]


@pytest.mark.drawn
def test_an_offset_names_many_open_times_as_ranges(tmp_path: Path) -> None:
    """The outside channel holds its first time while thousands come."""
    loop = Loop(tmp_path)
    given = {**loop.given("ask"), "channels": json.dumps({name: str(tmp_path / name) for name in ("numbers", "back")})}
    one = {name: value for name, value in given.items() if name not in ("queries", "query")}
    options = ReadOptions.parse({**one, "feedback": json.dumps({"back": {"iter": 1}})}).for_stream()
    reader = StreamReader(options, Inputs(options).schema())
    offset = reader.initialOffset()
    with Channel.open(tmp_path / "numbers").producer("p") as producer:
        for first in range(0, 9000, 900):
            producer.send(pa.table({"time": list(range(first, first + 900)), "n": [0] * 900}))
            producer.commit()
            offset = json.loads(json.dumps(reader.latestOffset(offset, ReadAllAvailable())))
            assert offset["frontier"] == [[0, 0]]
            assert len(offset["pending"]) <= 1024
        covered = [(each[0][0], each[-1][0]) for each in offset["pending"]]
        assert all(low <= high for low, high in covered)
        assert {time for low, high in covered for time in range(low, high + 1)} == set(range(9000))
        producer.delay(5000)
        producer.commit()
        offset = reader.latestOffset(offset, ReadAllAvailable())
        assert offset["frontier"] == [[0, 1], [5000, 0]]


def reader_of_any(folder: Path, **options: Any) -> StreamReader:
    """Return the source of a loop of one query whose rows enter at any round."""
    channels = {name: str(folder / name) for name in ("any", "back")}
    given = {"channels": json.dumps(channels), "feedback": json.dumps({"back": {"iter": 1}}), "domain": str(DOMAIN)}
    parsed = ReadOptions.parse({**given, **{name: str(value) for name, value in options.items()}}).for_stream()
    return StreamReader(parsed, Inputs(parsed).schema())


@pytest.mark.drawn
def test_rounds_are_counted_from_where_a_row_entered(tmp_path: Path) -> None:
    """Also in a query that is started again: the offset says where it was."""
    loop = Loop(tmp_path)
    schema = pa.schema([time_field("time", DOMAIN), ("n", pa.int64())])
    with Channel.create(tmp_path / "any", schema, producers=["p"]).producer("p") as producer:
        producer.send(pa.table({"time": array_of([(0, 50)], DOMAIN), "n": [1]}))
        producer.delay([(1, 0)])
    offset = reader_of_any(tmp_path).initialOffset()
    for often in range(1, 12):
        offset = json.loads(json.dumps(reader_of_any(tmp_path, maxRounds=10).latestOffset(offset, ReadAllAvailable())))
        assert offset["entered"] == [[[0, 50]]]
        loop.commit("answer", "back", {}, (0, 50 + often))
    with pytest.raises(StrandlineError, match=r"STRANDLINE_LOOP_UNBOUNDED.*more than 10 times since.*\(epoch=0, iter=61\)"):
        reader_of_any(tmp_path, maxRounds=10).latestOffset(offset, ReadAllAvailable())
    assert reader_of_any(tmp_path, maxRounds=11).latestOffset(offset, ReadAllAvailable()) != offset


def test_rounds_are_not_counted_where_another_query_lets_rows_enter_anywhere(started: Loop) -> None:
    Channel.create(started.folder / "any", pa.schema([time_field("time", DOMAIN), ("n", pa.int64())]), producers=["p"])
    queries = {**QUERIES, "answer": {"reads": ["there", "any"], "writes": {"back": {"iter": 1}}}}
    channels = {name: str(started.folder / name) for name in ("numbers", "there", "back", "any")}
    given = {**started.given("ask"), "queries": json.dumps(queries), "channels": json.dumps(channels), "maxRounds": "9"}
    with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_CONFLICT.*another query"):
        Inputs(ReadOptions.parse(given).for_stream())
    Inputs(ReadOptions.parse({**given, "query": "answer"}).for_stream())


def test_only_times_of_the_loop_have_a_last_one(started: Loop) -> None:
    last = 2**63 - 1
    offset = started.reader("ask").initialOffset()
    one = LoopTimes.from_json({"feedback": {"back": {"channel": "7c1f", "summary": [{"shift": 1, "coordinate": "iter"}]}}})
    two = LoopTimes.from_json(offset)
    assert one is not None
    assert two is not None
    for times in (one, two):
        assert [times.is_last(DOMAIN, (0, at)) for at in (last, 0)] == [True, False]
        assert not times.is_last(int64, last)  # it has left the loop
    table = Channel.open(started.folder / "there").table_id
    assert [two.is_last_in(table, (0, at)) for at in (last, 0)] == [True, False]
    assert not two.is_last_in("another", (0, last))


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_loop_whose_feedback_is_gone_is_not_at_rest(rounds: int, tmp_path: Path) -> None:
    """A row waits in it. Whichever channel's turn it is to be checked, the next look says so."""
    loop = Loop(tmp_path)
    schema = pa.schema([time_field("time", DOMAIN), ("n", pa.int64())])
    with Channel.create(tmp_path / "any", schema, producers=["p"]).producer("p") as producer:
        producer.send(pa.table({"time": array_of([(1, 0)], DOMAIN), "n": [1]}))
        producer.delay([(5, 0)])
        producer.commit()
        reader = reader_of_any(tmp_path)
        offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        for n in range(rounds):
            loop.commit("answer", "back", {}, (1, n + 1))
            offset = reader.latestOffset(offset, ReadAllAvailable())
        loop.commit("answer", "back", {}, (1, rounds + 1))
        shutil.rmtree(tmp_path / "back")
        with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
            reader.latestOffset(offset, ReadAllAvailable())


def loop_from_0(folder: Path) -> Loop:
    """A loop of one query with one row from outside, at its first round."""
    loop = Loop(folder)
    schema = pa.schema([time_field("time", DOMAIN), ("n", pa.int64())])
    with Channel.create(folder / "any", schema, producers=["p"]).producer("p") as producer:
        producer.send(pa.table({"time": array_of([(0, 0)], DOMAIN), "n": [1]}))
        producer.delay([(1, 0)])
    return loop


def test_rows_that_go_round_for_long_are_said_again_and_again_before_they_are_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop, reader = loop_from_0(tmp_path), reader_of_any(tmp_path, maxRounds=210)
    offset = reader.initialOffset()
    for at, rows in ((100, 1), (101, 2), (150, 1), (201, 4), (210, 1)):
        offset = json.loads(json.dumps(reader.latestOffset(offset, ReadAllAvailable())))
        loop.commit("answer", "back", {}, *[(0, at)] * rows)
    offset = json.loads(json.dumps(reader.latestOffset(offset, ReadAllAvailable())))
    loop.commit("answer", "back", {}, (0, 211))
    with pytest.raises(StrandlineError, match="STRANDLINE_LOOP_UNBOUNDED.*more than 210 times.*10 rows without a pause"):
        reader.latestOffset(offset, ReadAllAvailable())
    said = [record.getMessage() for record in caplog.records if "feedback channel back have come round" in record.getMessage()]
    assert [f"more than {often} times" in text for often, text in zip((100, 200), said, strict=True)] == [True, True]
    assert "still go round at (epoch=0, iter=201). This round has 4 rows (2 at the warning before)" in said[1]
    assert "8 without a pause, after 1 rows from outside. The query stops with STRANDLINE_LOOP_UNBOUNDED after 210" in said[1]


def test_rows_that_multiply_are_bounded_by_what_came_from_outside(tmp_path: Path) -> None:
    """One row from outside, then 6 000 rows a round. Few rows from outside count as 10 000."""
    loop, reader = loop_from_0(tmp_path), reader_of_any(tmp_path, maxLoopGrowth=1)
    offset = json.loads(json.dumps(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())))
    assert (offset["rows"], offset["outside"]) == (0, 1)
    loop.commit("answer", "back", {}, *[(0, 1)] * 6000)
    offset = json.loads(json.dumps(reader.latestOffset(offset, ReadAllAvailable())))
    assert (offset["rows"], offset["outside"]) == (6000, 1)
    loop.commit("answer", "back", {}, *[(0, 2)] * 6000)
    with pytest.raises(
        StrandlineError, match="STRANDLINE_LOOP_UNBOUNDED.*12000 rows.*after 1 rows from outside.*maxLoopGrowth is 1"
    ):
        reader.latestOffset(offset, ReadAllAvailable())
    assert reader_of_any(tmp_path, maxLoopGrowth=2).latestOffset(offset, ReadAllAvailable())["rows"] == 12000
