"""States as columns: what is known of very many producers whose times are integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np

from strandline.channel.progress.capability_updates import Moves
from strandline.channel.progress.producer_states import States, same
from strandline.channel.statements.nullable_int64 import Ints, Mask, Numbers
from strandline.channel.statements.statement import REGISTRAR, ProducerState, Statement
from strandline.channel.statements.statement_columns import (
    FEWEST,
    Owners,
    StatementColumns,
    Statements,
    is_plain,
    not_the_same,
    parted,
)
from strandline.time.antichain import Antichain
from strandline.time.domain import Scalar, TimeDomain

__all__ = ["StateTable", "fits_table"]

_MAX_COLUMNS = 64
"""So many different numbers of states have a column; a state with yet another is kept as an object."""


def fits_table(domain: TimeDomain) -> bool:
    """Whether times of a domain are 64-bit integers in their usual order."""
    return isinstance(domain, Scalar) and domain.name != "uint64"


class StateTable(States):
    """States in rows: a producer's row is its place in the order of joining, and never changes.

    A state is *plain* when it is nothing, or an object of a few integers; any other is *odd*, and kept as an object besides. The
    columns are there to be read, by whoever goes through very many producers at once, and not to be written.

    >>> from strandline.time.domain import int64
    >>> table = StateTable(int64)
    >>> table.put({"a": ProducerState(1, Antichain(int64, [7]), None, {"at": 3}), "b": ProducerState(4, Antichain(int64))})
    >>> table.find(["b", "a", "c"]).tolist(), table.times[:2].tolist(), table.held[:2].tolist()
    ([1, 0, -1], [7, 0], [True, False])
    >>> table.get("a")
    ProducerState(seq=1, holds=Antichain(int64, [7]), owner=None, state={'at': 3})
    """

    def __init__(self, domain: TimeDomain) -> None:
        self.domain = domain
        self.names: list[str] = []
        self._rows: dict[str, int] = {}
        self._objects: dict[str, ProducerState] = {}
        self._least: Antichain | None = None
        # Longer than the names, so that joining is cheap: only the first len(names) of each mean anything.
        self.seq: Ints = np.empty(0, dtype=np.int64)
        self.times: Ints = np.empty(0, dtype=np.int64)
        self.held: Mask = np.empty(0, dtype=np.bool_)
        self.odd: Mask = np.empty(0, dtype=np.bool_)
        self.owner: Owners = np.empty(0, dtype=np.object_)
        self.state: dict[str, Numbers] = {}

    # ------------------------------------------------------------------------------------------------------- one by one

    def get(self, name: str) -> ProducerState | None:
        row = self._rows.get(name)
        if row is None:
            return None
        known = self._objects.get(name)
        if known is None or known.seq != self.seq[row]:  # said in columns since
            holds = Antichain(self.domain, [int(self.times[row])] if self.held[row] else [])
            state = {key: n for key, numbers in self.state.items() if (n := numbers.at(row)) is not None}
            known = self._objects[name] = ProducerState(int(self.seq[row]), holds, self.owner[row], state or None)
        return known

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def put(self, news: Mapping[str, ProducerState]) -> None:
        for name, row in zip(news, self._join(list(news)), strict=True):
            state = self._objects[name] = news[name]
            time = next(iter(state.holds), None)
            self._moves(row, time)
            self.seq[row], self.times[row], self.held[row] = state.seq, time or 0, time is not None
            self.owner[row] = state.owner
            for column in self.state.values():
                column.there[row] = False
            self.odd[row] = not self._keep(row, state.state)

    def _moves(self, row: int, time: int | None) -> None:
        """Keep the least of all as a row moves; it is looked for anew only when it was this row's."""
        least = None if self._least is None else next(iter(self._least), None)
        if self.held[row] and self.times[row] == least:
            self._least = None
        elif self._least is not None and time is not None and (least is None or time < least):
            self._least = Antichain(self.domain, [time])

    def _keep(self, row: int, state: Any) -> bool:
        """Put a state into the columns; whether it fits."""
        if not is_plain(state):
            return False
        if state is not None:
            if not self._make_columns(state):
                return False
            for key, value in state.items():
                column = self.state[key]
                column.values[row], column.there[row] = value, True
        return True

    def remembering(self, key: str) -> Iterator[tuple[str, Any]]:
        for row in np.flatnonzero(self.odd[: len(self.names)]).tolist():
            own = self._objects[self.names[row]].state
            if isinstance(own, dict) and key in own:
                yield self.names[row], own[key]

    # ------------------------------------------------------------------------------------------------------- by the column

    def find(self, names: Iterable[str]) -> Ints:
        """Their rows, -1 for those that are not known."""
        return np.fromiter(map(self._rows.get, names, repeat(-1)), dtype=np.int64)

    def hear(self, said: StatementColumns, rows: Ints) -> None:
        """Take up statements, each newer than what is known. ``rows`` are theirs, as :meth:`find` gave them."""
        if (rows < 0).any():
            rows = np.array(self._join(said.names), dtype=np.int64)
        self.seq[rows] = said.seq
        self.times[rows] = np.where(said.holds.there, said.holds.values, 0)
        self.held[rows] = said.holds.there
        self.owner[rows] = said.owner
        self.odd[rows] = False
        for column in self.state.values():
            column.there[rows] = False
        if self._make_columns(said.state):
            for key, numbers in said.state.items():
                self.state[key].values[rows], self.state[key].there[rows] = numbers.values, numbers.there
        else:
            self.odd[rows] = True
            holds = {time: Antichain(self.domain, [time]) for time in set(said.holds.values.tolist())}
            for name, (seq, times, owner, state) in said.items():
                self._objects[name] = ProducerState(seq, holds[times[0]] if times else Antichain(self.domain), owner, state)
        self._least = None

    def _make_columns(self, keys: Iterable[str]) -> bool:
        new = [key for key in keys if key not in self.state]
        if len(self.state) + len(new) > _MAX_COLUMNS:
            return False
        self.state |= {key: Numbers.none(len(self.seq)) for key in new}
        return True

    def _join(self, names: list[str]) -> list[int]:
        """The rows of ``names``, made for those that are new."""
        new = [name for name in names if name not in self._rows]
        if new:
            first = len(self.names)
            self._rows.update(zip(new, range(first, first + len(new)), strict=True))
            self.names += new
            if len(self.names) > len(self.seq):
                self._grow(max(16, 2 * len(self.names)))
        return [self._rows[name] for name in names]

    def _grow(self, length: int) -> None:
        more = length - len(self.seq)
        self.seq, self.times = (np.concatenate((column, np.zeros(more, np.int64))) for column in (self.seq, self.times))
        self.held, self.odd = (np.concatenate((column, np.zeros(more, np.bool_))) for column in (self.held, self.odd))
        self.owner = np.concatenate((self.owner, np.full(more, None, dtype=np.object_)))
        for key, (values, there) in self.state.items():
            none = Numbers.none(more)
            self.state[key] = Numbers(np.concatenate((values, none.values)), np.concatenate((there, none.there)))

    # ------------------------------------------------------------------------------------------------------- together

    def least(self) -> Antichain:
        if self._least is None:
            self._least = self._least_of(self.times[: len(self.names)], self.held[: len(self.names)])
        return self._least.copy()

    def least_with(self, holds: Mapping[str, Antichain], moves: Moves | None = None) -> Antichain:
        times, held = self.times[: len(self.names)].copy(), self.held[: len(self.names)].copy()
        gone = self.find([REGISTRAR, *holds])
        held[gone[gone >= 0]] = False
        more = [time for given in holds.values() for time in given]
        if moves is not None and moves.names:
            gone = self.find(moves.names)
            held[gone[gone >= 0]] = False
            more.append(int(moves.times.min()))
        return Antichain(self.domain, [*self._least_of(times, held), *more])

    def given(self, names: Iterable[str]) -> Antichain:
        rows = self.find([*names, REGISTRAR])
        rows = rows[rows >= 0]
        return self._least_of(self.times[rows], self.held[rows])

    def _least_of(self, times: Ints, held: Mask) -> Antichain:
        return Antichain(self.domain, [int(times[held].min())] if held.any() else [])

    def others(self, than: Mapping[str, Statement]) -> Mapping[str, Statement]:
        count = len(self.names)
        wanted = np.ones(count, dtype=np.bool_)
        gone = self.find(than)
        wanted[gone[gone >= 0]] = False
        alone = self.odd[:count].copy()
        if REGISTRAR in self._rows:
            alone[self._rows[REGISTRAR]] = True
        plain = wanted & ~alone
        if plain.sum() < FEWEST:
            plain[:] = False
        said = {self.names[row]: self._statement(row) for row in np.flatnonzero(wanted & ~plain).tolist()}
        if not plain.any():
            return said
        rows = np.flatnonzero(plain)
        state = {key: numbers.where(rows) for key, numbers in self.state.items()}
        names = [self.names[row] for row in rows.tolist()]
        holds = Numbers(self.times[rows], self.held[rows])
        return Statements(said, StatementColumns(names, self.seq[rows], holds, self.owner[rows], state))

    def differs(self, known: Mapping[str, Statement], said: Mapping[str, Statement]) -> str | None:
        single, columns = parted(known)
        if columns is None:
            return super().differs(known, said)
        expected = np.ones(len(self.names), dtype=np.bool_)
        gone = self.find(said)
        expected[gone[gone >= 0]] = False
        rows = self.find(columns.names)
        suspects = np.ones(len(rows), dtype=np.bool_)
        here = rows >= 0
        suspects[here] = self._may_differ(columns.where(here), rows[here]) | ~expected[rows[here]]
        for name in (*(columns.names[i] for i in np.flatnonzero(suspects).tolist()), *single):
            row = self._rows.get(name)
            if row is None or not expected[row] or not same(known[name], self._statement(row), self.domain):
                return name
        expected[rows] = False
        expected[self.find(single)] = False
        return self.names[expected.argmax()] if expected.any() else None

    def _may_differ(self, columns: StatementColumns, rows: Ints) -> Mask:
        """Where statements are not, or may not be, what is known in ``rows``."""
        differ: Mask = (columns.seq != self.seq[rows]) | columns.holds.differs(Numbers(self.times[rows], self.held[rows]))
        differ |= self.odd[rows] | not_the_same(columns.owner, self.owner[rows])
        none = Numbers.none(len(rows))
        for key in {*columns.state, *self.state}:
            known = self.state[key].where(rows) if key in self.state else none
            differ |= columns.state.get(key, none).differs(known)
        return differ

    def _statement(self, row: int) -> Statement:
        state = self.get(self.names[row])
        assert state is not None  # noqa: S101 - it has a row
        return state.statement()

    def copy(self) -> StateTable:
        result = StateTable(self.domain)
        result.names, result._rows, result._objects = list(self.names), dict(self._rows), dict(self._objects)
        result.seq, result.times = self.seq.copy(), self.times.copy()
        result.held, result.odd, result.owner = self.held.copy(), self.odd.copy(), self.owner.copy()
        result.state = {key: Numbers(values.copy(), there.copy()) for key, (values, there) in self.state.items()}
        return result
