"""The channels at or below a path that somebody gives."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from strandline.channel import Channel
from strandline.delta.storage import Store, location_of, open_store
from strandline.errors import ScopeError, StrandlineError
from strandline.report import errors
from strandline.scope import Scope
from strandline.scope.definition import ScopeChannel

__all__ = ["Found", "GivenPath", "find_channels"]

_FILES = (".parquet", ".json", ".crc", ".csv", ".html")


@dataclass(frozen=True)
class Found:
    """A table that was found.

    Attributes:
        name: Its name: in its scope, or its path below the folder.
        path: Its location.
        named: Whether it is known to be a channel. A table that was only met in a folder may be another Delta table.
        table: The id that its scope has recorded, if it is of a scope.
        error: Why it, or the folder at this path, cannot be read.
    """

    name: str
    path: str
    named: bool
    table: str | None = None
    error: str | None = None


class GivenPath:
    """A path that somebody gave: a scope, or a channel. Which of them it is may be known only later.

    Args:
        path: The path.
        storage_options: The options of its storage.

    Attributes:
        location: The path's location.
        scope: The scope at the path; ``None`` if there is none.
        channels: The scope's channels, or the path itself. They stay if the scope's file is damaged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     given = GivenPath(f"{folder}/flights")
    ...     given.refresh()
    >>> given.scope, [each.name for each in given.channels]
    (None, ['flights'])
    """

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> None:
        self.location, self._storage = location_of(path), storage_options
        self.scope: Scope | None = None
        self.channels: list[Found] = []

    def refresh(self) -> None:
        """Read the definition of the scope at the path, if there is one now.

        Raises:
            ScopeError: The scope's file cannot be read.
        """
        if self.scope is None:
            try:
                self.scope = Scope.open(self.location, self._storage)
            except ScopeError as error:
                if error.condition != "STRANDLINE_NOT_A_SCOPE":
                    raise
                self.channels = [Found(self.location.rpartition("/")[2], self.location, True)]
                return
        else:
            self.scope.refresh()
        self.channels = [_of_scope(self.scope, name, entry) for name, entry in self.scope.channels.items()]

    def open(self, found: Found) -> Channel:
        """Open one of the channels.

        Raises:
            ScopeError: As :meth:`~strandline.scope.Scope.channel`.
            ChannelError: There is no channel at its path.
        """
        return Channel.open(found.path, self._storage) if self.scope is None else self.scope.channel(found.name)


def _of_scope(scope: Scope, name: str, entry: ScopeChannel) -> Found:
    """Return a channel of a scope. Others may write the scope's file: where it may not lead, the error says so."""
    try:
        return Found(name, scope.location_of(name), True, entry.table)
    except StrandlineError as error:
        return Found(name, entry.path, True, entry.table, str(error))


def find_channels(path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> list[Found]:
    """Return the tables at or below a path: of a channel, itself; of a scope, its channels; of a folder, all tables below.

    Names that begin with ``.`` or ``_``, folders of Hive's form ``name=value``, links, and what lies inside a table or a
    checkpoint of Spark are not looked at. A folder that cannot be listed has an entry with the error.

    Args:
        path: The path of a channel, a scope or a folder.
        storage_options: The options of its storage.

    Raises:
        ChannelError: ``STRANDLINE_CHANNELS_MISSING`` if there is no table.
    """
    given = GivenPath(path, storage_options)
    given.refresh()
    if given.scope is not None:
        return sorted(given.channels, key=lambda each: each.name)
    found = sorted(_below(open_store(given.location, storage_options), given.location), key=lambda each: each.path)
    if not found:
        raise errors.channels_missing(given.location)
    return found


def _below(store: Store, location: str, name: str = "") -> Iterator[Found]:
    here = f"{location}/{name}" if name else location
    label = name or location.rpartition("/")[2]
    if name and "://" not in here and os.path.islink(here):
        return
    try:
        inside = store.list(name)
    except StrandlineError as error:
        yield Found(label, here, False, error=str(error))
        return
    if "_delta_log" in inside:
        yield Found(label, here, not name)
        return
    if {"offsets", "metadata"} <= set(inside):  # a checkpoint of Spark
        return
    for each in sorted(inside):
        if not each.startswith((".", "_")) and "=" not in each and not each.endswith(_FILES):
            yield from _below(store, location, f"{name}/{each}" if name else each)
