"""The answer to "why is this time not closed?": who holds it open, upstream to the end, in words, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from strandline.errors import printable
from strandline.report.history import Since
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

__all__ = ["Behind", "Explanation", "Holder", "moment"]


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
        culprit: Whether nothing that is known upstream of it holds the time. So the wait ends here.
        what: What is known about it, in words.
        release: What would release the time, in words.
        session: The session that has the producer open, as text.
        gone: Whether the process of that session is gone; ``None`` if that is not known from here.
        behind: For a query, what it has not read of each of its inputs.
        reads: The paths of its inputs, or the ids of those whose paths are not known; ``None`` if it is not known what it reads.
        way: From this channel to the one that was asked for: paths of channels and names of the producers between them.
        sure: Whether it is known that it holds the time. If not, a step on the way has an effect on times that is not known, and
            it holds the least times of its channel.
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
        }

    @property
    def subject(self) -> str:
        """The holder as the subject of a sentence."""
        if self.kind == "registrar":
            return f"the registrar of {self.channel} (producers may still join)"
        return f"{'query of a loop' if self.kind == 'loop' else self.kind} {self.name} of {self.channel}"

    @property
    def since_text(self) -> str:
        """When its capabilities last changed, in words."""
        if self.since is None:
            return "unknown"
        at = f"version {self.since.version}" + (f", {moment(self.since.ms)}" if self.since.ms else "")
        return at if self.since.exact else f"{at} or earlier"


@dataclass(frozen=True)
class Explanation:
    """Why a time of a channel is open, or that it is closed. Printed, it says so in words, with a table after them.

    Attributes:
        path: The channel.
        version: Its version.
        domain: The domain of its times.
        time: The time that was asked for.
        frontier: The channel's frontier.
        holders: Who holds the time open, the channel's own producers first, then those upstream.
        hidden: How many more there are that are not listed.
        notes: What could not be found out.
    """

    path: str
    version: int
    domain: TimeDomain
    time: Time
    frontier: Antichain
    holders: tuple[Holder, ...] = ()
    hidden: int = 0
    notes: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """Whether the time is open."""
        return not self.frontier.closed(self.time)

    @property
    def culprits(self) -> tuple[Holder, ...]:
        """The holders at which the wait ends: nothing that is known upstream of them holds the time."""
        return tuple(holder for holder in self.holders if holder.culprit)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "channel": self.path,
            "version": self.version,
            "domain": str(self.domain),
            "time": self.domain.format(self.time),
            "open": self.open,
            "frontier": [self.domain.format(time) for time in self.frontier],
            "holders": [holder.to_json() for holder in self.holders],
            "hidden": self.hidden,
            "notes": list(self.notes),
        }

    def words(self) -> Iterator[str]:
        """Yield the answer in sentences, a line each."""
        time = self.domain.format(self.time)
        if not self.open:
            yield f"{time} is closed in {self.path}, whose frontier is {self.frontier.format()}."
            return
        yield f"{time} is open in {self.path}, whose frontier is {self.frontier.format()}."
        for holder in self.culprits:
            waits = "waits" if holder.sure else "may wait"
            yield f"It {waits} for {holder.subject}, which holds {', '.join(holder.shown)} since {holder.since_text}."
            yield f"  What is known: {holder.what}."
            yield f"  What would release it: {holder.release}."
            if len(holder.way) > 1:
                yield f"  The way: {' → '.join(holder.way)}."
        waiting = [holder for holder in self.holders if not holder.culprit]
        if waiting:
            subjects = (holder.subject + (" (its process is gone)" if holder.gone else "") for holder in waiting)
            yield f"In between wait: {', '.join(dict.fromkeys(subjects))}."
        if self.hidden:
            yield f"{self.hidden} more hold the time open and are not listed."
        yield from (f"Note: {note}." for note in self.notes)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table: for each holder its channel, name, kind, capabilities, since when, and what is behind it."""
        return [
            (
                holder.channel,
                holder.name,
                holder.kind + (" ←" if holder.culprit else ""),
                ", ".join(holder.shown),
                holder.since_text,
                "; ".join(map(str, holder.behind)) or "-",
            )
            for holder in self.holders
        ]

    def __str__(self) -> str:
        lines = list(self.words())
        if self.holders:
            table = [("channel", "who", "kind", "holds", "since", "not read yet"), *self.rows()]
            shown = [tuple(_line(cell) for cell in row) for row in table]
            widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
            lines += ["", *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)]
        return "\n".join(_line(line).rstrip() for line in lines)


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


def _line(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
