"""Several processes on one channel: nothing is lost, nobody joins a sealed channel, and a name has one writer."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from strandline.channel import Channel, ChannelError, Progress
from strandline.delta import turn as turns
from strandline.delta.storage import commit_name
from strandline.delta.table import Table
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

Create = Callable[..., Channel]

HEAD = """
import sys
import pyarrow as pa
from strandline.channel import Channel, ProducerError
channel = Channel.open(sys.argv[1])
me = sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
"""

TAIL = """
sys.stdout.flush()
sys.stdin.readline()  # stay alive until all are done
"""

PRODUCE = """
with channel.producer(me) as producer:
    for step in range(int(sys.argv[3])):
        producer.send(pa.table({"time": [step, step], "n": [int(me), step]}))
        producer.delay(step + 1)
        assert producer.commit() is not None
    producer.drop()
print("done")
"""

REGISTER = """
joined = []
try:
    for i in range(10_000):
        channel.register([f"{me}-{i}"])
        joined.append(f"{me}-{i}")
except ProducerError as error:
    print(error.condition, *joined)
"""

SEAL = """
while len(channel.producers) < 20:
    channel.refresh()
channel.seal()
print("sealed")
"""

OPEN = """
try:
    channel.producer("a")
    print("mine")
except ProducerError as error:
    print(error.condition)
"""

TAKE_OVER = """
written = 0
for attempt in range(20):
    producer = channel.producer("a", take_over=True)
    try:
        for _ in range(3):
            producer.send(pa.table({"time": [0], "n": [int(me)]}))
            producer.commit()
            written += 1
    except ProducerError as error:
        assert error.condition == "STRANDLINE_PRODUCER_FENCED", error
print(written)
"""


def together(path: str, *programs: tuple[str, str], arguments: tuple[str, ...] = ()) -> list[list[str]]:
    """Run ``(program, name)``s as processes that begin at once; the lines each printed. They end when all have printed one."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", HEAD + program + TAIL, path, name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for program, name in programs
    ]
    streams = [(process.stdin, process.stdout) for process in processes]

    def line_of_each() -> list[str]:
        return [out.readline() for _, out in streams if out is not None]

    def let_go() -> None:
        for into, _ in streams:
            assert into is not None
            into.write("\n")
            into.flush()

    assert line_of_each() == ["ready\n"] * len(processes)
    let_go()
    said = line_of_each()
    let_go()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [line.split() for line in said]


@pytest.mark.drawn("core")
def test_four_processes_lose_nothing_and_a_tailing_reader_sees_the_frontier_only_rise(create: Create) -> None:
    steps, names = 30, ["0", "1", "2", "3"]
    channel = create(producers=names, at=0)
    together(channel.path, *((PRODUCE, name) for name in names), arguments=(str(steps),))
    progress, seen, before = Progress(int64), Counter(), Antichain(int64, [0])  # type: ignore[var-annotated]
    for commit in channel.log.tail(0):
        said = commit.statement
        assert said is not None
        assert all(before.less_equal(time) for time, _ in said.times)  # no row behind the frontier
        seen.update(dict(said.times))
        progress.apply(commit)
        assert before.dominates(progress.frontier)
        before = progress.frontier
    assert before == Antichain(int64)
    assert seen == {step: 2 * len(names) for step in range(steps)}
    rows = Channel.open(channel.path).read()
    assert Counter(zip(rows["time"].to_pylist(), rows["n"].to_pylist(), strict=True)) == Counter(
        (step, n) for name in names for step in range(steps) for n in (int(name), step)
    )
    # opening, a move or rows for each step, dropping at the end, closing: each once
    assert Channel.open(channel.path).version == len(names) * (steps + 2)
    assert DeltaTable(channel.path).to_pyarrow_table().num_rows == rows.num_rows


@pytest.mark.drawn
def test_processes_that_register_while_another_seals_are_in_or_told(create: Create) -> None:
    channel = create(producers=[], at=0)
    sealer, *registering = together(channel.path, (SEAL, "sealer"), (REGISTER, "x"), (REGISTER, "y"))
    assert sealer == ["sealed"]
    joined: list[str] = []
    for condition, *names in registering:
        assert condition == "STRANDLINE_CHANNEL_SEALED"
        joined += names
    fresh = Channel.open(channel.path)
    assert fresh.sealed
    assert sorted(fresh.producers) == sorted(joined)


@pytest.mark.drawn
def test_sessions_that_fence_each_other_write_exactly_what_they_were_told(create: Create) -> None:
    channel = create(producers=["a"], at=0)
    printed = together(channel.path, *((TAKE_OVER, name) for name in "012"))
    counts = Counter(Channel.open(channel.path).read()["n"].to_pylist())
    assert [counts[i] for i in range(3)] == [int(count) for (count,) in printed]
    assert len(list(Path(channel.path).glob("*.parquet"))) == sum(counts.values())  # fenced rows are removed


