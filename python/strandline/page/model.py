"""What the page shows, as plain data. :meth:`Page.to_json` is the JSON that ``strandline report --json`` prints."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

__all__ = [
    "Attention",
    "ChannelView",
    "Culprit",
    "Distance",
    "Edge",
    "Holding",
    "Late",
    "LateTableView",
    "Move",
    "Node",
    "Page",
    "Problem",
    "RowsByTime",
    "Since",
    "Unread",
]

MODEL_VERSION = 1


@dataclass(frozen=True)
class Distance:
    """How far apart two times are. ``value`` counts seconds if ``unit`` is ``s``, else units of the coordinate ``unit``."""

    value: float
    unit: str
    text: str


@dataclass(frozen=True)
class Since:
    """The commit from which on something is as it is. ``ms`` is its writer's clock, or ``None`` if the commit gives no moment.

    If it is not ``exact``, it was so before that commit too.
    """

    version: int
    ms: int | None
    exact: bool


@dataclass(frozen=True)
class Problem:
    """Why something cannot be read: the named error, without secrets."""

    where: str
    condition: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Holding:
    """A producer and what it holds.

    Attributes:
        name: The producer's name.
        kind: ``producer``, ``partition`` (of an outside stream), ``query``, ``ingest`` (parked rows, corrections), ``registrar``.
        holds: Its capabilities as text, the least first.
        holds_back: Whether one of them is an element of the channel's frontier.
        behind: How far it is behind the furthest time of the channel; ``None`` if it holds nothing or has said nothing yet.
        since: When its capabilities last changed.
        session: Where it is open, as text.
        state: ``open``, ``closed``, ``gone`` (its process is), ``idle`` (its ingest does not wait for it) or ``ended``.
        last_rows_ms: For a partition, when it last delivered rows.
        aside: For a partition, how many of its rows were set aside.
        lag: Its lag over time, as ``(ms, value)`` in the unit of ``behind``: each value counts until the next one's moment.
    """

    name: str
    kind: str
    holds: tuple[str, ...]
    holds_back: bool
    behind: Distance | None
    since: Since
    session: str | None
    state: str
    last_rows_ms: int | None
    aside: int
    lag: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Move:
    """A move of the frontier: with this commit, the times before it closed."""

    version: int
    ms: int | None
    frontier: tuple[str, ...]


@dataclass(frozen=True)
class RowsByTime:
    """Rows by the leading coordinate of their times, in the newest commits.

    Attributes:
        coordinate: The coordinate's name; empty for times of one coordinate.
        low: The beginning of the first bucket, as text.
        high: The greatest time, as text.
        buckets: The rows of each bucket; all buckets are equally wide.
        closed: How many buckets from the left are closed, with fractions; as many as there are if everything is.
        commits: How many of the newest commits are counted.
    """

    coordinate: str
    low: str
    high: str
    buckets: tuple[int, ...]
    closed: float
    commits: int


@dataclass(frozen=True)
class Unread:
    """What a query has not read of a channel. ``rows`` is ``None`` if the log does not say.

    If it is ``at_most`` so much, the query may have read it without a result: it has made no commit since, and its checkpoint
    cannot be read. Otherwise, if it is not ``exact``, only the newest commits were counted: there are at least so many rows.
    """

    query: str
    commits: int
    rows: int | None
    exact: bool
    at_most: bool = False


@dataclass(frozen=True)
class Aside:
    """The newest batch that set rows of a partition aside.

    Attributes:
        partition: The partition's name.
        rows: How many rows of it the batch set aside.
        reason: Why most of them were.
        ms: When, in ms since 1970.
        only_since_ms: Since when all rows of the partition are set aside; ``None`` if its newest rows were not.
        remedy: What to do about it.
    """

    partition: str
    rows: int
    reason: str
    ms: int
    only_since_ms: int | None
    remedy: str = ""


@dataclass(frozen=True)
class Late:
    """Rows that an ingest set aside or parked.

    Attributes:
        aside: How many rows were set aside so far.
        without_partition: How many of these belong to no partition.
        parked: How many rows wait beyond ``maxAhead``.
        policies: The policies of the channel's ingests, as text.
        tables: The late tables: each path with its rows, its number of commits, the moment of its newest one, and the reasons
            (``_reason``) that its files' statistics name; or a problem.
        reasons: How many rows were set aside, by reason, the most first. Those that older versions set aside are missing.
        newest: The partitions of which rows were set aside last, at most ten: those of which all rows are, the newest first.
    """

    aside: int
    without_partition: int
    parked: int
    policies: tuple[str, ...]
    tables: tuple[LateTableView, ...]
    reasons: tuple[tuple[str, int], ...] = ()
    newest: tuple[Aside, ...] = ()


@dataclass(frozen=True)
class LateTableView:
    """A late table, as its log describes it. ``rows`` counts what is in the table now; ``None`` if the log does not say."""

    path: str
    rows: int | None
    commits: int
    changed_ms: int | None
    reasons: tuple[str, ...]
    problem: Problem | None = None


@dataclass(frozen=True)
class Culprit:
    """Somebody at the end of the way: nothing that is known upstream of it holds the time.

    ``query`` is the name that the user gave the query; empty if it has none, or is no query.

    If several have one cause, it is the first of them: ``who`` is what is gone, and ``whom`` says who waits for it. ``count`` is
    how many these are.
    """

    channel: str
    name: str
    kind: str
    holds: tuple[str, ...]
    since: Since | None
    what: str
    release: str
    way: tuple[str, ...]
    query: str = ""
    who: str = ""
    whom: str = ""
    count: int = 1


@dataclass(frozen=True)
class ChannelView:
    """A channel at one version.

    Attributes:
        id: An identifier of letters and digits, the same at each look.
        label: Its name in the scope, or the end of its path.
        path: Its path, without secrets.
        problem: Why it cannot be read. Then the other fields are what was read last, or empty.
        frontier: The elements of its frontier as text. It is empty if everything is closed.
        stands_since: The commit with which the frontier came to be what it is.
        stale: Whether the frontier has stood for longer than the page allows, and something is open.
        furthest: The furthest time that was stated or written, as text of the leading coordinate.
        behind: How far the frontier is behind it.
        behind_clock: For times that are timestamps, how far the frontier is behind the clock.
        producers: How many producers there are, and ``ended``, how many of these hold nothing any more.
        holdings: Those that hold the earliest times. ``not_listed``: how many more there are.
        moves: The newest moves of the frontier, the newest first.
        lag: The lag of the frontier over time, as in :class:`Holding`.
        culprits: Why the least time of the frontier (``asked``) is open. ``why_hidden``: how many more hold it.
        why_notes: What could not be found out about it.
    """

    id: str
    label: str
    path: str
    problem: Problem | None = None
    table: str = ""
    version: int = -1
    changed_ms: int | None = None
    domain: str = ""
    time_column: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    sealed: bool = False
    frontier: tuple[str, ...] = ()
    stands_since: Since | None = None
    stale: bool = False
    furthest: str | None = None
    behind: Distance | None = None
    behind_clock: Distance | None = None
    producers: int = 0
    ended: int = 0
    holdings: tuple[Holding, ...] = ()
    not_listed: int = 0
    moves: tuple[Move, ...] = ()
    lag: tuple[tuple[int, float], ...] = ()
    window_ms: tuple[int, int] | None = None
    rows: RowsByTime | None = None
    unread: tuple[Unread, ...] = ()
    late: Late | None = None
    asked: str | None = None
    culprits: tuple[Culprit, ...] = ()
    why_hidden: int = 0
    why_notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attention:
    """Somebody who holds back channels whose frontier stands, the longest first.

    Attributes:
        culprit: Who it is.
        channels: The ids of the channels that wait for it.
        since_ms: Since when the first of their frontiers stands, as far as the log is read.
        exact: Whether it did not stand before that.
    """

    culprit: Culprit
    channels: tuple[str, ...]
    since_ms: int | None
    exact: bool


@dataclass(frozen=True)
class Node:
    """A node of the graph. ``kind``: ``channel``, ``query``, ``ingest`` or ``producers``; ``channel`` is the id to jump to."""

    id: str
    kind: str
    label: str
    note: str
    channel: str | None = None
    marked: bool = False


@dataclass(frozen=True)
class Edge:
    """An edge, with the frontier on it: of the channel that is read, or of what is held at the channel that is written."""

    source: str
    target: str
    frontier: tuple[str, ...] | None
    unread: Unread | None = None
    marked: bool = False


@dataclass(frozen=True)
class Page:
    """Everything that the page shows at one moment."""

    made_ms: int
    title: str
    stale_after: float
    problems: tuple[Problem, ...]
    attention: tuple[Attention, ...]
    channels: tuple[ChannelView, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def channel(self, id: str) -> ChannelView:  # noqa: A002
        """Return a channel by its id."""
        return next(each for each in self.channels if each.id == id)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object. Names are written as in JavaScript.

        >>> Page(0, "lake", 300.0, (), (), (), (), ()).to_json()["staleAfter"]
        300.0
        """
        return {"strandlinePage": MODEL_VERSION, **_json(self)}


def _json(value: Any) -> Any:
    if is_dataclass(value):
        return {json_name(field.name): _json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_json(each) for each in value]
    return value


def json_name(name: str) -> str:
    """Return the name of a field in the JSON.

    >>> json_name("why_hidden")
    'whyHidden'
    """
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
