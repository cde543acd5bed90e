"""When parked rows join the channel, and what is held for them until then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.channel import ProducerState, Progress
from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.ingest.parked.lists import ParkedLists, Waiting
from strandline.ingest.parked.parcel import Parked, first_coordinate
from strandline.ingest.state.parked_state import ParkedState
from strandline.ingest.state.registrar_state import own_names
from strandline.time.antichain import Antichain, join_antichains
from strandline.time.domain import Time, TimeDomain

__all__ = ["Parking", "Released", "near", "parked_beyond", "release_all"]


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
    beyond = ParkedState.of(name, known).beyond
    return max(map(first_coordinate, known.holds)) if beyond is None else beyond


@dataclass(frozen=True)
class Parking:
    """A producer of parked rows.

    Attributes:
        name: Its name.
        ahead: How far ahead of the frontier rows may be in the channel, or ``None`` for no limit.
        held_after: Returns what the partitions hold whose rows may have to wait in the future.
        given: Returns what is given to the producer if it holds nothing yet.
        new: Rows that are parked now.
    """

    name: str
    ahead: int | None
    held_after: Callable[[], Iterable[Time]]
    given: Callable[[], Antichain] | None = None
    new: Sequence[Parked] = ()


@dataclass(frozen=True)
class Released:
    """What producers of parked rows hold from now on, their states, the parcels that join, and who is given capabilities."""

    holds: dict[str, Antichain] = field(default_factory=dict)
    states: dict[str, ParkedState] = field(default_factory=dict)
    joining: list[Parked] = field(default_factory=list)
    given: list[str] = field(default_factory=list)


def release_all(
    progress: Progress,
    parkings: Sequence[Parking],
    lists: ParkedLists,
    holds: Mapping[str, Antichain],
    moves: CapabilityUpdates | None = None,
) -> Released:
    """Decide which parked rows join the channel.

    Args:
        progress: The channel's progress.
        parkings: The producers of parked rows.
        lists: The lists of parked rows.
        holds: What other producers hold from now on.
        moves: The same for very many others.
    """
    domain = progress.domain
    apart = dict.fromkeys([*own_names(progress), *(each.name for each in parkings)], Antichain(domain))
    frontier = progress.least_with({**holds, **apart}, moves)
    registrar = progress.registrar
    joining = join_antichains(domain, registrar, list(frontier)) if frontier else registrar
    released = Released()
    for each in parkings:
        known = progress.get(each.name)
        waiting = lists.waiting(ParkedState.of(each.name, known), domain)
        waiting = replace(waiting, stated=[*waiting.stated, *each.new])
        holding = known is not None and bool(known.holds)
        if not waiting and not holding and (known is None or each.name not in holds):
            continue
        held = known.holds if known is not None and holding else Antichain(domain)
        if not holding and each.given is not None:
            held = each.given()
            released.given.append(each.name)
        go, stay = waiting.split(None if each.ahead is None or not frontier else near(frontier, each.ahead))
        released.joining.extend(go)
        if not stay or each.ahead is None:
            kept, state = Antichain(domain), ParkedState().changed(rows=0, parked=[])
        else:
            # No row that is parked from now on is before this time. It is beyond the frontier, so it holds nothing back.
            beyond = max(near(frontier, each.ahead) + 1, parked_beyond(each.name, known))
            after = () if domain.is_total else [*each.held_after(), *joining]
            kept = _held_for(domain, stay, held, after, beyond)
            entries = lists.entries(stay, domain)
            state = ParkedState().changed(rows=stay.rows, parked=entries, beyond=beyond, ahead=each.ahead)
        released.holds[each.name], released.states[each.name] = kept, state
    return released


def _held_for(domain: TimeDomain, waiting: Waiting, held: Antichain, after: Iterable[Time], beyond: int) -> Antichain:
    """Return what is held for parked rows: times from ``beyond`` on, of what may be held at all."""
    limit = [beyond if not domain.coordinates else _with_first(domain.minimum, beyond)]
    if domain.is_total:
        return join_antichains(domain, held, limit)
    # Waiting rows may not be in advance of what their partitions hold by now. Rows that arrive later will be.
    after = join_antichains(domain, Antichain(domain, after), limit)
    return Antichain(domain, [*(parcel.least for parcel in waiting.parcels), *after])


def _with_first(time: Any, value: int) -> Any:
    return (value if isinstance(time[0], int) else _with_first(time[0], value), *time[1:])