@pytest.mark.drawn
def test_one_session_opens_when_many_try_at_once(create: Create) -> None:
    channel = create(producers=["a"], at=0)
    said = together(channel.path, *((OPEN, name) for name in "0123"))
    assert sorted(said) == [["STRANDLINE_PRODUCER_LIVE"]] * 3 + [["mine"]]


class _Once:
    """A deltalake commit whose answer gets lost once, as on an object store."""

    def __init__(self, table: Any) -> None:
        self.commit, self.lost = table.commit, 0

    def __call__(self, *arguments: Any) -> bool:
        done = self.commit(*arguments)
        if done and not self.lost:
            self.lost += 1
            return False
        return bool(done)


@pytest.mark.parametrize("transaction", [None, ("q", 0)])
def test_a_commit_whose_answer_was_lost_is_recognised_and_not_made_twice(create: Create, make: Any, transaction: Any) -> None:
    channel = create()
    with channel.file_writer() as writer:
        writer.write(make.rows([1]))
        files, times = writer.finish()
    once = channel._snapshot.table.commit = _Once(channel._snapshot.table)  # type: ignore[method-assign,assignment]
    moved = Antichain(int64, [2])
    assert channel.append(files, statements={"a": moved}, times=times, transaction=transaction, owner="q") == 1
    assert once.lost == 1
    assert Channel.open(channel.path).read().num_rows == 1
    assert channel.frontier == Antichain(int64, [0])


def test_deltalakes_own_commits_serve_where_links_do_not(create: Create, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(errno.ENOTSUP, "no hard links here")

    channel = create()
    other = Channel.open(channel.path)
    monkeypatch.setattr(os, "link", no_links)
    for step in range(5):  # two writers in turn, so that each has to rebase its handle
        for writer, name in ((channel, "a"), (other, "b")):
            with writer.file_writer() as files_of:
                files_of.write(make.rows([step]))
                files, times = files_of.finish()
            holds = Antichain(int64, [step + 1])
            assert writer.append(files, statements={name: holds}, times=times, transaction=(name, step), owner=name) is not None
    assert writer.append([], statements={"b": Antichain(int64, [9])}, transaction=("b", 4), owner="b") is None
    fresh = Channel.open(channel.path)
    assert (fresh.version, fresh.frontier, fresh.read().num_rows) == (10, Antichain(int64, [5]), 10)
    assert not list(Path(channel.path, "_delta_log").glob(".strandline*"))


@pytest.mark.drawn
@pytest.mark.parametrize("commits", [300, pytest.param(3000, marks=pytest.mark.soak)])
def test_a_channel_that_others_write_opens(create: Create, commits: int) -> None:
    """Who lists a log while commits land may see a newer one, and not the one before."""
    names = ["0", "1", "2"]
    channel = create(producers=names, at=0)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", HEAD + PRODUCE, channel.path, name, "100000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        now = -1
        while now < commits:
            before, now = now, Channel.open(channel.path).version
            assert now >= before
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


@pytest.mark.parametrize("gone", [(1,), (3, 4), (2, 5)])
def test_a_log_that_lacks_commits_is_not_taken_for_one_that_others_write(
    create: Create, make: Any, gone: tuple[int, ...]
) -> None:
    channel = create()
    with channel.producer("a") as producer:
        for step in range(5):
            producer.send(make.rows([step]))
            producer.delay(step + 1)
            producer.commit()
    for version in gone:
        Path(channel.path, commit_name(version)).unlink()
    with pytest.raises(ChannelError, match="STRANDLINE_TABLE_UNREADABLE"):
        Channel.open(channel.path)


@pytest.mark.drawn
def test_writers_that_take_turns_decide_each_commit_once(create: Create, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(n) for n in range(4)]
    channel = create(producers=names, at=0)
    answers: list[bool] = []
    commit = Table.commit

    def counted(self: Table, *arguments: Any) -> bool:
        answers.append(commit(self, *arguments))
        return answers[-1]

    def produce(name: str) -> None:
        with Channel.open(channel.path).producer(name) as producer:
            for step in range(25):
                producer.send(make.rows([step]))
                producer.delay(step + 1)
                assert producer.commit() is not None

    monkeypatch.setattr(Table, "commit", counted)
    monkeypatch.setattr(turns, "QUIET_SECONDS", 60)
    monkeypatch.setattr(turns, "MOST_SECONDS", 60)
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(produce, names))
    assert all(answers), f"{answers.count(False)} of {len(answers)} commits came second"
    assert Channel.open(channel.path).read().num_rows == 100


def test_a_commit_goes_on_where_another_has_the_turn_for_ever(create: Create, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "QUIET_SECONDS", 0.1)
    channel = create()
    with turns.turn(f"{channel.path}/_delta_log"), channel.producer("a") as producer:
        for step in range(3):
            producer.send(make.rows([step]))
            producer.delay(step + 1)
            assert producer.commit() is not None
    assert Channel.open(channel.path).read().num_rows == 3
