"""Offsets of a source of several channels: the position in each, and the frontier of all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark_strandline.read.offset import Offset
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain

__all__ = ["SeveralOffset"]

_VERSION = 1


@dataclass(frozen=True)
class SeveralOffset:
    """A position in each channel, by name. All of them together are a consistent cut.

    ``first`` is the number of the channel that the next limited batch serves first.
    """

    positions: Mapping[str, Offset]
    first: int = 0

    @property
    def frontier(self) -> Antichain:
        """The frontier of all channels together: a time is closed when every channel has closed it."""
        return reduce(Antichain.meet, (position.frontier for position in self.positions.values()))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object. Its keys are always in the same order, because Spark compares offsets as text."""
        frontier = self.frontier
        return {
            "strandline": _VERSION,
            "domain": str(frontier.domain),
            "frontier": frontier.to_json(),
            "channels": {name: position.to_json() for name, position in self.positions.items()},
            "first": self.first,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], channels: Mapping[str, Any]) -> SeveralOffset:
        """Read an offset.

        Args:
            value: The JSON object.
            channels: The source's channels by name, each with ``table_id``, ``domain`` and ``path``.

        Raises:
            StrandlineError: ``STRANDLINE_CHECKPOINT_MISMATCH`` if the checkpoint has other channels;
                ``STRANDLINE_OFFSET_INVALID`` if it is damaged.

        >>> SeveralOffset.from_json({"channels": {"a": {}}, "first": 0}, {"a": None, "b": None})
        Traceback (most recent call last):
        strandline.errors.StrandlineError: [STRANDLINE_CHECKPOINT_MISMATCH] ...
        """
        each, first = value.get("channels"), value.get("first")
        if not isinstance(each, dict) or any(not isinstance(position, dict) for position in each.values()):
            raise _invalid(value, "it has no position for each channel")
        if type(first) is not int or not 0 <= first < max(1, len(each)):
            raise _invalid(value, "first must be the number of a channel")
        if list(each) != list(channels):
            raise StrandlineError(
                "STRANDLINE_CHECKPOINT_MISMATCH",
                f"The checkpoint has the channels {', '.join(each)}, but the query reads {', '.join(channels)}.",
                "Read the same channels, in the same order and by the same names, or use a new checkpoint.",
            )
        positions = {
            name: Offset.from_json(each[name], channel.table_id, channel.domain, channel.path)
            for name, channel in channels.items()
        }
        offset = cls(positions, first)
        if value.get("frontier") != offset.frontier.to_json():
            raise _invalid(value, "its frontier must be that of its channels together")
        return offset


def _invalid(value: Mapping[str, Any], rule: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OFFSET_INVALID",
        f"The checkpoint's offset {str(value)[:300]} is not a position in several channels: {rule}.",
        "The checkpoint was damaged or changed by hand. Restore it from a backup, or use a new checkpoint.",
    )
