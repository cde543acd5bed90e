"""Spark's Python workers: work that is cheap once per process, and expensive in every task."""

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
    """In a worker, hide all existing objects from the garbage collector. Elsewhere do nothing.

    The daemon's workers run ``gc.collect()`` after every task. The objects that pyarrow, deltalake and pandas create on import
    are never garbage. The walk over them took three quarters of the processor time of a small batch's Python tasks.
    """
    if in_worker():
        gc.collect()
        gc.freeze()


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
