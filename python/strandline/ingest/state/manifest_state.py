"""What a manifest remembers of a partition: the policy's own state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from strandline.ingest.state.readers import Unfit, anything, count, listed, number, row
from strandline.ingest.state.record import Key, Record
from strandline.time.domain import Time, TimeDomain

__all__ = ["ManifestState"]


def _counts(value: Any) -> Sequence[Any]:
    counts: Sequence[Any] = listed(row(anything, count))(value)
    if len({repr(time) for time, _ in counts}) < len(counts):
        raise Unfit
    return counts


def _in_order(domain: TimeDomain, counts: Mapping[Time, int]) -> list[tuple[Any, int]]:
    return [(domain.to_json(time), counts[time]) for time in sorted(counts, key=domain.sort_key) if counts[time]]


@dataclass(frozen=True)
class ManifestState(Record):
    """How much of what is announced has come.

    Attributes:
        held: The times of which rows are still to come, in JSON.
        came: How many rows came at each of the later times, in JSON.
        done: How many rows are announced for complete times.
        total: How many rows are announced.
        left: How many rows of ``done`` were not cancelled.
        cancelled: How many rows an operator has cancelled in all, by time in JSON, where the manifest is a channel: these count
            among those that came.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {
        "held": Key("held", listed()),
        "came": Key("came", _counts),
        "done": Key("done", number),
        "total": Key("total", number),
        "left": Key("left", number),
        "cancelled": Key("cancelled", _counts),
    }
    held: Sequence[Any] | None = None
    came: Sequence[tuple[Any, int]] | None = None
    done: int | None = None
    total: int | None = None
    left: int | None = None
    cancelled: Sequence[tuple[Any, int]] | None = None

    def cancelling(self, domain: TimeDomain, totals: Mapping[Time, int]) -> ManifestState:
        """Return the state after so many rows are cancelled in all, by time. A number that is greater already stays.

        >>> from strandline.time.domain import int64
        >>> once = ManifestState().cancelling(int64, {3: 2})
        >>> once.cancelling(int64, {3: 2}) == once, once.to_json()
        (True, {'came': [(3, 2)], 'cancelled': [(3, 2)]})
        """
        came = {domain.from_json(time): rows for time, rows in self.came or ()}
        known = self.cancelled_at(domain)
        for time, total in totals.items():
            more = max(0, total - known.get(time, 0))
            came[time], known[time] = came.get(time, 0) + more, known.get(time, 0) + more
        return self.changed(came=_in_order(domain, came), cancelled=_in_order(domain, known))

    def cancelled_at(self, domain: TimeDomain) -> dict[Time, int]:
        """Return how many rows of each time an operator has cancelled in all, where the manifest is a channel."""
        return {domain.from_json(time): rows for time, rows in self.cancelled or ()}

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
