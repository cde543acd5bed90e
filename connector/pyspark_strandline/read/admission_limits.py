"""The limits of one batch: ``maxFilesPerTrigger`` and ``maxBytesPerTrigger``."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["AdmissionLimits"]


class AdmissionLimits:
    """The room that is left in one batch. It takes at least one file with any limits, so that a stream never stands still.

    >>> AdmissionLimits(files=None, size=10).take([8, 2, 1]), AdmissionLimits(files=1, size=None).take([8, 2])
    (2, 1)
    """

    def __init__(self, files: int | None, size: int | None) -> None:
        self._files = files
        self._bytes = size
        self._empty = True

    def take(self, sizes: Sequence[int]) -> int:
        """Return how many of the files with these sizes fit, from the first one on, and take them."""
        if self._files is None and self._bytes is None:
            return len(sizes)
        for taken, size in enumerate(sizes):
            if not self._empty:
                if self._files is not None and self._files < 1:
                    return taken
                if self._bytes is not None and self._bytes < size:
                    return taken
            self._empty = False
            if self._files is not None:
                self._files -= 1
            if self._bytes is not None:
                self._bytes -= size
        return len(sizes)
