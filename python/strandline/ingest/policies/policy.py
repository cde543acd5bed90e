"""Capability policies: what the observed rows of an outside partition imply about its later rows.

A policy of Strandline's own has a file here, and a function in ``ingest/__init__.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from itertools import compress
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from strandline.channel.statements.nullable_int64 import Ints, Mask
from strandline.ingest.policies import errors
from strandline.ingest.policies.arguments import split_named
from strandline.time.domain import Time, TimeDomain

__all__ = ["IngestColumns", "Observation", "ObservationColumns", "Policy", "promised_at_once"]


class Observation(NamedTuple):
    """What one partition delivered in one batch, without the rows that were set aside.

    ``least`` and ``greatest`` are the meet and the join of the rows' times (``None`` without rows). ``mark`` is the join of the
    partition's punctuations or heartbeats. ``times`` is the number of rows by time, if the policy asked for it. ``held`` is what
    the partition holds before the batch: a row that is in advance of none of these times cannot be in time.
    """

    partition: str
    rows: int
    least: Time | None
    greatest: Time | None
    times: Mapping[Time, int] | None = None
    mark: Time | None = None
    held: tuple[Time, ...] | None = None


class ObservationColumns(NamedTuple):
    """Observations as columns, for integer times whose policy needs only bounds.

    Each position has the :class:`Observation` of one partition.

    >>> seen = ObservationColumns(["a", "b"], np.array([2, 1]), np.array([3, 9]), np.array([7, 9]))
    >>> seen.at(0)
    Observation(partition='a', rows=2, least=3, greatest=7, times=None, mark=None, held=None)
    """

    names: list[str]
    rows: Ints
    least: Ints
    greatest: Ints

    def at(self, i: int) -> Observation:
        """Return the observation at a position."""
        return Observation(self.names[i], int(self.rows[i]), int(self.least[i]), int(self.greatest[i]))

    def where(self, chosen: Mask) -> ObservationColumns:
        """Return the observations at the chosen positions."""
        if chosen.all():
            return self
        names = list(compress(self.names, chosen.tolist()))
        return ObservationColumns(names, self.rows[chosen], self.least[chosen], self.greatest[chosen])

    @classmethod
    def together(cls, parts: Sequence[ObservationColumns]) -> ObservationColumns:
        """Combine the observations of several tasks, so that each partition occurs once."""
        if len(parts) < 2:
            nothing = np.zeros(0, dtype=np.int64)
            return parts[0] if parts else cls([], nothing, nothing, nothing)
        columns = [pa.array([name for part in parts for name in part.names], pa.string())]
        columns += [pa.array(np.concatenate([part[i] for part in parts]), pa.int64()) for i in (1, 2, 3)]
        whole = pa.table(columns, names=["p", "n", "low", "high"])
        merged = whole.group_by("p", use_threads=False).aggregate([("n", "sum"), ("low", "min"), ("high", "max")])
        numbers = (merged.column(name).to_numpy() for name in ("n_sum", "low_min", "high_max"))
        return cls(merged.column("p").to_pylist(), *numbers)


class IngestColumns(Protocol):
    """What a policy may know about its ingest: the channel's path, the rows' columns, the times' domain, and the storage."""

    @property
    def path(self) -> str: ...

    @property
    def time(self) -> str: ...

    @property
    def partition(self) -> tuple[str, ...]: ...

    @property
    def domain(self) -> TimeDomain: ...

    @property
    def storage(self) -> dict[str, str] | None: ...


