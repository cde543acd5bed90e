"""Vertex programs over a graph that grows: components, distances, PageRank."""

from __future__ import annotations

from typing import Any

from pyspark_strandline import VertexProgram

__all__ = ["Components", "Distances", "PageRank"]


class Components(VertexProgram):
    """Connected components. The label of a vertex is the least name in its component."""

    state_schema = "label string, neighbours array<string>"
    message_schema = "label string"
    schema = "label string"

    def compute(self, inputs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        known = self.state or {"label": self.vertex, "neighbours": []}
        new = sorted({row["other"] for row in inputs} - set(known["neighbours"]))
        label = min([known["label"], *(message["label"] for message in messages)])
        neighbours = known["neighbours"] + new
        for other in neighbours if label < known["label"] else new:
            self.send(other, label=label)
        self.state = {"label": label, "neighbours": neighbours}

    def result(self) -> dict[str, Any] | None:
        return None if self.state is None else {"label": self.state["label"]}


class Distances(VertexProgram):
    """The least number of edges from one vertex to each other one."""

    state_schema = "far bigint, neighbours array<string>"
    message_schema = "far bigint"
    schema = "far bigint"

    def __init__(self, start: str) -> None:
        self.start = start

    def compute(self, inputs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        known = self.state or {"far": 0 if self.vertex == self.start else None, "neighbours": []}
        new = sorted({row["other"] for row in inputs} - set(known["neighbours"]))
        neighbours = known["neighbours"] + new
        ways = [far for far in (known["far"], *(message["far"] for message in messages)) if far is not None]
        far = min(ways, default=None)
        if far is not None:
            for other in neighbours if far != known["far"] else new:
                self.send(other, far=far + 1)
        self.state = {"far": far, "neighbours": neighbours}

    def result(self) -> dict[str, Any] | None:
        return None if self.state is None or self.state["far"] is None else {"far": self.state["far"]}


class PageRank(VertexProgram):
    """PageRank to a tolerance, up to a factor that all ranks share: divide by their sum.

    A vertex tells its neighbours by how much its share has changed, once that is more than the tolerance. So when an edge comes,
    only the ranks around it are computed again.

    A vertex without an edge that leads on keeps its rank. The usual definition gives this rank to all vertices in equal parts.
    That makes every rank larger by one factor, which the division takes away. Without such vertices the ranks of n vertices add
    up to n.
    """

    state_schema = "came double, told double, neighbours array<string>"
    message_schema = "more double"
    schema = "rank double"

    def __init__(self, damping: float = 0.85, tolerance: float = 1e-6) -> None:
        self.damping, self.tolerance = damping, tolerance

    def compute(self, inputs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        known = self.state or {"came": 0.0, "told": 0.0, "neighbours": []}
        before = known["neighbours"]
        new = sorted({row["other"] for row in inputs} - set(before))
        came, told = known["came"] + sum(message["more"] for message in messages), known["told"]
        share = self._rank(came) / len(before + new) if before or new else 0.0
        if abs(share - told) > self.tolerance or new:
            for other in before:
                self.send(other, more=share - told)
            for other in new:
                self.send(other, more=share)
            told = share
        self.state = {"came": came, "told": told, "neighbours": before + new}

    def result(self) -> dict[str, Any] | None:
        return None if self.state is None else {"rank": self._rank(self.state["came"])}

    def _rank(self, came: float) -> float:
        return 1 - self.damping + self.damping * came
