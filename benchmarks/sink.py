"""Bulk writing: compares strandline's sink with Delta's, which copy the same rows, and splits the time of ours.

    python benchmarks/sink.py [--rows 5000000] [--files 16] [--rounds 5]

The benchmark measures ``addBatch`` of an availableNow query that copies a table in one batch. The two sinks take turns, and each
query reads with the source of its sink. Delta's snapshots have two tasks. The benchmark also prints the parts of our time: the
read alone (with a sink that does nothing), and the writer alone (``FileWriter`` in this process on the same rows; half its time,
because Spark runs two at once). The rest is Spark's transfer of rows to Python, and the commit. The goal holds when ours takes at
most as long as the other.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from _alternating import alternately, report, seconds, spark_session
from strandline.channel import Channel
from throughput import build


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
        spark = spark_session(scratch, snapshot_partitions=2)

        def copy(source: str, sink: str, name: str) -> float:
            frame = spark.readStream.format(source).load(str(scratch / "table"))
            writer = frame.writeStream.format(sink).option("checkpointLocation", str(scratch / f"checkpoint-{name}"))
            query: Any = writer.trigger(availableNow=True).start(*([] if sink == "noop" else [str(scratch / name)]))
            query.awaitTermination()
            return float(sum(p["durationMs"].get("addBatch", 0) for p in query.recentProgress)) / 1000

        print(f"{arguments.rows} rows in {arguments.files} files; seconds in addBatch")
        ours, other = alternately(
            lambda turn: copy("strandline", "strandline", f"ours-{turn}"),
            lambda turn: copy("delta", "delta", f"other-{turn}"),
            arguments.rounds,
        )
        reads = [copy("strandline", "noop", f"noop-{turn}") for turn in range(arguments.rounds)]
        channel = Channel.open(scratch / "table")
        table = channel.read()

        def encode() -> None:
            with channel.file_writer() as writer:
                for batch in table.to_batches(max_chunksize=10_000):  # as many rows as Spark passes at a time
                    writer.write(batch)
                writer.finish()
                writer.abort()

        encodes = [seconds(encode) / 2 for _ in range(arguments.rounds)]
        total, read, encoded = (statistics.median(times) for times in (ours, reads, encodes))
        rest = total - read - encoded
        print(f"of ours: read {read:.2f} s, Parquet {encoded:.2f} s, Spark's transfer to Python and the commit {rest:.2f} s")
        report("sink", ours, other, unit="s in addBatch", goal=1.0)
        spark.stop()


if __name__ == "__main__":
    main()
