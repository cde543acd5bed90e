"""Appends that are repeated after an error: each is made once, although nobody was told that it was made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strandline.channel.progress.attempt import Attempt
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.write.append import Append
from strandline.channel.write.transaction import Plan, survives, transact
from strandline.errors import ChannelError

__all__ = ["RepeatedAppends"]


@dataclass(eq=False)
class _TriedAppend:
    """An append without a transaction: its attempt to commit, its files, and whether its caller was told that it was made."""

    attempt: Attempt
    files: frozenset[str]
    told: bool = False


class RepeatedAppends:
    """The appends of one handle. It remembers those without a transaction that ended by an error, because one may have been made.

    Args:
        snapshot: The channel's snapshot that the handle uses.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._tried: list[_TriedAppend] = []

    def commit(self, decide: Callable[[], Append | None]) -> int | None:
        """Commit what ``decide`` returns for the newest progress. Return its version, also if an earlier call has made it.

        Raises :class:`ChannelError` ``STRANDLINE_COMMIT_WAS_MADE``, and the errors of ``decide`` and of :meth:`Append.plan`.
        """
        made: int | None = None

        def plan() -> Plan | None:
            nonlocal made
            append = decide()
            if append is None:
                return None
            append.check(self._snapshot.table.path)
            made = self._made_before(append)
            planned = append.plan(self._snapshot) if made is None else None
            if planned is not None and append.files and append.transaction is None:
                self._tried.append(_TriedAppend(planned.attempt, frozenset(file.path for file in append.files)))
            if planned is None and made is None and append.transaction is not None:
                # Whoever made the replayed transaction may not have synced it yet.
                survives(self._snapshot, self._snapshot.version)
            return planned

        version = transact(self._snapshot, plan)
        if version is not None:
            self._tried = [tried for tried in self._tried if tried.attempt.version != version]  # this call is answered
        return made if version is None else version

    def _made_before(self, append: Append) -> int | None:
        """Return the version in which the files of an append were committed although that call ended by an error.

        Raises :class:`ChannelError` if other files were, without a transaction: this append may have the same rows. This is said
        once. An append of some of the same files, and of others, is refused always.
        """
        self._tried = [tried for tried in self._tried if tried.attempt.open or tried.attempt.version is not None]
        paths = {file.path for file in append.files}
        for tried in self._tried:
            version = tried.attempt.version
            if version is None or not paths:
                continue
            if tried.files == paths and append.transaction is None:
                survives(self._snapshot, version)
                self._tried.remove(tried)  # this call answers that one
                return version
            if tried.files.isdisjoint(paths):
                if append.transaction is not None or tried.told:
                    continue
                tried.told = True
            raise self._was_made(version, len(tried.files))
        return None

    def _was_made(self, version: int, files: int) -> ChannelError:
        return ChannelError(
            "STRANDLINE_COMMIT_WAS_MADE",
            f"An earlier append to {self._snapshot.table.path} that ended by an error was made all the same, as "
            f"version {version} with {files} file(s). This append has other files, or a transaction, and nothing of it was "
            "written.",
            "Do not send the rows of the earlier append again. If these are other rows, repeat this call. Pass a transaction: "
            "then a replay is recognised.",
        )
