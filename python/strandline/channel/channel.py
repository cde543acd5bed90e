"""A channel: a Delta table that is one edge of a dataflow. Its commits carry rows and the promises of their producers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from strandline.channel.cleaning import clean_log
from strandline.channel.commit.outcome import Outcome
from strandline.channel.commit.transaction import Plan, transact
from strandline.channel.creation import NewChannel
from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.progress.handle_lock import locked
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.commit_statement import MAX_MESSAGE_TIMES
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.log import Commit
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import ProducerState, Span, checked_state
from strandline.channel.view import ChannelView
from strandline.channel.write import admission, registrar, replay
from strandline.channel.write.append import Append, check_kinds, own_antichains
from strandline.channel.write.create import (
    add_columns,
)
from strandline.channel.write.file_writer import FileWriter, file_writer
from strandline.channel.write.opening import open_producer
from strandline.channel.write.producer import Producer
from strandline.delta.data_file import DataFile
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

__all__ = ["Channel"]

_RETENTION = timedelta(days=30)


class Channel(ChannelView):
    """A channel, opened at its newest version. :meth:`refresh` applies later commits, and costs only as much as those.

    Any number of processes may use the same channel. Several threads may use one object: their calls take turns, and so do those
    of its producers. Threads that are to write at the same time need an object each. Whatever ``progress`` and ``producers``
    return changes with the channel: another thread must not commit while they are used.

    >>> import tempfile
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import product
    >>> domain = product(epoch="int64", iter="int64")
    >>> schema = pa.schema([time_field("time", domain), ("n", pa.int64())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     channel = Channel.create(f"{folder}/channel", schema, producers=["a", "b"], at=(0, 0))
    ...     with channel.producer("a") as a:
    ...         a.delay([(3, 0)])
    ...     with channel.producer("b") as b:
    ...         b.delay([(1, 5)])
    ...     Channel.open(f"{folder}/channel").frontier
    Antichain(product(epoch int64, iter int64), [(1, 5), (3, 0)])
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._owner = WriterSession.here()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        *,
        time: str | None = None,
        domain: TimeDomain | str | None = None,
        producers: Iterable[str] = (),
        sealed: bool | None = None,
        at: Time | None = None,
        storage_options: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        configuration: Mapping[str, str] | None = None,
    ) -> Channel:
        """Create the table and its founding statement, in one commit.

        Args:
            path: The table's path.
            schema: The columns of the table.
            time: The name of the time column (default: the only column that ``time_field`` marked, otherwise ``time``).
            domain: The domain of the time column, as an object or as text. It can be left out if the column's metadata has it.
            producers: The names of producers to register with a capability at ``at``.
            sealed: Whether the channel is sealed. By default it is sealed if there are ``producers``. A channel that is not
                sealed lets producers join later, at the registrar's capability, which is also at ``at``.
            at: The time of these capabilities (default: the domain's minimum).
            storage_options: The options of the table's storage.
            exist_ok: Open an existing channel of the same schema as it is.
            configuration: Additional Delta table properties.

        Raises:
            ChannelError: ``STRANDLINE_CHANNEL_EXISTS``.
            TimeDomainError: The time column is missing or has no domain.
            TimeError: ``at`` is not a time of the domain.
        """
        new = NewChannel.of(
            path, storage_options, schema, time, domain, producers, sealed=sealed, at=at, configuration=configuration
        )
        return cls(new.create(storage_options, exist_ok=exist_ok))

    # --------------------------------------------------------------------------------------------------- committing

    def append(
        self,
        files: Sequence[DataFile],
        *,
        statements: Mapping[str, Antichain],
        times: Iterable[tuple[Time, int]] = (),
        spans: Iterable[Span] = (),
        states: Mapping[str, Any] | None = None,
        transaction: tuple[str, int] | None = None,
        owner: WriterSession | str | None = None,
        take_over: bool = False,
        follow: bool = False,
        apart: Collection[str] = (),
        donors: Collection[str] = (),
        moves: CapabilityUpdates | None = None,
        always: bool = False,
        most_times: int = MAX_MESSAGE_TIMES,
        reads: Sequence[Input] = (),
    ) -> int | None:
        """Commit files and statements on behalf of many producers, in one Delta commit, as a sink does.

        The other arguments are fields of :class:`Append`.

        Args:
            statements: The ``holds`` of :class:`Append`.
            owner: The session that the producers belong to, or its id. The same id may be used again after a restart.

        Returns:
            The version. ``None``, with nothing written, for a replay. Also ``None`` if there is no file and no capability
            changes, unless ``always`` is set.

        Raises:
            ProducerError: A producer is unknown in a sealed channel, or it is live in another session and ``take_over`` is
                not set.
            CapabilityError: A capability or the time of rows is not in advance of what the producers held.
        """
        states = {} if states is None else states
        lists = {"files": files, "times": times, "spans": spans, "reads": reads, "apart": apart, "donors": donors}
        check_kinds(self.path, {"statements": statements, "states": states}, lists, moves)
        session = owner if isinstance(owner, WriterSession) else self._owner if owner is None else WriterSession.here(owner)
        append = Append(
            session=session,
            files=list(files),
            holds=own_antichains(statements, self.domain),
            moves=moves,
            states={name: checked_state(state, name) for name, state in states.items()},
            times=list(times),
            spans=list(spans),
            take_over=take_over,
            follow=follow,
            apart=apart,
            donors=donors,
            always=always,
            most_times=most_times,
            reads=tuple(reads),
        )
        return self.append_decided(lambda: append, transaction).committed

    @locked
    def append_decided(self, decide: Callable[[], Append | None], transaction: tuple[str, int] | None = None) -> Outcome:
        """Commit what ``decide`` returns for the newest progress, in one Delta commit.

        If another commit comes in between, that commit is applied and ``decide`` is called again. So everything that
        ``decide`` read is still true in the version that is written. If ``decide`` returns ``None``, nothing is written.

        After an error the commit may have been made, or may still arrive. With a transaction, a repeated call finds that out.
        Without one, a repeated call with the same files returns the version that was made, and one with other files is refused.

        Args:
            decide: Returns what to commit.
            transaction: ``(application id, version)``. If the channel has that version or a later one, this is a replay, and
                ``decide`` is not called.

        Raises the errors of ``decide`` and of :meth:`append`, and :class:`ChannelError` ``STRANDLINE_COMMIT_WAS_MADE``.
        """
        return replay.commit_append(self._snapshot, decide, transaction)

    @locked
    def committed(self, application: str) -> int:
        """Return the newest version of an application's Delta transactions as of :attr:`version`, -1 if there is none."""
        return self._snapshot.committed(application)

    def commit_of(self, transaction: tuple[str, int]) -> Commit | None:
        """Return the commit that made a transaction, or ``None`` if it is no longer there. Search from the newest commit back."""
        return replay.commit_of(self._snapshot, transaction)

    @locked
    def settle(self) -> None:
        """Return when all commits up to :attr:`version` will survive a loss of power.

        Whoever made them may have died, or have got an error, before they were synced. Raises :class:`StorageError`.
        """
        self._log.store.settle()
        self._snapshot.survives(self.version)

    @locked
    def second_copies(self, transaction: tuple[str, int], paths: Iterable[str]) -> list[str]:
        """After an attempt to commit ``paths``, return those that are not part of the channel and never will be.

        This asks the log. The log may have the transaction although the attempt ended in an error. If the log does not have
        it, the commit may still arrive. Then the result is empty.

        Args:
            transaction: The transaction of the attempt.
            paths: The files of the attempt.
        """
        return replay.second_copies(self._snapshot, transaction, paths)

    @locked
    def refuse_live(self, names: Iterable[str], owner: WriterSession, *, take_over: bool = False) -> None:
        """Raise an error when one of the producers is open in another live session.

        Args:
            names: The producers.
            owner: The session that wants to write.
            take_over: Whether the session may fence others; then nothing is refused.

        Raises:
            ProducerError: ``STRANDLINE_PRODUCER_LIVE``.
        """
        admission.refuse_live_of(self._snapshot, names, owner, take_over)

    @locked
    def transaction_version(self, application: str) -> int | None:
        """Return the version of the application's newest Delta transaction in this channel, or ``None``."""
        self._snapshot.update()
        version = self._snapshot.committed(application)
        return None if version < 0 else version

    # --------------------------------------------------------------------------------------------------- producers

    @locked
    def producer(self, name: str, *, take_over: bool = False, owner: WriterSession | str | None = None) -> Producer:
        """Open a producer's session. It holds what the name held when its last session committed.

        In a channel that is not sealed, an unknown name joins at the registrar's capability. A session whose process is dead
        does not prevent opening a new one.

        Args:
            name: The producer's name.
            take_over: Open the producer although another session has it. That session is fenced: its next commit fails.
            owner: An id that outlives the process, for example a query's id. A session of the same owner may be opened again
                at any time.

        Raises:
            ProducerError: ``STRANDLINE_PRODUCER_UNKNOWN``; ``STRANDLINE_PRODUCER_LIVE`` while another session has the
                producer, unless ``take_over`` is set.
        """
        session = owner if isinstance(owner, WriterSession) else WriterSession.here(owner)
        state = open_producer(self._snapshot, name, session, take_over=take_over)
        return Producer(self, self._snapshot, name, session, state)

    @locked
    def register(
        self,
        names: Iterable[str],
        at: Time | Iterable[Time] | None = None,
        *,
        exist_ok: bool = False,
        state: Callable[[Mapping[str, ProducerState]], Any] | None = None,
    ) -> int | None:
        """Let producers join, all in one commit.

        After an error the commit may have been made. Then a repeated call, for the same names at the same times, returns its
        version.

        Args:
            names: The producers.
            at: Their capabilities: a time or several (default: the registrar's).
            exist_ok: Skip names that are registered already.
            state: Returns the :attr:`Producer.state` with which the new producers join, from the producers that are there in the
                version before. It is called again if another writer commits first.

        Returns:
            The version, or ``None`` if there was no new name.

        Raises:
            ProducerError: ``STRANDLINE_CHANNEL_SEALED``, also if another process seals the channel meanwhile;
                ``STRANDLINE_PRODUCER_EXISTS`` unless ``exist_ok`` is set.
            CapabilityError: ``at`` is not ≥ the registrar's capability.
        """
        return registrar.register(self._snapshot, names, at, exist_ok=exist_ok, state=state).committed

    @locked
    def hold(self, name: str, at: Time, *, by: str) -> int | None:
        """Let a producer join that holds a time open until it is dropped, also in a sealed channel.

        Some producer, or the registrar, holds ``at`` or an earlier time. The new producer gets a clone of that capability,
        delayed to ``at``. So the frontier does not move, and the others go on as before.

        Args:
            name: The new producer.
            at: The least time that is to stay open.
            by: Who holds it. The producer's state says this, and since when.

        Returns:
            The version.

        Raises:
            ProducerError: ``STRANDLINE_PRODUCER_EXISTS``.
            CapabilityError: ``at`` is closed.

        >>> import tempfile
        >>> from strandline.time.arrow import time_field
        >>> from strandline.time.domain import int64
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     channel = Channel.create(folder, pa.schema([time_field("time", int64)]), producers=["a"], at=3)
        ...     _ = channel.hold("operator", 5, by="ann")
        ...     with channel.producer("a") as a:
        ...         a.drop()
        ...     channel.frontier
        Antichain(int64, [5])
        """
        return registrar.hold(self._snapshot, name, at, by).committed

    @locked
    def delay_registrar(self, times: Time | Iterable[Time]) -> int | None:
        """Delay the registrar's capability. Producers that join from now on do so at a time ≥ one of ``times``.

        The frontier of an open channel cannot pass the registrar's capability until it is delayed. Raises
        :class:`CapabilityError` for an earlier time.
        """
        return registrar.delay(self._snapshot, times).committed

    @locked
    def seal(self) -> int | None:
        """Drop the registrar's capability, so that no producer can join any more.

        Returns:
            The version, or ``None`` if the channel was sealed already.
        """
        return registrar.seal(self._snapshot).committed

    # --------------------------------------------------------------------------------------------------- rows

    def file_writer(self, name_prefix: str = "part") -> FileWriter:
        """Return a writer of data files for this channel."""
        return file_writer(self._snapshot, name_prefix)

    # ---------------------------------------------------------------------------------------------- maintenance

    @locked
    def add_columns(self, columns: pa.Schema | Iterable[pa.Field]) -> int | None:
        """Add columns to the table, after the others. Rows that were written before have nulls there.

        A stream that runs goes on with the columns that it knows, and has the new ones when it is started again. A producer must
        send the new columns from now on. Columns that the table has with the same type are skipped.

        Args:
            columns: The fields.

        Returns:
            The version, or ``None`` if the table has all of them.

        Raises:
            ChannelError: ``STRANDLINE_SCHEMA_MISMATCH``. The table has a column of that name, also in another case, with
                another type; or the new column is not nullable, or is a time.
        """
        return add_columns(self._snapshot, columns)

    @locked
    def checkpoint(self) -> int:
        """Commit a copy of every producer's statement, and write a Delta checkpoint of it. Return the version.

        Commits do both by themselves from time to time. Call this method before you copy a table without the history of its
        log.
        """
        made = transact(self._snapshot, lambda: Plan(copy=True))
        self._snapshot.table.checkpoint()
        return made.version

    @locked
    def clean_log(self, older_than: timedelta = _RETENTION) -> int:
        """Remove the commit files that are older than ``older_than`` and no longer needed. Return their number.

        Channels disable Delta's own log cleanup, because it would also remove statements that no later commit repeats. This
        method removes only commits before one that repeats them all. That commit stays, is at least as old, and has a Delta
        checkpoint. So every reader within ``older_than`` can go on, also after a restart. The newest commit that brought rows
        stays too, with all later ones, whatever their age: a reader that has read everything begins there. If these are more
        than about 10 000, only the newest commit that moved the frontier stays, with all later ones.

        Args:
            older_than: The age from which on commits may be removed. Time travel, and readers that are further behind, need them.

        Returns:
            The number of commits that were removed.
        """
        return clean_log(self._snapshot, older_than)

    def __repr__(self) -> str:
        return (
            f"Channel({self.path!r}, version={self.version}, {len(self.producers)} producers, frontier={self.frontier.format()})"
        )
