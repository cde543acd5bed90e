"""Who holds a producer's name: a process on a host, told apart from a later one that got the same process id."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import psutil

__all__ = ["Owner"]

# psutil derives the start from the boot time, which a clock correction may shift by a second between two calls.
_START_TOLERANCE = 2.0
_MAX_TEXT = 512


@dataclass(frozen=True)
class Owner:
    """The session that a producer's name is open in.

    ``id`` tells sessions apart: a fresh one for each opened producer, a query's id for a Spark sink (so that a restart of the
    query is the same owner). The rest says where its process runs, so that a dead one can be recognised on its own host.
    """

    id: str
    host: str
    pid: int
    start: float

    @classmethod
    def here(cls, id: str | None = None) -> Owner:  # noqa: A002
        """This process as an owner, under ``id`` or a fresh one."""
        host, pid, start = _process(os.getpid())
        return cls(id or uuid.uuid4().hex, host, pid, start)

    def is_dead(self) -> bool:
        """Whether its process certainly is gone: only a process of this host can be judged, any other may live."""
        if self.host != socket.gethostname():
            return False
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.start) > _START_TOLERANCE:
                return True  # another process has its id now
            return bool(process.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False

    def to_json(self) -> dict[str, Any]:
        """The form that a statement carries."""
        return {"id": self.id, "host": self.host, "pid": self.pid, "start": self.start}

    @classmethod
    def from_json(cls, value: Any) -> Owner:
        """Read what :meth:`to_json` wrote; raises ``ValueError`` when it is not of that form."""
        if not isinstance(value, dict):
            raise ValueError(f"owner is {value!r}, not an object")
        session, host, pid, start = (value.get(name) for name in ("id", "host", "pid", "start"))
        if not (isinstance(session, str) and isinstance(host, str) and type(pid) is int and isinstance(start, (int, float))):
            raise ValueError(f"owner is {str(value)[:200]}, not an object with id, host, pid and start")
        if max(len(session), len(host)) > _MAX_TEXT:
            raise ValueError(f"owner has an id or host longer than {_MAX_TEXT} characters")
        return cls(session, host, pid, float(start))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (session {self.id})"


@lru_cache(maxsize=1)
def _process(pid: int) -> tuple[str, int, float]:
    # Keyed by the process id, so that a forked child does not inherit its parent's answer.
    return socket.gethostname(), pid, psutil.Process(pid).create_time()
