"""A producer: the session in which a named writer of a channel holds capabilities, sends rows and commits both together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from strandline.channel import errors
from strandline.channel.commit.outcome import Committed, Outcome, Unchanged
from strandline.channel.commit.transaction import Plan, transact
from strandline.channel.progress.attempts import Attempt
from strandline.channel.progress.handle_lock import HandleLock, locked
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.log import Commit
from strandline.channel.statements.message_times import message_times
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import ProducerState, Span, Statement, checked_state, copied_state
from strandline.channel.write.capability import Capability
from strandline.channel.write.file_writer import FileWriter, conform, file_writer
from strandline.channel.write.registrar import hold_of
from strandline.delta.data_file import DataFile
from strandline.delta.errors import process_forked_object
from strandline.errors import LogError, ProducerError, StrandlineError
from strandline.time.antichain import Antichain, canonical_times
from strandline.time.arrow import first_behind
from strandline.time.domain import Time, TimeDomain

__all__ = ["Producer"]


class OpenedChannel(Protocol):
    """The channel in which a producer was opened: a :class:`~strandline.channel.Channel`."""

    @property
    def path(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def frontier(self) -> Antichain: ...

    def refresh(self) -> list[Commit]: ...

    def read(self, version: int | None = None, columns: Sequence[str] | None = None) -> pa.Table: ...


@dataclass(frozen=True, eq=False)
class _Batch:
    """Rows in finished files, which no commit is known to have."""

    writer: FileWriter
    files: Sequence[DataFile]
    times: Sequence[tuple[Time, int]]
    spans: Sequence[Span]


@dataclass(eq=False)
class _Request:
    """What a session asks to commit: what it states and sends."""

    session: Producer
    statement: Statement
    batches: Sequence[_Batch] = ()
    changes: bool = True
    """Whether it sends or states anything new."""
    aborted: bool = False
    """Whether its rows were thrown away since."""
    noted: bool = False
    """Whether the session knows that it was made, although its caller was told of an error."""

    @property
    def rows(self) -> int:
        return sum(file.rows for batch in self.batches for file in batch.files)


class Producer:
    """A named writer's session, opened by :meth:`Channel.producer`. It is a context manager: leaving it closes the session.

    The capabilities that it holds and the rows that it sends are local until :meth:`commit`. That makes one Delta commit of
    all of them. Several threads may use one session: their calls, and those of the channel's other sessions, take turns.

    >>> import tempfile
    >>> from strandline.time.arrow import time_field
    >>> from strandline.channel import Channel
    >>> from strandline.time.domain import int64
    >>> schema = pa.schema([time_field("time", int64), ("n", pa.int64())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     channel = Channel.create(f"{folder}/channel", schema, producers=["a"], at=0)
    ...     with channel.producer("a") as a:
    ...         a.send(pa.table({"time": [0, 1], "n": [10, 20]}))
    ...         a.delay([2])
    ...         version = a.commit()
    ...     channel.frontier, channel.read().num_rows
    (Antichain(int64, [2]), 2)
    """

    def __init__(
        self, channel: OpenedChannel, snapshot: Snapshot, name: str, owner: WriterSession, stated: ProducerState
    ) -> None:
        self.channel = channel
        """The channel. The session and the channel see the same version."""
        self._snapshot = snapshot
        self.name = name
        self.owner = owner
        self.state: Any = copied_state(stated.state)
        """A JSON value that the producer keeps for itself across sessions.

        It is committed with the producer's rows and capabilities.
        """
        self._seq = stated.seq
        self._stated = stated.holds.copy()
        self._stated_state = stated.state
        self._capabilities: list[Capability] = [Capability(self, time) for time in stated.holds]
        self._writer: FileWriter | None = None
        self._batches: Sequence[_Batch] = ()
        """Rows that were sent before the ones in the writer, and that a commit may have."""
        self._closed = False
        self._process = os.getpid()

    @property
    def lock(self) -> HandleLock:
        """The lock of the channel."""
        return self._snapshot.lock

    @property
    def domain(self) -> TimeDomain:
        """The channel's time domain."""
        return self._snapshot.domain

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """The capabilities that are held now, in the order of creation."""
        return tuple(self._capabilities)

    @property
    def holds(self) -> Antichain:
        """The least times that are held now. The next commit will state them."""
        return Antichain(self.domain, [capability.time for capability in self._capabilities])

    @property
    def stated(self) -> Antichain:
        """The least times that were held as of the newest commit. Others know these times."""
        return self._stated.copy()

    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self._closed

    @locked
    def hold(self, time: Time) -> Capability:
        """Return a new capability at ``time``.

        Raises :class:`CapabilityError` unless a capability at an earlier or equal time is held.
        """
        time = self.domain.time(time)
        if not self.holds.less_equal(time):
            raise errors.time_not_held(self.name, self.domain.format(time), self.holds)
        capability = Capability(self, time)
        self._capabilities.append(capability)
        return capability

    @locked
    def delay(self, times: Time | Iterable[Time]) -> None:
        """Replace all capabilities with capabilities at ``times``: one time or several. An empty list drops all.

        Raises :class:`CapabilityError` unless each time is ≥ some time that is held. In that case nothing changes.
        """
        holds = self.holds
        wanted = Antichain(self.domain, canonical_times(times, self.domain))
        for time in wanted:
            if not holds.less_equal(time):
                raise errors.capability_backwards(self.name, self.domain, holds.format(), time)
        self._replace(wanted)

    def _replace(self, times: Iterable[Time]) -> None:
        """Hold capabilities at ``times`` and no others, in one step: an interrupt must not leave neither."""
        before, self._capabilities = self._capabilities, [Capability(self, time) for time in times]
        for capability in before:
            capability.drop()

    @locked
    def drop(self) -> None:
        """Give up every capability.

        Once this is committed, the producer holds nothing back and can write nothing more.
        """
        for capability in list(self._capabilities):
            capability.drop()

    @locked
    def send(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Write rows, which become visible with the next :meth:`commit`.

        If the storage fails or the writing is interrupted, all rows since the last commit are thrown away. Then call
        :meth:`abort`, and send them again.

        Raises:
            CapabilityError: A row's time is not ≥ any time that is held. Nothing was written.
            ChannelError: The columns are not the channel's. Nothing was written.
            TimeError: A time is null or outside the domain. Nothing was written.
            StorageError: ``STRANDLINE_ROWS_THROWN_AWAY`` after rows were thrown away, until :meth:`abort`.
        """
        self._ready()
        table = conform(rows, self._snapshot.table.schema)
        name = self._snapshot.time_column
        late = first_behind(table.column(name), self.holds, name)
        if late is not None:
            raise errors.time_not_held_of_row(self.name, name, self.domain.format(late), self.holds)
        if self._writer is None:
            self._writer = file_writer(self._snapshot)
        self._writer.write(table)

    @locked
    def commit(self) -> int | None:
        """Commit the rows that were sent and the capabilities that are held now, in one Delta commit.

        After an error, or an interrupt, the commit may have been made, or may still arrive. Then the next call finds that
        out: it commits what is still missing, and nothing twice. So do not send the same rows again.

        Returns:
            The version, or ``None`` if there was nothing to commit.

        Raises:
            ProducerError: ``STRANDLINE_PRODUCER_FENCED`` if another session has taken over the name. Then the rows that were
                sent here since the last commit are removed. ``STRANDLINE_COMMIT_WAS_MADE`` if a commit arrived after
                :meth:`abort`. ``STRANDLINE_STATE_INVALID`` if :attr:`state` is not JSON. Then nothing was written.
        """
        state = checked_state(self.state, self.name)
        made = self._ready()
        if made is None or self._sent or self.holds != self._stated or state != self._stated_state:
            made = self._commit(self.owner)
        self._answer()
        return made

    @locked
    def abort(self) -> None:
        """Throw away the rows sent since the last commit, and return to the capabilities and the state that it stated.

        Raises:
            ProducerError: ``STRANDLINE_COMMIT_WAS_MADE`` if a commit had ended by an error, and was made all the same. Its rows
                cannot be thrown away, and must not be sent again. All else is done.
            StorageError: Nothing was thrown away.
        """
        self._open()
        made = self._settle()
        self._open()
        if made is None and self._pending and self._snapshot.log.store.writes_late:
            self._commit_nothing()  # then none of them can arrive any more
        for attempt in self._pending:
            attempt.request.aborted = True
        self._go_back()
        if self._untold:
            raise self._were_made()

    @locked
    def close(self) -> None:
        """Commit all pending changes and release the name for the next session. The capabilities stay with the name.

        If this fails, call it again.
        """
        if os.getpid() != self._process:
            return  # the session is that of the process that this one was forked from
        try:
            if not self._closed:
                self._settle()
            if not self._closed:
                self._commit(None)
            self._answer()
        except LogError as error:
            self._closed |= error.condition == "STRANDLINE_CHANNEL_REPLACED"  # there is no channel to commit to
            raise
        except ProducerError as error:
            if error.condition == "STRANDLINE_COMMIT_WAS_MADE" and not self._closed:
                self._commit(None)
            raise

    @property
    def _sent(self) -> bool:
        """Whether rows were sent that no commit has."""
        return self._writer is not None or bool(self._batches)

    def _ready(self) -> int | None:
        """Raise unless the session is open. Return the version of a commit that failed, if it was made all the same."""
        self._open()
        made = self._settle()
        self._open()
        return made

    @property
    def _tried(self) -> list[Attempt[_Request]]:
        """The commits that this session has begun, and whose caller was not told that they were made."""
        return [attempt for attempt in self._snapshot.attempts.of(_Request) if attempt.request.session is self]

    @property
    def _pending(self) -> list[Attempt[_Request]]:
        """Those that the session does not know to be made: after an error or an interrupt one of them may have been."""
        return [attempt for attempt in self._tried if not attempt.request.noted]

    @property
    def _untold(self) -> list[Attempt[_Request]]:
        """Those that were made, and that sent or stated something."""
        return [attempt for attempt in self._tried if attempt.version is not None and attempt.request.changes]

    def _answer(self) -> None:
        """Forget the commits that ended by an error. The caller is told now that they were made."""
        for attempt in self._tried:
            self._snapshot.attempts.answer(attempt.version)

    def _settle(self) -> int | None:
        """Find out whether a commit was made that ended by an error or an interrupt. If so, return its version."""
        if not self._pending:
            return None
        try:
            self._snapshot.update()
        except LogError as error:
            if error.condition != "STRANDLINE_LOG_TRUNCATED":
                raise
            raise LogError(
                error.condition,
                f"{error.what} So it is not known whether the last commit of producer {self.name!r}, which ended by an error, "
                "was made.",
                "Open the channel again, and the producer with take_over. Its state, its capabilities and the channel's rows "
                "show what was committed. Send only what is missing.",
            ) from None
        return self._settled()

    def _settled(self) -> int | None:
        """Note the commits that the channel was seen to have. Return the version of one that is new here."""
        made = None
        for attempt in self._pending:
            if attempt.version is None:
                continue
            made = attempt.version
            self._snapshot.survives(made)
            self._made(attempt.request)
            if attempt.request.aborted:
                self._go_back()
                raise self._were_made()
        return made

    def _made(self, request: _Request) -> None:
        """Note a commit that was made. This may be repeated."""
        statement = request.statement
        self._batches = [batch for batch in self._batches if batch not in request.batches]
        self._stated = Antichain(self.domain, statement.holds)
        self._stated_state = statement.state
        self._seq = statement.seq
        self._closed = statement.owner is None
        request.noted = True

    def _go_back(self) -> None:
        """Return to what the last commit stated."""
        self._discard()
        self._replace(self._stated)
        self.state = copied_state(self._stated_state)

    def _discard(self) -> None:
        """Throw away all rows that no commit has. Remove their files, unless a commit that may still arrive names them.

        If none arrives, ``VACUUM`` removes these.
        """
        named = [batch for attempt in self._tried if attempt.open for batch in attempt.request.batches]
        writers = [batch.writer for batch in self._batches if batch not in named]
        writers += [self._writer] if self._writer is not None else []
        self._batches, self._writer = (), None
        for writer in writers:
            writer.abort()

    def _finish(self) -> None:
        """Finish the files of the rows that were sent."""
        writer = self._writer
        if writer is not None:
            files, times = writer.finish()
            batch = [_Batch(writer, files, times, writer.spans)] if files else []
            self._batches, self._writer = [*self._batches, *batch], None  # in one step: an interrupt must not double them

    def _commit(self, owner: WriterSession | None) -> int | None:
        """Commit what is pending. While the session stays, no change is no commit."""
        state = checked_state(self.state, self.name)
        self._finish()

        def change(known: ProducerState) -> _Request | None:
            holds = self.holds
            if not self._batches and holds == known.holds and state == known.state and owner is not None:
                return None
            return _Request(self, Statement(self._seq + 1, tuple(holds), owner, state), self._batches)

        return self._transact(change, owner).committed

    def _commit_nothing(self) -> None:
        """State the same again, so that no earlier request can arrive any more, unless one has."""

        def change(_: ProducerState) -> _Request | None:
            statement = Statement(self._seq + 1, tuple(self._stated), self.owner, self._stated_state)
            return _Request(self, statement, changes=False)

        self._transact(change, self.owner, instead=True)

    def _transact(
        self, change: Callable[[ProducerState], _Request | None], owner: WriterSession | None, *, instead: bool = False
    ) -> Outcome:
        """Commit the change, unless an earlier request was made. ``instead`` makes at most one of the two."""
        earlier: int | None = None

        def plan() -> Plan | Outcome:
            nonlocal earlier
            found = self._settled()
            if found is not None:
                earlier = found
                if self._closed and owner is None and not self._sent:
                    return Committed(found)
                self._open()
                if instead:
                    return Committed(found)
            known = self._snapshot.progress.get(self.name)
            if known is None or not self._is_current(known):
                raise errors.producer_fenced(self.name, self._snapshot.table.path, known.owner if known else None)
            self._seq = known.seq
            request = change(known)
            if request is None:
                return Unchanged(self._snapshot.version) if earlier is None else Committed(earlier)
            files = [file for batch in request.batches for file in batch.files]
            spans = [span for batch in request.batches for span in batch.spans]
            exact, fewer = message_times(_counted(request.batches, self.domain), self._stated, spans=spans)
            return Plan(files, {self.name: request.statement}, exact, fewer, attempt=Attempt(request))

        try:
            outcome = transact(self._snapshot, plan)
        except ProducerError as error:
            if error.condition == "STRANDLINE_PRODUCER_FENCED":
                self._discard()
                self._closed = True
            raise
        for attempt in self._pending:
            if attempt.version is not None:  # it was made now
                self._made(attempt.request)
                self._snapshot.attempts.answer(attempt.version)
        return outcome

    def _is_current(self, known: ProducerState) -> bool:
        """Return whether nobody else has stated the producer, but for :meth:`Channel.hold`.

        That repeats a statement, to clone what it holds, and changes nothing but its ``seq``. Another session states the same
        when it opens the name, also one of the same owner. So the commits in between say whose statements these are.
        """
        if known.owner != self.owner or known.seq == self._seq:
            return known.owner == self.owner
        if known.seq < self._seq or known.holds != self._stated or known.state != self._stated_state:
            return False
        left, version = known.seq - self._seq, self._snapshot.version
        while left and version >= 0 and (commit := self._snapshot.log.read(version)) is not None:
            stated = {} if commit.statement is None else commit.statement.statements
            if self.name in stated:
                if all(hold_of(other.state) is None for name, other in stated.items() if name != self.name):
                    return False
                left -= 1
            version -= 1
        return not left

    def _open(self) -> None:
        if os.getpid() != self._process:
            raise process_forked_object(f"session of producer {self.name!r}", str(self._snapshot.table.path))
        if self._closed:
            raise errors.producer_closed(self.name)

    def _were_made(self) -> ProducerError:
        versions = ", ".join(str(attempt.version) for attempt in self._untold)
        rows = sum(attempt.request.rows for attempt in self._untold)
        self._answer()
        return errors.commit_was_made(self.name, self._snapshot.table.path, rows, versions)

    @locked
    def forget(self, capability: Capability) -> None:
        """Drop a capability of this session (:meth:`Capability.drop` calls this)."""
        self._capabilities = [held for held in self._capabilities if held is not capability]

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        made: ProducerError | None = None
        if not self._closed and os.getpid() == self._process:
            with suppress(StrandlineError):  # the block's own error says more
                try:
                    self.abort()
                except ProducerError as failed:
                    if failed.condition != "STRANDLINE_COMMIT_WAS_MADE":
                        raise
                    made = failed
                self.close()
        self._closed = True
        if made is not None and isinstance(error, Exception):
            raise made from error  # or the block might be repeated, with the same rows

    def __repr__(self) -> str:
        return f"Producer({self.name!r}, holds={self.holds.format()}{', closed' if self._closed else ''})"


def _counted(batches: Sequence[_Batch], domain: TimeDomain) -> Sequence[tuple[Time, int]]:
    """Return the rows by time of all batches, in ``sort_key`` order."""
    if len(batches) == 1:
        return batches[0].times
    counts: Counter[Time] = Counter()
    for batch in batches:
        counts.update(dict(batch.times))
    return sorted(counts.items(), key=lambda entry: domain.sort_key(entry[0]))
