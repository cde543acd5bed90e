"""What ingests keep in the states of a channel's producers. It is checked as it is read, because anyone may have written the log.

The registrar's state has an *entry* for each query: what the ingests of a channel share. A partition's state is the *memory* that
its ingest has of it. The producers of parked rows, and the producer of the corrections, have states of their own form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from strandline.channel import Progress
from strandline.channel.statements.nullable_int64 import is_number
from strandline.channel.statements.statement import REGISTRAR, ProducerState
from strandline.errors import IngestError
from strandline.ingest.names import CORRECTIONS, PARKED

__all__ = [
    "check_manifest_memory",
    "corrections_done",
    "entries_of",
    "idle_states",
    "memories_of",
    "memory_of",
    "own_names",
    "parked_state",
    "registrar_state",
]

Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return is_number(value) and value >= 0


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
_columns = _list_of(_row_of(_is_text, _optional(_is_text)))

_ENTRY: dict[str, Check] = {
    "policy": _is_text,
    "clock": _object_of({"listened": _is_count, "run": _is_text, "planned": is_number, "certain": _is_flag}),
    "since": _is_count,
    "snapshot": _is_flag,
    "fenced": lambda value: isinstance(value, dict),
    "late": _is_text,
    "aside": _is_count,
    "batch": _row_of(is_number, _is_count, _any),
    "newest": _optional(is_number),
    "moved": _list_of(is_number),
    "cancelled": lambda value: _columns(value) or _list_of(_row_of(is_number, _columns))(value),
    "pending": _object_of(
        {"batch": is_number, "files": _list_of(_file), "before": is_number, "replaces": _is_flag}, "batch", "files"
    ),
}
_MEMORY: dict[str, Check] = {
    "at": is_number,
    "aside": _is_count,
    "heard": is_number,
    "soon": _times,
    "idle": _object_of({"was": _times, "since": is_number, "listened": is_number}, "was", "since"),
}
_PARKED: dict[str, Check] = {
    "rows": _is_count,
    "parked": _list_of(_row_of(_list_of(_file), _any, _any, _is_count)),
    "beyond": is_number,
    "ahead": _is_count,
}
_MANIFEST: dict[str, Check] = {
    "held": _times,
    "came": _list_of(_row_of(_any, _is_count)),
    "done": is_number,
    "total": is_number,
    "left": is_number,
}
_span = _row_of(is_number, is_number)


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
    state = _checked("the registrar's state", registrar.state if registrar is not None else None, {})
    for query, entry in state.items():
        if isinstance(entry, dict):
            _checked(f"the entry of query {query!r}", entry, _ENTRY)
    return state


def entries_of(progress: Progress) -> dict[str, dict[str, Any]]:
    """Return what the channel's ingests keep in common, by query. Raises :class:`IngestError` as :func:`registrar_state`."""
    return {query: entry for query, entry in registrar_state(progress).items() if isinstance(entry, dict)}


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
    found = memories_of(progress, ((name, {"idle": idle}) for name, idle in progress.remembering("idle")))
    return {name: memory["idle"] for name, memory in found if memory}


def parked_state(name: str, known: ProducerState | None) -> dict[str, Any]:
    """Return where the parked rows of a producer are. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
    return _checked(f"the state of {name!r}", known.state if known is not None else None, _PARKED)


def corrections_done(progress: Progress) -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of batches that were looked at, by query. An earlier release stated the newest batch of a query.

    Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``.
    """
    known = progress.get(CORRECTIONS)
    state = _checked(f"the state of {CORRECTIONS!r}", known.state if known is not None else None, {})
    done = _checked("the range of corrections", state.get("done"), {})
    for query, spans in done.items():
        if not is_number(spans) and not _list_of(_span)(spans):
            raise _invalid(f"the range of corrections has {_shown(spans)} for {query!r}.")
    return {q: [(0, spans)] if is_number(spans) else [(first, newest) for first, newest in spans] for q, spans in done.items()}


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
