"""The scope's folder: each change of the definition is one more numbered file, which holds the whole definition."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from strandline.delta.put_if_absent import Put
from strandline.delta.storage import LocalStore, inside, location_of, open_store, storage_of
from strandline.scope import errors
from strandline.scope.definition import ScopeDefinition

__all__ = ["SCOPE_DIR", "DefinitionLog"]

SCOPE_DIR = "_strandline_scope"
_FILE = re.compile(r"(\d{20})\.json")
_MOST_BYTES = 64 << 20


class DefinitionLog:
    """The files of a scope's definition. The one with the greatest number counts.

    A file is created as a whole or not at all, and never replaced. So two processes that change a scope at once cannot lose a
    change: the second one finds the file of the first, and tries again.
    """

    def __init__(self, path: str, storage_options: Mapping[str, str] | None) -> None:
        self.location = location_of(path)
        self._store = open_store(path, storage_options)

    def exists(self) -> bool:
        """Whether there is a scope."""
        return self._newest() is not None

    def read(self) -> ScopeDefinition:
        """Return the newest definition. Raises :class:`ScopeError` ``STRANDLINE_NOT_A_SCOPE``, or if the file cannot be read."""
        return self._read()[1]

    def _read(self) -> tuple[int, ScopeDefinition]:
        number = self._newest()
        text = None if number is None else self._store.read(_file(number), _MOST_BYTES + 1)
        if number is None or text is None:
            raise errors.not_a_scope(self.location)
        where = f"{self.location}/{_file(number)}"
        if len(text) > _MOST_BYTES:
            raise errors.scope_invalid_size(where, _MOST_BYTES)
        return number, ScopeDefinition.from_text(text.decode("utf-8", "replace"), where)

    def create(self, definition: ScopeDefinition) -> bool:
        """Write the first file. Return ``False`` if the scope exists."""
        return self._write(0, definition)

    def change(self, decide: Callable[[ScopeDefinition], ScopeDefinition]) -> ScopeDefinition:
        """Write what ``decide`` makes of the newest definition, unless it is equal. Return the definition that counts now.

        If another process writes a file in between, ``decide`` is called again with the definition in that file.
        """
        while True:
            number, before = self._read()
            after = decide(before)
            if after == before:
                self.settle(number)
                return after
            if self._write(number + 1, after):
                return after

    def settle(self, number: int | None = None) -> None:
        """Return when a file, by default the newest one, will survive a loss of power. Its writer may not have synced it."""
        self._store.settle()
        self._store.sync_commit(_file(self._read()[0] if number is None else number))

    def relative(self, location: str) -> str:
        """Return a channel's location as the scope's file names it: relative below the scope's folder.

        Raises :class:`ScopeError` ``STRANDLINE_SCOPE_STORAGE_DIFFERS`` if it is on another storage than the scope.
        """
        if location.startswith(f"{self.location}/"):
            return location.removeprefix(f"{self.location}/")
        self._check_storage(location)
        return location

    def absolute(self, path: str) -> str:
        """Return the location of a channel that the scope's file names. The file may be written by others, so it is checked.

        Raises :class:`ScopeError` ``STRANDLINE_SCOPE_STORAGE_DIFFERS``, and :class:`ChannelError` for a path with ``..``.
        """
        if path.startswith("/") or "://" in path:
            self._check_storage(path)
            return location_of(path)
        return f"{self.location}/{inside(path)}"

    def _check_storage(self, location: str) -> None:
        if storage_of(location) != storage_of(self.location):
            raise errors.scope_storage_differs(location, self.location)

    def _newest(self) -> int | None:
        found = [int(match[1]) for name in self._store.list(SCOPE_DIR) if (match := _FILE.fullmatch(name))]
        return max(found, default=None)

    def _write(self, number: int, definition: ScopeDefinition) -> bool:
        if isinstance(self._store, LocalStore):
            with self._store.errors("create", SCOPE_DIR):
                Path(self.location, SCOPE_DIR).mkdir(parents=True, exist_ok=True)
        self._store.settle()
        created = self._store.create(_file(number), definition.to_text().encode())
        if created is Put.UNSUPPORTED:
            raise errors.scope_storage_unsupported(self.location)
        if created is Put.MADE:
            self._store.sync_commit(_file(number))
        return created is Put.MADE


def _file(number: int) -> str:
    return f"{SCOPE_DIR}/{number:020d}.json"
