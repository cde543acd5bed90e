"""How many flights of each hour and airport were late: the rule as production has it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

LATE_MINUTES = 15


def pipeline(spark: Any, read: Any) -> dict[str, Any]:
    """Return the output ``late`` of the input ``flights``."""
    late = F.count_if(F.col("delay") >= LATE_MINUTES).alias("late")
    return {"late": read("flights").groupBy("hour", "airport").agg(F.count("*").alias("flights"), late)}
