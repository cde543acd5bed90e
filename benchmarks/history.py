"""Stateful operators over history: a channel read by ``availableNow`` in one batch, and Spark's batch query over the same files.

    python benchmarks/history.py [--rows 4000000] [--files 16] [--rounds 4] [--groups 50000] [--only NAME ...]

All times of the channel are closed, so each operator takes in and closes everything in the same batch: a batch query is the
floor. Each of the 24 times has as many groups as ``--groups`` says. The queries run alternately in one session, into a sink that
does nothing. The benchmark measures the wall time of a whole query, including start-up. A goal holds when ours takes at most 1.6
of the batch query's time.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from _alternating import OURS, Measure, alternately, seconds, spark_session, summary
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import timestamp

HOUR, HOURS = 3_600_000_000, 24
BATCH, GOAL = "Spark's batch query", 1.6

Read = Callable[[], Any]
OPERATORS: dict[str, Callable[[Read], Any]] = {
    "aggregation, few groups": lambda read: read().groupBy("time", "few").agg(F.count("*"), F.sum("value")),
    "aggregation, many groups": lambda read: read().groupBy("time", "group").agg(F.count("*"), F.sum("value")),
    "deduplication": lambda read: read().dropDuplicates(["time", "group"]),
    "join on time": lambda read: (
        read()
        .where("value < 0.2")
        .alias("l")
        .join(read().where("value > 0.8").alias("r"), F.expr("l.time = r.time AND l.group = r.group"))
        .select("l.time", "l.value", F.col("r.value").alias("other"))
    ),
    "outer join on time": lambda read: (
        read()
        .where("value < 0.2")
        .alias("l")
        .join(read().where("value > 0.8").alias("r"), F.expr("l.time = r.time AND l.group = r.group"), "left_outer")
        .select("l.time", "l.value", F.col("r.value").alias("other"))
    ),
}


def build(path: Path, rows: int, files: int, groups: int) -> None:
    """Build a channel whose producer has closed all times: a day in order, ten keys, many groups, a value."""
    schema = pa.schema(
        [time_field("time", timestamp), ("few", pa.int64()), ("group", pa.int64()), ("value", pa.float64())],
    )
    channel = Channel.create(path, schema, producers=["load"])
    random = np.random.default_rng(1)
    per_file = rows // files
    for i in range(files):
        hours = np.sort(random.integers(HOURS * i // files, max(HOURS * (i + 1) // files, 1), per_file))
        table = pa.table(
            {
                "time": pa.array(hours * HOUR, pa.int64()).cast(pa.timestamp("us", "UTC")),
                "few": pa.array(random.integers(0, 10, per_file)),
                "group": pa.array(random.integers(0, groups, per_file)),
                "value": pa.array(random.random(per_file)),
            }
        )
        with channel.file_writer() as writer:
            writer.write(table)
            written, times = writer.finish()
        channel.append(written, statements={"load": [HOURS * (i + 1) // files * HOUR] if i + 1 < files else []}, times=times)


def main() -> None:
    """Build, run alternately, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--groups", type=int, default=50_000)
    parser.add_argument("--only", nargs="*", choices=list(OPERATORS), default=list(OPERATORS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        build(scratch / "table", arguments.rows, arguments.files, arguments.groups)
        spark = spark_session(scratch)
        table, measures = str(scratch / "table"), []
        for name in arguments.only:

            def ours(turn: int, name: str = name) -> float:
                rows = OPERATORS[name](lambda: spark.readStream.format("strandline").load(table))
                writer = rows.writeStream.format("noop").trigger(availableNow=True)
                started = writer.option("checkpointLocation", str(scratch / f"{name}-{turn}"))
                return seconds(lambda: started.start().awaitTermination())

            def batch(_: int, name: str = name) -> float:
                rows = OPERATORS[name](lambda: spark.read.parquet(table))
                return seconds(lambda: rows.write.format("noop").mode("overwrite").save())

            print(f"{name}: {arguments.rows} rows in {arguments.files} files; seconds a query", flush=True)
            took = alternately({OURS: ours, BATCH: batch}, arguments.rounds)
            measures.append(Measure.beside(name, took, unit="s a query", at_most=GOAL))
        spark.stop()
        summary("history", measures)


if __name__ == "__main__":
    main()
