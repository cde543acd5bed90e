"""Progress: the newest statement of every producer, and the frontier that follows from these statements.

A statement is state. So merging statements is idempotent and commutative: the newest ``seq`` wins. This is Naiad's protocol,
in which atomic batches may be seen in any order. The frontier is updated as statements come. It is not computed from all
producers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from strandline.channel import errors
from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.progress.producer_state_columns import ProducerStateColumns, fits_table
from strandline.channel.progress.producer_states import Producers, ProducerStateMap, ProducerStates
from strandline.channel.statements.commit_statement import CommitStatement, wrong_domain
from strandline.channel.statements.log import Commit
from strandline.channel.statements.nullable_int64 import Ints
from strandline.channel.statements.statement import REGISTRAR, REMOVED, ProducerState, Statement, first_seq
from strandline.channel.statements.statement_columns import StatementColumns, split_columns
from strandline.errors import TimeError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

__all__ = ["Progress", "stated_or_removed"]

_MOST_SHOWN = 300
"""The number of characters of a statement that a message shows."""


class Progress:
    """A view of the log: each producer's newest state as of ``version`` (-1: nothing yet).

    >>> from strandline.time.domain import int64
    >>> progress = Progress(int64)
    >>> progress.apply_statement(REGISTRAR, Statement(0, ()))  # sealed
    >>> progress.apply_statement("a", Statement(1, (3,)))
    >>> progress.apply_statement("b", Statement(1, (5,)))
    >>> progress.apply_statement("a", Statement(2, (7,)))
    >>> progress.apply_statement("a", Statement(1, (3,)))  # an old copy changes nothing
    >>> progress.frontier
    Antichain(int64, [5])
    """

    def __init__(self, domain: TimeDomain) -> None:
        self.domain = domain
        self.version = -1
        self.identity: str | None = None
        """What tells the commit of ``version`` from any other (:attr:`Commit.identity`), if it is known."""
        self._states: ProducerStates = ProducerStateColumns(domain) if fits_table(domain) else ProducerStateMap(domain)

    @property
    def frontier(self) -> Antichain:
        """The least times that may still appear: the meet of all capabilities, including the registrar's.

        Before the channel's founding statement is known, nothing is closed.
        """
        return self._states.least() if REGISTRAR in self._states else Antichain.least(self.domain)

    @property
    def producers(self) -> Mapping[str, ProducerState]:
        """The state of each producer, by name, without the registrar."""
        return Producers(self._states, (REGISTRAR,))

    def producers_but(self, *names: str) -> Mapping[str, ProducerState]:
        """Return the states of all producers but some, as of now. Read the result before the next commit is applied."""
        return self._states.but(REGISTRAR, *names)

    @property
    def columns(self) -> ProducerStateColumns | None:
        """Every producer's state as columns if times are integers, else ``None``."""
        return self._states if isinstance(self._states, ProducerStateColumns) else None

    @property
    def registrar(self) -> Antichain:
        """The capabilities at which new producers may join; empty once the channel is sealed."""
        state = self._states.get(REGISTRAR)
        return state.holds.copy() if state else Antichain(self.domain)

    @property
    def sealed(self) -> bool:
        """Whether no producer can join any more."""
        state = self._states.get(REGISTRAR)
        return state is not None and not state.holds

    def least_with(self, holds: Mapping[str, Antichain], moves: CapabilityUpdates | None = None) -> Antichain:
        """Return the meet of all capabilities but the registrar's, if producers held these capabilities.

        Args:
            holds: Capabilities of some producers.
            moves: Capabilities of other producers, as columns.
        """
        return self._states.least_with(holds, moves)

    def given(self, names: Iterable[str]) -> Antichain:
        """Return the meet of what some producers and the registrar hold."""
        return self._states.given(names)

    def holding(self) -> Collection[str]:
        """Return the names that hold anything, the registrar's among them. Read the result before the next commit is applied."""
        return self._states.holding()

    def remembering(self, key: str) -> Iterator[tuple[str, object]]:
        """Return the producers whose state is an object with ``key``, and the value there, unless the value is a number."""
        return self._states.remembering(key)

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` that no producer has."""
        states = self._states
        return [name for name in names if name not in states]

    def get(self, name: str) -> ProducerState | None:
        """Return the state of a producer, or of the registrar under its own name."""
        return self._states.get(name)

    def apply_statement(self, name: str, statement: Statement) -> None:
        """Apply one statement, unless an equally new or newer one is known.

        Args:
            name: The producer.
            statement: The statement.

        Raises:
            TimeError: A time is not of the domain.
        """
        self._apply_all({name: statement})

    def _apply_all(self, *parts: Mapping[str, Statement], ordered_at: int | None = None) -> None:
        """Apply statements, all or none. Those of commit ``ordered_at`` must not move a capability back."""
        if not len(self._states):
            ordered_at = None  # the very first statement founds the channel
        for changes in [self._changes(statements, ordered_at) for statements in parts]:
            self._states.put(changes.single)
            table = self.columns
            if changes.columns is not None and table is not None:
                table.apply(changes.columns, table.find(changes.columns.names))

    def _changes(self, statements: Mapping[str, Statement], ordered_at: int | None) -> _Changes:
        """Return what is new in statements, and check them.

        Their times must be of the domain. For commit ``ordered_at``, no capability may move back.
        """
        order = None if ordered_at is None else _MonotonicityCheck(self._states, statements, ordered_at)
        single, columns = split_columns(statements)
        table = self.columns
        if columns is None or table is None:
            return _Changes(self._single_changes(statements, order), None)
        return _Changes(self._single_changes(single, order), self._column_changes(columns, table, order))

    def _single_changes(self, statements: Mapping[str, Statement], order: _MonotonicityCheck | None) -> dict[str, ProducerState]:
        states, domain = self._states, self.domain
        # Most producers of a large channel hold the same times, so each distinct set has one antichain.
        shared: dict[tuple[Time, ...], Antichain] = {}
        changes: dict[str, ProducerState] = {}
        for name, (seq, times, owner, state) in statements.items():
            old = states.get(name)
            if order is not None:
                order.check_next(name, old, seq)
            elif old is not None and old.seq >= seq:
                continue
            holds = shared.get(times)
            if holds is None:
                holds = shared[times] = Antichain(domain, [domain.time(time, f"a capability of {name!r}") for time in times])
            if order is not None:
                order.check(name, old, holds)
            changes[name] = ProducerState(seq, holds, owner, state)
        return changes

    def _column_changes(
        self, columns: StatementColumns, table: ProducerStateColumns, order: _MonotonicityCheck | None
    ) -> StatementColumns:
        """Do the same as :meth:`_single_changes`, for all statements at once."""
        rows = table.find(columns.names)
        before = np.full(len(rows), -1 if order is None else order.first_seq - 1)
        before[rows >= 0] = table.seq[rows[rows >= 0]]
        if order is None:
            newer = columns.seq > before
            if not newer.all():
                columns, rows = columns.where(newer), rows[newer]
        elif (jumps := columns.seq != before + 1).any():
            name = columns.names[int(jumps.argmax())]
            order.check_next(name, self._states.get(name), columns[name].seq)
        times, valid = columns.holds
        if valid.any():
            for time in (int(times[valid].min()), int(times[valid].max())):
                if not self.domain.minimum <= time <= self.domain.maximum:
                    self.domain.time(time, f"a capability of {columns.names[int((valid & (times == time)).argmax())]!r}")
        if order is not None:
            for i in self._suspects(columns, rows, table).tolist():
                name = columns.names[i]
                order.check(name, self._states.get(name), Antichain(self.domain, columns[name].holds))
        return columns

    def _suspects(self, columns: StatementColumns, rows: Ints, table: ProducerStateColumns) -> Ints:
        """Return where statements may do something else than delay a capability or let a producer join.

        These statements are mistakes, or their producers were given a capability.
        """
        known = rows >= 0
        registrar = self.registrar
        if not registrar and not known.all():
            return np.flatnonzero(columns.holds.valid)
        joining = next(iter(registrar), 0)
        before = np.where(known, table.times[rows], joining)
        held = np.where(known, table.held[rows], True)
        return np.flatnonzero(columns.holds.valid & ~(held & (columns.holds.values >= before)))

    def apply(self, commit: Commit) -> None:
        """Apply a commit's statements. A commit without statements only advances ``version``. Applying it twice changes nothing.

        Raises :class:`StatementError` in these cases:

        - The statement is not of this domain, moves a capability back, or names a producer that was never registered. Such a
          commit would move the frontier back.
        - The statement is not its producer's next one, or the commit repeats something that the other producers did not
          state. Then a reader that begins at another commit would know something else.
        """
        statement = commit.statement
        if statement is not None and commit.version > self.version:
            commit.check_whole()
            statement.check_message_times(self.domain, commit.version)
            try:
                if statement.removed:
                    self._check_removed(statement.removed, statement.statements, commit.version)
                if statement.known is not None:
                    self._check_repeated(statement.known, stated_or_removed(statement), commit.version)
                self._apply_all(statement.statements, ordered_at=commit.version)
                self._states.remove(statement.removed)
            except TimeError as error:
                wrong_domain(commit.version, self.domain, error)
        self._is_at(commit.version, commit.identity)

    def _is_at(self, version: int, identity: str | None) -> None:
        if version >= self.version:
            self.version, self.identity = version, identity

    def _check_removed(self, removed: Collection[str], statements: Mapping[str, Statement], version: int) -> None:
        """Raise unless all of ``removed`` are producers that hold nothing, and who joins later has a greater ``seq``."""
        first = first_seq(statements.get(REGISTRAR) or self._states.get(REGISTRAR))
        for name in removed:
            known = self._states.get(name)
            if known is None or known.holds or name in statements:
                what = (
                    "is not one" if known is None else f"holds {known.holds.format()}" if known.holds else "is stated there too"
                )
                raise errors.statement_contradiction_removed(version, name, what)
            if known.seq >= first:
                raise errors.statement_contradiction_of_seq(version, name, known.seq, first, REMOVED)

    def _check_repeated(self, known: Mapping[str, Statement], statements: Collection[str], version: int) -> None:
        """Raise unless ``known`` equals the newest statements of all names that are not in ``statements``."""
        name = self._states.differs(known, statements)
        if name is not None:
            repeated, known_state = known.get(name), self._states.get(name)
            raise errors.statement_contradiction_repeated(
                version, name, _shown(repeated), _shown(known_state.statement() if known_state else None)
            )

    def begin(self, commit: Commit) -> None:
        """Begin at a commit that repeats every producer's statement (``statement.known``).

        This includes everything that earlier commits stated.
        """
        statement = commit.statement
        if statement is None or statement.known is None:
            raise ValueError(f"commit {commit.version} does not repeat the statements of all producers")
        commit.check_whole()
        try:
            self._apply_all(statement.known, statement.statements)
        except TimeError as error:
            wrong_domain(commit.version, self.domain, error)
        self._is_at(commit.version, commit.identity)

    def begin_before(self, commit: Commit) -> None:
        """Begin at the version before a commit that repeats every producer's statement, and makes none.

        :meth:`Channel.checkpoint` makes such a commit. The version before may be gone, where others have cleaned the log.
        """
        self.begin(commit)
        self.version, self.identity = commit.version - 1, None

    def accept(
        self, version: int, statements: Mapping[str, Statement], identity: str | None = None, removed: Collection[str] = ()
    ) -> None:
        """Apply the statements that this process has just committed as ``version``, the version after :attr:`version`."""
        self._apply_all(statements)
        self._states.remove(removed)
        self._is_at(version, identity)

    def merge(self, other: Progress) -> None:
        """Apply everything that another view knows.

        A view of a version knows each producer as of that version. So a producer that only the older one of two views knows was
        removed.
        """
        known = other.others(())
        if other.version > self.version >= 0:
            self._states.remove([name for name in self._states if name not in known])
        elif self.version > other.version >= 0:
            known = {name: statement for name, statement in known.items() if name in self._states}
        self._apply_all(known)
        self._is_at(other.version, other.identity)

    @property
    def first_seq(self) -> int:
        """The ``seq`` of the first statement of a producer that joins."""
        return first_seq(self._states.get(REGISTRAR))

    def others(self, than: Collection[str]) -> Mapping[str, Statement]:
        """Return the newest statements of all names that are not in ``than``. A commit repeats them as ``known``."""
        return self._states.others(than)

    def copy(self) -> Progress:
        """Return an independent view with the same knowledge."""
        result = Progress(self.domain)
        result.version, result.identity = self.version, self.identity
        result._states = self._states.copy()
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Progress):
            return NotImplemented
        everybody = (Producers(progress._states) for progress in (self, other))
        return self.domain == other.domain and dict(next(everybody)) == dict(next(everybody))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Progress(version={self.version}, {len(self.producers)} producers, frontier={self.frontier.format()})"


def stated_or_removed(statement: CommitStatement) -> Collection[str]:
    """Return the producers that a commit's ``known`` does not repeat."""
    return {*statement.statements, *statement.removed} if statement.removed else statement.statements


class _MonotonicityCheck:
    """Checks a commit's statements: no capability moves back, and a producer joins only where that is allowed."""

    def __init__(self, states: ProducerStates, names: Iterable[str], version: int) -> None:
        self._states, self._names, self._version = states, names, version

    @cached_property
    def _given(self) -> Antichain:
        """What the commit's producers and the registrar held.

        A producer that holds nothing may be given clones of these capabilities.
        """
        return self._states.given(self._names)

    @cached_property
    def first_seq(self) -> int:
        """The ``seq`` of a first statement."""
        return first_seq(self._states.get(REGISTRAR))

    def check_next(self, name: str, old: ProducerState | None, seq: int) -> None:
        """Raise :class:`StatementError` unless ``seq`` belongs to the producer's next statement."""
        before = old.seq if old else self.first_seq - 1
        if seq != before + 1:
            newest = f"the newest statement before it is {before}" if old else "there is no statement before it"
            raise errors.statement_contradiction_next(self._version, seq, name, newest, before)

    def check(self, name: str, old: ProducerState | None, holds: Antichain) -> None:
        """Raise :class:`StatementError` unless the producer may hold ``holds`` from now on."""
        source = old or self._states.get(REGISTRAR)
        if source is None or source.holds is holds or source.holds.dominates(holds):
            return
        if not (old and old.holds) and self._given.dominates(holds):
            return
        domain = holds.domain
        time = domain.format(next(t for t in holds if not source.holds.less_equal(t)))
        held = source.holds.format()
        if old:
            raise errors.statement_regression(self._version, name, held, time)
        raise errors.statement_regression_of_new(self._version, name, held, time)


def _shown(statement: Statement | None) -> str:
    """Return a statement as text for a message, shortened."""
    if statement is None:
        return "nothing"
    text = f"statement {statement.seq} that holds {list(statement.holds)}"
    text += f", of session {statement.owner.id}" if statement.owner else ""
    text += f", with state {statement.state}" if statement.state is not None else ""
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


class _Changes(NamedTuple):
    """The changes in some statements."""

    single: dict[str, ProducerState]
    columns: StatementColumns | None
