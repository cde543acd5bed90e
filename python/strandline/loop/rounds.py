"""The pointstamps of a loop that Spark runs batch by batch, and the frontier of each batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.errors import StrandlineError
from strandline.loop.feedback import reachable
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain
from strandline.time.summary import PathSummary

__all__ = ["Rounds", "Taken"]


@dataclass(frozen=True, order=True)
class Taken:
    """Times of rows that a batch has taken in: one time, or all times between two.

    Attributes:
        low: A time that is ≤ the time of every such row.
        high: A time that is ≥ the time of every such row.
    """

    low: Time
    high: Time


@dataclass(frozen=True)
class Rounds:
    """What may still come round a loop after a batch, and the frontier at which the batch's operators close times.

    A query runs the loop: it reads all of its channels at one cut, and writes the feedback channels. Three kinds of pointstamps
    may still cause rows inside the loop:

    - capabilities of outside producers, as the frontiers of the other channels;
    - rows of a feedback channel that the query has not taken in yet;
    - times that the query has taken in and has not closed, because an operator may still emit what it keeps at such a time.

    A time that this batch's START frontier had closed was emitted in an earlier batch, and is among the rows of a feedback
    channel now. So only the others count. When no row comes round any more, no time is left, and the frontier is that
    of the outside.

    Source: the progress protocol of Naiad and timely. ``tests/strandline/loop`` compares it with simulated loops.

    Attributes:
        frontier: The frontier of all that may come, inside the loop.
        pending: The times taken in that count, sorted.

    >>> from strandline.time.domain import product
    >>> from strandline.time.entry import Entry
    >>> domain = product(epoch="int64", iter="int64")
    >>> step = Entry(domain, domain).feedback({"iter": 1})
    >>> begin = Rounds(Antichain.least(domain))
    >>> first = begin.after([step], [Taken((0, 0), (0, 0))], outside=[(1, 0)], waiting=[])
    >>> list(first.frontier)
    [(0, 1), (1, 0)]
    >>> list(first.after([step], [], outside=[(1, 0)], waiting=[]).frontier)
    [(1, 0)]
    """

    frontier: Antichain
    pending: tuple[Taken, ...] = field(default=())

    @property
    def domain(self) -> TimeDomain:
        """The domain of the times inside the loop."""
        return self.frontier.domain

    def after(
        self, summaries: Sequence[PathSummary], taken: Iterable[Taken], outside: Iterable[Time], waiting: Iterable[Time]
    ) -> Rounds:
        """Return the rounds after the next batch.

        Args:
            summaries: For each feedback channel, what a way around the loop does to a time.
            taken: The times of the rows that the batch takes in, of all channels.
            outside: The frontiers of the channels that are no feedback, at the end of the batch.
            waiting: The times of rows of the feedback channels that the batch does not take in.

        Raises:
            StrandlineError: ``STRANDLINE_LOOP_TIMES_UNKNOWN`` if rows with too many different times come round: what they cause
                cannot be told from what they wait for.
        """
        # Times count alike if they lead to the same times on every way that is open: one of them is enough.
        alike: dict[tuple[Any, ...], Taken] = {}
        for one in sorted({*self.pending, *taken}):
            ways = [(i, s.results_in(one.low), s.results_in(one.high)) for i, s in enumerate(summaries) if self._is_open(s, one)]
            if ways:
                alike[tuple(ways)] = one
        pending = tuple(sorted(alike.values()))
        caused = []
        for open_ways, one in alike.items():
            for _, result, _ in open_ways:
                if result is not None:
                    if one.low != one.high and self.domain.less_equal(result, one.high):
                        raise StrandlineError(
                            "STRANDLINE_LOOP_TIMES_UNKNOWN",
                            f"A commit of the loop states its times only as the range from {self.domain.format(one.low)} to "
                            f"{self.domain.format(one.high)}, because it has too many different times. A way around the loop "
                            "leads from the first one to a time within the range.",
                            "Write fewer times into one commit, or truncate them. If the commit is there already, copy the "
                            "channel by a query with truncate, and let the loop read the copy.",
                        )
                    caused.append(result)
        return Rounds(reachable(self.domain, [*outside, *waiting, *caused], summaries), pending)

    def _is_open(self, summary: PathSummary, one: Taken) -> bool:
        """Whether an operator may still keep something of these times: on the way around, the frontier has not closed them."""
        result = summary.results_in(one.high)
        if result is None:  # nothing at the greatest time comes round, but the times before it may
            return summary.results_in(one.low) is not None and self.frontier.less_equal(one.high)
        return any(
            (least := summary.results_in(time)) is not None and self.domain.less_equal(least, result) for time in self.frontier
        )

    def to_json(self) -> list[Any]:
        """Return the pending times as JSON."""
        text = self.domain.to_json
        return [[text(one.low)] if one.low == one.high else [text(one.low), text(one.high)] for one in self.pending]

    @classmethod
    def from_json(cls, frontier: Antichain, value: Any) -> Rounds:
        """Read the output of :meth:`to_json`.

        Raises :class:`ValueError` or :class:`~strandline.errors.TimeError` if it is damaged.
        """
        if not isinstance(value, list) or any(not isinstance(each, list) or len(each) not in (1, 2) for each in value):
            raise ValueError("pending is not a list of times and ranges")
        read = frontier.domain.from_json
        pending = []
        for each in value:
            low, high = read(each[0], "pending"), read(each[-1], "pending")
            if not frontier.domain.less_equal(low, high):
                raise ValueError("a range in pending ends before it begins")
            pending.append(Taken(low, high))
        return cls(frontier, tuple(sorted(pending)))
