"""The log of the model's looping links, and where a replay and its log part."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from triceps_graph import Record, Stamp

__all__ = ["Diverged", "Divergence", "Entry", "OnDivergence", "chained", "verify"]

OnDivergence = Literal["abort", "report", "restamp"]


class Entry(NamedTuple):
    """A line of a link's log. ``check`` is a digest of the line and of the ``check`` before it."""

    link: str
    first: Stamp
    original: Stamp
    new: Stamp
    payload: Any
    check: int = 0


class Divergence(NamedTuple):
    """Where a replay and its log part: line ``position`` of a link's log."""

    link: str
    position: int
    kind: Literal["changed", "extra", "missing", "altered"]
    expected: Entry | None
    got: Record | None


class Diverged(Exception):  # noqa: N818  # what happened
    """A replay with ``on_divergence="abort"`` found its first divergence: ``args[0]``."""


def chained(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the lines, each with its digest."""
    made: list[Entry] = []
    last: dict[str, int] = {}
    for entry in entries:
        last[entry.link] = _check(last.get(entry.link, 0), entry)
        made.append(entry._replace(check=last[entry.link]))
    return tuple(made)


def verify(log: Iterable[Entry]) -> list[Divergence]:
    """Return the lines whose digest is not that of the line and the digest before it."""
    found: list[Divergence] = []
    last: dict[str, int] = {}
    position: dict[str, int] = {}
    for entry in log:
        at = position[entry.link] = position.get(entry.link, -1) + 1
        if entry.check != _check(last.get(entry.link, 0), entry):
            found.append(Divergence(entry.link, at, "altered", entry, None))
        last[entry.link] = entry.check
    return found


def _check(before: int, entry: Entry) -> int:
    return zlib.crc32(repr((before, *map(tuple, entry[1:4]), entry.link, entry.payload)).encode())
