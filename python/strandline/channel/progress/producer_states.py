"""The states of all producers, and the meet of their capabilities.

The meet is updated as statements come. It is not computed from all states.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.statements.statement import REGISTRAR, ProducerState, Statement, copied_state
from strandline.channel.statements.statement_columns import is_columnar
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain
from strandline.time.mutable_antichain import MutableAntichain

__all__ = ["CopiedStates", "ProducerStateMap", "ProducerStates", "Producers", "same"]


class ProducerStates(ABC):
    """The states of all producers, by name. The registrar's state is under the registrar's own name."""

    domain: TimeDomain

    @abstractmethod
    def get(self, name: str) -> ProducerState | None:
        """Return the state of a producer, or ``None``."""

    @abstractmethod
    def __contains__(self, name: object) -> bool: ...

    @abstractmethod
    def __iter__(self) -> Iterator[str]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def put(self, states: Mapping[str, ProducerState]) -> None:
        """Apply states, each newer than the known one."""

    @abstractmethod
    def remove(self, names: Collection[str]) -> None:
        """Forget producers. Names that are not known are ignored."""

    @abstractmethod
    def least(self) -> Antichain:
        """Return the meet of all capabilities that are held."""

    @abstractmethod
    def least_with(self, holds: Mapping[str, Antichain], moves: CapabilityUpdates | None = None) -> Antichain:
        """Return the meet of all capabilities but the registrar's, if producers held what ``holds`` and ``moves`` give them."""

    @abstractmethod
    def given(self, names: Iterable[str]) -> Antichain:
        """Return the meet of what some producers and the registrar hold."""

    @abstractmethod
    def others(self, than: Collection[str]) -> Mapping[str, Statement]:
        """Return the newest statements of all names that are not in ``than``."""

    def differs(self, known: Mapping[str, Statement], statements: Collection[str]) -> str | None:
        """Compare ``known`` with the newest statements of all names that are not in ``statements``.

        Returns:
            A name whose statements differ, or ``None`` if there is none.
        """
        expected = self.others(statements)
        for name, statement in known.items():
            if name not in expected or not same(statement, expected[name], self.domain):
                return name
        return next((name for name in expected if name not in known), None)

    @abstractmethod
    def holding(self) -> Collection[str]:
        """Return the names that hold anything, in no particular order. Most producers of an old channel may hold nothing."""

    @abstractmethod
    def remembering(self, key: str) -> Iterator[tuple[str, Any]]:
        """Yield the producers whose state is an object with ``key``, and the value there, unless the value is a number."""

    def but(self, *names: str) -> Mapping[str, ProducerState]:
        """Return the states of all but some names, as of now. Read the result before the next statement is applied."""
        return Producers(self, names)

    @abstractmethod
    def copy(self) -> ProducerStates:
        """Return an independent copy."""


def same(repeated: Statement, known: Statement, domain: TimeDomain) -> bool:
    """Return whether a statement from the log equals a known one.

    The known statement may still hold Python values that JSON does not keep. Raises :class:`~strandline.errors.TimeError`
    when the statement from the log holds something that is not a time of ``domain``.
    """
    return (
        (repeated.seq, repeated.owner) == (known.seq, known.owner)
        and (
            repeated.holds == known.holds or Antichain(domain, map(domain.time, repeated.holds)) == Antichain(domain, known.holds)
        )
        and (repeated.state == known.state or _as_read(repeated.state) == _as_read(known.state))
    )


def _as_read(state: Any) -> str:
    """Return a state as it would be read from a commit, as text: tuples become lists, and numeric keys become strings."""
    return json.dumps(json.loads(json.dumps(state)), sort_keys=True)


class Producers(Mapping[str, ProducerState]):
    """A view of the states without some names. Creating it copies nothing."""

    def __init__(self, states: ProducerStates, without: Collection[str] = ()) -> None:
        self._states, self._without = states, without

    def __getitem__(self, name: str) -> ProducerState:
        state = None if name in self._without else self._states.get(name)
        if state is None:
            raise KeyError(name)
        return state

    def __contains__(self, name: object) -> bool:
        return name in self._states and name not in self._without

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._states if name not in self._without)

    def __len__(self) -> int:
        return len(self._states) - sum(name in self._states for name in self._without)

    def __repr__(self) -> str:
        return repr(dict(self))


