"""Notificators notify an operator when a time is closed, never too early and in an order that respects the partial order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol

from strandline.time.domain import Time, TimeDomain
from strandline.tracker.capability import Capability

__all__ = ["Frontier", "Notificator"]


class Frontier(Protocol):
    """The part of a frontier that a notificator reads. The frontier is an antichain or a mutable antichain."""

    def less_equal(self, time: Time) -> bool:
        """Whether some element is ≤ ``time``."""


class Notificator:
    """Requests for notification (timely's ``FrontierNotificator``).

    A request is delivered as soon as no input frontier has an element ≤ its time. A request is a capability at the time: the
    right to send at that time is kept until delivery. Available notifications are delivered by least ``sort_key``, so if two
    were requested before, the greater one never comes first. Requests for one time are delivered together, with their number. A
    request that is made during delivery is sorted in among the available notifications.

    >>> from strandline.time.antichain import Antichain
    >>> from strandline.time.change_batch import ChangeBatch
    >>> from strandline.time.domain import uint64
    >>> notificator, held = Notificator(uint64), Capability(uint64, 0, ChangeBatch())
    >>> for time in (7, 3, 3):
    ...     notificator.notify_at(held.delayed(time))
    >>> [(capability.time, count) for capability, count in notificator.ready([Antichain(uint64, [5])])]
    [(3, 2)]
    """

    def __init__(self, domain: TimeDomain, capabilities: Iterable[Capability] = ()) -> None:
        self.domain = domain
        self._pending: dict[Time, list[Capability]] = {}
        self._available: list[tuple[Time, Time]] = []
        self._counted: dict[Time, list[Capability]] = {}
        for capability in capabilities:
            self.notify_at(capability)

    def notify_at(self, capability: Capability) -> None:
        """Ask to be notified when the capability's time is closed. The capability now belongs to the notificator."""
        self._pending.setdefault(capability.time, []).append(capability)

    def make_available(self, frontiers: Sequence[Frontier]) -> None:
        """Make the requests with times that these frontiers close available to :meth:`next`."""
        closed = [time for time in self._pending if not any(frontier.less_equal(time) for frontier in frontiers)]
        for time in closed:
            if time not in self._counted:
                heappush(self._available, (self.domain.sort_key(time), time))
            self._counted.setdefault(time, []).extend(self._pending.pop(time))

    def next(self, frontiers: Sequence[Frontier]) -> tuple[Capability, int] | None:
        """Return the next notification: its capability and the number of requests. ``None`` when no requested time is closed."""
        self.make_available(frontiers)
        if not self._available:
            return None
        _, time = heappop(self._available)
        first, *others = self._counted.pop(time)
        for capability in others:
            capability.drop()
        return first, len(others) + 1

    def ready(self, frontiers: Sequence[Frontier]) -> Iterator[tuple[Capability, int]]:
        """Yield every notification that the frontiers allow, including those that are requested during the iteration.

        The caller owns the capability only until the next step: keep it with ``clone``, or send under it at once.
        """
        while (notification := self.next(frontiers)) is not None:
            try:
                yield notification
            finally:
                notification[0].drop()

    def pending(self) -> list[tuple[Time, int]]:
        """Return the requested times that are not delivered yet, in ``sort_key`` order, with the number of requests."""
        counts = {time: len(held) for time, held in self._pending.items()}
        for time, held in self._counted.items():
            counts[time] = counts.get(time, 0) + len(held)
        return sorted(counts.items(), key=lambda item: self.domain.sort_key(item[0]))
