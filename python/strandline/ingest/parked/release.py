"""When parked rows join the channel, and what is held for them until then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from strandline.channel import ProducerState
from strandline.ingest.parked.lists import ParkedLists, Waiting
from strandline.ingest.parked.parcel import Parked, first_coordinate
from strandline.ingest.recorded import parked_state
from strandline.time.antichain import Antichain, join_antichains
from strandline.time.domain import Time

__all__ = ["Release", "near", "parked_beyond", "release"]


def near(frontier: Iterable[Time], ahead: int) -> int:
    """Return the greatest first coordinate that rows may have when the frontier is at ``frontier``. It may be beyond 64 bits."""
    return min(map(first_coordinate, frontier)) + ahead


def parked_beyond(name: str, known: ProducerState | None) -> int:
    """Return the least first coordinate of a row that may be parked with the rows that already wait.

    What is held for the waiting rows also covers such a row. A smaller ``maxAhead`` takes full effect only when no rows wait that
    were parked under a greater one.
    """
    if known is None or not known.holds:
        return -(1 << 63)
    beyond = parked_state(name, known).get("beyond")
    return max(map(first_coordinate, known.holds)) if beyond is None else beyond


@dataclass(frozen=True)
class Release:
    """The parcels that join, what is held for the others, and the state that says where the others are."""

    joining: list[Parked]
    holds: Antichain
    state: dict[str, Any]


def release(
    waiting: Waiting,
    lists: ParkedLists,
    frontier: Antichain,
    ahead: int | None,
    held: Antichain,
    beyond: int,
    held_after: Callable[[], Antichain],
) -> Release:
    """Decide which parked rows join the channel when the frontier is at ``frontier``.

    Args:
        waiting: The parked rows.
        lists: Where lists of parked rows are written.
        frontier: The frontier.
        ahead: How far ahead of the frontier rows may be in the channel, or ``None`` for no limit.
        held: What may be held at all.
        beyond: What :func:`parked_beyond` returns for the rows that already wait.
        held_after: Returns what the partitions hold whose rows may have to wait in the future.
    """
    domain = frontier.domain
    joining, stay = waiting.split(None if ahead is None or not frontier else near(frontier, ahead))
    if not stay or ahead is None:
        return Release(joining, Antichain(domain), {"rows": 0, "parked": []})
    # No row that is parked from now on is before this time. The time is beyond the frontier, so it holds nothing back.
    beyond = max(near(frontier, ahead) + 1, beyond)
    limit = [beyond if not domain.coordinates else _with_first(domain.minimum, beyond)]
    holds = join_antichains(domain, held, limit)
    if not domain.is_total:
        # Waiting rows may not be in advance of what their partitions hold by now. Rows that arrive later will be.
        holds = Antichain(domain, [*(parcel.least for parcel in stay.parcels), *join_antichains(domain, held_after(), limit)])
    state = {"rows": stay.rows, "parked": lists.entries(stay, domain), "beyond": beyond, "ahead": ahead}
    return Release(joining, holds, state)


def _with_first(time: Any, value: int) -> Any:
    return (value if isinstance(time[0], int) else _with_first(time[0], value), *time[1:])
