"""Lists of parked rows: files beside the parked ones, so that a commit does not repeat what earlier commits have stated.

The state of a producer of parked rows names up to 16 parcels itself. More are in lists. A list never changes. Its parcels are in
order of their first coordinates, and join in this order: so a number says which of them still wait. Lists are merged as their
parcels become fewer, so a parcel is written a few times, and a state names a few lists, whatever the number of parcels.
"""

from __future__ import annotations

import json
import time as clock
import uuid
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from strandline.delta.storage import open_store
from strandline.ingest.names import PARKED_FOLDER
from strandline.ingest.parked import errors
from strandline.ingest.parked.parcel import Parked, first_coordinate, parcels_from_json, parcels_to_json
from strandline.ingest.state.parked_state import ListState, ParkedState, parcels_of_list, refuse_twice
from strandline.json_value import JsonObject
from strandline.time.domain import TimeDomain

__all__ = ["ParkedList", "ParkedLists", "Waiting"]

_MOST_STATED = 16
"""The most parcels that a state names itself."""
_REUSED_SECONDS = 600.0
"""For how long a list that no commit names may still be named. Later it may be removed as one that nothing names."""
_MOST_KNOWN = 32
"""How many lists are remembered that the state of this producer does not name."""


@dataclass(frozen=True)
class ParkedList:
    """A list as a state names it, and its parcels that wait.

    Attributes:
        path: The file.
        size: Its bytes.
        sum: The first 16 digits of its SHA-256.
        after: Parcels whose first coordinate is not beyond this have joined. ``None``: all wait.
        rows: How many rows wait.
        parcels: The parcels that wait, in order of their first coordinates.
    """

    path: str
    size: int
    sum: str
    after: int | None
    rows: int
    parcels: Sequence[Parked]

    def to_json(self) -> JsonObject:
        """Return the form that a state carries."""
        state = ListState().changed(list=self.path, bytes=self.size, sum=self.sum, rows=self.rows, after=self.after)
        return state.to_json()


@dataclass(frozen=True)
class Waiting:
    """The parked rows of a producer: parcels that its state names, and lists."""

    stated: Sequence[Parked] = ()
    lists: Sequence[ParkedList] = ()

    @property
    def parcels(self) -> list[Parked]:
        """All parcels."""
        return [*(parcel for each in self.lists for parcel in each.parcels), *self.stated]

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return sum(each.rows for each in self.lists) + sum(parcel.rows for parcel in self.stated)

    def __bool__(self) -> bool:
        return bool(self.stated or self.lists)

    def split(self, limit: int | None) -> tuple[list[Parked], Waiting]:
        """Return the parcels whose first coordinate is not beyond ``limit`` (``None``: all of them), and the others."""
        if limit is None:
            return self.parcels, Waiting()
        gone: list[Parked] = []
        lists = []
        for each in self.lists:
            count = bisect_right(each.parcels, limit, key=_first)
            gone += each.parcels[:count]
            if not count:
                lists.append(each)
            elif count < len(each.parcels):
                rows = each.rows - sum(parcel.rows for parcel in each.parcels[:count])
                lists.append(replace(each, after=limit, rows=rows, parcels=each.parcels[count:]))
        gone += [parcel for parcel in self.stated if _first(parcel) <= limit]
        return gone, Waiting([parcel for parcel in self.stated if _first(parcel) > limit], lists)


class ParkedLists:
    """Reads and writes the lists of a channel. It remembers what it has read, because lists never change."""

    def __init__(self, path: str, storage: Mapping[str, str] | None = None) -> None:
        self._path, self._storage = path, storage
        self._known: dict[str, tuple[str, list[Parked]]] = {}
        self._written: dict[str, tuple[float, ParkedList]] = {}
        """What was written last, and when, by content: a commit that is decided again needs the same list."""

    def waiting(self, state: ParkedState, domain: TimeDomain, *, forget_missing: bool = False) -> Waiting:
        """Return the parked rows that a state names.

        Args:
            state: The state of a producer of parked rows.
            domain: The domain of the channel.
            forget_missing: Leave out the rows of lists that do not exist.

        Raises:
            IngestError: ``STRANDLINE_PARKED_FILE_MISSING`` or ``STRANDLINE_PARKED_FILE_DIFFERS``, if a list is not as stated.
        """
        stated, named = parcels_from_json(state.parcels, domain), state.lists
        new = any(self._known.get(entry.list, ("",))[0] != entry.sum for entry in named)
        lists = [self._read(entry, domain, forget_missing=forget_missing) for entry in named]
        waiting = Waiting(stated, [each for each in lists if each is not None])
        if new:
            refuse_twice(file.path for parcel in waiting.parcels for file in parcel.files)
        for path in list(self._known)[: -_MOST_KNOWN - len(named)]:
            del self._known[path]
        return waiting

    def entries(self, waiting: Waiting, domain: TimeDomain) -> list[Any]:
        """Return the form in which a state names these rows. A new list is written first if the state would name too many."""
        lists, stated = list(waiting.lists), list(waiting.stated)
        if len(stated) > _MOST_STATED:
            while lists and len(lists[-1].parcels) <= len(stated):  # each parcel is in a list twice as long than before
                stated += lists.pop().parcels
            lists, stated = [*lists, self._write(sorted(stated, key=_first), domain)], []
        return [*(each.to_json() for each in lists), *parcels_to_json(stated, domain)]

    def _write(self, parcels: list[Parked], domain: TimeDomain) -> ParkedList:
        data = json.dumps({"parked": parcels_to_json(parcels, domain)}, separators=(",", ":")).encode()
        digest = sha256(data).hexdigest()[:16]
        at, written = self._written.get(digest, (0.0, None))
        if written is None or clock.monotonic() - at > _REUSED_SECONDS:
            store, path = open_store(self._path, self._storage), f"{PARKED_FOLDER}/list-{uuid.uuid4().hex}.json"
            with store.open_output(path) as file:
                file.write(data)
            store.sync(path)  # before it is committed
            rows = sum(parcel.rows for parcel in parcels)
            written = ParkedList(path, len(data), digest, None, rows, parcels)
            self._written = {digest: (clock.monotonic(), written)}
            self._known[path] = (digest, parcels)
        return written

    def _read(self, entry: ListState, domain: TimeDomain, *, forget_missing: bool) -> ParkedList | None:
        path, after = entry.list, entry.after
        digest, parcels = self._known.get(path, (None, []))
        if digest != entry.sum:
            data = open_store(self._path, self._storage).read(path, entry.bytes + 1)
            if data is None and forget_missing:
                return None
            if data is None:
                raise errors.parked_file_missing_list(path, entry.rows, self._path)
            if len(data) != entry.bytes or sha256(data).hexdigest()[:16] != entry.sum:
                raise errors.parked_file_differs_list(path, self._path)
            parcels = parcels_from_json(parcels_of_list(path, data), domain)
            if sorted(parcels, key=_first) != parcels:
                raise errors.parked_file_differs_list(path, self._path)
            self._known[path] = (entry.sum, parcels)
        left = parcels[0 if after is None else bisect_right(parcels, after, key=_first) :]
        if sum(parcel.rows for parcel in left) != entry.rows or not left:
            raise errors.parked_file_differs_list(path, self._path)
        return ParkedList(path, entry.bytes, entry.sum, after, entry.rows, left)


def _first(parcel: Parked) -> int:
    return first_coordinate(parcel.least)
