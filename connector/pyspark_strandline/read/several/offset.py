"""Offsets of a source of several channels as JSON (docs/protocol.md). Spark logs them before a batch runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pyspark_strandline.read import errors
from pyspark_strandline.read.offset import Offset
from pyspark_strandline.read.several.cut import Cut, LoopPosition
from pyspark_strandline.read.several.inputs import Inputs
from strandline.errors import StrandlineError
from strandline.loop import Entered, LoopGraph, QueryState, Rounds, Waiting
from strandline.time.antichain import Antichain

__all__ = ["SeveralOffsets", "checksum"]

_VERSION = 3
_MOVING = ("frontier", "upcoming", "waiting")
"""What the feedback of an offset has beside what stays."""
_LOOP_VERSION = 2
"""The version of an offset with pending times. An extension that does not know loops would not refuse operators in them."""


class SeveralOffsets:
    """Writes and reads the offsets of a source of several channels, also in a loop.

    Args:
        inputs: The channels.
    """

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def frontier(self, positions: Mapping[str, Offset]) -> Antichain:
        """Return the frontier of all channels together, at positions from which nothing has been taken into a loop."""
        if self._inputs.graph is not None:
            return Antichain.least(self._inputs.domain)
        return self._inputs.frontier({name: position.frontier for name, position in positions.items()})

    # ---- writing -------------------------------------------------------------------------------------------------------------

    def to_json(self, cut: Cut) -> dict[str, object]:
        """Return the JSON object. Its keys are always in the same order, because Spark compares offsets as text."""
        inputs, graph = self._inputs, self._inputs.graph
        result: dict[str, object] = {
            "strandline": _VERSION if graph is None else _LOOP_VERSION,
            "domain": str(inputs.domain),
            "frontier": cut.frontier.to_json(),
            **({"inputs": self._inputs_to_json(cut.positions)} if graph is None else {}),
            "channels": {name: position.to_json() for name, position in cut.positions.items()},
            "first": cut.first,
        }
        if graph is not None and cut.loop is not None:
            result |= self._loop_to_json(cut, graph, cut.loop)
            result["checksum"] = checksum(result)  # the log does not state what else is in the offset of a loop
        return result

    def _inputs_to_json(self, positions: Mapping[str, Offset]) -> dict[str, object]:
        """Return the frontier of each channel, in the domain that its times enter."""
        entries = self._inputs.entries
        return {name: entries[name].antichain(position.frontier).to_json() for name, position in positions.items()}

    def _loop_to_json(self, cut: Cut, graph: LoopGraph, loop: LoopPosition) -> dict[str, object]:
        inputs = self._inputs
        outside = Antichain(inputs.domain, inputs.outside({name: each.frontier for name, each in cut.positions.items()}))
        feedback = inputs.feedback_to_json()
        for name, waiting in loop.waiting.items():  # for the state of the link, to which the batch may add rows
            if name in feedback:
                feedback[name]["waiting"] = waiting.rows
        for name in inputs.restamps:  # for the batch's tasks, which give the rows of the link new times
            feedback[name] |= {"frontier": cut.frontier.to_json(), "upcoming": outside.to_json()}
        result: dict[str, object] = {
            "feedback": feedback,
            "pending": loop.rounds.to_json(),
            "rows": loop.rows,
            "outside": loop.outside_rows,
            "begun": loop.has_begun,
        }
        if loop.entered.times:
            result["entered"] = loop.entered.to_json(inputs.domain)
        if any(waiting.times for waiting in loop.waiting.values()):
            result["waiting"] = {name: each.to_json(inputs.domain) for name, each in loop.waiting.items() if each.times}
        if inputs.form is not None:
            result["form"] = inputs.form
        if not inputs.has_others:
            return {**result, "writer": next(iter(loop.writers.values()), None)}
        state = QueryState(outside, loop.consumed, loop.rounds.held(graph, inputs.query)).to_json()
        channels = [channel.table_id for channel in inputs.all.values()]
        beside = {"channels": channels, "graph": graph.to_json()}  # for the batch's tasks and sink: it is not stated
        result["writers"] = dict(loop.writers)
        result["loop"] = {"query": inputs.query, "definition": inputs.definition, **state, **beside}
        return result

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def from_json(self, value: object) -> Cut:
        """Read an offset.

        Raises:
            StrandlineError: ``STRANDLINE_CHECKPOINT_MISMATCH`` if the checkpoint has other channels;
                ``STRANDLINE_OFFSET_VERSION``; ``STRANDLINE_OFFSET_INVALID`` if it is damaged.
        """
        if not isinstance(value, dict):
            raise errors.offset_invalid_several(value, "it is not a JSON object")
        inputs = self._inputs
        version = _VERSION if inputs.graph is None else _LOOP_VERSION
        if value.get("strandline") != version and _static(value.get("feedback", {})) == inputs.feedback_to_json():
            raise errors.offset_version(value, version)
        each, first = value.get("channels"), value.get("first")
        if not isinstance(each, dict) or any(not isinstance(position, dict) for position in each.values()):
            raise errors.offset_invalid_several(value, "it has no position for each channel")
        if type(first) is not int or not 0 <= first < max(1, len(each)):
            raise errors.offset_invalid_several(value, "first must be the number of a channel")
        self._check_same_source(value, each)
        positions = {
            name: Offset.from_json(each[name], channel.table_id, channel.domain, channel.path)
            for name, channel in inputs.channels.items()
        }
        if inputs.graph is not None:
            return self._in_loop(value, positions, first, inputs.graph)
        together = self.frontier(positions)
        if value.get("frontier") != together.to_json():
            raise errors.offset_invalid_several(value, "its frontier must be that of its channels together")
        if value.get("inputs") != self._inputs_to_json(positions):
            raise errors.offset_invalid_several(value, "its inputs must have the frontiers of its channels")
        return Cut(positions, together, first)

    def _check_same_source(self, value: Mapping[str, object], each: Mapping[str, object]) -> None:
        """Raise if the offset is one of other channels, of another loop, or of another form."""
        inputs = self._inputs
        if list(each) != list(inputs.channels):
            raise errors.checkpoint_mismatch_channels(each, inputs.channels)
        for what, had, has in (
            ("times of", value.get("domain"), str(inputs.domain)),
            ("the feedback", _static(value.get("feedback", {})), inputs.feedback_to_json()),
            ("the form", value.get("form"), inputs.form),
        ):
            if had != has:
                raise errors.checkpoint_mismatch_source(what, had, has)

    def _in_loop(self, value: Mapping[str, object], positions: Mapping[str, Offset], first: int, graph: LoopGraph) -> Cut:
        inputs = self._inputs
        if value.get("checksum") != checksum(value):
            raise errors.offset_invalid_several(value, "its checksum is not that of its other fields")
        rows, outside, begun = value.get("rows"), value.get("outside"), value.get("begun")
        if type(rows) is not int or rows < 0 or type(outside) is not int or outside < 0:
            raise errors.offset_invalid_several(value, "rows and outside must be whole numbers of 0 or more")
        stated = self._same_loop(value, graph)
        try:
            rounds = Rounds.from_json(Antichain.from_json(inputs.domain, value.get("frontier")), value.get("pending"))
            entered = Entered.from_json(inputs.domain, value.get("entered", []))
            waits = value.get("waiting", {})
            if not isinstance(waits, dict) or any(name not in inputs.rounds_come_by for name in waits):
                raise ValueError("waiting must have times for channels of the loop")
            waiting = {name: Waiting.from_json(inputs.domain, each) for name, each in waits.items()}
        except (ValueError, StrandlineError) as error:
            raise errors.offset_invalid_several(value, str(error)) from error
        if not all(rounds.frontier.less_equal(time) for time in inputs.outside({n: p.frontier for n, p in positions.items()})):
            raise errors.offset_invalid_several(value, "its frontier must not be ahead of a channel's")
        if type(begun) is not bool:
            raise errors.offset_invalid_several(value, "begun must be true or false")
        if stated is None:
            writer = value.get("writer")
            writers: Mapping[str, str] = dict.fromkeys(inputs.rounds_come_by, writer) if isinstance(writer, str) else {}
            consumed: Mapping[str, int] = dict.fromkeys(inputs.rounds_come_by, 0)
        else:
            named = value.get("writers")
            if not isinstance(named, dict):
                raise errors.offset_invalid_several(value, "it has no writers of the loop's channels")
            writers = named
            try:
                consumed = QueryState.from_json(graph, inputs.query, stated).consumed
            except (ValueError, StrandlineError) as error:
                raise errors.offset_invalid_several(value, str(error)) from error
        loop = LoopPosition(rounds, rows, outside, writers, consumed, begun, entered, waiting)
        return Cut(positions, rounds.frontier, first, loop)

    def _same_loop(self, value: Mapping[str, object], graph: LoopGraph) -> Mapping[str, object] | None:
        """Return what the query states to others; ``None`` without others. Raises if the loop had another definition then."""
        inputs = self._inputs
        if ("loop" in value) != inputs.has_others:
            raise errors.checkpoint_mismatch_loop(graph.queries, had_several="loop" in value)
        if not inputs.has_others:
            return None
        stated = value.get("loop")
        if not isinstance(stated, dict):
            raise errors.offset_invalid_several(value, "it has no state of its query in the loop")
        query, definition = stated.get("query"), stated.get("definition")
        if (query, definition) != (inputs.query, inputs.definition):
            raise errors.checkpoint_mismatch_query(query, definition, inputs.query, inputs.definition)
        return stated


def _static(feedback: Any) -> Any:
    """Return the feedback without what changes from batch to batch."""
    if not isinstance(feedback, dict) or not all(isinstance(each, dict) for each in feedback.values()):
        return feedback
    return {name: {k: v for k, v in each.items() if k not in _MOVING} for name, each in feedback.items()}


def checksum(value: Mapping[str, object]) -> str:
    """Return the checksum of all other fields of a loop's offset (docs/protocol.md)."""
    others = {name: field for name, field in value.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(others, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
