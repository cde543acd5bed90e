"""Optimistic transactions.

A commit is decided on the newest state and written as exactly the next version. If another commit came first, it is decided
again.
"""

from __future__ import annotations

import random
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from strandline.channel.batch.batch_digest import BatchDigest
from strandline.channel.batch.table_reads import TableRead
from strandline.channel.progress.attempt import Attempt
from strandline.channel.progress.progress import stated_or_removed
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.statement import Span, Statement
from strandline.channel.write.acceptance import accepted_lines
from strandline.delta.data_file import DataFile
from strandline.delta.storage import commit_name
from strandline.delta.table import CHECKPOINT_INTERVAL
from strandline.errors import LogError
from strandline.time.domain import Time

__all__ = ["Plan", "survives", "transact"]

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
    attempt: Attempt = field(default_factory=Attempt)


def transact(snapshot: Snapshot, plan: Callable[[], Plan | None]) -> int | None:
    """Commit what ``plan`` decides on the newest progress. Decide again whenever another writer commits first.

    So everything that the plan checked is still true in the version that is written. Returns that version, or ``None`` if
    there is no plan. Writers of a local log take turns, and so do the threads that use this snapshot.
    """
    with snapshot.lock:
        snapshot.log.store.settle()
        with snapshot.log.store.turn(snapshot.update):
            version = _commit_next(snapshot, plan)
        if version is not None:
            snapshot.table.checkpoint_if_due(version)
        return version


def survives(snapshot: Snapshot, version: int) -> int:
    """Return a version that this process made, and that the log was seen to have, once a loss of power cannot undo it."""
    if snapshot.log.exists(version):  # if the log was cleaned up meanwhile, a later commit was synced
        snapshot.log.store.sync_commit(commit_name(version))  # it may be the sync that failed
    return version


def _commit_next(snapshot: Snapshot, plan: Callable[[], Plan | None]) -> int | None:
    started = progressed = clock.monotonic()
    attempts = 0
    snapshot.update()
    while (planned := plan()) is not None:
        version = snapshot.version + 1
        copy = planned.copy or version % CHECKPOINT_INTERVAL == 0  # a log cleaned up to a checkpoint has every producer's state
        copy = copy or snapshot.since_copy.due(len(snapshot.progress.producers), len(planned.statements))
        statement = CommitStatement(
            planned.statements,
            planned.times,
            planned.spans,
            actions=1 + len(planned.files) + len(planned.transactions),
            table=snapshot.table.id,
            id=planned.attempt.id,
            reads=planned.reads,
            digest=planned.digest,
            removed=planned.removed,
            after_removal=snapshot.progress.first_seq > 0,
            tables=planned.tables,
        )
        if copy:
            statement = replace(statement, known=snapshot.progress.others(stated_or_removed(statement)))
        text, lines = accepted_lines(snapshot, version, statement, planned.files, planned.transactions)
        snapshot.begin(planned.attempt)
        if _commit(snapshot, version, planned, text, lines):
            snapshot.accept(version, statement, planned.transactions)  # no need to read what was just written
            return version
        commits = snapshot.update()
        if planned.attempt.version is not None:
            return survives(snapshot, version)
        attempts += 1
        if commits:
            progressed = clock.monotonic()
        elif clock.monotonic() - progressed > _UNREADABLE_SECONDS:
            raise LogError(
                "STRANDLINE_COMMIT_UNREADABLE",
                f"The file of commit {version} of {snapshot.table.path} exists, but it cannot be read, so no commit can follow "
                "it.",
                "Examine the file in _delta_log. If it is a broken link, remove it.",
            )
        if clock.monotonic() - started > _CONTENTION_SECONDS:
            raise LogError(
                "STRANDLINE_CONTENTION",
                f"Other writers of {snapshot.table.path} committed first in each of {attempts} attempts within "
                f"{_CONTENTION_SECONDS:.0f} s.",
                "Let fewer processes write to the channel, or commit less often.",
            )
        clock.sleep(random.uniform(0, min(0.005, 0.001 * attempts)))  # noqa: S311
    return None


def _commit(snapshot: Snapshot, version: int, planned: Plan, text: str, lines: bytes) -> bool:
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
