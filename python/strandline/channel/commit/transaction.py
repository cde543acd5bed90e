"""Optimistic transactions.

A commit is decided on the newest state and written as exactly the next version. If another commit came first, it is decided
again.
"""

from __future__ import annotations

import random
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.channel import errors
from strandline.channel.batch.batch_digest import BatchDigest
from strandline.channel.batch.table_reads import TableRead
from strandline.channel.commit.acceptance import accepted_lines
from strandline.channel.commit.outcome import Committed, Conflict, Outcome, Unchanged
from strandline.channel.progress.attempts import Attempt
from strandline.channel.progress.progress import stated_or_removed
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.statement import Span, Statement
from strandline.delta.data_file import DataFile
from strandline.delta.table import CHECKPOINT_INTERVAL
from strandline.errors import LogError
from strandline.time.domain import Time

__all__ = ["Plan", "transact"]

_CONTENTION_SECONDS = 300.0
_UNREADABLE_SECONDS = 3.0


@dataclass(frozen=True)
class Plan:
    """The contents of a commit, decided on the newest progress. It is attempted once."""

    files: Sequence[DataFile] = ()
    statements: Mapping[str, Statement] = field(default_factory=dict)
    times: tuple[tuple[Time, int], ...] = ()
    spans: tuple[Span, ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    copy: bool = False
    reads: tuple[Input, ...] = ()
    digest: BatchDigest | None = None
    removed: tuple[str, ...] = ()
    tables: tuple[TableRead, ...] = ()
    attempt: Attempt[Any] = field(default_factory=lambda: Attempt(None))

    def statement(self, snapshot: Snapshot) -> CommitStatement:
        """Return the statement of this commit, as the version after the snapshot's."""
        statement = CommitStatement(
            self.statements,
            self.times,
            self.spans,
            actions=1 + len(self.files) + len(self.transactions),
            table=snapshot.table.id,
            id=self.attempt.id,
            reads=self.reads,
            digest=self.digest,
            removed=self.removed,
            after_removal=snapshot.progress.first_seq > 0,
            tables=self.tables,
        )
        # A log that is cleaned up to a checkpoint has every producer's state in the commit of the checkpoint.
        at_checkpoint = (snapshot.version + 1) % CHECKPOINT_INTERVAL == 0
        if self.copy or at_checkpoint or snapshot.since_copy.due(len(snapshot.progress.producers), len(self.statements)):
            statement = replace(statement, known=snapshot.progress.others(stated_or_removed(statement)))
        return statement


def transact(snapshot: Snapshot, decide: Callable[[], Plan | Outcome]) -> Outcome:
    """Commit what ``decide`` plans on the newest progress. Decide again whenever another writer commits first.

    So everything that ``decide`` checked is still true in the version that is written. ``decide`` may also find that the commit
    was made before, or that there is nothing to commit. Then this is the outcome. Whatever version is said to be made
    survives a loss of power. Writers of a local log take turns, and so do the threads that use this snapshot.
    """
    with snapshot.lock:
        snapshot.log.store.settle()
        with snapshot.log.store.turn(snapshot.update):
            outcome = _decided(snapshot, decide)
        if isinstance(outcome, Committed):
            snapshot.table.checkpoint_if_due(outcome.version)
        return outcome


def _decided(snapshot: Snapshot, decide: Callable[[], Plan | Outcome]) -> Outcome:
    contention = _Contention(snapshot)
    snapshot.update()
    while isinstance(planned := decide(), Plan):
        outcome = _attempt(snapshot, planned)
        if isinstance(outcome, Committed):
            return outcome
        contention.back_off(outcome)
    if not isinstance(planned, Unchanged):
        snapshot.survives(planned.version)  # whoever made it may not have synced it yet
    return planned


def _attempt(snapshot: Snapshot, planned: Plan) -> Committed | Conflict:
    """Try once to write a commit as the next version."""
    version = snapshot.version + 1
    statement = planned.statement(snapshot)
    text, lines = accepted_lines(snapshot, version, statement, planned.files, planned.transactions)
    snapshot.attempts.begin(planned.attempt)
    if _written(snapshot, version, planned, text, lines):
        snapshot.accept(version, statement, planned.transactions)  # no need to read what was just written
        return Committed(version)
    snapshot.update()
    if planned.attempt.version is not None:
        snapshot.survives(version)
        return Committed(version)
    return Conflict(version)


def _written(snapshot: Snapshot, version: int, planned: Plan, text: str, lines: bytes) -> bool:
    """Write the version. Return ``False`` if it exists already, even if this same attempt wrote it.

    An error may come after the commit took effect. Then the log has the version. But a commit that may not survive a loss of
    power is an error: the next call writes it anew.
    """
    try:
        return snapshot.table.commit(version, planned.files, text, planned.transactions, lines)
    except LogError:
        raise
    except Exception:
        if snapshot.log.store.unsettled or not snapshot.log.exists(version):
            raise
        return False


class _Contention:
    """Conflicts with other writers, one after another. Each is followed by a short wait, and there is an end of it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._began = self._progressed = clock.monotonic()
        self._attempts = 0

    def back_off(self, conflict: Conflict) -> None:
        """Wait before the next attempt. Raises :class:`LogError` if the conflicts do not end."""
        now = clock.monotonic()
        self._attempts += 1
        if self._snapshot.version >= conflict.version:
            self._progressed = now
        elif now - self._progressed > _UNREADABLE_SECONDS:
            raise errors.commit_unreadable(conflict.version, self._snapshot.table.path)
        if now - self._began > _CONTENTION_SECONDS:
            raise errors.contention(self._snapshot.table.path, self._attempts, _CONTENTION_SECONDS)
        clock.sleep(random.uniform(0, min(0.005, 0.001 * self._attempts)))  # noqa: S311
