"""Channels and checkpoints that later versions must be able to continue.

``python tests/support/compat.py NAME`` writes ``tests/compat/NAME.tar.gz`` with the version that is checked out: a channel with
many producers, queries with state in both stores that were stopped half-way, and an ingest. Every later version continues all
archives (``tests/pyspark_strandline/test_compat.py``). So an archive is written once, before a change, and never again.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from helpers import ROOT, make_channel, say, spark_session
from pyspark_strandline import hold, ingest
from strandline.channel import Channel
from strandline.ingest import bounded

ARCHIVES = ROOT / "tests" / "compat"
STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
MANY = 80
"""So many producers that their statements are columns."""


def sums(spark: Any, folder: Path) -> Any:
    from pyspark.sql import functions as F

    return source(spark, folder, "left").groupBy("time", "key").agg(F.sum("n").alias("n"))


def joined(spark: Any, folder: Path) -> Any:
    left = source(spark, folder, "left").withColumnRenamed("n", "l")
    return left.join(source(spark, folder, "right"), ["time", "key"])


def held(spark: Any, folder: Path) -> Any:
    return hold(source(spark, folder, "left"))


QUERIES: dict[str, Callable[[Any, Path], Any]] = {"sums": sums, "joined": joined, "held": held}

BEFORE = {
    "left": {"a": ([(1, 1), (3, 2)], [5]), "b": ([(2, 4), (4, 8)], [4])},
    "right": {"a": ([(1, 10)], [6]), "b": ([(4, 20)], [4])},
}
AFTER = {"left": {"a": ([(5, 16)], []), "b": ([(4, 32)], [])}, "right": {"a": ([(6, 30)], []), "b": ([(5, 40)], [])}}
RESULTS = {
    "sums": [(1, "k", 1), (2, "k", 4), (3, "k", 2), (4, "k", 40), (5, "k", 16)],
    "joined": [(1, "k", 1, 10), (4, "k", 8, 20), (4, "k", 32, 20), (5, "k", 16, 40)],
    "held": [(1, "k", 1), (2, "k", 4), (3, "k", 2), (4, "k", 8), (4, "k", 32), (5, "k", 16)],
}
EMITTED_BEFORE = {"sums": 3, "joined": 2, "held": 3}


def source(spark: Any, folder: Path, name: str) -> Any:
    return spark.readStream.format("strandline").load(str(folder / name))


def write_rows(folder: Path, rows: dict[str, dict[str, Any]]) -> None:
    for channel, producers in rows.items():
        for producer, (entries, then) in producers.items():
            say(Channel.open(folder / channel), producer, *entries, then=then)


def run_queries(spark: Any, folder: Path) -> None:
    """Run every query in both stores until it has taken all there is."""
    for store, provider in STORES.items():
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
        for name, query in QUERIES.items():
            writer = query(spark, folder).writeStream.format("strandline")
            writer = writer.option("checkpointLocation", str(folder / "checkpoints" / f"{name}-{store}"))
            writer.trigger(availableNow=True).start(str(folder / f"{name}-{store}")).awaitTermination()


def land(folder: Path, *rows: tuple[str, int]) -> None:
    """Append rows to the table that the ingest reads."""
    table = pa.table({"partition": [partition for partition, _ in rows], "at": pa.array([at for _, at in rows], pa.int64())})
    write_deltalake(str(folder / "landing"), table, mode="append")


def run_ingest(spark: Any, folder: Path) -> None:
    rows = spark.readStream.format("delta").load(str(folder / "landing"))
    writer = ingest(rows, str(folder / "ingested"), time="at", partition="partition", policy=bounded(10))
    writer = writer.option("checkpointLocation", str(folder / "checkpoints" / "ingest"))
    writer.trigger(availableNow=True).start().awaitTermination()


def write(spark: Any, folder: Path) -> None:
    """Everything up to the moment at which a later version continues."""
    for name in BEFORE:
        make_channel(folder / name)
    write_rows(folder, BEFORE)
    run_queries(spark, folder)
    many = make_channel(folder / "many", producers=tuple(f"p{i}" for i in range(MANY)))
    many.append([], statements={f"p{i}": [i + 1] for i in range(MANY)}, states={f"p{i}": {"at": i} for i in range(MANY)})
    land(folder, ("x", 100), ("y", 50))
    run_ingest(spark, folder)
    land(folder, ("x", 80), ("y", 60))
    run_ingest(spark, folder)


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as scratch, spark_session(Path(scratch)) as spark:
        folder = Path(scratch, "story")
        folder.mkdir()
        write(spark, folder)
        for left in folder.rglob(".*.crc"):
            left.unlink()
        with tarfile.open(ARCHIVES / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(folder, ".")


if __name__ == "__main__":
    main(sys.argv[1])
