"""What ingests keep in the states of a channel's producers. It is checked as it is read, because anyone may have written the log.

The registrar's state has an *entry* for each query: what the ingests of a channel share. A partition's state is the *memory* that
its ingest has of it. The producers of parked rows, and the producer of the corrections, have states of their own form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from strandline.channel import Commit, Progress, WriterSession
from strandline.channel.statements.nullable_int64 import is_number
from strandline.channel.statements.statement import REGISTRAR, ProducerState
from strandline.errors import IngestError
from strandline.ingest.names import CORRECTIONS, PARKED, PARKED_FOLDER

__all__ = [
    "check_manifest_memory",
    "corrections_done",
    "entries_of",
    "entry_in",
    "idle_states",
    "is_recorded",
    "memories_of",
    "memory_of",
    "own_names",
    "parked_list",
    "parked_state",
    "refuse_twice",
    "registrar_state",
]

Check = Callable[[Any], bool]
_MOST = 1 << 50
"""Counts, and the milliseconds that an ingest has listened, are below this. So their sums are numbers of 64 bits."""
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return is_number(value) and 0 <= value < _MOST


def _is_moment(value: Any) -> bool:
    """Whether it is a time in ms that a calendar has."""
    return is_number(value) and _FIRST_MS <= value <= _LAST_MS


def _is_session(value: Any) -> bool:
    try:
        WriterSession.from_json(value)
    except ValueError:
        return False
    return True


def _is_parked(value: Any) -> bool:
    """Whether it is a path of a parked file. Any other file of the channel is in its table, and would join it twice."""
    return _is_text(value) and value.startswith(f"{PARKED_FOLDER}/") and ".." not in value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: _is_list(value) and all(map(check, value))


def _row_of(*checks: Check) -> Check:
    return lambda row: _is_list(row) and len(row) == len(checks) and all(check(v) for check, v in zip(checks, row, strict=True))


def _object_of(checks: Mapping[str, Check], *required: str) -> Check:
    return lambda value: isinstance(value, dict) and _wrong_key(value, checks, required) is None


def _wrong_key(value: dict[str, Any], checks: Mapping[str, Check], required: tuple[str, ...] = ()) -> str | None:
    """Return a key that is missing or has a wrong value. Unknown keys are kept for whoever knows them."""
    for key in required:
        if key not in value:
            return key
    return next((key for key, check in checks.items() if key in value and not check(value[key])), None)


# A time has any form here. The domain refuses what is not a time of it.
_times, _any = _list_of(lambda _: True), lambda _: True
_file = _row_of(_is_text, _is_count, _is_count)
_parked_file = _row_of(_is_parked, _is_count, _is_count)
_columns = _list_of(_row_of(_is_text, _optional(_is_text)))

_ENTRY: dict[str, Check] = {
    "policy": _is_text,
    "clock": _object_of(
        {
            "listened": _is_count,
            "run": _is_text,
            "planned": _is_moment,
            "certain": _is_flag,
            "wall": _is_moment,
            "real": _is_moment,
            "tick": _row_of(_is_text, _is_count, _is_count),
            "offset": is_number,
            "doubted": _is_moment,
        }
    ),
    "since": _is_count,
    "sinceWall": _is_moment,
    "snapshot": _is_flag,
    "fenced": _is_session,
    "late": _is_text,
    "aside": _is_count,
    "future": _is_count,
    "asideForgotten": _is_count,
    "batch": _row_of(is_number, _is_count, _any),
    "values": _row_of(is_number, _any),
    "newest": is_number,
    "moved": lambda value: _list_of(is_number)(value) and list(value) == sorted(set(value)),
    "cancelled": _list_of(_row_of(is_number, _columns)),
    "pending": _object_of({"batch": is_number, "files": _list_of(_file), "before": is_number}, "batch", "files", "before"),
}
_MEMORY: dict[str, Check] = {
    "at": _is_moment,
    "aside": _is_count,
    "future": _is_count,
    "heard": _is_count,
    "heardWall": _is_count,
    "soon": _times,
    "idle": _object_of(
        {"was": _times, "since": _is_moment, "listened": _is_count, "silent": _is_count, "rejoins": _is_flag}, "was", "since"
    ),
    "generation": _is_count,
}
_parcel = _row_of(_list_of(_parked_file), _any, _any, _is_count)
_parked_list = _object_of(
    {"list": _is_parked, "bytes": _is_count, "sum": _is_text, "rows": _is_count, "after": is_number},
    "list",
    "bytes",
    "sum",
    "rows",
)
_PARKED: dict[str, Check] = {
    "rows": _is_count,
    "parked": _list_of(lambda value: _parcel(value) or _parked_list(value)),
    "beyond": is_number,
    "ahead": lambda value: is_number(value) and value >= 0,  # in units of the domain: 40 years of microseconds are many
}
_MANIFEST: dict[str, Check] = {
    "held": _times,
    "came": lambda value: _list_of(_row_of(_any, _is_count))(value) and len({repr(time) for time, _ in value}) == len(value),
    "done": is_number,
    "total": is_number,
    "left": is_number,
}


def _are_spans(value: Any) -> bool:
    """Whether these are ranges ``[first, newest]``, in order, that do not overlap."""
    if not _list_of(_row_of(is_number, is_number))(value):
        return False
    ends = [end for span in value for end in span]
    return ends == sorted(ends) and len({first for first, _ in value}) == len(value)


def _checked(what: str, value: Any, checks: Mapping[str, Check], *required: str) -> dict[str, Any]:
    """Return a state that is an object as :data:`checks` say, or ``{}`` where there is none."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _invalid(f"{what} is {_shown(value)}, which is not an object.")
    wrong = _wrong_key(value, checks, required)
    if wrong is not None:
        raise _invalid(f"{what} has {_shown(value[wrong]) if wrong in value else 'nothing'} for {wrong!r}.")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _invalid(problem: str) -> IngestError:
    return IngestError(
        "STRANDLINE_INGEST_STATE_INVALID",
        f"What the channel's log states for ingests cannot be used: {problem} Nothing was written.",
        "The log is damaged, or something other than an ingest wrote this state. Restore the log from a backup, or ingest into a "
        "new channel. If a newer release of Strandline wrote it, use that release.",
    )


