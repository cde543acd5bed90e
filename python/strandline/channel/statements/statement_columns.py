"""Statements as columns, for very many producers that hold one time each and keep a few numbers as state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from strandline.channel.statements.nullable_int64 import Ints, Mask, NullableInt64, is_number
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import Statement, name_problem
from strandline.json_value import JsonObject

__all__ = [
    "MAX_NUMBERS",
    "MIN_COLUMNAR",
    "Distinct",
    "MixedStatements",
    "Owners",
    "StatementColumns",
    "is_columnar",
    "not_the_same",
    "split_columns",
]

MIN_COLUMNAR = 64
"""Fewer statements than this are written one by one. People can read this."""
MAX_NUMBERS = 16
"""A state with more numbers than this is not kept in columns."""

Owners: TypeAlias = npt.NDArray[np.object_]
"""By position, the session that made the statement, or ``None``."""


def is_columnar(state: Any) -> bool:
    """Return whether columns can hold a producer's state: ``None``, or an object of few numbers.

    >>> is_columnar({"at": 3, "aside": 1}), is_columnar({"idle": {}}), is_columnar({})
    (True, False, False)
    """
    if state is None:
        return True
    return type(state) is dict and 0 < len(state) <= MAX_NUMBERS and all(is_number(value) for value in state.values())


class Distinct(NamedTuple):
    """The distinct sessions of a column.

    Attributes:
        owners: Each session once.
        first: The first position of each session.
        which: For each position, the index of its session.
    """

    owners: list[WriterSession | None]
    first: Ints
    which: Ints

    @classmethod
    def of(cls, owners: Owners) -> Distinct:
        """Find the distinct sessions. They are compared by object identity, which is quick, so equal ones may appear twice."""
        ids = np.fromiter(map(id, owners.tolist()), dtype=np.int64, count=len(owners))
        if len(ids) and (ids == ids[0]).all():
            return cls([owners[0]], np.zeros(1, dtype=np.int64), np.zeros(len(ids), dtype=np.int64))
        _, first, which = np.unique(ids, return_index=True, return_inverse=True)
        return cls(owners[first].tolist(), first, which)


def not_the_same(one: Owners, other: Owners) -> Mask:
    """Return where two columns name different sessions.

    >>> a, b = (WriterSession(id, "host", 7, 0.0) for id in "ab")
    >>> not_the_same(np.array([a, a, None]), np.array([WriterSession("a", "host", 7, 0.0), b, None])).tolist()
    [False, True, False]
    """
    numbers: dict[WriterSession | None, int] = {}

    def numbered(owners: Owners) -> Ints:
        sessions = Distinct.of(owners)
        return np.array([numbers.setdefault(owner, len(numbers)) for owner in sessions.owners], dtype=np.int64)[sessions.which]

    different: Mask = numbered(one) != numbered(other)
    return different


class StatementColumns(Mapping[str, Statement]):
    """Statements by producer, kept as columns.

    The columns are ``seq``, the one time that each producer holds (or none), ``owner``, and the numbers of ``state``. A
    statement's state is an object of the numbers that it has. Without any number, it has no state.

    >>> statements = StatementColumns(["a", "b"], np.array([1, 4]), NullableInt64.of([7, None]), np.array([None, None]), {})
    >>> statements["a"], statements["b"].holds
    (Statement(seq=1, holds=(7,), owner=None, state=None), ())
    """

    def __init__(
        self, names: list[str], seq: Ints, holds: NullableInt64, owner: Owners, state: Mapping[str, NullableInt64]
    ) -> None:
        self.names, self.seq, self.holds, self.owner, self.state = names, seq, holds, owner, dict(state)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def __getitem__(self, name: str) -> Statement:
        i = self._places[name]
        time = self.holds.at(i)
        state = {key: n for key, numbers in self.state.items() if (n := numbers.at(i)) is not None}
        return Statement(int(self.seq[i]), () if time is None else (time,), self.owner[i], state or None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def where(self, chosen: Mask) -> StatementColumns:
        """Return the statements at the chosen positions."""
        if chosen.all():
            return self
        names = [name for name, wanted in zip(self.names, chosen.tolist(), strict=True) if wanted]
        state = {key: numbers.where(chosen) for key, numbers in self.state.items()}
        return StatementColumns(names, self.seq[chosen], self.holds.where(chosen), self.owner[chosen], state)

    def to_json(self, owners: dict[WriterSession, int]) -> JsonObject:
        """Return the JSON form for a commit. ``owners`` numbers the sessions that the commit names."""
        body: JsonObject = {
            "names": self.names,
            "seq": NullableInt64.all_of(self.seq).to_json(),
            "holds": self.holds.to_json(),
        }
        sessions = Distinct.of(self.owner)
        who = NullableInt64.of([None if owner is None else owners.setdefault(owner, len(owners)) for owner in sessions.owners])
        who = who.where(sessions.which)
        if who.valid.any():
            body["owner"] = who.to_json()
        state = {key: numbers.to_json() for key, numbers in self.state.items() if numbers.valid.any()}
        if state:
            body["state"] = state
        return body

    @classmethod
    def from_json(cls, value: Any, owners: list[WriterSession], where: str) -> StatementColumns:
        """Read what :meth:`to_json` wrote. Raises ``ValueError``, which names the field, for anything else."""
        names = value.get("names") if isinstance(value, dict) else None
        if not isinstance(names, list):
            raise ValueError(f"{where} is not an object with names")
        _check_names(names, where)
        count = len(names)
        seq = NullableInt64.from_json(value.get("seq"), count, f"seq in {where}")
        if not seq.valid.all() or (count and seq.values.min() < 0):
            raise ValueError(f"seq in {where} has an element that is not a whole number of 0 or more")
        who = NullableInt64.from_json(value.get("owner"), count, f"owner in {where}")
        wrong = who.valid & ((who.values < 0) | (who.values >= len(owners)))
        if wrong.any():
            raise ValueError(f"{where} names owner {who.values[wrong.argmax()]}, but there are {len(owners)} owners")
        places = np.where(who.valid, who.values, len(owners))
        owner = np.array([*owners, None], dtype=np.object_)[places]
        state = value.get("state", {})
        if not isinstance(state, dict) or len(state) > MAX_NUMBERS:
            raise ValueError(f"state in {where} is not an object of at most {MAX_NUMBERS} columns")
        holds = NullableInt64.from_json(value.get("holds"), count, f"holds in {where}")
        columns = {
            key: NullableInt64.from_json(numbers, count, f"state {key[:80]!r} in {where}") for key, numbers in state.items()
        }
        return cls(names, seq.values, holds, owner, columns)


def _check_names(names: list[Any], where: str) -> None:
    if names and set(map(type, names)) != {str}:
        raise ValueError(f"{where} has a producer name that is not a string")
    if len(set(names)) < len(names):
        raise ValueError(f"{where} names a producer twice")
    for name in names:
        if not name or len(name) > 64 or name[0] == "$":  # usual names need no further check
            problem = name_problem(name)
            if problem:
                raise ValueError(f"the producer name {name[:80]!r} in {where} {problem}")


class MixedStatements(Mapping[str, Statement]):
    """Statements by producer: some one by one, the others as columns."""

    def __init__(self, single: Mapping[str, Statement], columns: StatementColumns) -> None:
        self.single, self.columns = single, columns

    def __getitem__(self, name: str) -> Statement:
        found = self.single.get(name)
        return self.columns[name] if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self.single or name in self.columns._places

    def __iter__(self) -> Iterator[str]:
        yield from self.single
        yield from self.columns

    def __len__(self) -> int:
        return len(self.single) + len(self.columns)

    def __repr__(self) -> str:
        return repr(dict(self))


def split_columns(statements: Mapping[str, Statement]) -> tuple[Mapping[str, Statement], StatementColumns | None]:
    """Return the statements that are kept one by one, and those in columns."""
    if isinstance(statements, MixedStatements):
        return statements.single, statements.columns
    if isinstance(statements, StatementColumns):
        return {}, statements
    return statements, None
