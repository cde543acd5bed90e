"""Producer states as columns, for very many producers whose times are integers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np

from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.progress.producer_states import ProducerStates, same
from strandline.channel.statements.nullable_int64 import Ints, Mask, NullableInt64
from strandline.channel.statements.statement import REGISTRAR, ProducerState, Statement
from strandline.channel.statements.statement_columns import (
    MIN_COLUMNAR,
    MixedStatements,
    Owners,
    StatementColumns,
    is_columnar,
    not_the_same,
    split_columns,
)
from strandline.time.antichain import Antichain
from strandline.time.domain import Scalar, TimeDomain

__all__ = ["ProducerStateColumns", "fits_table"]

_MAX_COLUMNS = 64
"""The largest number of state columns, one for each key. A state with one more key is kept as an object."""


def fits_table(domain: TimeDomain) -> bool:
    """Return whether the times of a domain are 64-bit integers in their usual order."""
    return isinstance(domain, Scalar) and domain.name != "uint64"


class ProducerStateColumns(ProducerStates):
    """Producer states in rows. A producer's row is its place in the order of joining. It changes only when others are removed.

    A state is *columnar* when it is ``None``, or an object of a few integers. Any other state is *irregular*, and is also
    kept as an object. Other classes may read the columns, to process very many producers at once. Only this class writes
    them.

    >>> from strandline.time.domain import int64
    >>> table = ProducerStateColumns(int64)
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
        # The columns are longer than the names, so that joining is cheap. Only the first len(names) entries are valid.
        self.seq: Ints = np.empty(0, dtype=np.int64)
        self.times: Ints = np.empty(0, dtype=np.int64)
        self.held: Mask = np.empty(0, dtype=np.bool_)
        self.irregular: Mask = np.empty(0, dtype=np.bool_)
        self.owner: Owners = np.empty(0, dtype=np.object_)
        self.state: dict[str, NullableInt64] = {}

    # ------------------------------------------------------------------------------------------------------- one by one

    def get(self, name: str) -> ProducerState | None:
        row = self._rows.get(name)
        if row is None:
            return None
        known = self._objects.get(name)
        if known is None or known.seq != self.seq[row]:  # a later statement came in columns
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

    def put(self, states: Mapping[str, ProducerState]) -> None:
        for name, row in zip(states, self._join(list(states)), strict=True):
            state = self._objects[name] = states[name]
            time = next(iter(state.holds), None)
            self._moves(row, time)
            self.seq[row], self.times[row], self.held[row] = state.seq, time or 0, time is not None
            self.owner[row] = state.owner
            for column in self.state.values():
                column.valid[row] = False
            self.irregular[row] = not self._keep(row, state.state)

    def _moves(self, row: int, time: int | None) -> None:
        """Update the least held time when one row changes. If the row had the least time, it is computed again later."""
        least = None if self._least is None else next(iter(self._least), None)
        if self.held[row] and self.times[row] == least:
            self._least = None
        elif self._least is not None and time is not None and (least is None or time < least):
            self._least = Antichain(self.domain, [time])

    def _keep(self, row: int, state: Any) -> bool:
        """Put a state into the columns. Return whether it fits."""
        if not is_columnar(state):
            return False
        if state is not None:
            if not self._make_columns(state):
                return False
            for key, value in state.items():
                column = self.state[key]
                column.values[row], column.valid[row] = value, True
        return True

    def remove(self, names: Collection[str]) -> None:
        gone = self.find(names)
        gone = gone[gone >= 0]
        if not len(gone):
            return
        stay = np.ones(len(self.names), dtype=np.bool_)
        stay[gone] = False
        rows = np.flatnonzero(stay)
        for name in names:
            self._objects.pop(name, None)
        self.names = [self.names[row] for row in rows.tolist()]
        self._rows = {name: row for row, name in enumerate(self.names)}
        self.seq, self.times, self.owner = self.seq[rows], self.times[rows], self.owner[rows]
        self.held, self.irregular = self.held[rows], self.irregular[rows]
        self.state = {key: left for key, numbers in self.state.items() if (left := numbers.where(rows)).valid.any()}
        self._least = None

    def holding(self) -> Collection[str]:
        return [self.names[row] for row in np.flatnonzero(self.held[: len(self.names)]).tolist()]

    def remembering(self, key: str) -> Iterator[tuple[str, Any]]:
        for row in np.flatnonzero(self.irregular[: len(self.names)]).tolist():
            own = self._objects[self.names[row]].state
            if isinstance(own, dict) and key in own:
                yield self.names[row], own[key]

    # ---------------------------------------------------------------------------------------------------------- as columns

    def find(self, names: Iterable[str]) -> Ints:
        """Return the rows of ``names``, -1 for unknown names."""
        return np.fromiter(map(self._rows.get, names, repeat(-1)), dtype=np.int64)

    def apply(self, statements: StatementColumns, rows: Ints) -> None:
        """Apply statements, each newer than the known one. ``rows`` are their rows, as returned by :meth:`find`."""
        if (rows < 0).any():
            rows = np.array(self._join(statements.names), dtype=np.int64)
        self.seq[rows] = statements.seq
        self.times[rows] = np.where(statements.holds.valid, statements.holds.values, 0)
        self.held[rows] = statements.holds.valid
        self.owner[rows] = statements.owner
        self.irregular[rows] = False
        for column in self.state.values():
            column.valid[rows] = False
        if self._make_columns(statements.state):
            for key, numbers in statements.state.items():
                self.state[key].values[rows], self.state[key].valid[rows] = numbers.values, numbers.valid
        else:
            self.irregular[rows] = True
            holds = {time: Antichain(self.domain, [time]) for time in set(statements.holds.values.tolist())}
            for name, (seq, times, owner, state) in statements.items():
                self._objects[name] = ProducerState(seq, holds[times[0]] if times else Antichain(self.domain), owner, state)
        self._least = None

    def _make_columns(self, keys: Iterable[str]) -> bool:
        new = [key for key in keys if key not in self.state]
        if len(self.state) + len(new) > _MAX_COLUMNS:
            return False
        self.state |= {key: NullableInt64.none(len(self.seq)) for key in new}
        return True

    def _join(self, names: list[str]) -> list[int]:
        """Return the rows of ``names``. New names get new rows."""
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
        self.held, self.irregular = (np.concatenate((column, np.zeros(more, np.bool_))) for column in (self.held, self.irregular))
        self.owner = np.concatenate((self.owner, np.full(more, None, dtype=np.object_)))
        for key, (values, valid) in self.state.items():
            none = NullableInt64.none(more)
            self.state[key] = NullableInt64(np.concatenate((values, none.values)), np.concatenate((valid, none.valid)))

    # -------------------------------------------------------------------------------------------------- all producers

    def least(self) -> Antichain:
        if self._least is None:
            self._least = self._least_of(self.times[: len(self.names)], self.held[: len(self.names)])
        return self._least.copy()

    def least_with(self, holds: Mapping[str, Antichain], moves: CapabilityUpdates | None = None) -> Antichain:
        times, held = self.times[: len(self.names)].copy(), self.held[: len(self.names)].copy()
        excluded = self.find([REGISTRAR, *holds])
        held[excluded[excluded >= 0]] = False
        more = [time for given in holds.values() for time in given]
        if moves is not None and moves.names:
            excluded = self.find(moves.names)
            held[excluded[excluded >= 0]] = False
            more.append(int(moves.times.min()))
        return Antichain(self.domain, [*self._least_of(times, held), *more])

    def given(self, names: Iterable[str]) -> Antichain:
        rows = self.find([*names, REGISTRAR])
        rows = rows[rows >= 0]
        return self._least_of(self.times[rows], self.held[rows])

    def _least_of(self, times: Ints, held: Mask) -> Antichain:
        return Antichain(self.domain, [int(times[held].min())] if held.any() else [])

    def others(self, than: Collection[str]) -> Mapping[str, Statement]:
        count = len(self.names)
        wanted = np.ones(count, dtype=np.bool_)
        excluded = self.find(than)
        wanted[excluded[excluded >= 0]] = False
        alone = self.irregular[:count].copy()
        if REGISTRAR in self._rows:
            alone[self._rows[REGISTRAR]] = True
        plain = wanted & ~alone
        if plain.sum() < MIN_COLUMNAR:
            plain[:] = False
        statements = {self.names[row]: self._statement(row) for row in np.flatnonzero(wanted & ~plain).tolist()}
        if not plain.any():
            return statements
        rows = np.flatnonzero(plain)
        state = {key: numbers.where(rows) for key, numbers in self.state.items()}
        names = [self.names[row] for row in rows.tolist()]
        holds = NullableInt64(self.times[rows], self.held[rows])
        return MixedStatements(statements, StatementColumns(names, self.seq[rows], holds, self.owner[rows], state))

    def differs(self, known: Mapping[str, Statement], statements: Collection[str]) -> str | None:
        single, columns = split_columns(known)
        if columns is None:
            return super().differs(known, statements)
        expected = np.ones(len(self.names), dtype=np.bool_)
        excluded = self.find(statements)
        expected[excluded[excluded >= 0]] = False
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
        """Return where statements differ, or may differ, from what is known in ``rows``."""
        differ: Mask = (columns.seq != self.seq[rows]) | columns.holds.differs(NullableInt64(self.times[rows], self.held[rows]))
        differ |= self.irregular[rows] | not_the_same(columns.owner, self.owner[rows])
        none = NullableInt64.none(len(rows))
        for key in {*columns.state, *self.state}:
            known = self.state[key].where(rows) if key in self.state else none
            differ |= columns.state.get(key, none).differs(known)
        return differ

    def _statement(self, row: int) -> Statement:
        state = self.get(self.names[row])
        assert state is not None  # noqa: S101 - it has a row
        return state.statement()

    def copy(self) -> ProducerStateColumns:
        result = ProducerStateColumns(self.domain)
        result.names, result._rows, result._objects = list(self.names), dict(self._rows), dict(self._objects)
        result.seq, result.times = self.seq.copy(), self.times.copy()
        result.held, result.irregular, result.owner = self.held.copy(), self.irregular.copy(), self.owner.copy()
        result.state = {key: NullableInt64(values.copy(), valid.copy()) for key, (values, valid) in self.state.items()}
        return result
