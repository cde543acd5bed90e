"""Whether an append was made before: by its transaction, or by the files of an earlier call that ended by an error.

Before it comes to an append, an ingest asks the same of its batch (``ingest/driver.py``). Whether it was *the same* batch is
decided in ``pyspark_strandline/write/channel/same_batch.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from strandline.channel import errors
from strandline.channel.commit.outcome import Committed, Outcome, Replay, Unchanged
from strandline.channel.commit.transaction import Plan, transact
from strandline.channel.progress.attempts import Attempt
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.log import Commit
from strandline.channel.write.append import Append, check_transaction

__all__ = ["commit_append", "commit_of", "second_copies"]


@dataclass(eq=False)
class _Files:
    """The files of an append without a transaction."""

    paths: frozenset[str]
    told: bool = False
    """Whether a caller was told that they were committed."""


def commit_append(snapshot: Snapshot, decide: Callable[[], Append | None], transaction: tuple[str, int] | None = None) -> Outcome:
    """Implement :meth:`Channel.append_decided`.

    Here it is decided whether a batch was written before. An append with a transaction is a replay if the log has it, or a later
    one of its application. An append without one was made before if an earlier call with the same files ended by an error
    and the log has its commit.
    """
    path = snapshot.table.path
    if transaction is not None:
        check_transaction(path, transaction)

    def plan() -> Plan | Outcome:
        if transaction is not None and snapshot.has(transaction):
            return Replay(snapshot.version)
        append = decide()
        if append is None:
            return Unchanged(snapshot.version)
        append = replace(append, session=snapshot.known_session(append.session))
        append.check(path)
        files = frozenset(file.path for file in append.files)
        made = _made_before(snapshot, files, repeats=transaction is None)
        if made is not None:
            return Committed(made)
        planned = append.plan(snapshot, transaction)
        if isinstance(planned, Plan) and files and transaction is None:
            return replace(planned, attempt=Attempt(_Files(files)))
        return planned

    outcome = transact(snapshot, plan)
    snapshot.attempts.answer(outcome.committed)
    return outcome


def _made_before(snapshot: Snapshot, files: frozenset[str], *, repeats: bool) -> int | None:
    """Return the version in which files were committed although that call ended by an error.

    Raises :class:`ChannelError` if other files were, without a transaction: this append may have the same rows. This is said
    once. An append of some of the same files, and of others, is refused always.

    Args:
        snapshot: The channel.
        files: The files of this append.
        repeats: Whether this append may be that call, repeated. One with a transaction is another one.
    """
    for attempt in snapshot.attempts.of(_Files):
        earlier = attempt.request
        if attempt.version is None or not files:
            continue
        if repeats and earlier.paths == files:
            return attempt.version
        if earlier.paths.isdisjoint(files):
            if not repeats or earlier.told:
                continue
            earlier.told = True
        raise errors.commit_was_made_of_append(snapshot.table.path, attempt.version, len(earlier.paths))
    return None


def commit_of(snapshot: Snapshot, transaction: tuple[str, int]) -> Commit | None:
    """Return the commit that made a transaction, or ``None`` if it is no longer there. Search from the newest commit back."""
    application, wanted = transaction
    for version in range(snapshot.version, -1, -1):
        commit = snapshot.log.read(version)
        made = None if commit is None else commit.transactions.get(application)
        if commit is None or (made is not None and made <= wanted):
            return commit if made == wanted else None
    return None


def second_copies(snapshot: Snapshot, transaction: tuple[str, int], paths: Iterable[str]) -> list[str]:
    """Implement :meth:`Channel.second_copies`."""
    snapshot.update()
    commit = commit_of(snapshot, transaction) if snapshot.has(transaction) else None
    if commit is None:
        return []
    added, text = {file.path for file in commit.files}, str(commit.info.get("userMetadata", ""))
    return [path for path in paths if path not in added and path not in text]  # states name the files that wait
