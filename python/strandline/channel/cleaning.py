"""Cleaning a channel's log: which of the oldest commits nobody needs any more, and removing them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from strandline.channel import errors
from strandline.channel.commit.transaction import Plan, transact
from strandline.channel.progress.progress import Progress
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.log import Commit
from strandline.delta.checks.checkpoints import compacted_logs
from strandline.delta.storage import LOG_DIR, commit_name
from strandline.delta.table import CHECKPOINT_INTERVAL
from strandline.errors import ChannelError

__all__ = ["clean_log"]

_MOST_WITHOUT_ROWS = 10_000
"""About so many commits since the newest rows stay, whatever their age."""


def clean_log(snapshot: Snapshot, older_than: timedelta) -> int:
    """Remove commits as :meth:`Channel.clean_log` says. Return their number."""
    if not isinstance(older_than, timedelta):
        raise errors.retention_invalid(snapshot.table.path, older_than)
    before = datetime.now(timezone.utc).timestamp() * 1000 - older_than / timedelta(milliseconds=1)
    snapshot.update()
    newest, copy = _newest_change(snapshot)
    first = _first_needed(snapshot, newest, before)
    if snapshot.version - copy > CHECKPOINT_INTERVAL:  # another engine made the commits in between: have a copy for the next time
        transact(snapshot, lambda: Plan(copy=True))
    log = snapshot.log
    old = range(log.earliest(), first)
    if not old:
        return 0
    _checkpoint_at(snapshot, first)
    names = set(log.store.list(LOG_DIR))
    for name, (begin, _) in compacted_logs(names).items():
        if begin < first:  # it stands for commits that go. Readers then begin at the checkpoint, and read the commits after it
            log.store.delete(f"{LOG_DIR}/{name}")
    for version in old:  # from the oldest on, so that a commit whose predecessor exists was never removed
        if f"{version:020d}.crc" in names:  # first, because a reader compares it with the commit
            log.store.delete(f"{LOG_DIR}/{version:020d}.crc")
        log.store.delete(commit_name(version))
    return len(old)


def _newest_change(snapshot: Snapshot) -> tuple[int, int]:
    """Return the newest version that brought rows, and the newest one with a copy of all statements.

    The offsets of readers that have read everything name that version, or a later one. A query of a loop may
    not have taken a later move of the frontier, because its common frontier stands still. If there were very many commits since
    the newest rows, this is the newest version that moved the frontier.
    """
    log, earliest = snapshot.log, snapshot.log.earliest()
    copy: int | None = None
    moved: int | None = None
    later: list[Commit] = []
    for at in range(snapshot.version, earliest - 1, -1):
        commit = log.read(at)
        if commit is None:  # somebody else cleans it too
            return at + 1, at + 1 if copy is None else copy
        if commit.is_copy or not at:
            copy = at if copy is None else copy
            rows_at, moved_at = _changed(snapshot, commit, later)
            moved = moved_at if moved is None else moved
            if rows_at is not None:
                return rows_at, copy
            if moved is not None and snapshot.version - at > _MOST_WITHOUT_ROWS:
                return moved, copy
            later = []
        later.append(commit)
    return earliest, earliest if copy is None else copy


def _changed(snapshot: Snapshot, first: Commit, later: list[Commit]) -> tuple[int | None, int | None]:
    """Return the newest versions after a first commit that brought rows, and that moved the frontier.

    ``later`` has the commits after it, the newest first.
    """
    progress = Progress(snapshot.domain)
    if first.is_copy:
        progress.begin(first)
    else:
        progress.apply(first)
    rows = moved = None
    for commit in reversed(later):
        before = progress.frontier
        progress.apply(commit)
        if commit.files and not commit.removes:  # a reader may pass over a commit that deletes or rewrites rows
            rows = commit.version
        if progress.frontier != before:
            moved = commit.version
    return rows, moved


def _first_needed(snapshot: Snapshot, newest: int, before: float) -> int:
    """Return the newest copy of all statements among the old commits up to a version: whoever is there can begin at it."""
    first = 0
    for version in range(snapshot.log.earliest(), newest + 1):
        commit = snapshot.log.read(version)
        if commit is not None and commit.timestamp_ms >= before:
            break
        if commit is not None and commit.is_copy:
            first = version
    return first


def _checkpoint_at(snapshot: Snapshot, first: int) -> None:
    """Write a Delta checkpoint of the first version that stays, so that it and the later ones can be read, and of the newest."""
    if first < snapshot.version and not snapshot.log.has_checkpoint(first):
        try:
            snapshot.table.checkpoint(first)
        except ChannelError as error:
            if error.condition != "STRANDLINE_TABLE_UNREADABLE":
                raise
            # The log was cleaned by others, up to a later checkpoint. So this version could not be read before either.
    snapshot.table.checkpoint()
