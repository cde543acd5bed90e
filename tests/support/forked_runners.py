"""Spark starts Python processes of its own, and most of what such a process costs is imports. Here they are forks.

Spark starts a process for every streaming source of every query, and a daemon for each kind of worker in every session. One
server imports what they need, once. The session's Python is a script that asks the server for a fork where Spark runs such a
module, and is the interpreter itself for everything else. The fork runs Spark's module as ``python -m`` does.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

DAEMONS = ("pyspark.daemon", "pyspark_strandline.source_daemon")
RUNNERS = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
"""Each is a process of its own."""
# Not the sink's runner: it looks for the JVM among its ancestors, and a fork's are the server's.
WORKERS = (
    "pyspark.worker",
    *(
        f"pyspark.sql.worker.{name}"
        for name in (
            "commit_data_source_write",
            "create_data_source",
            "data_source_pushdown_filters",
            "lookup_data_sources",
            "plan_data_source_read",
            "write_into_data_source",
        )
    ),
)
IMPORTED = (
    *RUNNERS,
    *WORKERS,
    "pandas",
    "pyarrow.parquet",
    "pyspark_strandline.data_source",
    "pyspark_strandline.read.source",
    "pyspark_strandline.write.sink",
    "pyspark_strandline.operators.processor",
)

LAUNCH = f"""
import os, socket, sys

def fork():
    with socket.socket(socket.AF_UNIX) as server:
        server.connect({{address!r}})
        parts = [os.getcwdb(), b"\\0".join(map(os.fsencode, sys.argv[2:])), *(b"=".join(pair) for pair in os.environb.items())]
        told = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        socket.send_fds(server, [len(told).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(told)
        return server.recv(1)

module = sys.argv[2:3] if sys.argv[1] == "-m" else []
if module and module[0] in {RUNNERS!r} or module and module[0] in {DAEMONS!r} and sys.argv[3] in {(*RUNNERS, *WORKERS)!r}:
    sys.exit((fork() or b"\\1")[0])
os.execv({{python!r}}, [{{python!r}}, *sys.argv[1:]])
"""


@cache
def forking_python() -> str:
    """The path of a Python interpreter that forks Spark's runners and daemons, as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="strandline-runners-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(folder / "socket")
    server = subprocess.Popen(
        [sys.executable, __file__, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},  # the seed that Spark gives its workers
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    launch, python = folder / "launch.py", folder / "python"
    launch.write_text(LAUNCH.format(address=address, python=sys.executable))
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {launch} "$@"\n')
    python.chmod(0o755)
    _kept.append(server)
    return str(python)


_kept: list[subprocess.Popen[bytes]] = []
"""A server ends with its standard input."""


def _serve(address: str) -> None:
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as ready:
        listener.bind(address)
        listener.listen(64)
        ready.register(listener, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        print("ready", flush=True)
        while all(key.fileobj is listener for key, _ in ready.select()):
            asked, _ = listener.accept()
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                _become(asked)
            asked.close()


def _become(asked: socket.socket) -> None:
    """Run the module that was asked for, and end when the process that asked ends."""
    size, files, *_ = socket.recv_fds(asked, 4, 3)
    told = b""
    while len(told) < int.from_bytes(size, "big"):
        told += asked.recv(1 << 20)
    parts = []
    while told:
        end = 4 + int.from_bytes(told[:4], "big")
        parts.append(told[4:end])
        told = told[end:]
    folder, arguments, *environment = parts
    for to, file in enumerate(files):
        os.dup2(file, to)
        os.close(file)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(pair.split(b"=", 1) for pair in environment)
    time.tzset()
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [os.getcwd(), *paths]  # as `python -m` has it, in the place of this script's folder
    module, *rest = map(os.fsdecode, arguments.split(b"\0"))
    daemon = os.getpid()

    def wait() -> None:
        asked.recv(1)
        if module in DAEMONS:
            os.kill(daemon, signal.SIGTERM)  # it ends its workers with it
        else:
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    sys.argv = [module, *rest]
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")  # that it is imported is the point
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if os.getpid() == daemon:
            with suppress(BrokenPipeError):  # who asked has ended first
                asked.sendall(bytes([1 if end.code else 0]))
        raise
    asked.sendall(b"\0")
    sys.exit()


if __name__ == "__main__":
    _serve(sys.argv[1])
