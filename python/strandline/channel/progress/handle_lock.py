"""The lock of an opened channel: its threads, and those of its producers, take turns."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

__all__ = ["HandleLock", "locked"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Any)


class HandleLock:
    """A lock that one thread has at a time, and that it may take again.

    A fork of the process has it free, because it has none of the other threads.

    >>> lock = HandleLock()
    >>> with lock, lock:
    ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # in a fork that was made while this thread had it
            self._lock.release()

    def renew(self) -> None:
        """Forget who has the lock."""
        self._lock = threading.RLock()


_locks: WeakSet[HandleLock] = WeakSet()


def _renew_all() -> None:
    for lock in _locks:
        lock.renew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_all)


def locked(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let a method run in one thread at a time. Its object has a :class:`HandleLock` as ``lock``."""

    @wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return run