class CopiedStates(Mapping[str, ProducerState]):
    """States that the caller may change: what a channel knows must stay what its log says."""

    def __init__(self, states: Mapping[str, ProducerState]) -> None:
        self._states = states

    def __getitem__(self, name: str) -> ProducerState:
        known = self._states[name]
        return known if known.state is None else known._replace(state=copied_state(known.state))

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def __repr__(self) -> str:
        return repr(dict(self))


class ProducerStateMap(ProducerStates):
    """Producer states for any time domain, one object each. This is the specification of the columnar form.

    :class:`~strandline.channel.progress.producer_state_columns.ProducerStateColumns` keeps states with integer times as
    columns.
    """

    def __init__(self, domain: TimeDomain) -> None:
        self.domain = domain
        self._states: dict[str, ProducerState] = {}
        self._held = MutableAntichain(domain)
        self._holding: dict[str, None] = {}
        self._irregular: dict[str, None] = {}
        """The names whose states have more than integers: only these may remember what :meth:`remembering` asks for."""

    def get(self, name: str) -> ProducerState | None:
        return self._states.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._states

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def put(self, states: Mapping[str, ProducerState]) -> None:
        changes: list[tuple[Time, int]] = []
        for name, state in states.items():
            for time in state.holds:
                changes.append((time, 1))  # noqa: PERF401 - a comprehension would be created again for each producer
            old = self._states.get(name)
            if old is not None:
                for time in old.holds:
                    changes.append((time, -1))  # noqa: PERF401
            (self._holding.__setitem__ if state.holds else self._holding.pop)(name, None)
            (self._irregular.pop if is_columnar(state.state) else self._irregular.__setitem__)(name, None)
        self._states |= states
        self._held.update_iter(changes)

    def remove(self, names: Collection[str]) -> None:
        gone = [state for name in names if (state := self._states.pop(name, None)) is not None]
        self._held.update_iter([(time, -1) for state in gone for time in state.holds])
        for name in names:
            self._holding.pop(name, None)
            self._irregular.pop(name, None)

    def holding(self) -> Collection[str]:
        return self._holding.keys()

    def least(self) -> Antichain:
        return self._held.frontier

    def least_with(self, holds: Mapping[str, Antichain], moves: CapabilityUpdates | None = None) -> Antichain:
        holds = holds if moves is None else {**holds, **moves.holds(self.domain)}
        new = [time for times in holds.values() for time in times]
        old = [time for name in (*holds, REGISTRAR) if (state := self._states.get(name)) is not None for time in state.holds]
        if self.domain.is_total:
            removed = Counter(old)
            left = [time for time, n in self._held.updates() if n > removed.get(time, 0)]
            return Antichain(self.domain, [min(left + new)] if left or new else [])
        changes = [*((time, 1) for time in new), *((time, -1) for time in old)]
        self._held.update_iter(changes)
        least = self._held.frontier.copy()
        self._held.update_iter([(time, -n) for time, n in changes])
        return least

    def given(self, names: Iterable[str]) -> Antichain:
        states = [state for name in (*names, REGISTRAR) if (state := self._states.get(name)) is not None]
        return Antichain(self.domain, [time for state in states for time in state.holds])

    def others(self, than: Collection[str]) -> Mapping[str, Statement]:
        return {name: state.statement() for name, state in self._states.items() if name not in than}

    def but(self, *names: str) -> Mapping[str, ProducerState]:
        states = dict(self._states)
        for name in names:
            states.pop(name, None)
        return states

    def remembering(self, key: str) -> Iterator[tuple[str, Any]]:
        for name in self._irregular:
            own = self._states[name].state
            if isinstance(own, dict) and key in own:
                yield name, own[key]

    def copy(self) -> ProducerStateMap:
        result = ProducerStateMap(self.domain)
        result._states = dict(self._states)
        result._held = MutableAntichain(self.domain, self._held.updates())
        result._holding, result._irregular = dict(self._holding), dict(self._irregular)
        return result
