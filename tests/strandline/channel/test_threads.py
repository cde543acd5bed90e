"""One channel and its producers, used by several threads at once: their calls take turns, nothing is lost, doubled or damaged."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from helpers import make_channel, rows
from strandline.channel import Channel
from strandline.time.domain import int64

THREADS = 4
EACH = 15


@pytest.fixture(autouse=True)
def switches() -> Iterator[None]:
    """Threads change places as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*acts: Callable[[], object]) -> None:
    """Run each of these in a thread of its own. Raises the first error."""
    start = Barrier(len(acts))

    def run(act: Callable[[], object]) -> None:
        start.wait()
        act()

    with ThreadPoolExecutor(len(acts)) as pool:
        for done in [pool.submit(run, act) for act in acts]:
            done.result()


def whole(path: Path) -> list[int]:
    """The rows, after every commit was checked as a reader does."""
    channel = Channel.open(path)
    for commit in channel.log.tail(0):
        commit.check()
    assert channel.progress_at(channel.version) == channel.progress
    return sorted(channel.read().column("n").to_pylist())


def test_one_producer_in_several_threads(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    producer = channel.producer("a")

    def send(first: int) -> None:
        for n in range(first, first + EACH):
            producer.send(rows(int64, (1000, n)))
            if n % 3:
                producer.commit()
            assert list(channel.frontier) <= [1000]

    at_once(*(lambda first=i * EACH: send(first) for i in range(THREADS)))
    producer.close()
    assert whole(tmp_path / "in") == list(range(THREADS * EACH))


@pytest.mark.drawn
def test_producers_of_one_channel_in_a_thread_each(tmp_path: Path) -> None:
    names = [f"p{i}" for i in range(THREADS)]
    channel = make_channel(tmp_path / "in", producers=tuple(names))

    def work(number: int) -> None:
        with channel.producer(names[number]) as producer:
            for step in range(EACH):
                producer.send(rows(int64, (step, number * EACH + step)))
                producer.delay([step + 1])
                producer.commit()
                channel.refresh()

    at_once(*(lambda i=i: work(i) for i in range(THREADS)))
    assert whole(tmp_path / "in") == list(range(THREADS * EACH))
    assert channel.frontier.to_json() == [EACH]
    assert channel.progress == Channel.open(tmp_path / "in").progress


@pytest.mark.drawn
def test_appends_and_everything_else_at_once(tmp_path: Path) -> None:
    channel = Channel.create(tmp_path / "in", make_channel(tmp_path / "other").schema)
    channel.register(["a"])

    def append(first: int) -> None:
        for n in range(first, first + EACH):
            with channel.file_writer() as writer:
                writer.write(rows(int64, (n, n)))
                files, times = writer.finish()
            channel.append(files, statements={"a": channel.progress.producers["a"].holds}, times=times)

    def others() -> None:
        for n in range(EACH):
            channel.register([f"late{n}"])
            channel.checkpoint()
            channel.refresh()
            assert repr(channel)

    at_once(lambda: append(0), lambda: append(EACH), others)
    assert whole(tmp_path / "in") == list(range(2 * EACH))
    assert len(channel.producers) == EACH + 1


def test_capabilities_never_move_back(tmp_path: Path) -> None:
    producer = make_channel(tmp_path / "in", producers=("a",)).producer("a")
    (capability,) = producer.capabilities

    def delay() -> None:
        for n in range(300):
            try:
                capability.delay(n)
            except ValueError:
                assert capability.time > n
            copy = capability.clone()
            copy.drop()

    def commit() -> None:
        for _ in range(EACH):
            producer.commit()

    at_once(delay, delay, commit)
    assert list(producer.holds) == [299]
    producer.close()
    whole(tmp_path / "in")


def test_a_fork_does_not_wait_for_its_parents_threads(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    held, done = Event(), Event()

    def hold() -> None:
        with channel.lock:
            held.set()
            done.wait()

    thread = Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        os._exit(len(channel.refresh()))
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
