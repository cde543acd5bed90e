"""Feedback: the channels that a query both writes and reads, and what a way around the loop does to times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain
from strandline.time.entry import Entry
from strandline.time.summary import PathSummary

__all__ = ["Feedback", "reachable"]


@dataclass(frozen=True)
class Feedback:
    """A channel that closes a loop: the query reads it, and writes it at times that have advanced.

    Attributes:
        entry: How the channel's times enter the loop.
        by: For each coordinate of the channel's times that advances on the way around, by how much.

    >>> from strandline.time.domain import product
    >>> domain = product(epoch="int64", iter="int64")
    >>> Feedback(Entry(domain, domain), {"iter": 1}).summary.results_in((7, 2))
    (7, 3)
    """

    entry: Entry
    by: Mapping[str, int]

    @property
    def summary(self) -> PathSummary:
        """What a way around the loop does to a time inside it."""
        return self.entry.feedback(self.by)


def reachable(domain: TimeDomain, times: Iterable[Time], summaries: Sequence[PathSummary]) -> Antichain:
    """Return the frontier of what pointstamps at ``times`` may still cause, on any number of ways around the loop.

    It is the least fixed point of reachability in a graph of one node, whose feedback edges have these summaries. It ends,
    because every summary strictly advances times in the order of their coordinates, and an antichain of such times is finite
    (Dickson's lemma).

    Args:
        domain: The domain of the times inside the loop.
        times: The times of the pointstamps.
        summaries: For each feedback channel, what a way around does to a time.

    >>> from strandline.time.domain import product
    >>> domain = product(epoch="int64", i="int64", j="int64")
    >>> outer = Entry(product(epoch="int64", i="int64"), domain).feedback({"i": 1})
    >>> list(reachable(domain, [(7, 2, 5)], [outer]))
    [(7, 2, 5), (7, 3, 0)]
    """
    frontier = Antichain(domain)
    left = list(times)
    while left:
        time = left.pop()
        if frontier.insert(time):
            left += [result for summary in summaries if (result := summary.results_in(time)) is not None]
    return frontier
