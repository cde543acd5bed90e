"""Spark's Python workers: what is cheap to do once in such a process, and dear when left to every task."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["in_worker", "keep_imports", "uncollected"]


def in_worker() -> bool:
    """Whether this process is one of those that ``pyspark.daemon`` forks for tasks, planning and commits.

    >>> in_worker()
    False
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"


def keep_imports() -> None:
    """In a worker, take all that exists by now out of the garbage collector's sight; elsewhere do nothing.

    The daemon's workers run ``gc.collect()`` after every task. What pyarrow, deltalake and pandas make when they are imported is
    never garbage, and walking it took three quarters of the processor time of a small batch's Python tasks.
    """
    if in_worker():
        gc.collect()
        gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection inside: thousands of states, none of them garbage, were a third of what committing them took.

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
