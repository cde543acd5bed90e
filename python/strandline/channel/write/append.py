"""An append: one Delta commit of files and statements on behalf of many producers, decided on the newest progress."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np

from strandline.channel import errors
from strandline.channel.batch.batch_digest import BatchDigest
from strandline.channel.batch.table_reads import TableRead
from strandline.channel.commit.outcome import Unchanged
from strandline.channel.commit.transaction import Plan
from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.progress.producer_state_columns import ProducerStateColumns
from strandline.channel.progress.progress import Progress
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.commit_statement import MAX_MESSAGE_TIMES
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.message_times import message_times
from strandline.channel.statements.nullable_int64 import Mask, NullableInt64, is_number
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import REGISTRAR, Span, Statement, checked_state
from strandline.channel.statements.statement_columns import (
    MAX_NUMBERS,
    MIN_COLUMNAR,
    Distinct,
    MixedStatements,
    StatementColumns,
    is_columnar,
)
from strandline.channel.write import admission
from strandline.channel.write.create import checked_names
from strandline.delta.data_file import DataFile
from strandline.delta.log import is_transaction
from strandline.time.antichain import Antichain, canonical_times
from strandline.time.domain import Time, TimeDomain

__all__ = ["Append", "check_kinds", "check_transaction", "own_antichains"]


@dataclass(frozen=True)
class Append:
    """The contents of one commit on behalf of many producers. No producer is in both ``holds`` and ``moves``.

    Attributes:
        session: The session that the producers belong to from now on, except those in ``kept``.
        files: The data files. They are new: streams would read a file again that an earlier commit has added, and nobody checks
            that.
        holds: Each producer's capabilities from now on. A producer that the channel does not know joins, if the channel is
            not sealed. Producers whose capabilities did not change may be left out.
        moves: The same, with states, for thousands of other producers at a time.
        states: JSON values that producers keep for themselves. The value under ``$registrar`` is what they keep in common.
        times: Message times of the files. Each is in advance of a time that one of these producers held.
        spans: The message times that are given as spans. Each is in advance of such a time, too.
        take_over: Whether to fence other live sessions of the producers.
        follow: Whether the registrar moves up to the meet of what all producers except those in ``apart`` hold from now on.
            New producers join there.
        seal: Whether the registrar gives up its capability.
        apart: Producers that ``follow`` does not consider.
        donors: Producers in ``holds`` and ``moves`` whose capabilities are cloned for others of them that are new or hold
            nothing. The registrar's capabilities may be cloned too. A donor that holds nothing, before and after, may have rows
            where the registrar is.
        kept: Producers that stay with their own sessions.
        always: Whether to commit even without changes. The log then shows that the application has come.
        most_times: How many message times are stated one by one. More are stated as spans.
        reads: How far the query that appends has read each of its inputs. The log records it; a commit is not made for it.
        digest: What the query's batch wrote. The log records it, too. It states each message time, or none.
        removed: Producers that are no longer part of the channel from now on. They hold nothing, and are not in ``holds``. The
            registrar's state must say that who joins later has a greater ``seq`` (``strandline:removed``).
        tables: The tables that its batch has read beside its streams. The log records them, too.
    """

    session: WriterSession
    files: Sequence[DataFile] = ()
    holds: Mapping[str, Antichain] = field(default_factory=dict)
    moves: CapabilityUpdates | None = None
    states: Mapping[str, Any] = field(default_factory=dict)
    times: Sequence[tuple[Time, int]] = ()
    spans: Sequence[Span] = ()
    take_over: bool = False
    follow: bool = False
    seal: bool = False
    apart: Collection[str] = ()
    donors: Collection[str] = ()
    kept: Collection[str] = ()
    always: bool = False
    most_times: int = MAX_MESSAGE_TIMES
    reads: tuple[Input, ...] = ()
    digest: BatchDigest | None = None
    removed: tuple[str, ...] = ()
    tables: tuple[TableRead, ...] = ()

    def check(self, path: str) -> None:
        """Raise :class:`ChannelError` unless the message times of an append to ``path`` account for every row of the files."""
        if any(not isinstance(each, Input) for each in self.reads):
            raise errors.commit_refused_inputs(path)
        try:
            counted = sum(rows for _, rows in self.times) + sum(span.rows for span in self.spans)
            held = [file.rows for file in self.files]
        except (TypeError, ValueError, AttributeError) as error:
            raise errors.commit_refused_times(path, error) from None
        if any(type(rows) is not int or not -1 <= rows < 1 << 63 for rows in held) or not 0 <= counted < 1 << 63:
            raise errors.commit_refused_rows(path)
        if -1 not in held and counted != sum(held):
            raise errors.times_incomplete(len(held), sum(held), counted)

    def plan(self, snapshot: Snapshot, transaction: tuple[str, int] | None = None) -> Plan | Unchanged:
        """Return the commit as of the snapshot's version."""
        return _Planning(self, snapshot).plan(() if transaction is None else (transaction,))


