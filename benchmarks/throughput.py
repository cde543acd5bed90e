"""Ten million rows through ``groupBy(time, key)``: a channel, Spark's Delta source with a watermark, and two floors.

    python benchmarks/throughput.py [--rows 10000000] [--files 32] [--rounds 5]

The benchmark measures the wall time of a whole availableNow query, including start-up, into a sink that does nothing. The queries
read the same Parquet files of one table and run alternately in one session. Delta runs as it comes, which spends most of its time
on opening the table in 50 tasks, and tuned for a small machine, which avoids this. The goal holds when ours takes at most 0.8 of
the better one's time. Two floors stand beside it: Spark's batch query over the files, of which a stream may take 1.6 times the
time, and DuckDB's. With ``--rows 100000000`` it shows that the time grows with the rows.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from _alternating import OURS, Measure, alternately, deltas, seconds, spark_session, summary, through
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import timestamp

HOUR = 3_600_000_000
BATCH, DUCK = "Spark's batch query", "DuckDB"


def build(path: Path, rows: int, files: int) -> None:
    """Build one table that is a channel and a Delta table at once: 240 hours in order, ten keys, a value."""
    schema = pa.schema([time_field("time", timestamp), ("key", pa.int64()), ("value", pa.float64())])
    channel = Channel.create(path, schema, producers=["load"])
    random = np.random.default_rng(1)
    per_file = rows // files
    for i in range(files):
        hours = np.sort(random.integers(first := 240 * i // files, max(240 * (i + 1) // files, first + 1), per_file))
        table = pa.table(
            {
                "time": pa.array(hours * HOUR, pa.int64()).cast(pa.timestamp("us", "UTC")),
                "key": pa.array(random.integers(0, 10, per_file)),
                "value": pa.array(random.random(per_file)),
            }
        )
        with channel.file_writer() as writer:
            writer.write(table)
            written, times = writer.finish()
        channel.append(written, statements={"load": [240 * (i + 1) // files * HOUR] if i + 1 < files else []}, times=times)


def main() -> None:
    """Build, run alternately, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        build(scratch / "table", arguments.rows, arguments.files)
        spark = spark_session(scratch)

        def run(frame: object, checkpoint: str) -> float:
            writer = frame.groupBy("time", "key").agg(F.count("*"), F.sum("value")).writeStream.format("noop")  # type: ignore[attr-defined]
            started = writer.option("checkpointLocation", str(scratch / checkpoint)).trigger(availableNow=True)
            return seconds(lambda: started.start().awaitTermination())

        def ours(turn: int) -> float:
            return run(spark.readStream.format("strandline").load(str(scratch / "table")), f"ours-{turn}")

        def delta(way: str, turn: int) -> float:
            frame = spark.readStream.format("delta").load(through(scratch / "table", way)).withWatermark("time", "0 seconds")
            return run(frame, f"{way}-{turn}")

        def batch(_: int) -> float:
            frame = spark.read.parquet(str(scratch / "table")).groupBy("time", "key").agg(F.count("*"), F.sum("value"))
            return seconds(lambda: frame.write.format("noop").mode("overwrite").save())

        def duck(_: int) -> float:
            asked = "SELECT time, key, count(*), sum(value) FROM read_parquet($files) GROUP BY time, key"
            return seconds(lambda: duckdb.execute(asked, {"files": str(scratch / "table" / "*.parquet")}).fetchall())

        print(f"{arguments.rows} rows in {arguments.files} files; seconds a query")
        floors = {BATCH: batch, DUCK: duck}
        took = alternately({OURS: ours, **deltas(spark, delta), **floors}, arguments.rounds)
        spark.stop()
        least = {floor: took.pop(floor) for floor in floors}
        summary(
            "throughput",
            [
                Measure.beside("groupBy(time, key)", took, unit="s a query", at_most=0.8),
                Measure.beside("beside a batch query", {OURS: took[OURS], BATCH: least[BATCH]}, "s a query", at_most=1.6),
                Measure.beside("beside DuckDB", {OURS: took[OURS], DUCK: least[DUCK]}, "s a query"),
            ],
        )


if __name__ == "__main__":
    main()
