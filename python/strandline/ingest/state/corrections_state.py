"""Which late rows ``readmit`` has looked at: the state of the producer of the corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from strandline.channel import Progress
from strandline.ingest import errors
from strandline.ingest.names import CORRECTIONS
from strandline.ingest.state.readers import Unfit, listed, number, row
from strandline.ingest.state.record import Key, Record

__all__ = ["CorrectionsState", "Ranges"]

Ranges: TypeAlias = Mapping[str, Sequence[Sequence[int]]]
"""Ranges ``[first, newest]`` of batches, by query."""


def _ranges(value: Any) -> Any:
    if value is not None and not isinstance(value, dict):
        raise errors.ingest_state_invalid_object("the range of corrections", value)
    for query, spans in (value or {}).items():
        if not _in_order(spans):
            raise errors.ingest_state_invalid("the range of corrections", spans, query)
    return value


def _in_order(value: Any) -> bool:
    """Return whether these are ranges that do not overlap, in order."""
    try:
        spans = listed(row(number, number))(value)
    except Unfit:
        return False
    ends = [end for span in spans for end in span]
    return ends == sorted(ends) and len({first for first, _ in spans}) == len(spans)


@dataclass(frozen=True)
class CorrectionsState(Record):
    """The state of the producer of the corrections.

    Attributes:
        done: The batches of which all late rows were looked at.
        late: The batches whose rows were looked at that were late.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {"done": Key("done", _ranges), "late": Key("late", _ranges)}
    done: Ranges | None = None
    late: Ranges | None = None

    @classmethod
    def of(cls, progress: Progress) -> CorrectionsState:
        """Read a channel's state. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
        known = progress.get(CORRECTIONS)
        return cls.from_json(known.state if known is not None else None, f"the state of {CORRECTIONS!r}")