class _Planning:
    """One attempt to decide an append.

    It keeps the statements so far, what their producers held before, and whether one of the statements is a change.
    """

    def __init__(self, wanted: Append, snapshot: Snapshot) -> None:
        self._wanted, self._snapshot = wanted, snapshot
        self._progress: Progress = snapshot.progress
        self._domain = snapshot.domain
        self._statements: dict[str, Statement] = {}
        self._columns: StatementColumns | None = None
        self._before: set[Time] = set()
        self._has_changes = False
        # What the donors and the registrar hold. Producers may be given clones of it.
        stated = (*wanted.holds, *(() if wanted.moves is None else wanted.moves.names)) if wanted.donors else ()
        self._given = self._progress.given(set(wanted.donors).intersection(stated)) if wanted.donors else None

    def plan(self, transactions: Iterable[tuple[str, int]]) -> Plan | Unchanged:
        wanted = self._wanted
        holds, states = dict(wanted.holds), wanted.states
        moves = wanted.moves
        if moves is None and (moves := self._gathered(holds, states)) is not None:
            for name in moves.names:
                del holds[name]
        if moves is not None:
            moves, others = self._plain(moves)
            if others is not None:
                holds |= others.holds(self._domain)
                states = {**states, **others.states()}
        self._state(holds, states)
        table = self._progress.columns
        if table is not None and moves is not None and moves.names:
            self._state_moves(moves, table)
        registrar = self._registrar_after(holds, moves)
        if not wanted.files and not self._has_changes and registrar is None and not wanted.always and not wanted.removed:
            return Unchanged(self._snapshot.version)
        before = Antichain(self._domain, self._before)
        self._check_times(before, [*holds, *(moves.names if moves is not None else ())])
        exact, fewer = message_times(wanted.times, before, wanted.most_times, wanted.spans)
        if (
            not self._statements and self._columns is None and (holds or (moves is not None and moves.names))
        ):  # rows without changes still need a producer's statement
            self._repeat(min([*holds, *(moves.names if moves is not None else ())]))  # the same one, in holds or in moves
        if registrar is not None:
            self._statements[REGISTRAR] = registrar
        statements = self._statements if self._columns is None else MixedStatements(self._statements, self._columns)
        digest = wanted.digest
        if digest is not None and digest.times and len(exact) != len(digest.times):
            digest = replace(digest, times=())  # the times are stated as spans
        return Plan(
            wanted.files,
            statements,
            exact,
            fewer,
            dict(transactions),
            reads=wanted.reads,
            digest=digest,
            removed=wanted.removed,
            tables=wanted.tables,
        )

    # ------------------------------------------------------------------------------------------------------- one by one

    def _state(self, wanted: Mapping[str, Antichain], states: Mapping[str, Any]) -> None:
        """State what producers hold from now on."""
        session, donors, given, kept = self._wanted.session, self._wanted.donors, self._given, self._wanted.kept
        for name, holds in wanted.items():
            known = None if name == REGISTRAR else self._progress.get(name)
            if known is None:
                checked_names([name])
                first = self._progress.first_seq
                seq, held, other, was = first - 1, admission.joining(self._snapshot, name) if given is None else given, None, None
            else:
                seq, held, other, was = known
                if name not in kept and other is not session and other is not None:
                    admission.refuse_live(self._snapshot.table.path, name, known, session, self._wanted.take_over)
                if given is not None and not held and holds:
                    held, known = given, None
                elif not held and name in donors:  # it joined where the registrar is, and this commit's rows complete it
                    self._before.update(self._progress.registrar)
            now, then = tuple(holds), tuple(held)
            self._before.update(then)
            if now != then and not held.dominates(holds):
                raise errors.capability_backwards(
                    name, self._domain, held.format(), next(t for t in now if not held.less_equal(t))
                )
            own = _state_of(name, states, was)
            changed = known is None or now != then or own != was
            self._has_changes |= changed
            owner = other if name in kept else session
            if changed or other != owner or name in donors:
                self._statements[name] = Statement(seq + 1, now, owner, own)

    def _repeat(self, name: str) -> None:
        known = self._progress.producers[name]
        self._statements[name] = Statement(known.seq + 1, tuple(known.holds), self._wanted.session, known.state)

    def _registrar_after(self, wanted: Mapping[str, Antichain], moves: CapabilityUpdates | None) -> Statement | None:
        """Return the registrar's statement, or ``None`` if nothing about it changes."""
        state = self._progress.get(REGISTRAR)
        if state is None:
            return None
        holds, own = state.holds, _state_of(REGISTRAR, self._wanted.states, state.state)
        if self._wanted.follow and holds:
            apart = dict.fromkeys(self._wanted.apart, Antichain(self._domain))
            least = self._progress.least_with({**wanted, **apart}, moves)
            if least:  # if every producer is done, new ones may still come
                holds = Antichain(self._domain, [self._domain.join(a, b) for a in holds for b in least])
        if self._wanted.seal:
            holds = Antichain(self._domain)
        if holds == state.holds and own == state.state:
            return None
        return Statement(state.seq + 1, tuple(holds), None, own)

    def _check_times(self, before: Antichain, producers: Sequence[str]) -> None:
        for time in (*(time for time, _ in self._wanted.times), *(span.low for span in self._wanted.spans)):
            try:
                allowed = before.less_equal(time)
            except (TypeError, IndexError, AttributeError, ValueError):
                self._domain.time(time, "a message time")  # raises
                raise
            if not allowed:
                names = sorted(producers)
                who = f"{names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else "no producer"
                raise errors.time_not_held_by(self._domain.format(time), who, before.format())

    # ---------------------------------------------------------------------------------------------------------- as columns

    def _gathered(self, holds: Mapping[str, Antichain], states: Mapping[str, Any]) -> CapabilityUpdates | None:
        """Return those of ``holds`` that can be decided all at once, as columns, or ``None``."""
        table = self._progress.columns
        if table is None or len(holds) < MIN_COLUMNAR:
            return None
        names = [name for name, times in holds.items() if name != REGISTRAR and len(times) == 1 and is_number(next(iter(times)))]
        if any(name in states for name in names):
            names = [name for name in names if name in states and is_columnar(states[name])]
            keys = {key for name in names for key in states[name] or ()}
            if len(keys) > MAX_NUMBERS:
                return None
            state = {key: NullableInt64.of([(states[name] or {}).get(key) for name in names]) for key in keys}
        else:  # they keep their states
            rows = table.find(names)
            plain = (rows >= 0) & ~table.irregular[rows]
            names, rows = list(compress(names, plain.tolist())), rows[plain]
            state = {key: numbers.where(rows) for key, numbers in table.state.items()}
        return CapabilityUpdates(names, np.array([next(iter(holds[name])) for name in names], dtype=np.int64), state)

    def _plain(self, moves: CapabilityUpdates) -> tuple[CapabilityUpdates, CapabilityUpdates | None]:
        """Return the updates that can be decided all at once, and those that must be decided one by one."""
        table = self._progress.columns
        if table is None or len(moves.names) < MIN_COLUMNAR:
            return moves.where(np.zeros(len(moves.names), dtype=np.bool_)), moves
        rows = table.find(moves.names)
        plain = (rows >= 0) & table.held[rows] & ~table.irregular[rows]
        return moves.where(plain), None if plain.all() else moves.where(~plain)

    def _state_moves(self, moves: CapabilityUpdates, table: ProducerStateColumns) -> None:
        """Do the same as :meth:`_state`, for many producers at once.

        These producers hold one time now and from now on, and their states are numbers.
        """
        session = self._wanted.session
        rows = table.find(moves.names)
        then = table.times[rows]
        sessions = Distinct.of(table.owner[rows])
        for other, first in zip(sessions.owners, sessions.first.tolist(), strict=True):
            if other is not session and other is not None:
                name = moves.names[first]
                known = self._progress.producers[name]
                admission.refuse_live(self._snapshot.table.path, name, known, session, self._wanted.take_over)
        back = moves.times < then
        if back.any():
            i = int(back.argmax())
            held = Antichain(self._domain, [int(then[i])])
            raise errors.capability_backwards(moves.names[i], self._domain, held.format(), int(moves.times[i]))
        stated = (moves.times != then) | _changed(moves.state, table, rows)
        self._has_changes |= bool(stated.any())
        self._before.add(int(then.min()))
        stated |= np.array([other != session for other in sessions.owners], dtype=np.bool_)[sessions.which]
        if self._wanted.donors:
            stated |= np.isin(rows, table.find(self._wanted.donors))
        if stated.any():
            moves, rows = moves.where(stated), rows[stated]
            owners = np.full(len(rows), session, dtype=np.object_)
            statements = StatementColumns(
                moves.names, table.seq[rows] + 1, NullableInt64.all_of(moves.times), owners, moves.state
            )
            if len(rows) < MIN_COLUMNAR:
                self._statements.update(statements)
            else:
                self._columns = statements


