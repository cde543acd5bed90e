"""The session that holds a producer's name: a process on a host.

A later process that got the same process id is a different one.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

from strandline.json_value import JsonObject

__all__ = ["WriterSession"]

# psutil derives the start time from the boot time, which a clock correction may shift by a second between two calls.
_START_TOLERANCE = 2.0
_LATEST = 1 << 53
"""A process starts at a number of seconds since 1970 that is less than this."""
_MAX_TEXT = 512


@dataclass(frozen=True)
class WriterSession:
    """The session in which a producer's name is open.

    ``id`` distinguishes sessions. Each opened producer has a new id. A Spark sink uses its query's id, so that a restart of
    the query is the same owner. The other fields say where the process runs, so that a dead process can be recognised on its
    own host. ``boot`` is the host's boot id. ``namespace`` is the PID namespace of ``pid``. It is needed because a container
    may have its host's name.
    """

    id: str
    host: str
    pid: int
    start: float
    boot: str | None = None
    namespace: str | None = None

    @classmethod
    def here(cls, id: str | None = None) -> WriterSession:  # noqa: A002
        """Return this process as an owner, with ``id`` or a new id."""
        return cls(id or uuid.uuid4().hex, *_process(os.getpid()))

    @classmethod
    def of(cls, process: psutil.Process, id: str) -> WriterSession:  # noqa: A002
        """Return another process of this host as an owner."""
        return cls(id, socket.gethostname(), process.pid, process.create_time(), *_kernel())

    def is_dead(self) -> bool:
        """Return whether the session's process is certainly gone.

        This is known only for a process of this host, if it is in this PID namespace, or if the host was restarted since.
        Any other process may be alive. Hosts are distinguished by their names.
        """
        if self.host != socket.gethostname():
            return False
        boot, namespace = _kernel()
        started_anew = None not in (self.boot, boot) and self.boot != boot
        if not started_anew and None not in (self.namespace, namespace) and self.namespace != namespace:
            return False
        # Do this also if the host seems to have been restarted: in a container the boot id may be another file.
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.start) > _START_TOLERANCE:
                return True  # another process has its id now
            return bool(process.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False

    def is_alive(self) -> bool:
        """Return whether the session's process certainly runs: it is one of this host, and of this PID namespace."""
        boot, namespace = _kernel()
        same = (self.host, self.boot, self.namespace) == (socket.gethostname(), boot, namespace)
        if not same or None in (boot, namespace) or self.is_dead():
            return False
        try:
            return bool(abs(psutil.Process(self.pid).create_time() - self.start) <= _START_TOLERANCE)
        except psutil.Error:
            return False

    def to_json(self) -> JsonObject:
        """Return the JSON form for a statement."""
        known = {"boot": self.boot, "namespace": self.namespace}
        result: JsonObject = {"id": self.id, "host": self.host, "pid": self.pid, "start": self.start}
        return {**result, **{name: text for name, text in known.items() if text is not None}}

    @classmethod
    def from_json(cls, value: Any) -> WriterSession:
        """Read what :meth:`to_json` wrote. Raises ``ValueError`` for anything else."""
        if not isinstance(value, dict):
            raise ValueError(f"owner is {value!r}, not an object")
        names = ("id", "host", "pid", "start", "boot", "namespace")
        try:
            return _known(*map(value.get, names))
        except TypeError:
            raise ValueError(f"owner is {str(value)[:200]}, not an object of strings and numbers") from None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (session {self.id})"


@lru_cache(maxsize=4096, typed=True)  # every commit names the same few sessions
def _known(session: Any, host: Any, pid: Any, start: Any, boot: Any, namespace: Any) -> WriterSession:
    if not (isinstance(session, str) and isinstance(host, str) and type(pid) is int and isinstance(start, (int, float))):
        raise ValueError("owner is not an object with id, host, pid and start")
    if pid <= 0 or isinstance(start, bool) or not 0 <= start < _LATEST:
        raise ValueError(f"owner has the process id {str(pid)[:40]} and the start {str(start)[:40]}, which no process has")
    if not (isinstance(boot, str | None) and isinstance(namespace, str | None)):
        raise ValueError("owner has a boot or a namespace that is not a string")
    if max(len(text or "") for text in (session, host, boot, namespace)) > _MAX_TEXT:
        raise ValueError(f"owner has a string longer than {_MAX_TEXT} characters")
    return WriterSession(session, host, pid, float(start), boot, namespace)


@lru_cache(maxsize=1)
def _process(pid: int) -> tuple[str, int, float, str | None, str | None]:
    # Keyed by the process id, so that a forked child does not inherit its parent's answer.
    owner = WriterSession.of(psutil.Process(pid), "")
    return owner.host, owner.pid, owner.start, owner.boot, owner.namespace


def _kernel() -> tuple[str | None, str | None]:
    """Return the host's boot id and this process's PID namespace. Each is ``None`` if it cannot be read."""
    boot = namespace = None
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip() or None
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return boot, namespace
