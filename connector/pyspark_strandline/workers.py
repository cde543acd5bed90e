"""Spark's Python workers: work that is cheap once per process, and expensive in every task."""

from __future__ import annotations

import gc
import pickle
import select
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import ParamSpec, TypeVar

from strandline.errors import StrandlineError

__all__ = [
    "QUERIES_KEPT",
    "Recent",
    "asked_by",
    "end_quietly",
    "in_worker",
    "keep_imports",
    "sleep_while_asked",
    "uncollected",
    "without_stack",
    "without_stack_in_pickle",
]

QUERIES_KEPT = 100
"""A worker keeps its knowledge of that many queries. What it has forgotten it reads again."""

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")

_asked_by: int | None = None


class Recent(dict[K, V]):
    """What a worker keeps of the queries that it works for: the entries that were set or :meth:`used` last, at most ``most``.

    Queries come and go in a driver, and a worker is not told when one ends.

    >>> recent = Recent(2)
    >>> recent["a"] = recent["b"] = 1
    >>> recent.used("a"), recent.used("x")
    (1, None)
    >>> recent["c"] = 2
    >>> list(recent)
    ['a', 'c']
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        while len(self) > self._most:
            del self[next(iter(self))]

    def used(self, key: K) -> V | None:
        """Return the entry, or ``None``, and keep it for longer than all others."""
        if key not in self:
            return None
        value = self[key]
        self[key] = value
        return value


def in_worker() -> bool:
    """Whether this process is one of those that ``pyspark.daemon`` forks for tasks, planning and commits.

    >>> in_worker()
    False
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"


def asked_by(connection: int) -> None:
    """Record the file descriptor over which the driver asks this process."""
    global _asked_by
    _asked_by = connection


def sleep_while_asked(seconds: float) -> None:
    """Wait before this process answers the driver. Raises :class:`BrokenPipeError` when the driver has closed the connection.

    The driver sends nothing while it waits, so the connection is readable only at its end.
    """
    if _asked_by is None:
        time.sleep(seconds)
    elif select.select([_asked_by], [], [], seconds)[0]:
        raise BrokenPipeError


def keep_imports() -> None:
    """In a worker, hide what imports have made from the garbage collector. Elsewhere do nothing.

    The daemon's workers run ``gc.collect()`` after every task. The objects that pyarrow, deltalake and pandas create on import
    are never garbage. The walk over them took three quarters of the processor time of a small batch's Python tasks.
    """
    if in_worker():
        gc.callbacks.append(_Imports())


class _Imports:
    """What hides all objects that a full collection has left, if a module of ours was imported since it did so last."""

    def __init__(self) -> None:
        self._modules = 0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] < 2:
            return
        modules = sum(name.startswith(("strandline", "pyspark_strandline")) for name in tuple(sys.modules))
        if modules != self._modules:
            self._modules = modules
            gc.freeze()


class _Traceback:
    """The module ``traceback`` as Spark's daemon uses it, without the stack of a worker whose driver has gone."""

    def __getattr__(self, name: str) -> object:
        return getattr(traceback, name)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            traceback.print_exc()


def end_quietly(daemon: ModuleType | None = None) -> None:
    """In a worker, print no stack if the driver closes the socket while no task runs. Elsewhere do nothing.

    Args:
        daemon: The module of the daemon, if it is not the one that this process runs.

    At the end of a session Spark closes the sockets of idle workers. A worker tells the driver so. By TCP this first write after
    the end succeeds. By the Unix sockets that ``configure`` sets it fails, and the daemon prints a stack for each worker.
    """
    if daemon is not None or in_worker():
        (daemon or sys.modules["__main__"]).__dict__["traceback"] = _Traceback()


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch garbage collection off in the ``with`` block.

    With thousands of states, none of them garbage, the collection took a third of the time of their commit.

    >>> with uncollected():
    ...     gc.isenabled()
    False
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def without_stack(function: Callable[P, V]) -> Callable[P, V]:
    """Return the function; errors of ours that it raises have no stack. Spark shows users the whole stack of a Python error.

    >>> from strandline.channel import Channel
    >>> try:
    ...     without_stack(Channel.open)("/no/such/channel")
    ... except StrandlineError as error:
    ...     error.condition, error.__traceback__.tb_next.tb_next
    ('STRANDLINE_NOT_A_TABLE', None)
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> V:
        try:
            return function(*args, **kwargs)
        except StrandlineError as error:
            found = error.with_traceback(None)
        raise found from None

    return call


class _PicklingError(StrandlineError, pickle.PickleError):
    """An error of ours while Spark pickles an object. Spark puts any other kind into a second error, and prints both stacks."""


def without_stack_in_pickle(function: Callable[P, V]) -> Callable[P, V]:
    """Return the function, a ``__getstate__``; of an error of ours, Spark shows the text, no stack and no second error.

    >>> from pyspark.serializers import CloudPickleSerializer
    >>> class Writer:
    ...     @without_stack_in_pickle
    ...     def __getstate__(self) -> object:
    ...         raise StrandlineError("STRANDLINE_EXAMPLE", "The tide is out.")
    >>> try:
    ...     CloudPickleSerializer().dumps(Writer())
    ... except StrandlineError as error:
    ...     str(error), error.__context__
    ('[STRANDLINE_EXAMPLE] The tide is out.', None)
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> V:
        try:
            return function(*args, **kwargs)
        except StrandlineError as error:
            found = _PicklingError(error.condition, error.what, error.remedy)
        raise found from None

    return call
