"""Readings of a machine's monotonic clocks, which no correction of the wall clock moves."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Tick"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MAC_BOOT_ID = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Tick(NamedTuple):
    """A reading of the monotonic clocks, in ms. Readings with the same ``boot`` may be compared, also of several processes.

    ``awake`` does not run while the machine sleeps, or while a virtual machine is paused. ``uptime`` runs then too, where the
    system has such a clock.
    """

    boot: str
    awake: int
    uptime: int

    @classmethod
    def now(cls) -> Tick:
        """Read the clocks."""
        awake = time.monotonic_ns() // 1_000_000
        uptime = awake if _BOOTTIME is None else time.clock_gettime_ns(_BOOTTIME) // 1_000_000
        return cls(_boot(), awake, uptime)

    def since(self, earlier: Tick | None) -> Tick | None:
        """Return how much the clocks advanced since an earlier reading, or ``None`` if the two cannot be compared.

        >>> Tick("x", 500, 900).since(Tick("x", 200, 300)), Tick("x", 500, 900).since(Tick("y", 200, 300))
        (Tick(boot='x', awake=300, uptime=600), None)
        """
        if earlier is None or earlier.boot != self.boot:
            return None
        awake = max(0, self.awake - earlier.awake)
        return Tick(self.boot, awake, max(awake, self.uptime - earlier.uptime))


@lru_cache(maxsize=1)
def _boot() -> str:
    """Return what tells this run of the operating system from any other.

    Where there is no such id, the processes' readings are compared only with their own. The time of the boot would not do: a
    correction of the wall clock moves it.
    """
    found = ""
    with suppress(OSError, subprocess.SubprocessError):
        if sys.platform == "darwin":
            found = subprocess.run(_MAC_BOOT_ID, capture_output=True, text=True, timeout=5, check=True).stdout
        else:
            found = _BOOT_ID.read_text()
    return found.strip() or uuid.uuid4().hex
