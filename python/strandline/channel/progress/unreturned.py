"""Which commits ``Channel.refresh`` has still to return. A bit for each version that was applied since its last call."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Unreturned"]


class Unreturned:
    """The versions after ``start`` that are to be returned: all but those that are left out.

    >>> unreturned = Unreturned(3)
    >>> unreturned.leave_out(5)
    >>> list(unreturned.versions(7))
    [4, 6, 7]
    >>> unreturned.all_returned(7)
    >>> list(unreturned.versions(7))
    []
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._left_out = bytearray()  # a writer that never refreshes needs 1 MB for 8 million commits

    def leave_out(self, version: int) -> None:
        """Never return a version."""
        place, bit = divmod(version - self._start - 1, 8)
        if place >= 0:
            self._left_out.extend(bytes(max(0, place + 1 - len(self._left_out))))
            self._left_out[place] |= 1 << bit

    def versions(self, newest: int) -> Iterator[int]:
        """Yield the versions up to ``newest`` that are to be returned."""
        for offset in range(newest - self._start):
            place, bit = divmod(offset, 8)
            if place >= len(self._left_out) or not self._left_out[place] >> bit & 1:
                yield self._start + 1 + offset

    def all_returned(self, newest: int) -> None:
        """Note that all versions up to ``newest`` were returned."""
        self._start = newest
        self._left_out.clear()
