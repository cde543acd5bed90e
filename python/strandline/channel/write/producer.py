"""A producer: the session in which a named writer of a channel holds capabilities, sends rows and commits both together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from strandline.channel.progress.producer_states import same
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.log import Commit
from strandline.channel.statements.message_times import message_times
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import ProducerState, Statement, copied_state
from strandline.channel.write.capability import Capability, backwards
from strandline.channel.write.file_writer import FileWriter, conform, file_writer, forked
from strandline.channel.write.transaction import Plan, transact
from strandline.delta.storage import commit_name
from strandline.errors import CapabilityError, LogError, ProducerError, StrandlineError
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


@dataclass(frozen=True)
class _Attempt:
    """A commit that a session tried: its statement, the paths of its files, and the channel's version before."""

    statement: Statement
    paths: frozenset[str]
    before: int

    def find(self, snapshot: Snapshot, name: str) -> int | None:
        """Return the version in which the commit was made, and is certain to survive; ``None`` if it was not made."""
        missing = False
        for version in range(self.before + 1, snapshot.version + 1):
            commit = snapshot.log.read(version)
            if commit is None:
                missing = True  # the log was cleaned up meanwhile
            elif commit.statement is not None and self._is(commit.statement.statements.get(name), commit.files.paths, snapshot):
                snapshot.log.store.sync(commit_name(version))  # it may be the sync that failed
                return version
        state = snapshot.progress.get(name) if missing else None
        if state is not None:
            snapshot.table.load()
            paths = self.paths.intersection(file.path for file in snapshot.table.files())
            if self._is(state.statement(), paths, snapshot):
                return snapshot.version
        return None

    def _is(self, stated: Statement | None, paths: Iterable[str], snapshot: Snapshot) -> bool:
        """Return whether that is this statement. Another session of the same owner may have made another one with its number."""
        return stated is not None and self.paths == frozenset(paths) and same(stated, self.statement, snapshot.domain)


