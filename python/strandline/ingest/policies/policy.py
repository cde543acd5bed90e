"""Capability policies: what the rows of an outside partition allow to conclude about the rows that it has yet to bring."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from strandline.channel.statements.nullable_int64 import Ints, Mask
from strandline.errors import PolicyError
from strandline.ingest.policies.arguments import split_named
from strandline.time.domain import Time, TimeDomain

__all__ = ["IngestColumns", "Observation", "ObservationColumns", "Policy", "promised_at_once"]


class Observation(NamedTuple):
    """What one partition brought in one batch, without the rows that were set aside.

    ``least`` and ``greatest`` are the meet and the join of the rows' times (``None`` without rows), ``marks`` the join of its
    punctuations or heartbeats, ``times`` the rows by time, where the policy asked for it. ``held`` is what
    the partition holds before the batch: no row can be in time that is in advance of none of these.
    """

    partition: str
    rows: int
    least: Time | None
    greatest: Time | None
    times: Mapping[Time, int] | None = None
    mark: Time | None = None
    held: tuple[Time, ...] | None = None


class ObservationColumns(NamedTuple):
    """What partitions brought whose times are integers and of whom no more is asked: a :class:`Observation` for each, as columns.

    >>> seen = ObservationColumns(["a", "b"], np.array([2, 1]), np.array([3, 9]), np.array([7, 9]))
    >>> seen.at(0)
    Observation(partition='a', rows=2, least=3, greatest=7, times=None, mark=None, held=None)
    """

    names: list[str]
    rows: Ints
    least: Ints
    greatest: Ints

    def at(self, i: int) -> Observation:
        """What the partition at a position brought."""
        return Observation(self.names[i], int(self.rows[i]), int(self.least[i]), int(self.greatest[i]))

    def where(self, chosen: Mask) -> ObservationColumns:
        """Those of some positions."""
        if chosen.all():
            return self
        names = list(compress(self.names, chosen.tolist()))
        return ObservationColumns(names, self.rows[chosen], self.least[chosen], self.greatest[chosen])

    @classmethod
    def together(cls, parts: Sequence[ObservationColumns]) -> ObservationColumns:
        """What several tasks saw, each partition once."""
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
    """What a policy may know of the ingest that it serves: the rows' columns, the times' domain, and the storage."""

    @property
    def time(self) -> str: ...

    @property
    def partition(self) -> tuple[str, ...]: ...

    @property
    def domain(self) -> TimeDomain: ...

    @property
    def storage(self) -> dict[str, str] | None: ...

    @property
    def escaped(self) -> bool: ...


class Policy(ABC):
    """What a partition promises, given what it has brought. Subclass it for a rule of your own.

    The law that the ingest builds on: :meth:`promise` is a function of its arguments alone, so a batch that is replayed ends
    where it ended before. What it returns is taken together with what the partition holds already: a promise, once committed, is
    never taken back. A row is *late* when it is in advance of no capability that its partition held at the start of the batch.

    A policy of your own is given to the ingest as an object, or in text as ``package.module:Class(arguments)``; the class is
    imported on the driver, and must be installed there. ``state`` is what the partition keeps from batch to batch, in JSON; it is
    stated in the commit of the rows. A policy for tens of thousands of partitions may say the same of all at once, in
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
    """The name in text; ``None`` for a class of a user's, which is named by its module."""
    _kinds: ClassVar[dict[str, type[Policy]]] = {}

    needs_times: bool = False
    """Whether :attr:`Observation.times` is wanted: then tasks count rows by time, which is dearer."""

    @property
    def mark_column(self) -> str | None:
        """The column whose values are punctuations: times, or ``true`` for the row's own time."""
        return None

    @property
    def silent_column(self) -> str | None:
        """A column that is ``true`` in rows that are looked at, and not written to the channel."""
        return None

    silent_counts: bool = False
    """Whether rows of :attr:`silent_column` are among :attr:`Observation.rows` and :attr:`Observation.times` all the same."""

    @property
    def idle_after_ms(self) -> int | None:
        """After how much silence a partition is not waited for; ``None``: it always is."""
        return None

    def bind(self, domain: TimeDomain) -> None:
        """Prepare for times of ``domain``; raise :class:`PolicyError` when they do not fit."""
        self.domain = domain

    def save(self, path: str, settings: IngestColumns) -> None:  # noqa: B027 - most policies need nothing
        """Before the query starts: write to ``path`` what the policy was given as an object and its text cannot say."""

    def open(self, settings: IngestColumns) -> None:  # noqa: B027
        """On the driver, once: open what the policy needs of the outside."""

    def refresh(self) -> None:  # noqa: B027
        """On the driver, for each batch: take up news of the outside."""

    def partitions(self) -> Iterable[str] | None:
        """All partitions there will ever be, where the policy knows; else ``None``."""
        return None

    def changed(self) -> Iterable[str] | None:
        """The partitions whose promise may have changed with the last :meth:`refresh`, although they brought nothing.

        ``None``: any may.
        """
        return ()

    def announced(self) -> Iterable[str]:
        """Partitions that are known to have something to bring, so far: they join although they have brought nothing yet."""
        return ()

    def ends(self) -> bool:
        """Whether it is known that no partition will join any more."""
        return False

    @property
    def core(self) -> Policy:
        """The policy whose state partitions keep, where this one keeps none of its own."""
        return self

    def continued(self, before: Policy, state: Any) -> Any:
        """What of the state of another policy, which a partition had ``before``, this one goes on with; ``None``: nothing."""
        return None

    @abstractmethod
    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        """The times of which every later row of the partition is in advance (``None``: nothing new), and its new state."""

    def promise_all(self, greatest: Ints) -> Ints | None:
        """As :meth:`promise`, for very many partitions at once whose times are integers, and which keep no state: by position.

        ``None``, the default: this policy judges them one by one.
        """
        return None

    @abstractmethod
    def arguments(self) -> list[str]:
        """The arguments of the text form, each as :func:`strandline.ingest.policies.arguments.quote` gives it."""

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> Policy:
        """Read what :meth:`arguments` gave: values, and ``name=value``. The default passes them to the class as texts."""
        positional, named = split_named(arguments)
        try:
            return cls(*positional, **named)
        except TypeError as error:
            raise PolicyError("STRANDLINE_POLICY_INVALID", f"{cls.name()}: {error}.", "See its documentation.") from None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__dict__.get("kind") is not None and cls.__module__.startswith(f"{__package__}."):
            Policy._kinds[str(cls.kind)] = cls

    @staticmethod
    def kinds() -> Mapping[str, type[Policy]]:
        """The policies that have a name of their own in text. Those of users are named by their modules."""
        return Policy._kinds

    @classmethod
    def name(cls) -> str:
        """What the text form begins with."""
        return cls.kind or f"{cls.__module__}:{cls.__qualname__}"

    def for_partition(self, partition: str) -> Policy:
        """The policy that judges ``partition``: itself, unless it is composed of several."""
        return self

    def by_pattern(self) -> list[tuple[str, Policy]]:
        """The policies that this one is composed of, by partition pattern; itself, for all partitions, when it is none such."""
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
    """What :meth:`Policy.promise_all` says, if it is of the same class as the policy's :meth:`Policy.promise`.

    A class that changes only how one partition promises is asked for one after the other.
    """
    kinds = {next(kind for kind in type(policy).__mro__ if way in kind.__dict__) for way in ("promise", "promise_all")}
    return policy.promise_all(greatest) if len(kinds) == 1 else None
