"""What is known of every producer, and the least that they hold together: kept as statements come, not computed from all."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.statements.statement import REGISTRAR, ProducerState, Statement
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain
from strandline.time.mutable_antichain import MutableAntichain

__all__ = ["ProducerStateMap", "ProducerStates", "Producers", "same"]


class ProducerStates(ABC):
    """Everybody's state by name, the registrar's under its own."""

    domain: TimeDomain

    @abstractmethod
    def get(self, name: str) -> ProducerState | None:
        """The state of a producer, or ``None``."""

    @abstractmethod
    def __contains__(self, name: object) -> bool: ...

    @abstractmethod
    def __iter__(self) -> Iterator[str]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def put(self, news: Mapping[str, ProducerState]) -> None:
        """Take up states, each newer than the one that is known."""

    @abstractmethod
    def least(self) -> Antichain:
        """The meet of all that is held."""

    @abstractmethod
    def least_with(self, holds: Mapping[str, Antichain], moves: CapabilityUpdates | None = None) -> Antichain:
        """What all but the registrar would hold together, if those in ``holds`` and ``moves`` held that."""

    @abstractmethod
    def given(self, names: Iterable[str]) -> Antichain:
        """What some producers and the registrar hold together."""

    @abstractmethod
    def others(self, than: Mapping[str, Statement]) -> Mapping[str, Statement]:
        """The newest statements of all but those in ``than``."""

    def differs(self, known: Mapping[str, Statement], said: Mapping[str, Statement]) -> str | None:
        """A name of which ``known`` is not what is known here of all but those in ``said``; ``None`` when there is none."""
        expected = self.others(said)
        for name, statement in known.items():
            if name not in expected or not same(statement, expected[name], self.domain):
                return name
        return next((name for name in expected if name not in known), None)

    @abstractmethod
    def remembering(self, key: str) -> Iterator[tuple[str, Any]]:
        """The producers whose state is an object with ``key``, and the value there, unless it is a number."""

    def but(self, *names: str) -> Mapping[str, ProducerState]:
        """Everybody's state without some, as it is now: read it before the next is taken up."""
        return Producers(self, names)

    @abstractmethod
    def copy(self) -> ProducerStates:
        """The same, with a life of its own."""


def same(repeated: Statement, known: Statement, domain: TimeDomain) -> bool:
    """Whether a statement that was read is the one that is known, which may be as its writer made it: a state of JSON values.

    Raises :class:`~strandline.errors.TimeError` when it holds something that is no time of ``domain``.
    """
    return (
        (repeated.seq, repeated.owner) == (known.seq, known.owner)
        and (
            repeated.holds == known.holds or Antichain(domain, map(domain.time, repeated.holds)) == Antichain(domain, known.holds)
        )
        and (repeated.state == known.state or _as_read(repeated.state) == _as_read(known.state))
    )


def _as_read(state: Any) -> str:
    """A state as it comes out of a commit: lists where there were tuples, names where there were numbers."""
    return json.dumps(json.loads(json.dumps(state)), sort_keys=True)


class Producers(Mapping[str, ProducerState]):
    """A view on the states without some, so that asking for it copies nothing."""

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


class ProducerStateMap(ProducerStates):
    """States of any domain, one object each: the plain form, and the specification of the faster one.

    :class:`~strandline.channel.progress.producer_state_columns.ProducerStateColumns` keeps those of integers as columns.
    """

    def __init__(self, domain: TimeDomain) -> None:
        self.domain = domain
        self._states: dict[str, ProducerState] = {}
        self._held = MutableAntichain(domain)

    def get(self, name: str) -> ProducerState | None:
        return self._states.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._states

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def put(self, news: Mapping[str, ProducerState]) -> None:
        changes: list[tuple[Time, int]] = []
        for name, state in news.items():
            for time in state.holds:
                changes.append((time, 1))  # noqa: PERF401 - a comprehension would be made anew for each producer
            old = self._states.get(name)
            if old is not None:
                for time in old.holds:
                    changes.append((time, -1))  # noqa: PERF401
        self._states |= news
        self._held.update_iter(changes)

    def least(self) -> Antichain:
        return self._held.frontier

    def least_with(self, holds: Mapping[str, Antichain], moves: CapabilityUpdates | None = None) -> Antichain:
        holds = holds if moves is None else {**holds, **moves.holds(self.domain)}
        new = [time for times in holds.values() for time in times]
        old = [time for name in (*holds, REGISTRAR) if (state := self._states.get(name)) is not None for time in state.holds]
        if self.domain.is_total:
            gone = Counter(old)
            left = [time for time, n in self._held.updates() if n > gone.get(time, 0)]
            return Antichain(self.domain, [min(left + new)] if left or new else [])
        changes = [*((time, 1) for time in new), *((time, -1) for time in old)]
        self._held.update_iter(changes)
        least = self._held.frontier.copy()
        self._held.update_iter([(time, -n) for time, n in changes])
        return least

    def given(self, names: Iterable[str]) -> Antichain:
        states = [state for name in (*names, REGISTRAR) if (state := self._states.get(name)) is not None]
        return Antichain(self.domain, [time for state in states for time in state.holds])

    def others(self, than: Mapping[str, Statement]) -> Mapping[str, Statement]:
        return {name: state.statement() for name, state in self._states.items() if name not in than}

    def but(self, *names: str) -> Mapping[str, ProducerState]:
        states = dict(self._states)
        for name in names:
            states.pop(name, None)
        return states

    def remembering(self, key: str) -> Iterator[tuple[str, Any]]:
        for name, state in self._states.items():
            own = state[3]
            if own and isinstance(own, dict) and key in own:
                yield name, own[key]

    def copy(self) -> ProducerStateMap:
        result = ProducerStateMap(self.domain)
        result._states = dict(self._states)
        result._held = MutableAntichain(self.domain, self._held.updates())
        return result
