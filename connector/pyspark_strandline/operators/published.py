"""What the shim publishes of a batch, in the local property ``strandline.output`` (docs/protocol.md): read by the sink."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark_strandline.errors import extension_missing_for_frontier
from pyspark_strandline.operators import errors
from pyspark_strandline.operators.loop_times import Feedback, LoopTimes, feedback_from_json
from strandline.channel.batch.table_reads import TableRead
from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.inputs import Input
from strandline.delta.storage import location_of
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain, parse_domain
from strandline.time.path.steps import Steps

__all__ = ["PublishedOutput"]

_NOT_STATED = ("channels", "graph")
"""What the offset has beside that, for the tasks and the sink."""


@dataclass(frozen=True)
class PublishedOutput:
    """What is published of a batch.

    Attributes:
        frontiers: By the name of an output, its frontier after the batch. The only output of a query has the empty name.
        summaries: By name, the steps from the times that the query reads to those of the output, as JSON.
        positions: How far the query has read each of its inputs after the batch, as JSON: see :meth:`inputs`.
        tables: The tables that the batch has read beside its streams, each at a version.
        has_roundings: Whether a repeated batch may have other roundings, or lists in another order.
        checkpoint: The path of the query's checkpoint; ``None`` if it is not known.
        reads: The ids of the channels that the query reads.
        feedback: By name, the channels of its loop that it writes.
        loop: What the offset has for the other queries of its loop; ``None`` if there are none.
        other_sources: How many of its sources are no channels. Like the next two, it is known in a query's first batch.
        running: The ids of the queries that run in the driver; ``None`` if they are not known.
        state: What its operators keep: ``none``, ``rows`` or ``batches``.
    """

    frontiers: Mapping[str, Antichain]
    summaries: Mapping[str, Any] = field(default_factory=dict)
    positions: Sequence[Mapping[str, Any]] = ()
    tables: tuple[TableRead, ...] = ()
    has_roundings: bool = False
    checkpoint: str | None = None
    reads: frozenset[str] = frozenset()
    feedback: Mapping[str, Feedback] = field(default_factory=dict)
    loop: Mapping[str, Any] | None = None
    other_sources: int = 0
    running: frozenset[str] | None = None
    state: str = "batches"

    @classmethod
    def parse(cls, text: str, domains: Mapping[str, TimeDomain]) -> PublishedOutput:
        """Read the text of the local property ``strandline.output``.

        Args:
            text: The text.
            domains: By the name of an output, the domain of its time column.

        Raises:
            StrandlineError: The session has no extension, or the frontier of an output is unknown; the error says why.

        >>> from strandline.time.domain import int64
        >>> parsed = PublishedOutput.parse('{"domain": "int64", "start": [3], "end": [4], "rounding": true}', {"": int64})
        >>> parsed.frontiers[""].to_json(), parsed.has_roundings
        ([4], True)
        """
        if not text:
            raise extension_missing_for_frontier()
        body: Mapping[str, Any] = json.loads(text)
        outputs = {name: body.get("outputs", {}).get(name, body) if name else body for name in domains}
        running = body.get("running")
        return cls(
            {name: _frontier(outputs[name], domain, name) for name, domain in domains.items()},
            {name: each.get("summary") for name, each in outputs.items()},
            body.get("positions", ()),
            tuple(TableRead(each["table"], each["version"], _shown(each["path"])) for each in body.get("tables", ())),
            body.get("rounding") is True,
            body.get("checkpoint"),
            frozenset(body.get("reads", ())),
            feedback_from_json(body.get("feedback", {})),
            body.get("loop"),
            body.get("otherSources", 0),
            None if running is None else frozenset(running),
            body.get("state", "batches"),
        )

    @property
    def read_in_loop(self) -> frozenset[str]:
        """The ids of the channels that the query or another query of its loop reads."""
        return self.reads if self.loop is None else self.reads.union(self.loop.get("channels", ()))

    @property
    def stated_to_loop(self) -> dict[str, Any] | None:
        """What the query states to the other queries of its loop; ``None`` if there are none."""
        if self.loop is None:
            return None
        return {key: value for key, value in self.loop.items() if key not in _NOT_STATED}

    @property
    def loop_times(self) -> LoopTimes | None:
        """The loop that the query is part of; ``None`` if there is none."""
        return LoopTimes(self.feedback, self.loop) if self.feedback else None

    def inputs(self, name: str) -> tuple[Input, ...]:
        """Return how far the query has read each of its inputs after the batch, for the statement of an output's commit.

        A path with a password in its address is left out, because the log would show it.

        >>> position = {"table": "7c1f", "commit": 3, "file": 0, "path": "s3://key:secret@lake/a"}
        >>> [(each.table, each.commit, each.path) for each in PublishedOutput({}, positions=[position]).inputs("")]
        [('7c1f', 3, None)]
        """
        summary = self.summaries.get(name)
        return tuple(_input(each, summary if isinstance(summary, list) else None) for each in self.positions)


def _frontier(body: Mapping[str, Any], domain: TimeDomain, name: str) -> Antichain:
    if "error" in body:
        raise errors.output_frontier_unknown(name, body["error"])
    if "domain" not in body:
        raise errors.output_frontier_unknown_unpublished(name)
    if parse_domain(body["domain"]) != domain:
        raise errors.time_domain_mismatch(body["domain"], domain)
    return Antichain.from_json(domain, body["end"], "output frontier")


def _input(each: Mapping[str, Any], summary: list[Any] | None) -> Input:
    snapshot, began, name = each.get("snapshot"), Beginning.from_json(each.get("began")), each.get("input")
    if snapshot is not None and snapshot < 0:
        snapshot = None  # the first snapshot was not chosen yet
    if began is not None and each.get("lossy"):
        began = began._replace(lossy=True)  # the batch is repeated with another option than it was planned with
    steps = None if summary is None else tuple(Steps.from_json(summary).from_input(name).to_json())
    domain, after = (known if isinstance(known := each.get(key), str) else None for key in ("domain", "after"))
    path = _shown(each["path"]) if "path" in each else None
    return Input(each["table"], each["commit"], each["file"], path, steps, domain, after, snapshot, began, name)


def _shown(path: str) -> str | None:
    """Return the location of a path, without a password."""
    with suppress(StrandlineError):
        return location_of(path)
    return None
