"""The pace of a replay: when the next recorded commit is due."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Pace"]


class Pace:
    """Says when recorded commits are due. All channels of a source have one pace, so that they stay side by side.

    A query that continues begins with its next commit at once: the pause in which it was stopped is not played again.

    Args:
        speed: How many recorded seconds pass in a second.
        clock: Returns the current time in seconds, from any origin.

    >>> now = 100.0
    >>> pace = Pace(10, clock=lambda: now)
    >>> pace.begin(5_000)
    >>> pace.wait_s(5_000), pace.wait_s(25_000)
    (0.0, 2.0)
    """

    def __init__(self, speed: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._speed, self._clock = speed, clock
        self._began: tuple[float, int] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it is known when the replay began."""
        return self._began is not None

    def begin(self, recorded_ms: int) -> None:
        """Play from a recorded moment on, which is now. It is in milliseconds since 1970."""
        self._began = self._clock(), recorded_ms

    def wait_s(self, recorded_ms: int) -> float:
        """Return in how many seconds a commit of that moment is due; 0 if it is due now, or if nothing has begun."""
        if self._began is None:
            return 0.0
        began, first_ms = self._began
        return max(0.0, began + (recorded_ms - first_ms) / 1000 / self._speed - self._clock())
