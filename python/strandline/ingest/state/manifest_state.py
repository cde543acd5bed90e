"""What a manifest remembers of a partition: the policy's own state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from strandline.ingest.state.readers import Unfit, anything, count, listed, number, row
from strandline.ingest.state.record import Key, Record

__all__ = ["ManifestState"]


def _counts(value: Any) -> Sequence[Any]:
    counts: Sequence[Any] = listed(row(anything, count))(value)
    if len({repr(time) for time, _ in counts}) < len(counts):
        raise Unfit
    return counts


@dataclass(frozen=True)
class ManifestState(Record):
    """How much of what is announced has come.

    Attributes:
        held: The times of which rows are still to come, in JSON.
        came: How many rows came at each of the later times, in JSON.
        done: How many rows are announced for complete times.
        total: How many rows are announced.
        left: How many rows of ``done`` were not cancelled.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {
        "held": Key("held", listed()),
        "came": Key("came", _counts),
        "done": Key("done", number),
        "total": Key("total", number),
        "left": Key("left", number),
    }
    held: Sequence[Any] | None = None
    came: Sequence[tuple[Any, int]] | None = None
    done: int | None = None
    total: int | None = None
    left: int | None = None

    @classmethod
    def of(cls, name: str, own: Any) -> ManifestState:
        """Read the state of a partition's policy. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
        what = f"the state of {name!r}, for its manifest,"
        state = cls.from_json(own, what)
        return _Counted.from_json(own, what) if state.total is not None else state


@dataclass(frozen=True)
class _Counted(ManifestState):
    """A state that says how much is announced says how much of it is complete."""

    KEYS: ClassVar[Mapping[str, Key]] = {**ManifestState.KEYS, "done": Key("done", number, required=True)}