class Policy(ABC):
    """What a partition promises, given the rows that it has delivered. Subclass it to define a rule of your own.

    The ingest relies on this law: :meth:`promise` depends on its arguments alone, so a replayed batch ends where it ended before.
    The ingest joins the returned times with the times that the partition already holds: a committed promise is never taken back.
    A row is *late* when it is in advance of no capability that its partition held at the start of the batch.

    Give your own policy to the ingest as an object, or in text as ``package.module:Class(arguments)``. The class is imported on
    the driver, and must be installed there. ``state`` is what the partition keeps from batch to batch, in JSON. It is stated in
    the commit of the rows. A policy for tens of thousands of partitions may state its promises for all of them at once, in
    :meth:`promise_all`.

    >>> class EveryTen(Policy):
    ...     '''Rows come in groups of ten times; a group is complete when one of the next is seen.'''
    ...     def promise(self, seen, state):
    ...         return (None, state) if seen.greatest is None else ([seen.greatest - seen.greatest % 10], state)
    ...     def arguments(self):
    ...         return []
    >>> EveryTen().promise(Observation("a", rows=3, least=11, greatest=25), None)
    ([20], None)
    """

    kind: ClassVar[str | None] = None
    """The name in text. ``None`` for a user's class, which is named by its module."""
    _kinds: ClassVar[dict[str, type[Policy]]] = {}

    moved_by_times: bool = True
    """Whether the times of rows, or of punctuations, move the promise. If so, ``maxFuture`` applies unless it is off."""

    needs_times: bool = False
    """Whether the policy needs :attr:`Observation.times`. Tasks then count rows by time, which costs more."""

    @property
    def mark_column(self) -> str | None:
        """The column whose values are punctuations: times, or ``true`` for the row's own time."""
        return None

    @property
    def silent_column(self) -> str | None:
        """A column that is ``true`` in rows that are observed, but not written to the channel."""
        return None

    silent_counts: bool = False
    """Whether :attr:`Observation.rows` and :attr:`Observation.times` nevertheless count the rows of :attr:`silent_column`."""

    @property
    def idle_after_ms(self) -> int | None:
        """The silence after which the ingest does not wait for a partition, or ``None`` if it always waits."""
        return None

    @property
    def counts_wall(self) -> bool:
        """Whether silence is counted on the wall clock, also between runs of the query."""
        return False

    @property
    def advances_when_silent(self) -> bool:
        """Whether the frontier advances by the wall clock while all partitions are silent."""
        return False

    def bind(self, domain: TimeDomain) -> None:
        """Prepare for times of ``domain``; raise :class:`PolicyError` when they do not fit."""
        self.domain = domain

    def save(self, path: str, settings: IngestColumns) -> None:  # noqa: B027 - most policies need nothing
        """Write to ``path`` what the policy was given as an object and its text cannot say. Called before the query starts.

        Args:
            path: The path of a Delta table beside the channel, for this policy alone.
            settings: The ingest's columns, domain and storage.
        """

    def open(self, settings: IngestColumns) -> None:  # noqa: B027
        """Open what the policy needs from outside. Called once, on the driver."""

    def refresh(self) -> None:  # noqa: B027
        """Apply changes from outside. Called for each batch, on the driver."""

    def partitions(self) -> Iterable[str] | None:
        """Return all partitions that there will ever be, if the policy knows them, else ``None``."""
        return None

    def changed(self) -> Iterable[str] | None:
        """Return the partitions whose promise may have changed with the last :meth:`refresh`, although they delivered nothing.

        ``None`` means that any promise may have changed.
        """
        return ()

    def announced(self) -> Iterable[str]:
        """Return the partitions that are known so far to have rows to deliver. They join before they have delivered anything."""
        return ()

    def ends(self) -> bool:
        """Return whether it is known that no more partitions will join."""
        return False

    def moved_leaves(self, domain: TimeDomain) -> tuple[int, ...]:
        """Return the coordinates of the promise that rows' times move: positions among the leaf coordinates of ``domain``.

        ``maxFuture`` compares those of them that are timestamps with the clock.
        """
        return tuple(range(len(domain.leaves()))) if self.moved_by_times else ()

    @property
    def core(self) -> Policy:
        """The policy whose state partitions keep, if this policy keeps no state of its own."""
        return self

    def continued(self, before: Policy, state: Any) -> Any:
        """Return the part of another policy's state with which this policy continues, or ``None`` for nothing.

        Args:
            before: The other policy, which the partition had before.
            state: The partition's state under that policy.
        """
        return None

    @abstractmethod
    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        """Return lower bounds for all later rows of the partition, and its new state.

        Args:
            seen: What the partition delivered in a batch.
            state: The partition's state after the batch before, ``None`` at first.

        Returns:
            The lower bounds (``None``: nothing new), and the new state, which must be a JSON value.
        """

    def promise_all(self, greatest: Ints) -> Ints | None:
        """Return what :meth:`promise` returns, for very many partitions at once, by position.

        The times of these partitions are integers, and the partitions keep no state. ``None``, the default, means that this
        policy judges partitions one by one.
        """
        return None

    @abstractmethod
    def arguments(self) -> list[str]:
        """Return the arguments of the text form, each as :func:`strandline.ingest.policies.arguments.quote` returns it."""

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> Policy:
        """Read what :meth:`arguments` returned: values, and ``name=value``. The default passes them to the class as text."""
        positional, named = split_named(arguments)
        try:
            signature(cls).bind(*positional, **named)
        except TypeError as error:
            raise errors.policy_invalid_arguments(cls.name(), error) from None
        return cls(*positional, **named)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__dict__.get("kind") is not None and cls.__module__.startswith(f"{__package__}."):
            Policy._kinds[str(cls.kind)] = cls

    @staticmethod
    def kinds() -> Mapping[str, type[Policy]]:
        """Return the policies that have a name of their own in text. Users' policies are named by their modules."""
        return Policy._kinds

    @classmethod
    def name(cls) -> str:
        """Return the name at the beginning of the text form."""
        return cls.kind or f"{cls.__module__}:{cls.__qualname__}"

    def for_partition(self, partition: str) -> Policy:
        """Return the policy that judges ``partition``: this policy, unless it is composed of several."""
        return self

    def by_pattern(self) -> list[tuple[str, Policy]]:
        """Return the component policies by partition pattern. A policy without components returns itself for all partitions."""
        return [("*", self)]

    def __str__(self) -> str:
        return f"{self.name()}({', '.join(self.arguments())})"

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def promised_at_once(policy: Policy, greatest: Ints) -> Ints | None:
    """Return the result of :meth:`Policy.promise_all`, if the same class defines it and the policy's :meth:`Policy.promise`.

    A class that overrides only :meth:`Policy.promise` is asked for the partitions one by one.
    """
    kinds = {next(kind for kind in type(policy).__mro__ if way in kind.__dict__) for way in ("promise", "promise_all")}
    return policy.promise_all(greatest) if len(kinds) == 1 else None
