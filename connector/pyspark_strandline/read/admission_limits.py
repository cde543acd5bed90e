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
        self._whole: AdmissionLimits | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether every file fits."""
        return self._files is None and self._bytes is None

    def share(self, among: int) -> AdmissionLimits:
        """Return a fair share of the room that is left: that of the next of ``among`` channels.

        What the channel takes is taken from this room too. What it leaves is shared by the channels after it.

        >>> room = AdmissionLimits(files=4, size=None)
        >>> [room.share(3 - n).take([1] * have) for n, have in enumerate((1, 9, 9))]
        [1, 2, 1]
        """
        share = AdmissionLimits(*(None if room is None else -(-max(room, 0) // among) for room in (self._files, self._bytes)))
        share._empty, share._whole = self._empty, self
        return share

    def take(self, sizes: Sequence[int]) -> int:
        """Return how many of the files with these sizes fit, from the first one on, and take them."""
        if self.is_unlimited:
            return len(sizes)
        for taken, size in enumerate(sizes):
            if not self._fits(size):
                return taken
            self._add(size)
        return len(sizes)

    def _fits(self, size: int) -> bool:
        if self._empty:
            return True
        return (self._files is None or self._files >= 1) and (self._bytes is None or self._bytes >= size)

    def _add(self, size: int) -> None:
        self._empty = False
        if self._files is not None:
            self._files -= 1
        if self._bytes is not None:
            self._bytes -= size
        if self._whole is not None:
            self._whole._add(size)
