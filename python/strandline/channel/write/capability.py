"""Capabilities: a producer's right to write rows at times ≥ t. A new one can be made only from one that is held."""

from __future__ import annotations

from typing import Protocol

from strandline.channel import errors
from strandline.channel.progress.handle_lock import HandleLock
from strandline.time.domain import Time, TimeDomain

__all__ = ["Capability"]


class Holder(Protocol):
    """The holder of capabilities: a producer's session."""

    name: str

    @property
    def lock(self) -> HandleLock: ...

    @property
    def domain(self) -> TimeDomain: ...

    def hold(self, time: Time) -> Capability: ...

    def forget(self, capability: Capability) -> None: ...


class Capability:
    """A producer's right to write rows at times ≥ :attr:`time` (timely's ``Capability``).

    When a producer opens, it makes one for each time that it held. :meth:`Producer.hold` and :meth:`clone` also make
    capabilities. A capability lasts until :meth:`drop`. All operations here are local; the producer's next commit states
    them to everyone.
    """

    __slots__ = ("_holder", "_time")

    def __init__(self, holder: Holder, time: Time) -> None:
        self._holder: Holder | None = holder
        self._time = time

    @property
    def time(self) -> Time:
        """The least time that the capability allows."""
        return self._time

    @property
    def dropped(self) -> bool:
        """Whether the capability was dropped."""
        return self._holder is None

    def delay(self, time: Time) -> None:
        """Move the capability to a later time. Raises :class:`CapabilityError` if ``time`` is not ≥ :attr:`time`."""
        holder = self._held()
        time = holder.domain.time(time)
        with holder.lock:
            if not holder.domain.less_equal(self._time, time):
                raise errors.capability_backwards(holder.name, holder.domain, holder.domain.format(self._time), time)
            self._time = time

    def clone(self) -> Capability:
        """Return an independent capability at the same time."""
        holder = self._held()
        with holder.lock:
            return holder.hold(self._time)

    def drop(self) -> None:
        """Give the capability up. Doing so twice is harmless."""
        holder = self._holder
        if holder is not None:
            holder.forget(self)
            self._holder = None

    def _held(self) -> Holder:
        if self._holder is None:
            raise errors.capability_dropped(self._time)
        return self._holder

    def __repr__(self) -> str:
        return f"Capability({self._time!r}{', dropped' if self.dropped else ''})"
