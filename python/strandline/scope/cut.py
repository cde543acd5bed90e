"""A consistent cut of a scope: a version of every channel, and the times that are closed in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.time.antichain import Antichain

__all__ = ["Cut"]


@dataclass(frozen=True)
class Cut:
    """A version of every channel of a scope, and the frontier of all of them together.

    A time is closed in the cut when every channel has closed it at its version. So every channel has all its rows of that time
    in that version, and no later version has more of them. Reports over several channels agree if they use the rows of closed
    times only.

    Attributes:
        versions: For each channel, the version of its Delta table. Use it for time travel.
        frontiers: For each channel, its own frontier at that version.
        frontier: The least of these frontiers.
    """

    versions: Mapping[str, int]
    frontiers: Mapping[str, Antichain]
    frontier: Antichain
