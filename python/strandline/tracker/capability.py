"""Capabilities: tokens for the right to send at a time or later. They are counted until they are dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time, TimeDomain
from strandline.time.path.summary import Summaries
from strandline.tracker import errors

__all__ = ["Capability", "InputCapability"]


class Capability:
    """The right to send at ``time`` or later at one output (timely's ``Capability``).

    Each existing capability is counted in its output's changes, so that every frontier downstream waits for it. Drop it with
    :meth:`drop` or by leaving a ``with`` block. As in Rust, a capability without any reference drops itself.

    >>> from strandline.time.domain import uint64
    >>> changes = ChangeBatch()
    >>> with Capability(uint64, 3, changes) as held:
    ...     later = held.delayed(5)
    >>> list(changes)
    [(5, 1)]
    >>> later.delayed(4)
    Traceback (most recent call last):
    strandline.errors.CapabilityError: [STRANDLINE_CAPABILITY_BACKWARDS] A capability at 5 cannot be delayed to 4, ...
    """

    __slots__ = ("_changes", "_time", "domain")

    def __init__(self, domain: TimeDomain, time: Time, changes: ChangeBatch[Time]) -> None:
        """Mint a capability. Do this only if the right exists: from another capability, or at the start of an operator."""
        self.domain = domain
        self._time = time
        self._changes: ChangeBatch[Time] | None = changes
        changes.update(time, 1)

    @property
    def time(self) -> Time:
        """The least time at which the capability allows sending."""
        return self._time

    @property
    def dropped(self) -> bool:
        """Whether the capability was dropped."""
        return self._changes is None

    def valid_for(self, changes: ChangeBatch[Time]) -> bool:
        """Whether this capability is not dropped and belongs to the output with these ``changes``."""
        return self._changes is changes

    def clone(self) -> Capability:
        """Return another capability at the same time. It is counted and dropped separately."""
        return Capability(self.domain, self._time, self._held())

    def delayed(self, time: Time) -> Capability:
        """Return a new capability at a ``time`` ≥ this one's. This one stays.

        Raises :class:`CapabilityError` for any other time.
        """
        later = self.try_delayed(time)
        if later is None:
            raise errors.capability_backwards(self.domain, self._time, time)
        return later

    def try_delayed(self, time: Time) -> Capability | None:
        """Same as :meth:`delayed`, but returns ``None`` when ``time`` is not at or after this capability's.

        >>> from strandline.time.domain import product
        >>> Capability(product(epoch="int64", iter="int64"), (1, 1), ChangeBatch()).try_delayed((2, 0)) is None
        True
        """
        changes, time = self._held(), self.domain.time(time)
        return Capability(self.domain, time, changes) if self.domain.less_equal(self._time, time) else None

    def downgrade(self, time: Time) -> None:
        """Move this capability itself to a ``time`` ≥ its own. Raises :class:`CapabilityError` for any other time."""
        later = self.delayed(time)
        self.drop()
        self._time, self._changes = later._time, later._changes
        later._changes = None  # its count is this capability's now

    def drop(self) -> None:
        """Drop the capability. A second drop has no effect."""
        if self._changes is not None:
            self._changes.update(self._time, -1)
            self._changes = None

    def _held(self) -> ChangeBatch[Time]:
        if self._changes is None:
            raise errors.capability_dropped(self.domain, self._time)
        return self._changes

    def __enter__(self) -> Capability:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.drop()

    def __del__(self) -> None:
        if getattr(self, "_changes", None) is not None:
            self.drop()

    def __repr__(self) -> str:
        return f"Capability({self.domain.format(self._time)}{', dropped' if self.dropped else ''})"


class InputCapability:
    """The right that comes with a message: to send at the result of its time at each output, while the message is handled.

    To keep the right for longer, call :meth:`retain` or :meth:`delayed`, which mint a :class:`Capability`. After the message is
    handled, the token is spent.
    """

    __slots__ = ("_changes", "_spent", "_summaries", "domain", "time")

    def __init__(
        self,
        domain: TimeDomain,
        time: Time,
        summaries: Mapping[int, Summaries],
        changes: Sequence[ChangeBatch[Time]],
    ) -> None:
        self.domain = domain
        self.time = time
        self._summaries = summaries
        self._changes = changes
        self._spent = False

    def retain(self, output: int = 0) -> Capability:
        """Return a capability at the message's own time.

        Raises :class:`CapabilityError` when the path to the output advances that time.
        """
        return self.delayed(self.time, output)

    def delayed(self, time: Time, output: int = 0) -> Capability:
        """Return a capability at a time at or after the result of the message's time at the output.

        Args:
            time: The time of the capability.
            output: The output.

        Raises:
            CapabilityError: ``STRANDLINE_CAPABILITY_BACKWARDS`` for an earlier time; ``STRANDLINE_CAPABILITY_DROPPED`` after the
                message was handled.
        """
        later = self.try_delayed(time, output)
        if later is None:
            raise errors.capability_backwards_for_output(
                self.domain, self.time, time, output, self._summaries.get(output, Summaries())
            )
        return later

    def try_delayed(self, time: Time, output: int = 0) -> Capability | None:
        """Same as :meth:`delayed`, but returns ``None`` when there is no such right.

        Args:
            time: The time of the capability.
            output: The output.
        """
        if self._spent:
            raise errors.capability_dropped_with_message(self.domain, self.time)
        time = self.domain.time(time)
        results = self._summaries[output].results_in(self.time) if output in self._summaries else []
        if not any(self.domain.less_equal(result, time) for result in results):
            return None
        return Capability(self.domain, time, self._changes[output])

    def spend(self) -> None:
        """End the right that came with the message (the code that delivers messages calls this)."""
        self._spent = True

    def __repr__(self) -> str:
        return f"InputCapability({self.domain.format(self.time)}{', spent' if self._spent else ''})"