def registrar_state(progress: Progress) -> dict[str, Any]:
    """Return the registrar's state: the entries of ingests by query, and what is not of one query.

    Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``.
    """
    registrar = progress.get(REGISTRAR)
    return _registrar_state(registrar.state if registrar is not None else None)


def _registrar_state(value: Any) -> dict[str, Any]:
    state = _checked("the registrar's state", value, {})
    for query, entry in state.items():
        if query.encode("utf-8", "replace").decode() != query:
            raise _invalid(f"the registrar's state has the name {_shown(query)}, which is not text.")
        if isinstance(entry, dict):
            _checked(f"the entry of query {query!r}", entry, _ENTRY)
    return state


def entries_of(progress: Progress) -> dict[str, dict[str, Any]]:
    """Return what the channel's ingests keep in common, by query. Raises :class:`IngestError` as :func:`registrar_state`."""
    return {query: entry for query, entry in registrar_state(progress).items() if isinstance(entry, dict)}


def entry_in(commit: Commit, query: str) -> dict[str, Any]:
    """Return the entry of a query that a commit states, or ``{}``. Raises :class:`IngestError` as :func:`registrar_state`."""
    statement = None if commit.statement is None else commit.statement.statements.get(REGISTRAR)
    entry = _registrar_state(statement.state).get(query) if statement is not None else None
    return entry if isinstance(entry, dict) else {}


def is_recorded(entry: Mapping[str, Any], batch: int, read: tuple[int, int, int]) -> bool:
    """Whether a batch has the rows that an entry records for it.

    Args:
        entry: The query's entry, as of the batch's commit or later.
        batch: The batch's number.
        read: How many rows it has now, and their digests.

    >>> entry = {"batch": [7, 2, 55], "values": [7, 99]}
    >>> is_recorded(entry, 7, (2, 55, 99)), is_recorded(entry, 7, (2, 55, 98)), is_recorded(entry, 8, (0, 0, 0))
    (True, False, True)
    """
    number, rows, digest = entry.get("batch") or (-1, 0, 0)
    if number < batch:
        return not read[0]  # the batch had no rows
    return (rows, digest, entry["values"][1]) == read


