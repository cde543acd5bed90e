"""Where the rows are that wait beyond ``maxAhead``: the state of a producer of parked rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from strandline.channel import ProducerState
from strandline.ingest import errors
from strandline.ingest.names import PARKED_FOLDER
from strandline.ingest.state.readers import Unfit, anything, count, listed, number, row, text
from strandline.ingest.state.record import Key, Record

__all__ = ["ListState", "ParkedState", "parcels_of_list", "refuse_twice"]


def _path(value: Any) -> str:
    """Return a path of a parked file. Any other file of the channel is in its table, and would join it twice."""
    path = text(value)
    if not path.startswith(f"{PARKED_FOLDER}/") or ".." in path:
        raise Unfit
    return path


def _distance(value: Any) -> int:
    """Return ``maxAhead``, in units of the domain: 40 years of microseconds are many."""
    if number(value) < 0:
        raise Unfit
    return int(value)


_parcel = row(listed(row(_path, count, count)), anything, anything, count)


@dataclass(frozen=True)
class ListState(Record):
    """A file that lists parcels.

    Attributes:
        list: The path.
        bytes: Its size.
        sum: The first digits of its SHA-256.
        rows: How many rows of its parcels wait.
        after: Parcels whose first coordinate is not beyond this have joined. ``None``: all wait.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {
        "list": Key("list", _path, required=True),
        "bytes": Key("bytes", count, required=True),
        "sum": Key("sum", text, required=True),
        "rows": Key("rows", count, required=True),
        "after": Key("after", number),
    }
    list: str = ""
    bytes: int = 0
    sum: str = ""
    rows: int = 0
    after: int | None = None


def _parcel_or_list(value: Any) -> Any:
    return ListState.inner(value) if isinstance(value, dict) else _parcel(value)


@dataclass(frozen=True)
class ParkedState(Record):
    """The state of a producer of parked rows.

    Attributes:
        rows: How many rows wait.
        parked: The parcels, each as a list, and the lists of parcels, each as an object.
        beyond: The least first coordinate of a row that may be parked with these.
        ahead: How far ahead of the frontier rows may be in the channel.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {
        "rows": Key("rows", count),
        "parked": Key("parked", listed(_parcel_or_list)),
        "beyond": Key("beyond", number),
        "ahead": Key("ahead", _distance),
    }
    rows: int | None = None
    parked: Sequence[Any] | None = None
    beyond: int | None = None
    ahead: int | None = None

    @classmethod
    def of(cls, name: str, known: ProducerState | None) -> ParkedState:
        """Read the state of a producer. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
        state = cls.from_json(known.state if known is not None else None, f"the state of {name!r}")
        files = [path for parcel in state.parcels for path, *_ in parcel[0]]
        refuse_twice([*files, *(each.list for each in state.lists)])
        return state

    @property
    def parcels(self) -> Sequence[Any]:
        """The parcels that the state names itself, in JSON."""
        return [each for each in self.parked or () if not isinstance(each, dict)]

    @property
    def lists(self) -> Sequence[ListState]:
        """The lists that the state names."""
        return [ListState.inner(each) for each in self.parked or () if isinstance(each, dict)]


def refuse_twice(paths: Iterable[str]) -> None:
    """Raise :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID`` if a parked file is named twice: it would join twice."""
    known = list(paths)
    if len(set(known)) < len(known):
        raise errors.ingest_state_invalid_twice()


def parcels_of_list(path: str, data: bytes) -> Sequence[Any]:
    """Return the parcels of a file that lists them. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
    try:
        value = json.loads(data)
        parcels: Sequence[Any] = listed(_parcel)(value.get("parked") if isinstance(value, dict) else None)
    except (ValueError, RecursionError, Unfit):
        raise errors.ingest_state_invalid_list(path) from None
    return parcels
