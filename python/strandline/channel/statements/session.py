"""Who holds a producer's name: a process on a host, told apart from a later one that got the same process id."""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

__all__ = ["WriterSession"]

# psutil derives the start from the boot time, which a clock correction may shift by a second between two calls.
_START_TOLERANCE = 2.0
_MAX_TEXT = 512


@dataclass(frozen=True)
class WriterSession:
    """The session that a producer's name is open in.

    ``id`` tells sessions apart: a fresh one for each opened producer, a query's id for a Spark sink (so that a restart of the
    query is the same owner). The rest says where its process runs, so that a dead one can be recognised on its own host: ``boot``
    is the host's boot id, and ``namespace`` the PID namespace that ``pid`` is of, for containers may have their host's name. An
    earlier release does not repeat these two, so they make no other session.
    """

    id: str
    host: str
    pid: int
    start: float
    boot: str | None = field(default=None, compare=False)
    namespace: str | None = field(default=None, compare=False)

    @classmethod
    def here(cls, id: str | None = None) -> WriterSession:  # noqa: A002
        """This process as an owner, under ``id`` or a fresh one."""
        return cls(id or uuid.uuid4().hex, *_process(os.getpid()))

    @classmethod
    def of(cls, process: psutil.Process, id: str) -> WriterSession:  # noqa: A002
        """Another process of this host as an owner."""
        return cls(id, socket.gethostname(), process.pid, process.create_time(), *_kernel())

    def is_dead(self) -> bool:
        """Whether its process certainly is gone.

        Only a process of this host can be judged, if it is of this PID namespace, or the host was started anew since. Any other
        may live. Hosts are told apart by their names.
        """
        if self.host != socket.gethostname():
            return False
        boot, namespace = _kernel()
        started_anew = None not in (self.boot, boot) and self.boot != boot
        if not started_anew and None not in (self.namespace, namespace) and self.namespace != namespace:
            return False
        # Also where the host seems to have been started anew: in a container the boot id may be another file.
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
        known = {"boot": self.boot, "namespace": self.namespace}
        said = {"id": self.id, "host": self.host, "pid": self.pid, "start": self.start}
        return {**said, **{name: text for name, text in known.items() if text is not None}}

    @classmethod
    def from_json(cls, value: Any) -> WriterSession:
        """Read what :meth:`to_json` wrote; raises ``ValueError`` when it is not of that form."""
        if not isinstance(value, dict):
            raise ValueError(f"owner is {value!r}, not an object")
        names = ("id", "host", "pid", "start", "boot", "namespace")
        try:
            return _known(*map(value.get, names))
        except TypeError:
            raise ValueError(f"owner is {str(value)[:200]}, not an object of texts and numbers") from None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (session {self.id})"


@lru_cache(maxsize=4096, typed=True)  # the same few stand in every commit
def _known(session: Any, host: Any, pid: Any, start: Any, boot: Any, namespace: Any) -> WriterSession:
    if not (isinstance(session, str) and isinstance(host, str) and type(pid) is int and isinstance(start, (int, float))):
        raise ValueError("owner is not an object with id, host, pid and start")
    if not (isinstance(boot, str | None) and isinstance(namespace, str | None)):
        raise ValueError("owner has a boot or a namespace that is no text")
    if max(len(text or "") for text in (session, host, boot, namespace)) > _MAX_TEXT:
        raise ValueError(f"owner has a text longer than {_MAX_TEXT} characters")
    return WriterSession(session, host, pid, float(start), boot, namespace)


@lru_cache(maxsize=1)
def _process(pid: int) -> tuple[str, int, float, str | None, str | None]:
    # Keyed by the process id, so that a forked child does not inherit its parent's answer.
    owner = WriterSession.of(psutil.Process(pid), "")
    return owner.host, owner.pid, owner.start, owner.boot, owner.namespace


def _kernel() -> tuple[str | None, str | None]:
    """The host's boot id, and this process's PID namespace, where they can be read."""
    boot = namespace = None
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip() or None
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return boot, namespace
