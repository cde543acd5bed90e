"""Spark's daemon, which forks a process for each source of a stream. Its forks have imported what they need.

Spark starts it as ``python -m pyspark_strandline.source_daemon MODULE``. ``pyspark.daemon`` imports after the fork, because an
import may start threads, which a fork does not have. The imports below start threads of OpenBLAS and jemalloc only. Both start
theirs again after a fork.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable
from typing import IO
from zipimport import zipimporter

from pyspark import daemon

from pyspark_strandline.workers import asked_by, end_quietly

__all__ = ["until_closed"]


def until_closed(main: Callable[[IO[bytes], IO[bytes]], None]) -> Callable[[IO[bytes], IO[bytes]], None]:
    """Return the main function of a process that ends without a word when the driver has closed its socket: nobody listens."""

    def run(infile: IO[bytes], outfile: IO[bytes]) -> None:
        asked_by(infile.fileno())
        try:
            main(infile, outfile)
        except BrokenPipeError:
            os._exit(1)

    return run


if __name__ == "__main__":
    runner = importlib.import_module(sys.argv[1])
    runner.__dict__["main"] = until_closed(runner.main)
    importlib.import_module("pyspark_strandline.read.source")
    # Spark lets each process read the directory of pyspark.zip again, which takes a tenth of a second or more. The finders that
    # come instead of these know it.
    for path, finder in tuple(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    end_quietly(daemon)
    gc.collect()
    gc.freeze()
    # A daemon that ends sends its process group a signal. A source ends with its own query, when its socket is closed.
    os.register_at_fork(after_in_child=lambda: os.setpgid(0, 0))
    daemon.manager()
