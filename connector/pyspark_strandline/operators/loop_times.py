"""What a task of a loop knows about times: from which of them a way around leads on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from pyspark import TaskContext

from strandline.errors import StrandlineError
from strandline.loop import LoopGraph
from strandline.replay.clock import CLOCK
from strandline.replay.restamp import LinkStamps, Restamp
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain
from strandline.time.path.steps import Steps

__all__ = ["Feedback", "LoopTimes", "feedback_from_json"]

_PUBLISHED = "strandline.output"


class Feedback(NamedTuple):
    """A channel of the loop that the query writes.

    Attributes:
        channel: The id of the channel's table.
        summary: The declared steps from the times that the loop reads to the channel's.
        restamp: How its rows get the times at which they come round; ``None``: as the steps say.
        frontier: For such a channel, the frontier of the loop in the batch, as JSON.
        upcoming: And the frontier of what comes from outside.
        waiting: How many rows wait on it; ``None`` if that is not counted.
    """

    channel: str
    summary: Any
    restamp: Restamp | None = None
    frontier: Any = None
    upcoming: Any = None
    waiting: int | None = None

    def stated(self, written: int) -> dict[str, int]:
        """Return what the channel states of the link: its id in the new times, and how many rows wait.

        Args:
            written: How many rows the batch has written for it. They wait too.
        """
        node = {} if self.restamp is None else {"node": self.restamp.node}
        return node if self.waiting is None else {**node, "waiting": self.waiting + written}

    @property
    def antichain(self) -> Antichain:
        """The frontier of the loop in the batch."""
        return Antichain.from_json(CLOCK, self.frontier)

    def link(self, now: int, n: int) -> LinkStamps:
        """Return what the stamps of a batch begin with.

        Args:
            now: The receiving clock, in microseconds since 1970.
            n: The first number that the link has not given.
        """
        assert self.restamp is not None  # noqa: S101 - the caller has looked
        upcoming = Antichain.from_json(CLOCK, self.upcoming)
        return LinkStamps(self.restamp, next(iter(self.antichain), None), next(iter(upcoming), None), now, n)


def feedback_from_json(value: Mapping[str, Any]) -> dict[str, Feedback]:
    """Read the field ``feedback`` of a published object or of an offset (docs/protocol.md)."""
    return {name: _feedback(each) for name, each in value.items()}


def _feedback(each: Mapping[str, Any]) -> Feedback:
    how = each.get("restamp")
    restamp = None if how is None else Restamp(how["by"], how["node"], how["at"])
    return Feedback(each["channel"], each["summary"], restamp, each.get("frontier"), each.get("upcoming"), each.get("waiting"))


class LoopTimes:
    """The ways around the loop that the query is part of. In a loop an operator may emit only at times that it has taken in.

    Args:
        feedback: By name, the channels of the loop that the query writes.
        loop: What the query states to the other queries of the loop, with the loop's graph; ``None`` if there are none.
    """

    def __init__(self, feedback: Mapping[str, Feedback], loop: Mapping[str, Any] | None) -> None:
        self._feedback, self._loop = feedback, loop

    @classmethod
    def here(cls) -> LoopTimes | None:
        """Return the loop of the query that runs this task; ``None`` if it has none."""
        context = TaskContext.get()
        published = None if context is None else context.getLocalProperty(_PUBLISHED)
        return cls.from_json(json.loads(published)) if published and '"feedback"' in published else None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> LoopTimes | None:
        """Return the loop of a published object or of an offset (docs/protocol.md); ``None`` if there is none."""
        feedback = feedback_from_json(body.get("feedback", {}))
        return cls(feedback, body.get("loop")) if feedback else None

    @property
    def has_others(self) -> bool:
        """Whether the loop goes through other queries too."""
        return self._loop is not None

    @cached_property
    def _place(self) -> tuple[LoopGraph, str] | None:
        """The loop's queries, if there are several, and which of them this one is."""
        return None if self._loop is None else (LoopGraph.from_json(self._loop["graph"]), self._loop["query"])

    @cached_property
    def _feedback_steps(self) -> list[Steps]:
        return [Steps.from_json(each.summary) for each in self._feedback.values()]

    def is_last(self, domain: TimeDomain, time: Time) -> bool:
        """Whether no way around leads on from a time of the query, so that what is emitted there cannot come round."""
        if self._place is not None:
            graph, query = self._place
            return domain == graph.domain and graph.is_last(query, time)
        try:
            return all(steps.image(domain, time) is None for steps in self._feedback_steps)
        except StrandlineError:  # a time that has left the loop's coordinates
            return False

    def is_last_in(self, table: str, time: Time) -> bool:
        """Whether no way around leads on from a row at a time of a channel that the query writes, given by its table's id.

        In a loop of one query such a row has no time in the channel at all.
        """
        if self._place is None:
            return False
        graph, query = self._place
        return any(graph.is_last_in(name, query, time) for name, each in self._feedback.items() if each.channel == table)
