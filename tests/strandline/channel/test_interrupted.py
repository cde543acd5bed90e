"""Interrupts at every step of a producer's calls, and forks: nothing is torn, doubled or given up, and no file of others goes."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from helpers import make_channel, rows
from strandline.channel import Channel, Producer
from strandline.channel.statements.message_times import TimeCounts
from strandline.errors import ChannelError, StrandlineError
from strandline.time.domain import int64


@contextmanager
def interrupted_at(step: int) -> Iterator[list[int]]:
    """Raise ``KeyboardInterrupt`` at the line of our own code with this number. The value says how many there were."""
    seen = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if "/strandline/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen[0] += 1
            if seen[0] == step:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(None)


def every_step(act: Callable[[int], bool], stride: int = 1) -> int:
    """Call ``act`` with 1, 1 + stride, … until it says that its interrupt did not come. Returns how often it came."""
    step = 1
    while act(step):
        step += stride
    return step // stride


@pytest.mark.drawn
def test_an_abort_that_is_interrupted_leaves_rows_and_capabilities_whole(tmp_path: Path) -> None:
    def act(step: int) -> bool:
        channel = make_channel(tmp_path / str(step), producers=("a",))
        producer = channel.producer("a")
        producer.send(rows(int64, (1, 1)))
        producer.delay([1])
        came = False
        try:
            with interrupted_at(step):
                producer.abort()
        except KeyboardInterrupt:
            came = True
        with suppress(StrandlineError):
            producer.close()
        fresh = Channel.open(tmp_path / str(step))
        assert fresh.read().num_rows in (0, 1)  # reading it at all shows that no commit is torn
        assert fresh.frontier.to_json() in ([0], [1])
        assert fresh.read().num_rows == 0 or fresh.frontier.to_json() == [1]
        return came

    assert every_step(act, 3) > 10


@pytest.mark.drawn
def test_a_delay_that_is_interrupted_leaves_the_old_or_the_new_capabilities(tmp_path: Path) -> None:
    def act(step: int) -> bool:
        producer = make_channel(tmp_path / str(step), producers=("a",)).producer("a")
        came = False
        try:
            with interrupted_at(step):
                producer.delay([3, 5])
        except KeyboardInterrupt:
            came = True
        assert list(producer.holds) in ([0], [3])
        producer.delay([7])
        producer.close()
        assert Channel.open(tmp_path / str(step)).frontier.to_json() == [7]
        return came

    assert every_step(act, 3) > 10


def test_times_that_are_counted_twice_are_not_committed() -> None:
    """Many distinct times become spans; an interrupt there must not count them again."""

    def act(step: int) -> bool:
        counts = TimeCounts(int64, most_exact=50)
        counts.add(pa.array(range(80)))
        came = False
        try:
            with interrupted_at(step):
                counts.result()
        except KeyboardInterrupt:
            came = True
        times, spans = counts.result()
        assert sum(n for _, n in times) + sum(span.rows for span in spans) == 80
        return came

    assert every_step(act) > 10


def in_child(act: Callable[[], object]) -> str | None:
    """Run ``act`` in a fork. Returns the condition of its error."""
    told = multiprocessing.get_context("fork").SimpleQueue()

    def run() -> None:
        try:
            act()
            told.put(None)
        except StrandlineError as error:
            told.put(error.condition)
        except BaseException as error:
            told.put(repr(error))

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    answer: str | None = told.get()
    child.join()
    return answer


@pytest.mark.parametrize("call", ["commit", "send", "abort"])
def test_a_fork_cannot_use_its_parents_producer(tmp_path: Path, call: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    producer: Producer = channel.producer("a")
    producer.send(rows(int64, (1, 1)))
    calls = {"commit": producer.commit, "send": lambda: producer.send(rows(int64, (1, 2))), "abort": producer.abort}
    assert in_child(calls[call]) == "STRANDLINE_PROCESS_FORKED"
    producer.commit()
    assert Channel.open(tmp_path / "in").read()["n"].to_pylist() == [1]


def test_a_fork_that_leaves_its_parents_block_removes_and_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.channel.write.file_writer.ROW_GROUP_ROWS", 1)  # so that the file is begun at once
    channel = make_channel(tmp_path / "in", producers=("a",))
    with channel.producer("a") as producer:
        producer.send(rows(int64, (1, 1), (1, 2)))

        def leave() -> None:
            with suppress(SystemExit), producer:
                sys.exit(0)
            producer.close()

        assert in_child(leave) is None
        producer.commit()
        assert in_child(leave) is None
    assert sorted(Channel.open(tmp_path / "in").read()["n"].to_pylist()) == [1, 2]


def test_owners_that_no_process_is_are_refused_by_name(tmp_path: Path) -> None:
    cases = [("pid", "-5"), ("pid", "0"), ("start", "1" + "0" * 400), ("start", "NaN"), ("start", "-1")]
    for number, (field, value) in enumerate(cases):
        channel = make_channel(tmp_path / str(number), producers=("a",))
        channel.producer("a")
        newest = max((tmp_path / str(number) / "_delta_log").glob("*.json"))
        text = newest.read_text()
        at = text.index(f'\\"{field}\\":') + len(f'\\"{field}\\":')
        end = min(i for i in (text.find(",", at), text.find("}", at)) if i > 0)
        newest.write_text(text[:at] + value + text[end:])
        with pytest.raises(ChannelError, match="STRANDLINE_STATEMENT_INVALID"):
            Channel.open(tmp_path / str(number)).producer("a")
