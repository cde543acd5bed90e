"""The loop of a plan in a process of its own, until it is at rest: ``python loop_query.py FOLDER SEED``.

With ``body`` or ``onward`` as a third argument it is one of two queries, which runs until it is stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import loop_plans
from pyspark_strandline import configure

cloudpickle.register_pickle_by_value(loop_plans)  # workers do not have it
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
}


def main(folder: Path, seed: int, part: str | None = None) -> None:
    """Run the plan's query over all that is there, or one part of it for ever."""
    plan = loop_plans.LoopPlan.of(seed)
    builder = SparkSession.builder.master("local[2]")
    for key, value in {**SETTINGS, **plan.settings}.items():
        builder = builder.config(key, value)
    spark = configure(builder, delta=False).getOrCreate()
    query = loop_plans.start(spark, folder, plan) if part is None else loop_plans.start_part(spark, folder, plan, part)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
