"""Which Delta checkpoints and compacted logs a log has, by the names of its files."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Checkpoints", "compacted_logs", "is_second_kind"]

_ONE = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_V2 = re.compile(r"(\d{20})\.checkpoint\.[0-9a-f-]{36}\.(parquet|json)")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")


def compacted_logs(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the first and the last version of each compacted log, by its file's name. Delta Spark reads it in their place.

    >>> compacted_logs([f"{1:020d}.{4:020d}.compacted.json", f"{1:020d}.json"]).values()
    dict_values([(1, 4)])
    """
    found = ((name, _COMPACTED.fullmatch(name)) for name in sorted(names) if name.endswith(".compacted.json"))
    return {name: (int(each[1]), int(each[2])) for name, each in found if each}


def is_second_kind(name: str) -> bool:
    """Return whether a file has the name of a checkpoint of Delta's second kind.

    >>> is_second_kind(f"{7:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"), is_second_kind(f"{7:020d}.json")
    (True, False)
    """
    return _V2.fullmatch(name) is not None


class Checkpoints:
    """The checkpoints among the names of a log's files. One of several parts counts when all of them are there.

    >>> parts = [f"{7:020d}.checkpoint.{n:010d}.{2:010d}.parquet" for n in (1, 2)]
    >>> found = Checkpoints([*parts, parts[0].replace("7", "8"), f"{9:020d}.checkpoint.parquet"])
    >>> {version: [len(names) for names in each] for version, each in found.readable.items()}, found.newest
    ({9: [1], 7: [2]}, 9)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.readable: dict[int, list[list[str]]] = {}
        """By version, the names of the files of each checkpoint of Delta's first kinds, which have everything."""
        self.second: dict[int, list[str]] = {}
        """By version, the names of the checkpoints of Delta's second kind. Their files are listed elsewhere."""
        parts: dict[tuple[int, int], set[str]] = {}
        for name in names:
            if one := _ONE.fullmatch(name):
                self.readable.setdefault(int(one[1]), []).append([name])
            elif part := _PART.fullmatch(name):
                parts.setdefault((int(part[1]), int(part[3])), set()).add(name)
            elif v2 := _V2.fullmatch(name):
                self.second.setdefault(int(v2[1]), []).append(name)
        for (version, whole), there in sorted(parts.items()):
            if len(there) == whole:
                self.readable.setdefault(version, []).append(sorted(there))
        self.newest = max(-1, *self.second, *self.readable, -1)
        """The newest version that has any checkpoint."""

    def of(self, version: int) -> list[list[str]]:
        """Return the names of the files of each checkpoint of a version."""
        return [*self.readable.get(version, ()), *([name] for name in self.second.get(version, ()))]

    def any_of(self, version: int) -> list[str] | None:
        """Return the names of the files of one checkpoint of a version, or ``None``."""
        return next(iter(self.of(version)), None)
