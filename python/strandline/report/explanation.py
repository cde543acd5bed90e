"""The answer to "why is this time not closed?": who holds it open, upstream to the end, in words, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from strandline.errors import printable
from strandline.report.ailments import Ailment, Holder, ailments
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

__all__ = ["Explanation"]


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

    @property
    def ailments(self) -> list[Ailment]:
        """The culprits, those with one cause as one."""
        return ailments(self.culprits)

    @property
    def more(self) -> int:
        """How many hold the time open and are neither listed nor counted in an ailment."""
        return self.hidden - sum(each.count - each.listed for each in self.ailments)

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
        for each in self.ailments:
            yield f"It {'waits' if each.first.sure else 'may wait'} for {each.holds}."
            yield f"  What is known: {each.what}."
            yield f"  What would release it: {each.release}."
            if len(each.first.way) > 1:
                yield f"  The way: {' → '.join(each.first.way)}."
        waiting = [holder for holder in self.holders if not holder.culprit and holder.kind != "registrar"]
        if waiting:
            subjects = (holder.subject + (" (its process is gone)" if holder.gone else "") for holder in waiting)
            yield f"These wait in between: {', '.join(dict.fromkeys(subjects))}."
        if self.more:
            yield f"{self.more} more hold the time open and are not listed."
        yield from (f"Note: {note}." for note in self.notes)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table: for each holder its channel, name, kind, capabilities, since when, and what is behind it."""
        return [
            (
                holder.channel,
                holder.called,
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


def _line(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
