"""Capabilities: the right of a producer to write rows at times ≥ t; minted only from one that is held."""

from __future__ import annotations

from typing import Protocol

from strandline.errors import CapabilityError
from strandline.time.domain import Time, TimeDomain

__all__ = ["Capability"]


class Holder(Protocol):
    """Who holds capabilities: a producer's session."""

    name: str

    @property
    def domain(self) -> TimeDomain: ...

    def hold(self, time: Time) -> Capability: ...

    def forget(self, capability: Capability) -> None: ...


class Capability:
    """A producer's right to write rows at times ≥ :attr:`time` (timely's ``Capability``).

    It is made by the producer that opens (one for each time it held), by :meth:`Producer.hold` and by :meth:`clone`, and lasts
    until :meth:`drop`. What the holder does here is local; the producer's next commit states it to everyone.
    """

    __slots__ = ("_holder", "_time")

    def __init__(self, holder: Holder, time: Time) -> None:
        self._holder: Holder | None = holder
        self._time = time

    @property
    def time(self) -> Time:
        """The least time it allows."""
        return self._time

    @property
    def dropped(self) -> bool:
        """Whether it was given up."""
        return self._holder is None

    def delay(self, time: Time) -> None:
        """Move it to a later time. Raises :class:`CapabilityError` when ``time`` is not ≥ :attr:`time`."""
        holder = self._held()
        time = holder.domain.time(time)
        if not holder.domain.less_equal(self._time, time):
            raise backwards(holder.name, holder.domain, holder.domain.format(self._time), time)
        self._time = time

    def clone(self) -> Capability:
        """An independent capability at the same time."""
        return self._held().hold(self._time)

    def drop(self) -> None:
        """Give it up; doing so twice is harmless."""
        if self._holder is not None:
            self._holder.forget(self)
            self._holder = None

    def _held(self) -> Holder:
        if self._holder is None:
            raise CapabilityError(
                "STRANDLINE_CAPABILITY_DROPPED",
                f"The capability at {self._time!r} was dropped.",
                "Take another one with Producer.hold, from a capability that is still held.",
            )
        return self._holder

    def __repr__(self) -> str:
        return f"Capability({self._time!r}{', dropped' if self.dropped else ''})"


def backwards(producer: str, domain: TimeDomain, held: str, time: Time) -> CapabilityError:
    """The error for a capability that would move to a time it is not ≤ to."""
    return CapabilityError(
        "STRANDLINE_CAPABILITY_BACKWARDS",
        f"Producer {producer!r} holds {held} and cannot move to {domain.format(time)}, which is not in advance of it.",
        "Others may count on the times before being closed; move to a later time only.",
    )