def memory_of(name: str, state: Any) -> dict[str, Any]:
    """Return what an ingest remembers of a partition, by the partition's state. Do not change the result.

    Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``.

    >>> memory_of("a", {"at": 5, "aside": 2}), memory_of("a", None)
    ({'at': 5, 'aside': 2}, {})
    >>> memory_of("a", {"at": "noon"})
    Traceback (most recent call last):
    strandline.errors.IngestError: [STRANDLINE_INGEST_STATE_INVALID] ...
    """
    return _checked(f"the state of {name!r}", state, _MEMORY)


def memories_of(progress: Progress, states: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield :func:`memory_of` for partitions, and ``{}`` for a producer of no ingest whose state has another form."""
    for name, state in states:
        try:
            yield name, memory_of(name, state)
        except IngestError:  # noqa: PERF203 - the other states are of ingests
            known = progress.get(name)
            if known is not None and known.owner is not None and known.owner.id in entries_of(progress):
                raise
            yield name, {}


def idle_states(progress: Progress) -> dict[str, dict[str, Any]]:
    """Return the partitions that are not waited for, with what their states say about that. Raises as :func:`memory_of`."""
    queries = entries_of(progress).keys()
    found = {}
    for name, idle in progress.remembering("idle"):
        known = progress.get(name)
        # The state of a producer that belongs to no ingest is its own affair.
        if known is not None and known.owner is not None and known.owner.id in queries:
            found[name] = memory_of(name, {"idle": idle})["idle"]
            for time in found[name]["was"]:
                progress.domain.from_json(time)
    return found


def parked_state(name: str, known: ProducerState | None) -> dict[str, Any]:
    """Return where the parked rows of a producer are. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
    state = _checked(f"the state of {name!r}", known.state if known is not None else None, _PARKED)
    entries = [[[[entry["list"]]]] if isinstance(entry, dict) else entry for entry in state.get("parked", ())]
    refuse_twice(path for files, *_ in entries for path, *_ in files)
    return state


def refuse_twice(paths: Iterable[str]) -> None:
    """Raise :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID`` if a parked file is named twice: it would join twice."""
    known = list(paths)
    if len(set(known)) < len(known):
        raise _invalid("a parked file is named twice.")


def parked_list(path: str, text: bytes) -> list[Any]:
    """Return the parcels of a list of parked rows. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    parcels: Any = value.get("parked") if isinstance(value, dict) else None
    if not _list_of(_parcel)(parcels):
        raise _invalid(f"the file {path!r} is not a list of parked rows.")
    return list(parcels)


def corrections_done(progress: Progress, key: str = "done") -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of batches that were looked at, by query.

    ``key``: ``done`` for all their rows, ``late`` for those that were late.

    Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``.
    """
    known = progress.get(CORRECTIONS)
    state = _checked(f"the state of {CORRECTIONS!r}", known.state if known is not None else None, {})
    done = _checked("the range of corrections", state.get(key), {})
    for query, spans in done.items():
        if not _are_spans(spans):
            raise _invalid(f"the range of corrections has {_shown(spans)} for {query!r}.")
    return {query: [(first, newest) for first, newest in spans] for query, spans in done.items()}


def check_manifest_memory(name: str, own: Any) -> dict[str, Any]:
    """Return what a manifest remembers of a partition. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
    memory = _checked(f"the state of {name!r}, for its manifest,", own, _MANIFEST)
    if "total" in memory:
        _checked(f"the state of {name!r}, for its manifest,", memory, {}, "done")
    return memory


def own_names(progress: Progress) -> list[str]:
    """Return the producers that are not partitions: those that ingests have in addition."""
    names = [CORRECTIONS, PARKED, *(f"{PARKED}:{query}" for query in registrar_state(progress))]
    return [name for name in names if progress.get(name) is not None]
