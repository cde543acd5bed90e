"""Refusals: a query that is not run, by a condition that has a name, is as right as an exact one, where that is documented."""

from __future__ import annotations

import re
from typing import Any

NEVER = frozenset({"STRANDLINE_ROW_BEHIND_FRONTIER", "STRANDLINE_FRONTIER_REGRESSED", "STRANDLINE_STATE_REPARTITIONED"})
"""On legal data these are never a refusal: something is wrong with the product."""

UNSUPPORTED = "STRANDLINE_OPERATOR_UNSUPPORTED"
SPARKS_ANALYSIS = "_LEGACY_ERROR_TEMP_3102"
"""Spark's own "… is not supported on streaming DataFrames/Datasets", which has no better name."""
UNCLOSED = frozenset(
    {
        UNSUPPORTED,
        "STRANDLINE_AGGREGATION_WITHOUT_TIME",
        "STRANDLINE_OUTPUT_FRONTIER_UNKNOWN",
        "STRANDLINE_TIME_COLUMN_MISSING",
        "STRANDLINE_WATERMARK_UNSUPPORTED",
        "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION",
        SPARKS_ANALYSIS,
    }
)
"""What is said of a query whose operator, or sink, needs a time column where the plan gives one that is no time any more."""
_NAMED = re.compile(r"\[((?:STRANDLINE_|[A-Z])[A-Z0-9_]+(?:\.[A-Z0-9_]+)?|_LEGACY_ERROR_TEMP_\d+)\]")


def condition_of(error: BaseException) -> str | None:
    """The condition by which an error is named: of ours, or of Spark; ``None`` when it has none."""
    names: list[str] = _NAMED.findall(str(error))
    ours = [name for name in names if name.startswith("STRANDLINE_")]
    if ours:
        return ours[0]
    own: Any = getattr(error, "getCondition", lambda: None)()
    if own not in (None, "STREAM_FAILED"):
        return str(own)
    return next((name for name in names if name != "STREAM_FAILED"), None)


def kind_of(error: BaseException) -> str:
    """What a failure is called, so that shrinking does not slide from one into another."""
    return condition_of(error) or type(error).__name__
