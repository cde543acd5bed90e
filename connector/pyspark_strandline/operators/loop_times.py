"""What a task of a loop knows about times: from which of them a way around leads on."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from pyspark import TaskContext

from pyspark_strandline.operators.summary_steps import image
from strandline.errors import StrandlineError
from strandline.loop import LoopGraph
from strandline.time.domain import Time, TimeDomain

__all__ = ["LoopTimes"]

_PUBLISHED = "strandline.output"


class LoopTimes:
    """The ways around the loop that the query is part of. In a loop an operator may emit only at times that it has taken in.

    Args:
        published: The object in the local property ``strandline.output`` (docs/protocol.md).
    """

    def __init__(self, published: dict[str, Any]) -> None:
        self._feedback: dict[str, dict[str, Any]] = published["feedback"]
        self._loop: dict[str, Any] = published.get("loop", {})

    @classmethod
    def here(cls) -> LoopTimes | None:
        """Return the loop of the query that runs this task; ``None`` if it has none."""
        context = TaskContext.get()
        return cls.of(None if context is None else context.getLocalProperty(_PUBLISHED))

    @classmethod
    def of(cls, published: str | None) -> LoopTimes | None:
        """Return the loop that the text of the property describes; ``None`` if there is none."""
        body = json.loads(published) if published and '"feedback"' in published else {}
        return cls(body) if body.get("feedback") else None

    @property
    def has_others(self) -> bool:
        """Whether the loop goes through other queries too."""
        return bool(self._loop)

    @cached_property
    def _graph(self) -> LoopGraph | None:
        """The loop's queries, if there are several. Offsets of earlier releases do not have them."""
        return LoopGraph.from_json(self._loop["graph"]) if "graph" in self._loop else None

    def is_last(self, domain: TimeDomain, time: Time) -> bool:
        """Whether no way around leads on from a time of the query, so that what is emitted there cannot come round."""
        if self._graph is not None:
            return domain == self._graph.domain and self._graph.is_last(self._loop["query"], time)
        try:
            return all(image(domain, each["summary"], time) is None for each in self._feedback.values())
        except StrandlineError:  # a time that has left the loop's coordinates
            return False

    def is_last_in(self, table: str, time: Time) -> bool:
        """Whether no way around leads on from a row at a time of a channel that the query writes, given by its table's id.

        In a loop of one query such a row has no time in the channel at all.
        """
        names = [name for name, each in self._feedback.items() if each["channel"] == table]
        return bool(names) and self._graph is not None and self._graph.is_last_in(names[0], self._loop["query"], time)
