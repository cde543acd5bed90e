"""What the body of ``iterate`` returns, checked when ``iterate`` is called, in the words of who wrote the body."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_strandline.loops import errors
from pyspark_strandline.operators.operator_marker import MARK
from pyspark_strandline.schema import TIME_METADATA
from strandline.time.path.steps import Steps

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

__all__ = ["Followed", "followed"]

_ASKED, _COMPUTED = "strandline.body", "strandline.computed"  # LoopBodyRule of the shim


class Followed(NamedTuple):
    """The rows that follow from the loop's rows.

    Attributes:
        rows: What the body has returned.
        computed: The columns in which the body may make values that are in no table and no seed, such as ``n + 1``. Without
            such columns there are finitely many rows.
    """

    rows: DataFrame
    computed: list[str]


def followed(
    rows: DataFrame,
    body: Callable[..., DataFrame],
    time: str,
    *,
    streams: Mapping[str, DataFrame] | None = None,
    channels: str,
    stream: str,
    by_round: bool,
    in_rounds: bool,
    ends: bool,
) -> Followed:
    """Call the body, and check what it has returned: its plan (``LoopBodyRule`` of the shim), its columns and its times.

    Args:
        rows: The loop's rows.
        body: The body.
        time: The time column.
        streams: The other streams of the loop, which the body gets as its second argument, if it has any.
        channels: The option ``channels`` of the source that the rows are of.
        stream: The name of the rows' stream among them.
        by_round: Whether a round has all rows that follow from the round before. Then the body may look at all of them.
        in_rounds: Whether a row's round does not depend on how rows are divided into batches. Then the body may look at it.
        ends: Whether the loop ends also if the body returns rows as they are.

    Raises:
        StrandlineError: ``STRANDLINE_LOOP_BODY_UNSUPPORTED`` if the body returns no such rows; ``STRANDLINE_SCHEMA_MISMATCH`` if
            they have other columns. The plan is refused with the former condition, as an ``AnalysisException``.
    """
    if not callable(body):
        raise errors.loop_body_unsupported_value(body)
    made = body(rows, streams) if streams else body(rows)
    if not isinstance(made, DataFrame):
        raise errors.loop_body_unsupported_result(made)
    if not made.isStreaming:
        raise errors.loop_body_unsupported_table(made.columns)
    asked = {"channels": channels, "stream": stream, "time": time, "byRound": by_round, "inRounds": in_rounds, "ends": ends}
    schema = made.select("*", F.lit(0).alias(MARK, metadata={_ASKED: asked})).schema
    *fields, mark = schema.fields
    _check_columns(fields, rows.schema.fields)
    (before,), (after,) = ([field for field in each if field.name == time] for each in (rows.schema.fields, fields))
    if _times(before) != _times(after):
        raise errors.loop_body_unsupported_time(time)
    return Followed(made, list((mark.metadata or {}).get(_COMPUTED, [])))


def _check_columns(made: list[StructField], expected: list[StructField]) -> None:
    """Raise if the body's columns are not those of the loop's rows, by name and type. Their order does not matter."""
    names, wanted = [field.name for field in made], [field.name for field in expected]
    if sorted(names) != sorted(wanted):
        raise errors.schema_mismatch_body_columns(names, wanted)
    kinds = {field.name: field.dataType.simpleString() for field in made}
    wrong = [field for field in expected if kinds[field.name] != field.dataType.simpleString()]
    if wrong:
        raise errors.schema_mismatch_body_types([(f.name, kinds[f.name], f.dataType.simpleString()) for f in wrong])


def _times(field: StructField) -> tuple[object, object]:
    """Return what makes the column a time: its domain, and how it was moved, by whichever of the loop's channels it came."""
    known = field.metadata or {}
    summary = Steps.from_json(json.loads(known.get("strandline.summary", "[]")))
    return known.get(TIME_METADATA), summary.from_input(None)
