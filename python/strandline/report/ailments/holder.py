"""Somebody who holds a time open, and what of its inputs is unread."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from strandline.ingest.names import CORRECTIONS
from strandline.report.history import Since
from strandline.time.domain import Time

__all__ = ["Behind", "Holder", "called", "moment"]


@dataclass(frozen=True)
class Behind:
    """What a query has not read of one of its inputs, by its checkpoint. If that cannot be read, as of its newest commit.

    Attributes:
        channel: The input's path.
        commits: The number of commits that it has not read wholly.
        rows: The number of rows in them that it has not read; ``None`` if the log does not say.
        exact: Whether it is so many. If not, and it is not ``at_most``, only the newest commits were looked at: there are at
            least so many rows.
        at_most: Whether it may be fewer, or none: the query may have read on without a result, and so without a commit.
    """

    channel: str
    commits: int
    rows: int | None
    exact: bool = True
    at_most: bool = False

    def __str__(self) -> str:
        least = "" if self.exact or self.at_most else "at least "
        rows = "" if self.rows is None else f" ({least}{_count(self.rows, 'row')})"
        return f"{'at most ' if self.at_most else ''}{_count(self.commits, 'commit')}{rows} of {self.channel}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {key if key != "at_most" else "atMost": value for key, value in asdict(self).items()}

    @property
    def words(self) -> str:
        """The same as a sentence about the query."""
        if not self.at_most:
            return f"it has not read {self}"
        return f"it has read all but {self}: its newest commit says so, and its checkpoint cannot be read from here"


@dataclass(frozen=True)
class Holder:
    """Somebody who holds a time open.

    Attributes:
        channel: The path of the channel in which it holds.
        name: The producer's name. ``$registrar`` stands for producers that may still join.
        kind: ``producer``, ``partition`` (of an outside stream), ``query``, ``loop`` (a query that reads what it writes),
            ``ingest`` (parked rows and corrections) or ``registrar``.
        times: The capabilities that hold the time open, in the channel's domain.
        shown: The same as text.
        since: When its capabilities last changed.
        culprit: Whether nothing that is known upstream of it holds the time. So the wait ends here. The registrar is none where
            a partition of an ingest holds the time too: it goes on with the partitions.
        what: What is known about it, in words.
        release: What would release the time, in words.
        session: The session that has the producer open, as text.
        gone: Whether the process of that session is gone; ``None`` if that is not known from here.
        behind: For a query, what it has not read of each of its inputs.
        reads: The paths of its inputs, or the ids of those whose paths are not known; ``None`` if it is not known what it reads.
        way: From this channel to the one that was asked for: paths of channels and names of the producers between them.
        sure: Whether it is known that it holds the time. If not, a step on the way has an effect on times that is not known, and
            it holds the least times of its channel.
        query: The name that the user gave the query, or the ingest that a partition belongs to; ``None`` if it is not known.
        cause: What is gone that has to go on, if several wait for it: ``query: ``, with the id of an ingest, or ``process: ``.
        alike: The names of all who hold the time in this channel for the same cause, its own too; also those that are not listed.
    """

    channel: str
    name: str
    kind: str
    times: tuple[Time, ...]
    shown: tuple[str, ...]
    since: Since | None
    culprit: bool
    what: str
    release: str
    session: str | None = None
    gone: bool | None = None
    behind: tuple[Behind, ...] = ()
    reads: tuple[str, ...] | None = None
    way: tuple[str, ...] = ()
    sure: bool = True
    query: str | None = None
    cause: str | None = None
    alike: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        since = self.since
        return {
            "channel": self.channel,
            "name": self.name,
            "kind": self.kind,
            "holds": list(self.shown),
            "since": None
            if since is None
            else {"version": since.version, "time": moment(since.ms), "ms": since.ms, "exact": since.exact},
            "culprit": self.culprit,
            "what": self.what,
            "release": self.release,
            "session": self.session,
            "gone": self.gone,
            "behind": [each.to_json() for each in self.behind],
            "reads": None if self.reads is None else list(self.reads),
            "way": list(self.way),
            "sure": self.sure,
            "query": self.query,
            "cause": self.cause,
            "alike": len(self.alike) or 1,
        }

    @property
    def corrects(self) -> bool:
        """Whether this is the right of an ingest to readmit late rows. Nobody waits for it, and it has no end of its own."""
        return self.kind == "ingest" and self.name == CORRECTIONS

    @property
    def last(self) -> int:
        """Where it comes among those who hold a time: the registrar after the others, corrections after that."""
        return 2 if self.corrects else int(self.kind == "registrar")

    @property
    def subject(self) -> str:
        """The holder as the subject of a sentence."""
        if self.kind == "registrar":
            return f"the registrar of {self.channel} (producers may still join)"
        if self.kind == "loop":
            return f"query {self.called} of a loop in {self.channel}"
        return f"{self.kind} {self.called} of {self.channel}"

    @property
    def called(self) -> str:
        """Its name, and that which the user gave the query, if that is another one."""
        return called(self.query, self.name) if self.kind in ("query", "loop", "producer") else self.name

    @property
    def since_text(self) -> str:
        """When its capabilities last changed, in words."""
        if self.since is None:
            return "unknown"
        at = f"version {self.since.version}" + (f", {moment(self.since.ms)}" if self.since.ms else "")
        return at if self.since.exact else f"{at} or earlier"


def called(name: str | None, id_: str) -> str:
    """Return a query's name with its id, as people look for it; the id, if it has no name.

    >>> called("hours", "query-da91"), called(None, "query-da91"), called("hours", "hours")
    ('hours (query-da91)', 'query-da91', 'hours')
    """
    return id_ if name in (None, "", id_) else f"{name} ({id_})"


def moment(ms: int) -> str:
    """Return a moment, in milliseconds since 1970, as text.

    >>> moment(1_357_106_400_000), moment(1 << 62)
    ('2013-01-02T06:00:00Z', '4611686018427387904 ms')
    """
    try:
        return datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
