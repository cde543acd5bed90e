"""Offsets of a source of several channels: the position in each, and the frontier of all of them together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_strandline.read.offset import Offset
from pyspark_strandline.read.several.inputs import Inputs
from strandline.errors import StrandlineError
from strandline.loop import Entered, QueryState, Rounds
from strandline.time.antichain import Antichain

__all__ = ["SeveralOffset", "checksum"]

_VERSION = 1
_LOOP_VERSION = 2
"""The version of an offset with pending times. An extension that does not know loops would not refuse operators in them."""
_INPUTS_VERSION = 3
"""The version of an offset with inputs. A release that does not know them would go on by all channels together."""


@dataclass(frozen=True)
class SeveralOffset:
    """A position in each channel, by name. All of them together are a consistent cut.

    Attributes:
        positions: The position in each channel.
        rounds: The frontier of all channels together, in their common domain: a time is closed when every channel has closed it.
            In a loop, also the times that may still come round.
        first: The number of the channel that the next limited batch serves first.
        loop_rows: How many rows have come round without a pause.
        writers: For each channel of the loop that the query reads, the id of the query whose rows have come, once it is known.
            There is one for a loop's whole life.
        consumed: For each of these channels, the first version that the query has not taken in completely.
        has_begun: Whether a batch of the loop has been planned.
        entered: Where rows from outside have entered the loop, if these have the coordinates that count rounds.
        by_input: Whether each operator follows the frontiers of the channels that lead to it. A checkpoint of an earlier release
            goes on with the frontier of all channels together, and so does a loop.
        outside_rows: How many rows have come from outside since the last pause.
    """

    positions: Mapping[str, Offset]
    rounds: Rounds
    first: int = 0
    loop_rows: int = 0
    writers: Mapping[str, str] = field(default_factory=dict)
    consumed: Mapping[str, int] = field(default_factory=dict)
    has_begun: bool = True
    entered: Entered = field(default_factory=Entered)
    by_input: bool = True
    outside_rows: int = 0

    def to_json(self, inputs: Inputs) -> dict[str, Any]:
        """Return the JSON object. Its keys are always in the same order, because Spark compares offsets as text."""
        result: dict[str, Any] = {
            "strandline": _version(inputs, self.by_input),
            "domain": str(inputs.domain),
            "frontier": self.rounds.frontier.to_json(),
            **({"inputs": self._inputs_to_json(inputs)} if inputs.graph is None and self.by_input else {}),
            "channels": {name: position.to_json() for name, position in self.positions.items()},
            "first": self.first,
        }
        if inputs.graph is not None:
            result["feedback"] = inputs.feedback_to_json()
            result["pending"] = self.rounds.to_json()
            result["rows"] = self.loop_rows
            result["outside"] = self.outside_rows
            result["begun"] = self.has_begun
            if self.entered.times:
                result["entered"] = self.entered.to_json(inputs.domain)
            if inputs.form is not None:
                result["form"] = inputs.form
            if inputs.has_others:
                result["writers"] = dict(self.writers)
                result["loop"] = self._state_to_json(inputs)
            else:
                result["writer"] = next(iter(self.writers.values()), None)
            result["checksum"] = checksum(result)  # the log does not state what else is in the offset of a loop
        return result

    def _inputs_to_json(self, inputs: Inputs) -> dict[str, Any]:
        """Return the frontier of each channel, in the domain that its times enter."""
        return {name: inputs.entries[name].antichain(position.frontier).to_json() for name, position in self.positions.items()}

    def _state_to_json(self, inputs: Inputs) -> dict[str, Any]:
        """Return what the query states to the others of the loop when the batch is committed."""
        assert inputs.graph is not None  # noqa: S101 - there is a loop
        outside = inputs.outside({name: position.frontier for name, position in self.positions.items()})
        state = QueryState(
            Antichain(inputs.domain, outside), self.consumed, self.rounds.held(inputs.graph, inputs.query)
        ).to_json()
        channels = [channel.table_id for channel in inputs.all.values()]
        beside = {"channels": channels, "graph": inputs.graph.to_json()}  # for the batch's tasks and sink: it is not stated
        return {"query": inputs.query, "definition": inputs.definition, **state, **beside}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], inputs: Inputs) -> SeveralOffset:
        """Read an offset.

        Args:
            value: The JSON object.
            inputs: The source's channels.

        Raises:
            StrandlineError: ``STRANDLINE_CHECKPOINT_MISMATCH`` if the checkpoint has other channels;
                ``STRANDLINE_OFFSET_INVALID`` if it is damaged.

        """
        if not isinstance(value, dict):
            raise _invalid(value, "it is not a JSON object")
        version = _version(inputs, "inputs" in value)
        if value.get("strandline") != version and value.get("feedback", {}) == inputs.feedback_to_json():
            raise StrandlineError(
                "STRANDLINE_OFFSET_VERSION",
                f"The checkpoint's offset {str(value)[:200]} does not have version {version} of strandline's offsets.",
                "Use the strandline release that wrote the checkpoint, or a new checkpoint.",
            )
        each, first, rows = value.get("channels"), value.get("first"), value.get("rows", 0)
        outside: Any = value.get("outside", rows)  # releases before did not state it
        if not isinstance(each, dict) or any(not isinstance(position, dict) for position in each.values()):
            raise _invalid(value, "it has no position for each channel")
        if type(first) is not int or not 0 <= first < max(1, len(each)):
            raise _invalid(value, "first must be the number of a channel")
        if type(rows) is not int or rows < 0 or type(outside) is not int or outside < 0:
            raise _invalid(value, "rows and outside must be whole numbers of 0 or more")
        if list(each) != list(inputs.channels):
            raise StrandlineError(
                "STRANDLINE_CHECKPOINT_MISMATCH",
                f"The checkpoint has the channels {', '.join(each)}, but the query reads {', '.join(inputs.channels)}.",
                "Read the same channels, in the same order and by the same names, or use a new checkpoint.",
            )
        for what, had, has in (
            ("times of", value.get("domain"), str(inputs.domain)),
            ("the feedback", value.get("feedback", {}), inputs.feedback_to_json()),
            ("the form", value.get("form", inputs.form), inputs.form),  # releases before did not state it
        ):
            if had != has:
                raise StrandlineError(
                    "STRANDLINE_CHECKPOINT_MISMATCH",
                    f"The checkpoint has {what} {had}, but the query has {has}.",
                    "Read the channels as before, or use a new checkpoint.",
                )
        positions = {
            name: Offset.from_json(each[name], channel.table_id, channel.domain, channel.path)
            for name, channel in inputs.channels.items()
        }
        frontiers = {name: position.frontier for name, position in positions.items()}
        if inputs.graph is None:
            together = inputs.frontier(frontiers)
            if value.get("frontier") != together.to_json():
                raise _invalid(value, "its frontier must be that of its channels together")
            found = cls(positions, Rounds(together), first, by_input="inputs" in value)
            if found.by_input and value["inputs"] != found._inputs_to_json(inputs):
                raise _invalid(value, "its inputs must have the frontiers of its channels")
            return found
        if value.get("checksum") != checksum(value):
            raise _invalid(value, "its checksum is not that of its other fields")
        stated = _same_loop(value, inputs)
        try:
            rounds = Rounds.from_json(Antichain.from_json(inputs.domain, value.get("frontier")), value.get("pending"))
            entered = Entered.from_json(inputs.domain, value.get("entered", []))
        except (ValueError, StrandlineError) as error:
            raise _invalid(value, str(error)) from error
        if not all(rounds.frontier.less_equal(time) for time in inputs.outside(frontiers)):
            raise _invalid(value, "its frontier must not be ahead of a channel's")
        has_begun = value.get("begun") is not False  # releases before did not state it
        if not inputs.has_others:
            writer = value.get("writer")
            writers = dict.fromkeys(inputs.rounds_come_by, writer) if isinstance(writer, str) else {}
            consumed = dict.fromkeys(inputs.rounds_come_by, 0)
            return cls(positions, rounds, first, rows, writers, consumed, has_begun, entered, outside_rows=outside)
        known = value.get("writers")
        if not isinstance(known, dict):
            raise _invalid(value, "it has no writers of the loop's channels")
        try:
            state = QueryState.from_json(inputs.graph, inputs.query, stated)
        except (ValueError, StrandlineError) as error:
            raise _invalid(value, str(error)) from error
        return cls(positions, rounds, first, rows, known, state.consumed, has_begun, entered, outside_rows=outside)


def _version(inputs: Inputs, by_input: bool) -> int:
    return _LOOP_VERSION if inputs.graph is not None else _INPUTS_VERSION if by_input else _VERSION


def _same_loop(value: Mapping[str, Any], inputs: Inputs) -> Any:
    """Return what the query states to others in an offset. Raises if the loop had another definition then."""
    assert inputs.graph is not None  # noqa: S101 - there is a loop
    if ("loop" in value) != inputs.has_others:
        raise StrandlineError(
            "STRANDLINE_CHECKPOINT_MISMATCH",
            f"The checkpoint is of a loop of {'several queries' if 'loop' in value else 'one query'}, but the loop now has "
            f"the queries {', '.join(inputs.graph.queries)}. A loop has one definition for its whole life, because each "
            "query counts what may come from the others.",
            "Start it with the queries as before, or use new channels and new checkpoints.",
        )
    stated = value.get("loop")
    if not inputs.has_others:
        return stated
    if not isinstance(stated, dict):
        raise _invalid(value, "it has no state of its query in the loop")
    named = [(stated.get("query"), stated.get("definition")), (inputs.query, inputs.definition)]
    if named[0] != named[1]:
        raise StrandlineError(
            "STRANDLINE_CHECKPOINT_MISMATCH",
            f"The checkpoint is of query {named[0][0]} of a loop with the definition {named[0][1]}, but this is query "
            f"{named[1][0]} of a loop with the definition {named[1][1]}.",
            "Start the query with the channels, queries and domain as before, or use new channels and new checkpoints.",
        )
    return stated


def checksum(value: Mapping[str, Any]) -> str:
    """Return the checksum of all other fields of a loop's offset (docs/protocol.md)."""
    others = {name: field for name, field in value.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(others, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _invalid(value: Any, rule: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OFFSET_INVALID",
        f"The checkpoint's offset {str(value)[:300]} is not a position in several channels: {rule}.",
        "The checkpoint was damaged or changed by hand. Restore it from a backup, or use a new checkpoint.",
    )