def check_transaction(path: str, transaction: object) -> None:
    """Raise :class:`ChannelError` unless this is a pair that a writer may commit. Readers accept negative versions too."""
    if not (isinstance(transaction, tuple) and len(transaction) == 2 and is_transaction(*transaction) and transaction[1] >= 0):
        raise errors.commit_refused_transaction(path, transaction)


def _state_of(name: str, states: Mapping[str, Any], known: Any) -> Any:
    """Return a producer's state from now on."""
    return checked_state(states[name], name) if name in states else known


def _changed(state: Mapping[str, NullableInt64], table: ProducerStateColumns, rows: Any) -> Mask:
    """Return where new states differ from the known ones."""
    changed = np.zeros(len(rows), dtype=np.bool_)
    for key in {*state, *table.state}:
        now = state.get(key) or NullableInt64.none(len(rows))
        then = table.state[key].where(rows) if key in table.state else NullableInt64.none(len(rows))
        changed |= now.differs(then)
    return changed


def check_kinds(path: str, tables: Mapping[str, object], lists: Mapping[str, object], moves: object) -> None:
    """Raise :class:`ChannelError` for arguments of an append that are of another kind than it takes, by their names."""
    for name, given in tables.items():
        if not isinstance(given, Mapping):
            raise errors.commit_refused_mapping(path, name, given)
    for name, given in lists.items():
        if not isinstance(given, Iterable):
            raise errors.commit_refused_list(path, name, given)
    if moves is not None and not isinstance(moves, CapabilityUpdates):
        raise errors.commit_refused_moves(path, moves)


def own_antichains(statements: Mapping[str, Antichain | Iterable[Time]], domain: TimeDomain) -> dict[str, Antichain]:
    """Return what producers will hold, as antichains of the channel's domain. Raises for times of another domain."""
    return {
        name: holds if isinstance(holds, Antichain) and holds.domain is domain else _own_antichain(name, holds, domain)
        for name, holds in statements.items()
    }


def _own_antichain(name: str, holds: Antichain | Iterable[Time], domain: TimeDomain) -> Antichain:
    if not isinstance(holds, Iterable):
        raise errors.time_invalid_holds(name, holds)
    times = holds if isinstance(holds, Antichain) else Antichain(domain, canonical_times(list(holds), domain))
    if times.domain is not domain and times.domain != domain:
        raise errors.time_domain_mismatch_of_holds(name, times.domain, domain)
    return times
