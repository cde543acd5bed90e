"""Bulk writing: compares strandline's sink with Delta's, which copy the same rows, and splits the time of ours.

    python benchmarks/sink.py [--rows 5000000] [--files 16] [--rounds 5]

The benchmark measures ``addBatch`` of an availableNow query that copies a table in one batch. The sinks take turns, and each
query reads with the source of its sink. Delta runs as it comes, and tuned for a small machine. The goal holds when ours takes at
most as long as the better Delta.

The benchmark also prints the parts of our time. The read is the same query into a sink that does nothing. Spark's transfer is the
additional time if Python gets the rows and drops them (``mapInArrow``). Parquet is ``FileWriter`` in this process on the same
rows. Half of its time counts, because Spark runs two at once. The rest is the commit, and the start of processes.

A query's files have a digest of their rows. The benchmark writes the rows with and without it, alternately. It prints half of the
additional time, as a share of our time, and the additional time for 100 rows.
"""

from __future__ import annotations

import argparse
import operator
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from _alternating import OURS, Measure, alternately, deltas, seconds, spark_session, summary, through
from strandline.channel import Channel
from strandline.channel.write.file_writer import FileWriter
from throughput import build


def dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows, and drop them."""
    yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})


def main() -> None:
    """Build, run alternately, split, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        build(scratch / "table", arguments.rows, arguments.files)
        spark = spark_session(scratch)

        def copy(source: str, sink: str, way: str, turn: int) -> float:
            name = f"{way}-{turn}"
            frame = spark.readStream.format(source).load(through(scratch / "table", way))
            if way == "dropped":
                frame = frame.mapInArrow(dropped, "rows long")
            writer = frame.writeStream.format(sink).option("checkpointLocation", str(scratch / f"checkpoint-{name}"))
            query: Any = writer.trigger(availableNow=True).start(*([] if sink == "noop" else [str(scratch / name)]))
            query.awaitTermination()
            return float(sum(p["durationMs"].get("addBatch", 0) for p in query.recentProgress)) / 1000

        print(f"{arguments.rows} rows in {arguments.files} files; seconds in addBatch")
        runs = {
            OURS: lambda turn: copy("strandline", "strandline", "ours", turn),
            **deltas(spark, lambda way, turn: copy("delta", "delta", way, turn)),
        }
        took = alternately(runs, arguments.rounds)
        parts = {way: lambda turn, way=way: copy("strandline", "noop", way, turn) for way in ("read", "dropped")}
        reads, drops = alternately(parts, arguments.rounds).values()
        spark.stop()
        channel = Channel.open(scratch / "table")
        table = channel.read()

        def encode(rows: pa.Table, times: int, *, digests: bool) -> float:
            def write() -> None:
                for _ in range(times):
                    with FileWriter(channel.path, channel.schema, channel.time_column, channel.domain, digests=digests) as writer:
                        for batch in rows.to_batches(max_chunksize=10_000):  # as many rows as Spark passes at a time
                            writer.write(batch)
                        writer.finish()
                        writer.abort()

            return seconds(write) / times

        def encoding(rows: pa.Table, times: int = 1) -> tuple[float, float]:
            """Return the seconds with a digest, and how many more these are than without: medians of pairs."""
            ways = {
                "with a digest": lambda _: encode(rows, times, digests=True),
                "without": lambda _: encode(rows, times, digests=False),
            }
            with_digest, without = alternately(ways, 3 * arguments.rounds).values()
            return statistics.median(with_digest), statistics.median(map(operator.sub, with_digest, without))

        with_digest, of_digest = encoding(table)
        _, of_few = encoding(table.slice(0, 100), 100)
        total, read, drop = (statistics.median(times) for times in (took[OURS], reads, drops))
        encoded = with_digest / 2
        split = {"read": read, "Spark's transfer": drop - read, "Parquet": encoded, "rest": total - drop - encoded}
        print(f"of ours: {', '.join(f'{part} {value:.2f} s' for part, value in split.items())}")
        more = {"parts": {part: round(value, 3) for part, value in split.items()}}
        summary(
            "sink",
            [
                Measure.beside("a large batch", took, unit="s in addBatch", at_most=1.0, more=more),
                Measure.alone("its digest", of_digest / 2 / total, "of a large batch", at_most=0.03),
                Measure.alone("a digest of 100 rows", of_few * 1000, "ms", at_most=3),
            ],
        )


if __name__ == "__main__":
    main()
