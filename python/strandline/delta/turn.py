"""Writers of one local log take turns, so that none of them is passed over again and again.

Correctness does not depend on it: a commit is still written only as the next version. A writer that waits in vain goes on
without its turn, because the process that has it may be stopped. Other engines do not take turns.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["turn"]

QUIET_SECONDS = 1.0
"""A writer waits in vain if the log stands still for so long. This is much longer than a commit takes."""
MOST_SECONDS = 10.0
"""A writer waits in vain if it waits so long. The log may go on without turns while the process that has it is stopped."""
_LOOKS_SECONDS = 0.1
_given_up: dict[str, _Waiter] = {}
"""The last wait in vain for each folder. As long as it goes on, this process takes no turn, or each commit would wait."""
if fcntl is not None:
    os.register_at_fork(after_in_child=_given_up.clear)  # threads do not survive a fork
_mine = threading.local()
"""The folders whose turn this thread has: a commit may be decided by a function that commits to the same log."""


@contextmanager
def turn(folder: str, meanwhile: Callable[[], object] = lambda: None) -> Iterator[bool]:
    """Hold this folder's turn, which one thread of one process has at a time. Whoever has waited longest usually gets it next.

    The turn ends with the block, or with the process and its forks. The value is whether this is a turn: it is ``False`` after
    a wait in vain, and where the file system has no locks.

    Args:
        folder: An existing local folder.
        meanwhile: It runs every 0.1 s during the wait, and returns something true if the log went on since.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, turn(folder) as mine:
    ...     mine
    True
    """
    held: set[str] = _mine.__dict__.setdefault("folders", set())
    if fcntl is None or folder in held:
        yield folder in held
        return
    try:
        lock = _Lock(folder)
    except OSError:  # whatever the block does there fails with a better message
        yield False
        return
    waiter: _Waiter | None = None
    mine = False
    try:
        try:
            lock.take(fcntl.LOCK_NB)
            mine = True
        except BlockingIOError:
            before = _given_up.get(folder)
            if before is None or before.answered.is_set():
                waiter = _Waiter(lock)
                mine = _wait(waiter, meanwhile)
                if not mine and waiter.ident is not None:
                    _given_up[folder] = waiter
        except OSError:  # some network file systems have no locks of folders
            pass
        if mine:
            held.add(folder)
        yield mine
    finally:
        held.discard(folder)
        if waiter is None or waiter.ends():
            lock.give_back()


def _wait(waiter: _Waiter, meanwhile: Callable[[], object]) -> bool:
    """Return whether the turn came in time."""
    try:
        waiter.start()
    except RuntimeError:  # no more threads
        return False
    began = progressed = time.monotonic()
    while not waiter.answered.wait(_LOOKS_SECONDS):
        now = time.monotonic()
        if meanwhile():
            progressed = now
        elif now - progressed > QUIET_SECONDS:
            return False
        if now - began > MOST_SECONDS:
            return False
    return waiter.mine


class _Lock:
    """The lock of a folder. It is given back at the latest when nobody has this object any more, such as after an interrupt."""

    _descriptor = -1

    def __init__(self, folder: str) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY)

    def take(self, how: int = 0) -> None:
        """Take the lock, and wait for it, unless ``how`` is ``LOCK_NB``."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | how)

    def give_back(self) -> None:
        """Release the lock, or do nothing if this was done before."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork of this process, which has the descriptor too, would keep it
            os.close(descriptor)

    def __del__(self) -> None:
        self.give_back()


class _Waiter(threading.Thread):
    """Waits for the turn, because a wait for a lock has no time limit.

    The lock is given back by the last who needs it: by this thread if the turn comes after the wait was given up.
    """

    def __init__(self, lock: _Lock) -> None:
        super().__init__(name="strandline-turn", daemon=True)
        self.answered = threading.Event()
        self.mine = False
        self._turn = lock
        self._lock = threading.Lock()
        self._began = self._ended = False

    def run(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._began = True
        with suppress(OSError):
            self._turn.take()
            self.mine = True
        with self._lock:
            self.answered.set()
            if self._ended:
                self._turn.give_back()

    def ends(self) -> bool:
        """Give up, and return whether this thread no longer needs the lock."""
        with self._lock:
            self._ended = True
            return self.answered.is_set() or not self._began
