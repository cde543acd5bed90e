"""Spark starts a Python process for every streaming source of every query, and most of such a process's time is imports.

Here they are forks of one process that has imported what they need. The session's Python is a script that asks that process for
a fork where a source's runner is wanted, and is the interpreter itself for everything else. What a runner does is Spark's.
"""

from __future__ import annotations

import atexit
import gc
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"

LAUNCH = f"""
import os, socket, sys

def fork():
    with socket.socket(socket.AF_UNIX) as server:
        server.connect({{address!r}})
        told = b"\\0".join([os.getcwdb(), *(b"=".join(pair) for pair in os.environb.items())])
        socket.send_fds(server, [len(told).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(told)
        return server.recv(1)

if sys.argv[1:] == ["-m", {RUNNER!r}]:
    sys.exit((fork() or b"\\1")[0])
os.execv({{python!r}}, [{{python!r}}, *sys.argv[1:]])
"""


@cache
def forking_python() -> str:
    """The path of a Python interpreter whose source runners are forks, as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="strandline-runners-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(folder / "socket")
    server = subprocess.Popen(
        [sys.executable, __file__, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
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
    import pyspark.sql.streaming.python_streaming_source_runner as runner

    import pyspark_strandline
    import pyspark_strandline.read.source  # noqa: F401

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
                _become(runner, asked)
            asked.close()


def _become(runner: object, asked: socket.socket) -> None:
    """Be the runner that was asked for, and end when who asked does."""
    size, files, *_ = socket.recv_fds(asked, 4, 3)
    told = b""
    while len(told) < int.from_bytes(size, "big"):
        told += asked.recv(1 << 20)
    folder, *environment = told.split(b"\0")
    for to, file in enumerate(files):
        os.dup2(file, to)
        os.close(file)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(pair.split(b"=", 1) for pair in environment)
    time.tzset()
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]

    def wait() -> None:
        asked.recv(1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    try:
        with runner.get_sock_file_to_executor(timeout=None) as connection:  # type: ignore[attr-defined]
            runner.main(connection, connection)  # type: ignore[attr-defined]
    except SystemExit as end:
        asked.sendall(bytes([1 if end.code else 0]))
        raise
    asked.sendall(b"\0")
    sys.exit()


if __name__ == "__main__":
    _serve(sys.argv[1])
