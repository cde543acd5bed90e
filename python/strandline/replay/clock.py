"""A clock that never ties: each row from outside gets a time of its own, in the order in which it came."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.channel import Channel
from strandline.channel.progress.handle_lock import HandleLock, locked
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import ProducerState
from strandline.replay import errors
from strandline.time.arrow import arrow_type
from strandline.time.domain import Time, int64, lex, timestamp

if TYPE_CHECKING:
    from strandline.channel import Producer

__all__ = ["CLOCK", "FIRST_LINK", "FIRST_SCHEDULER", "NodeStart", "Timestamper", "add_node", "clock_times", "node_of", "nodes"]

CLOCK = lex(instant="timestamp", node="int64", n="int64")
"""The domain of such times: the instant, the id of the node that gave the time, and the number of the row at this node.

Two rows have different times, because each node counts its own rows and no two nodes have one id. No counter is shared.
Source: seed 5 (Triceps), its last paragraph.
"""

FIRST_SCHEDULER = -(1 << 62)
FIRST_LINK = -(1 << 61)
"""Ids of schedulers and of looping links begin at these, and those of inputs at 0. So at one instant events come first, then what
comes round a loop, then records from outside."""


def add_node(channel: Channel, name: str, *, scheduler: bool = False) -> int:
    """Let a node join a channel, or find it there, and return its id. Nodes of one kind are ordered as they joined.

    The id is decided by the commit that lets the name join, so two processes never give one id to two names. A node is a
    producer of the channel. The frontier does not pass the registrar, so seal the channel when all nodes have joined.

    Args:
        channel: The channel, with times of :data:`CLOCK`.
        name: The node's name.
        scheduler: Whether it gives events, which come before the records of all inputs at the same instant.

    Raises:
        StrandlineError: ``STRANDLINE_CLOCK_DOMAIN``: the channel has other times.
        ChannelError: ``STRANDLINE_NODE_UNKNOWN``: the name is that of a producer that is no node; ``STRANDLINE_NODE_KIND``: it is
            a node of the other kind.
        ProducerError: ``STRANDLINE_CHANNEL_SEALED``: the name is new, and no producer may join any more.

    >>> import tempfile
    >>> from strandline.channel import Channel
    >>> from strandline.time.arrow import time_field
    >>> schema = pa.schema([time_field("time", CLOCK), ("n", pa.int64())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     channel = Channel.create(f"{folder}/channel", schema)
    ...     ids = [add_node(channel, "orders"), add_node(channel, "news"), add_node(channel, "timers", scheduler=True)]
    ...     ids == [0, 1, -2**62], list(nodes(channel))
    (True, ['timers', 'orders', 'news'])
    """
    if channel.domain != CLOCK:
        raise errors.clock_domain(channel.path, channel.domain, CLOCK)

    def state(known: Mapping[str, ProducerState]) -> dict[str, int]:
        taken = [node for each in known.values() if (node := node_of(each.state)) is not None]
        alike = [node for node in taken if (node < FIRST_LINK if scheduler else node >= 0)]
        return {"node": max(alike, default=(FIRST_SCHEDULER if scheduler else 0) - 1) + 1, "n": 0}

    channel.register([name], exist_ok=True, state=state)
    found = node_of(channel.progress.producers[name].state)
    if found is None:
        raise errors.node_unknown(channel.path, name, "is no node")
    if (found < 0) != scheduler:
        raise errors.node_kind(channel.path, name, is_scheduler=found < 0)
    return found


def nodes(channel: Channel) -> dict[str, int]:
    """Return the ids of a channel's nodes by name, in the order of their ids."""
    found = {name: node for name, each in channel.progress.producers.items() if (node := node_of(each.state)) is not None}
    return dict(sorted(found.items(), key=lambda entry: entry[1]))


class NodeStart(NamedTuple):
    """What a node gives next.

    Attributes:
        node: Its id.
        instant: The instant, in microseconds since 1970: the clock's, or the first that the node may give if that is later.
        n: The first number.
    """

    node: int
    instant: int
    n: int

    @classmethod
    def of(cls, channel: Channel, name: str, now: int) -> NodeStart:
        """Return what a node gives next, as the channel's newest commit says.

        Args:
            channel: The channel, as it is now.
            name: The node's name.
            now: The clock, in microseconds since 1970.

        Raises:
            ChannelError: ``STRANDLINE_NODE_UNKNOWN``.
        """
        known = channel.progress.get(name)
        node = None if known is None else node_of(known.state)
        if known is None or node is None:
            raise errors.node_unknown(channel.path, name, "is no node")
        n = _count(channel.path, name, node, known.state)
        return cls(node, _allowed(now, (node, n), known.holds), n)


class Timestamper:
    """The session of a node of a channel: it gives each row a time of :data:`CLOCK`, and sends it. It is a context manager.

    An instant is never before one that the node has given or promised, also where the clock was set back. What the node has
    counted is committed with its rows, so a session after a crash goes on from there, and gives no time twice.

    Args:
        channel: The channel.
        name: The node's name. A new one joins as an input: see :func:`add_node`.
        clock: Returns the instant, in microseconds since 1970. Default: the wall clock.
        take_over: Whether to fence another session of the node.
        owner: As for :meth:`Channel.producer`.

    Raises:
        StrandlineError: As for :func:`add_node` and :meth:`Channel.producer`.

    >>> import tempfile
    >>> from strandline.channel import Channel
    >>> from strandline.time.arrow import time_field
    >>> schema = pa.schema([time_field("time", CLOCK), ("what", pa.string())])
    >>> clock = iter([1000, 1000, 900, 1200, 1300]).__next__
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     channel = Channel.create(f"{folder}/channel", schema)
    ...     with Timestamper(channel, "orders", clock=clock) as orders:
    ...         orders.send(pa.table({"what": ["buy", "sell"]}))
    ...         _ = orders.commit()
    ...         orders.send(pa.table({"what": ["buy"]}))
    ...     _ = channel.seal()
    ...     rows = channel.read().column("time").to_pylist()
    ...     [(row["instant"].microsecond, row["node"], row["n"]) for row in rows], channel.frontier.format()
    ([(1000, 0, 0), (1000, 0, 1), (1000, 0, 2)], '{(instant=1970-01-01T00:00:00.001200Z, node=0, n=3)}')
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        take_over: bool = False,
        owner: WriterSession | str | None = None,
    ) -> None:
        known = channel.progress.get(name)
        node = None if known is None else node_of(known.state)
        self.node = add_node(channel, name) if node is None else node
        self.name, self._clock, self._channel = name, clock, channel
        self._producer: Producer = channel.producer(name, take_over=take_over, owner=owner)

    @property
    def lock(self) -> HandleLock:
        """The lock of the channel."""
        return self._producer.lock

    @property
    def count(self) -> int:
        """How many rows the node has stamped, also those that no commit has yet."""
        return _count(self._channel.path, self.name, self.node, self._producer.state)

    @locked
    def send(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Stamp rows in their order, at one instant, and write them. They become visible with the next :meth:`commit`.

        Args:
            rows: The channel's columns without the time.

        Raises:
            ChannelError: ``STRANDLINE_COLUMNS_STAMPED``: they have a time. Other columns: as for :meth:`Producer.send`.
            StrandlineError: ``STRANDLINE_INSTANT_INVALID``: the clock returned no instant.
        """
        column = self._channel.time_column
        if column in rows.schema.names:
            raise errors.columns_stamped(column)
        first, instant, count = self.count, self._instant(), rows.num_rows
        stamps = clock_times(np.full(count, instant), self.node, np.arange(first, first + count))
        schema = self._channel.schema
        table = pa.table(rows) if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        self._producer.send(table.add_column(schema.get_field_index(column), schema.field(column), stamps))
        self._producer.state = {"node": self.node, "n": first + count}
        self._producer.delay((instant, self.node, first + count))

    @locked
    def commit(self) -> int | None:
        """Commit the rows, and promise that later rows are not before this instant. Call it too when nothing came.

        Returns:
            The version.

        Raises:
            ProducerError: As for :meth:`Producer.commit`.
        """
        self._promise()
        return self._producer.commit()

    @locked
    def abort(self) -> None:
        """Throw away the rows since the last commit, and what was counted for them: see :meth:`Producer.abort`."""
        self._producer.abort()

    @locked
    def drop(self) -> None:
        """Give up the node's capability, with the next commit: nothing more will come from it."""
        self._producer.drop()

    @locked
    def close(self) -> None:
        """Commit what was sent, and release the node for the next session."""
        if not self._producer.closed:
            self._promise()
        self._producer.close()

    def __enter__(self) -> Timestamper:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._producer.__exit__(kind, error, trace) if kind is not None else self.close()

    def _promise(self) -> None:
        """Delay the capability, unless it was given up, to what the node stamps next."""
        if self._producer.capabilities:
            self._producer.delay((self._instant(), self.node, self.count))

    def _instant(self) -> int:
        """Return the clock's instant, or the first one that the node may still give if the clock is behind it."""
        instant = self._clock()
        if type(instant) is not int or not timestamp.has(instant):
            raise errors.instant_invalid(self.name, instant)
        return _allowed(instant, (self.node, self.count), self._producer.holds)


def clock_times(instants: npt.NDArray[np.int64], node: int, numbers: npt.NDArray[np.int64]) -> pa.StructArray:
    """Return a column of times of :data:`CLOCK`.

    Args:
        instants: The instants, in microseconds since 1970.
        node: The id of the node that gives the times.
        numbers: For each instant, the number of the row at the node.
    """
    kind = arrow_type(CLOCK)
    parts = [
        pa.array(instants, pa.int64()).cast(kind.field("instant").type),
        pa.repeat(pa.scalar(node, pa.int64()), len(instants)),
    ]
    return pa.StructArray.from_arrays([*parts, pa.array(numbers, pa.int64())], fields=list(kind))


def node_of(state: Any) -> int | None:
    """Return the id in a producer's state; ``None`` if it is no node."""
    node = state.get("node") if isinstance(state, dict) else None
    return node if type(node) is int and int64.has(node) else None


def _count(path: str, name: str, node: int, state: Any) -> int:
    """Return the first number that a node has not given, as its state says."""
    if node_of(state) != node or type(state.get("n")) is not int or state["n"] < 0:
        raise errors.node_unknown(path, name, "has no count of its rows")
    return int(state["n"])


def _allowed(instant: int, own: tuple[int, int], holds: Iterable[Time]) -> int:
    """Return an instant, or the first one after it that a node may give: its id and next number are ``own``."""
    held = [first if (node, n) <= own else first + 1 for first, node, n in holds]
    return max(instant, *held) if held else instant
