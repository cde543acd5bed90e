"""The late table of an ingest, as its Delta log describes it: how many rows, since when, and why. No data file is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from strandline.delta.data_file import DataFile
from strandline.delta.store_errors import without_secrets
from strandline.delta.table import Table
from strandline.errors import StrandlineError, printable
from strandline.ingest.late.late_table import check_storage, is_table
from strandline.page.channel_view import problem_of
from strandline.page.model import LateTableView

__all__ = ["LateTables"]

_REASON = "_reason"
_MOST_REASONS = 8
_MOST_FILES = 1000


class LateTables:
    """The late tables of one channel. A table's files are listed at first, and again after a commit that removes some.

    Args:
        channel_path: The channel's path. A late table on another storage is not opened.
        options: The options of its storage.
    """

    def __init__(self, channel_path: str, options: Mapping[str, str] | None) -> None:
        self._own, self._options = channel_path, options
        self._tables: dict[str, _LateTable] = {}

    def view(self, paths: Iterable[str]) -> tuple[LateTableView, ...]:
        """Return each table as it is now. One that cannot be read is shown as such; one that does not exist is left out."""
        found = []
        for path in paths:
            shown = printable(without_secrets(path, self._options))
            try:
                found += self._read(path, shown)
            except StrandlineError as error:
                self._tables.pop(path, None)
                found.append(LateTableView(shown, None, 0, None, (), problem_of(shown, error, self._options)))
        return tuple(found)

    def _read(self, path: str, shown: str) -> list[LateTableView]:
        known = self._tables.get(path)
        if known is None or known.is_gone():
            check_storage(path, self._own)
            if not is_table(path, self._options):
                return []
            known = self._tables[path] = _LateTable(path, self._options)
        known.update()
        return [LateTableView(shown, known.rows, known.version + 1, known.changed_ms, tuple(sorted(known.reasons)))]


class _LateTable:
    def __init__(self, path: str, options: Mapping[str, str] | None) -> None:
        self._path, self._options = path, options
        self._load()

    def _load(self) -> None:
        self._table = Table(self._path, self._options)
        self.version = self._table.loaded_version
        self.rows: int | None = 0
        self.reasons: set[str] = set()
        files = self._table.files(self.version, stats=True)
        self._count(files)
        newest = self._table.log.read(self.version)
        self.changed_ms = None if newest is None else newest.made_ms

    def _count(self, files: Iterable[DataFile]) -> None:
        for n, file in enumerate(files):
            self.rows = None if self.rows is None or file.rows < 0 else self.rows + file.rows
            if n < _MOST_FILES:
                self._note(file)

    def _note(self, file: DataFile) -> None:
        """Note the reasons that a file's statistics name: the least and the greatest. Others may have written them."""
        if not file.stats:
            return
        try:
            stats: Any = json.loads(file.stats)
            bounds = [stats.get(key, {}).get(_REASON) for key in ("minValues", "maxValues")]
        except (ValueError, RecursionError, AttributeError):
            return
        for text in bounds:
            if isinstance(text, str) and len(self.reasons) < _MOST_REASONS:
                self.reasons.add(printable(text[:200]))

    def is_gone(self) -> bool:
        """Whether the table was deleted, or made anew."""
        first = self._table.log.read(0)
        return not self._table.log.exists(self.version) or (
            first is not None and (first.metadata or {}).get("id") != self._table.id
        )

    def update(self) -> None:
        for commit in self._table.log.tail(self.version + 1):
            if commit.removes_files or commit.metadata_changed:
                self._load()
                return
            self.version, self.changed_ms = commit.version, commit.made_ms
            self._count(commit.files)