class Producer:
    """A named writer's session, opened by :meth:`Channel.producer`. It is a context manager: leaving it closes the session.

    The capabilities that it holds and the rows that it sends are local until :meth:`commit`. That makes one Delta commit of
    all of them.

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
        self._attempt: _Attempt | None = None
        """A commit that has begun and has not ended. After an error or an interrupt it may have been made."""
        self._closed = False
        self._process = os.getpid()

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

    def hold(self, time: Time) -> Capability:
        """Return a new capability at ``time``.

        Raises :class:`CapabilityError` unless a capability at an earlier or equal time is held.
        """
        time = self.domain.time(time)
        if not self.holds.less_equal(time):
            raise self._not_held(f"cannot create a capability at {self.domain.format(time)}")
        capability = Capability(self, time)
        self._capabilities.append(capability)
        return capability

    def delay(self, times: Time | Iterable[Time]) -> None:
        """Replace all capabilities with capabilities at ``times``: one time or several. An empty list drops all.

        Raises :class:`CapabilityError` unless each time is ≥ some time that is held. In that case nothing changes.
        """
        holds = self.holds
        wanted = Antichain(self.domain, canonical_times(times, self.domain))
        for time in wanted:
            if not holds.less_equal(time):
                raise backwards(self.name, self.domain, holds.format(), time)
        self._replace(wanted)

    def _replace(self, times: Iterable[Time]) -> None:
        """Hold capabilities at ``times`` and no others, in one step: an interrupt must not leave neither."""
        before, self._capabilities = self._capabilities, [Capability(self, time) for time in times]
        for capability in before:
            capability.drop()

    def drop(self) -> None:
        """Give up every capability.

        Once this is committed, the producer holds nothing back and can write nothing more.
        """
        for capability in list(self._capabilities):
            capability.drop()

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
            raise self._not_held(f"cannot send a row at {name} = {self.domain.format(late)}")
        if self._writer is None:
            self._writer = file_writer(self._snapshot)
        self._writer.write(table)

    def commit(self) -> int | None:
        """Commit the rows that were sent and the capabilities that are held now, in one Delta commit.

        After an error, or an interrupt, the commit may have been made. Then the next call finds that out: it commits what is
        still missing, and nothing twice.

        Returns:
            The version, or ``None`` if there was nothing to commit.

        Raises:
            ProducerError: ``STRANDLINE_PRODUCER_FENCED`` if another session has taken over the name. Then the rows that were
                sent here since the last commit are removed.
        """
        made = self._ready()
        if made is not None and self._writer is None and self.holds == self._stated and self.state == self._stated_state:
            return made
        return self._commit(self.owner)

    def abort(self) -> None:
        """Throw away the rows sent since the last commit, and return to the capabilities and the state that it stated."""
        self._ready()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()
        self._replace(self._stated)
        self.state = copied_state(self._stated_state)

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
        except LogError as error:
            self._closed |= error.condition == "STRANDLINE_CHANNEL_REPLACED"  # there is no channel to commit to
            raise

    def _ready(self) -> int | None:
        """Raise unless the session is open. Return the version of a commit that failed, if it was made all the same."""
        self._open()
        made = self._settle()
        self._open()
        return made

    def _settle(self) -> int | None:
        """Find out whether a commit was made that ended by an error or an interrupt. If so, return its version."""
        attempt = self._attempt
        if attempt is None:
            return None
        self._snapshot.update()
        made = attempt.find(self._snapshot, self.name)
        if made is not None:
            self._made(attempt)
        self._attempt = None
        return made

    def _made(self, attempt: _Attempt) -> None:
        """Note a commit that was made. This may be repeated."""
        statement = attempt.statement
        self._writer = None
        self._stated = Antichain(self.domain, statement.holds)
        self._stated_state = statement.state
        self._seq = statement.seq
        self._closed = statement.owner is None

    def _commit(self, owner: WriterSession | None) -> int | None:
        files, times = self._writer.finish() if self._writer is not None else ([], [])
        coarse = self._writer.spans if self._writer is not None else []
        holds = self.holds
        statement = Statement(self._seq + 1, tuple(holds), owner, copied_state(self.state))
        attempt = _Attempt(statement, frozenset(file.path for file in files), self._snapshot.version)

        def plan() -> Plan | None:
            state = self._snapshot.progress.get(self.name)
            if state is None or state.owner != self.owner or state.seq != self._seq:
                raise self._fenced(state.owner if state else None)
            if not files and holds == state.holds and statement.state == state.state and owner is not None:
                return None
            exact, spans = message_times(times, self._stated, spans=coarse)
            self._attempt = attempt
            return Plan(files=files, statements={self.name: statement}, times=exact, spans=spans)

        # If anything but a refusal ends it, such as an interrupt, the commit may have been made, and name the files.
        kept = self._writer.keep() if self._writer is not None else 0
        try:
            version = transact(self._snapshot, plan)
        except ProducerError:
            if self._writer is not None:
                self._writer.keep(kept)
                self._writer.abort()
                self._writer = None
            self._closed = True
            raise
        if version is not None:
            self._made(attempt)
        self._writer = None
        self._attempt = None
        return version

    def _open(self) -> None:
        if os.getpid() != self._process:
            raise forked(f"session of producer {self.name!r}", str(self._snapshot.table.path))
        if self._closed:
            raise ProducerError(
                "STRANDLINE_PRODUCER_CLOSED",
                f"The session of producer {self.name!r} is closed.",
                "Open the producer again with Channel.producer.",
            )

    def _fenced(self, other: WriterSession | None) -> ProducerError:
        return ProducerError(
            "STRANDLINE_PRODUCER_FENCED",
            f"Producer {self.name!r} of {self._snapshot.table.path} was taken over by "
            f"{other or 'a session that has ended since'}. Nothing of this commit was written.",
            "Only one session may write under a producer's name: stop this one.",
        )

    def _not_held(self, what: str) -> CapabilityError:
        holds = self.holds
        held = f"it holds {holds.format()}" if len(holds) else "it holds no capability"
        return CapabilityError(
            "STRANDLINE_TIME_NOT_HELD",
            f"Producer {self.name!r} {what}, because {held}.",
            "Keep a capability at or before a time for as long as rows at that time may come.",
        )

    def forget(self, capability: Capability) -> None:
        """Drop a capability of this session (:meth:`Capability.drop` calls this)."""
        self._capabilities = [held for held in self._capabilities if held is not capability]

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        if not self._closed and os.getpid() == self._process:
            with suppress(StrandlineError):  # the block's own error says more
                self.abort()
                self.close()
        self._closed = True

    def __repr__(self) -> str:
        return f"Producer({self.name!r}, holds={self.holds.format()}{', closed' if self._closed else ''})"
