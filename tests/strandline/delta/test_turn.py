"""Turns at a log: one at a time, in the order of asking, and nobody waits for ever behind a process that is dead or stopped."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from strandline.delta import turn as module
from strandline.delta.turn import turn

HOLDER = """
import os, signal, sys
from strandline.delta.turn import turn
with turn(sys.argv[1]) as mine:
    print(mine, flush=True)
    {hold}
sys.stdin.readline()
"""


@contextmanager
def holder(folder: Path, hold: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has the turn and does something with it."""
    command = [sys.executable, "-c", HOLDER.format(hold=hold), str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def is_free(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not (held := holds()) and time.monotonic() < until:
        time.sleep(0.005)
    return held


def descriptors(folder: Path) -> int:
    """How many of this process's descriptors are of the folder. Others may close at any time, such as those of earlier tests."""
    wanted, found = os.stat(folder), 0
    for descriptor in os.listdir("/dev/fd"):
        with suppress(OSError):
            found += os.path.samestat(os.fstat(int(descriptor)), wanted)
    return found


def waiting_threads() -> int:
    return sum(thread.name == "strandline-turn" for thread in threading.enumerate())


def test_one_at_a_time_and_everybody_in_the_order_of_asking(tmp_path: Path) -> None:
    entered: list[int] = []
    inside = 0
    waiting = [threading.Event() for _ in range(8)]

    def enter(n: int) -> None:
        nonlocal inside

        def meanwhile() -> bool:
            waiting[n].set()
            return True

        with turn(str(tmp_path), meanwhile) as mine:
            assert mine
            inside += 1
            assert inside == 1
            entered.append(n)
            time.sleep(0.01)
            inside -= 1

    threads = [threading.Thread(target=enter, args=(n,)) for n in range(8)]
    with turn(str(tmp_path)):
        for thread, waits in zip(threads, waiting, strict=True):
            thread.start()
            assert waits.wait(60)
    for thread in threads:
        thread.join(60)
    assert sorted(entered) == list(range(8))
    assert entered == sorted(entered), "somebody was overtaken"
    assert is_free(tmp_path)
    assert descriptors(tmp_path) == 0


def test_a_killed_process_leaves_its_turn(tmp_path: Path) -> None:
    with holder(tmp_path, "sys.stdin.readline()") as process:
        assert not is_free(tmp_path)
        threading.Timer(0.1, process.kill).start()
        with turn(str(tmp_path)) as mine:
            assert mine


def test_nobody_waits_long_behind_a_stopped_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.2)
    with holder(tmp_path, "os.kill(os.getpid(), signal.SIGSTOP)") as process:
        began = time.monotonic()
        with turn(str(tmp_path)) as mine:
            assert not mine
        assert time.monotonic() - began >= 0.2
        looks: list[None] = []
        for _ in range(20):
            with turn(str(tmp_path), lambda: looks.append(None)) as mine:
                assert not mine
        assert looks == [], "it waited a second time"
        assert eventually(lambda: waiting_threads() == 1)
        os.kill(process.pid, signal.SIGCONT)
        assert eventually(lambda: waiting_threads() == 0)
        with turn(str(tmp_path)) as mine:
            assert mine
    assert eventually(lambda: is_free(tmp_path)), "who has given up keeps the turn that came later"
    assert eventually(lambda: descriptors(tmp_path) == 0)


def test_a_wait_ends_though_others_go_on_without_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SECONDS", 0.3)
    with holder(tmp_path, "sys.stdin.readline()"), turn(str(tmp_path), lambda: True) as mine:
        assert not mine


def test_a_thread_that_has_the_turn_does_not_wait_for_itself(tmp_path: Path) -> None:
    with turn(str(tmp_path)) as outer, turn(str(tmp_path), lambda: pytest.fail("it waits")) as inner:
        assert outer
        assert inner
    assert is_free(tmp_path)


def test_an_interrupt_leaves_no_turn_and_no_descriptor(tmp_path: Path) -> None:

    def interrupt() -> None:
        raise KeyboardInterrupt

    with holder(tmp_path, "sys.stdin.readline()") as process:
        with pytest.raises(KeyboardInterrupt), turn(str(tmp_path), interrupt):
            pytest.fail("the turn was another's")
        process.communicate("\n\n")
    assert eventually(lambda: is_free(tmp_path))
    assert eventually(lambda: descriptors(tmp_path) == 0)
    with pytest.raises(ZeroDivisionError), turn(str(tmp_path)) as mine:
        assert mine
        raise ZeroDivisionError
    assert is_free(tmp_path)


def test_a_fork_does_not_keep_the_turn(tmp_path: Path) -> None:
    with holder(tmp_path, "child = os.fork() or (sys.stdin.readline(), os._exit(0))") as process:
        with turn(str(tmp_path)) as mine:
            assert mine
        assert process.poll() is None
        process.communicate("\n\n")


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOLCK, errno.ENOTSUP])
def test_without_locks_there_are_no_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    with turn(str(tmp_path)) as mine:
        assert not mine
    monkeypatch.setattr(module, "fcntl", None)
    with turn(str(tmp_path)) as mine:
        assert not mine
    with turn(str(tmp_path / "missing")) as mine:
        assert not mine
    assert descriptors(tmp_path) == 0
