"""Spark's daemon, which forks a process for each source of a stream. Its forks have imported what they need.

Spark starts it as ``python -m pyspark_strandline.source_daemon MODULE``. ``pyspark.daemon`` imports after the fork, because an
import may start threads, which a fork does not have. The imports below start threads of OpenBLAS and jemalloc only. Both start
theirs again after a fork.
"""

from __future__ import annotations

import gc
import importlib
import sys

from pyspark import daemon

from pyspark_strandline.workers import end_quietly

if __name__ == "__main__":
    importlib.import_module(sys.argv[1])
    importlib.import_module("pyspark_strandline.read.source")
    end_quietly(daemon)
    gc.collect()
    gc.freeze()
    daemon.manager()
