"""Every stateful operator: a channel with its frontier, and Spark's Delta source with ``withWatermark``, on the same files.

    python benchmarks/operators.py [--rows 2000000] [--files 8] [--rounds 3] [--only NAME ...]

The benchmark measures the wall time of a whole availableNow query in batches of two files, including start-up, into a sink that
does nothing. The queries read the same Parquet files of one table and run alternately in one session. Rows are in the order of
their times, so that Spark loses no rows by its guess. Joins read the table twice. Delta runs as it comes, and tuned for a small
machine. An operator's goal holds when it processes at least 1.05 times the rows per second of the better one. The last line holds
when every operator's goal holds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from _alternating import OURS, Measure, alternately, deltas, seconds, spark_session, summary, through
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import timestamp

HOUR = 3_600_000_000
GOAL = 1.05
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Count(StatefulProcessor):
    """Counts a key's rows, and sets a timer."""

    def init(self, handle: Any) -> None:
        """Keep the handle."""
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Yield one row per key and batch."""
        yield pd.DataFrame({"key": [key[0]], "n": [sum(map(len, rows))]})

    def close(self) -> None:
        """Nothing to release."""


Read = Callable[..., Any]
OPERATORS: dict[str, Callable[[Read], Any]] = {
    "aggregation": lambda read: read().groupBy("time", "key").agg(F.sum("value")),
    "window": lambda read: read().groupBy(F.window("time", "6 hours"), "key").agg(F.sum("value")),
    "session": lambda read: read().groupBy(F.session_window("time", "10 minutes"), "key").agg(F.sum("value")),
    "deduplication": lambda read: read().dropDuplicates(["time", "key"]),
    "deduplication within": lambda read: read("1 hour").dropDuplicatesWithinWatermark(["id"]),
    "join on time": lambda read: (
        some(read).alias("l").join(some(read).alias("r"), F.expr("l.time = r.time AND l.id = r.id")).select("l.id")
    ),
    "outer join by distance": lambda read: (
        some(read)
        .alias("l")
        .join(some(read).alias("r"), F.expr("l.id = r.id AND l.time BETWEEN r.time AND r.time + INTERVAL 1 HOUR"), "left_outer")
        .select("l.id")
    ),
    "transformWithState": lambda read: (
        some(read).groupBy("key").transformWithStateInPandas(Count(), "key long, n long", "append", "eventTime")
    ),
}


def some(read: Read) -> Any:
    """Return a tenth of the rows. Operators that keep each row, or pass each row to Python, are slow enough."""
    return read().where("id % 10 = 0")


def build(path: Path, rows: int, files: int) -> None:
    """Build one table that is a channel and a Delta table at once: 240 hours in order, a hundred keys, an id of each row."""
    schema = pa.schema([time_field("time", timestamp), ("key", pa.int64()), ("id", pa.int64()), ("value", pa.float64())])
    channel = Channel.create(path, schema, producers=["load"])
    random = np.random.default_rng(1)
    per_file = rows // files
    for i in range(files):
        hours = np.sort(random.integers(240 * i // files, max(240 * (i + 1) // files, 1), per_file))
        table = pa.table(
            {
                "time": pa.array(hours * HOUR, pa.int64()).cast(pa.timestamp("us", "UTC")),
                "key": pa.array(random.integers(0, 100, per_file)),
                "id": pa.array(np.arange(i * per_file, (i + 1) * per_file)),
                "value": pa.array(random.random(per_file)),
            }
        )
        with channel.file_writer() as writer:
            writer.write(table)
            written, times = writer.finish()
        channel.append(written, statements={"load": [240 * (i + 1) // files * HOUR] if i + 1 < files else []}, times=times)


def main() -> None:
    """Build, run each operator alternately, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(OPERATORS), default=list(OPERATORS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        build(scratch / "table", arguments.rows, arguments.files)
        spark = spark_session(scratch)
        table, measures = scratch / "table", []

        def ours(delay: str | None = None) -> Any:
            rows = spark.readStream.format("strandline").option("maxFilesPerTrigger", "2").load(str(table))
            return rows.withWatermark("time", delay) if delay else rows

        def delta(way: str) -> Read:
            source = spark.readStream.format("delta").option("maxFilesPerTrigger", "2")
            return lambda delay="0 seconds": source.load(through(table, way)).withWatermark("time", delay)

        for name in arguments.only:
            # Only RocksDB can keep the state of transformWithState. The others run on Spark's default.
            spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
            if name == "transformWithState":
                spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)

            def run(read: Read, way: str, turn: int, name: str = name) -> float:
                writer = OPERATORS[name](read).writeStream.format("noop").trigger(availableNow=True)
                checkpoint = writer.option("checkpointLocation", str(scratch / f"{name}-{way}-{turn}"))
                return arguments.rows / seconds(lambda: checkpoint.start().awaitTermination())

            print(f"{name}: {arguments.rows} rows in {arguments.files} files; rows a second", flush=True)
            runs = {
                OURS: lambda turn, run=run: run(ours, "ours", turn),
                **deltas(spark, lambda way, turn, run=run: run(delta(way), way, turn)),  # type: ignore[misc]
            }
            measures.append(Measure.beside(name, alternately(runs, arguments.rounds), unit="rows/s", at_least=GOAL))
        spark.stop()
        summary("operators", measures)


if __name__ == "__main__":
    main()
