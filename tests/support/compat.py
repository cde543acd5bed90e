"""Channels and checkpoints that later versions must be able to continue.

``python tests/support/compat.py NAME`` writes ``tests/compat/NAME.tar.gz`` with the version that is checked out. The name is a
version and a kind: ``0.1-flat`` has a channel with many producers, queries with state in both stores that were stopped half-way,
and an ingest; ``0.1-several`` has queries over several channels, and ``0.1-paths`` such whose times come by several paths. Every
later version continues all archives
(``tests/pyspark_strandline/test_compat.py``). So an archive is written once, before a change, and never again.
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
from pyspark_strandline import advance, hold, ingest, read_channels
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


def several_sums(spark: Any, folder: Path) -> Any:
    """Of one channel, whatever the other channel has closed."""
    from pyspark.sql import functions as F

    return several(spark, folder)["left"].groupBy("time", "key").agg(F.sum("n").alias("n"))


def several_unions(spark: Any, folder: Path) -> Any:
    from pyspark.sql import functions as F

    streams = several(spark, folder)
    return streams["left"].union(streams["right"]).where("n > 1").groupBy("time", "key").agg(F.sum("n").alias("n"))


def several_joins(spark: Any, folder: Path) -> Any:
    """A filter above a join: the state of the join must not change with what is pushed below it. Then an operator above it."""
    from pyspark.sql import functions as F

    streams = several(spark, folder)
    both = streams["left"].withColumnRenamed("n", "l").join(streams["right"], ["time", "key"]).where("l + n > 11 AND l > 1")
    return advance(both.groupBy("time", "key").agg(F.sum("l").alias("l"), F.sum("n").alias("n")), 1)


def several_semis(spark: Any, folder: Path) -> Any:
    """A semi join above a join, which Spark's optimizer puts below it: the states of both have the same columns."""
    streams = several(spark, folder)
    both = streams["left"].withColumnRenamed("n", "l").join(streams["right"], ["time", "key"])
    return both.join(streams["left"].where("n < 9"), ["time", "key"], "left_semi")


def several_fields(spark: Any, folder: Path) -> Any:
    """A field of a struct above a join, which Spark's optimizer takes out of it below the join."""
    from pyspark.sql import functions as F

    streams = several(spark, folder)
    deep = streams["left"].select(
        "time", "key", F.struct(F.lit("x"), "n").alias("deep"), F.from_json(F.lit("{}"), "a int, b int").alias("j")
    )
    return deep.join(streams["right"], ["time", "key"]).selectExpr("time", "key", "deep.n + coalesce(j.a, 0) AS l", "n")


SEVERAL: dict[str, Callable[[Any, Path], Any]] = {
    "sums": several_sums,
    "unions": several_unions,
    "joins": several_joins,
    "semis": several_semis,
    "fields": several_fields,
}


def crossed_paths(spark: Any, folder: Path) -> Any:
    """Two unions of moved times with the same moves in another order, so that they are joined by a distance."""
    streams = several(spark, folder)
    left, right = streams["left"], streams["right"]
    moved = advance(left, 5).union(right).withColumnRenamed("n", "m")
    return left.union(advance(right, 5)).join(moved, ["time", "key"]).where("n > 8").select("time", "key", "n")


def nested_paths(spark: Any, folder: Path) -> Any:
    """A union whose last input has one of the paths of the first, above a join whose state has a struct."""
    from pyspark.sql import functions as F

    streams = several(spark, folder)
    left, right = (
        streams[name].select("time", "key", F.struct("n", F.lit("x").alias("x")).alias("p")) for name in ("left", "right")
    )
    both = left.join(right.withColumnRenamed("p", "other"), ["time", "key"]).select("time", "key", "p")
    return left.union(advance(right, 5)).union(both).groupBy("time", "key").agg(F.sum("p.n").alias("n"))


def near_paths(spark: Any, folder: Path) -> Any:
    """Joins by a distance of one channel and of two, which have the same frontier if all channels have one."""
    from pyspark.sql import functions as F

    streams = several(spark, folder)

    def near(first: Any, second: Any, n: str) -> Any:
        other = second.selectExpr("time AS t", "key AS k", f"n AS {n}")
        return first.join(other, F.expr("key = k AND t >= time AND t <= time + 1")).select("time", "key", "n", n)

    left = streams["left"]
    own = near(left, streams["left"].select("time", "key", "n"), "m")
    other = near(left, streams["right"], "o").selectExpr("time AS t", "key AS k", "n AS p", "o")
    return own.join(other, F.expr("time = t AND key = k AND n = p")).where("m > 2 AND o > 1").select("time", "key", "m", "o")


PATHS: dict[str, Callable[[Any, Path], Any]] = {"crossed": crossed_paths, "nested": nested_paths, "near": near_paths}
SEVERAL_BEFORE = {
    "left": {"a": ([(1, 1), (2, 4), (3, 2), (4, 8)], [5]), "b": ([], [])},
    "right": {"a": ([(1, 10), (2, 20), (2, 1)], [3]), "b": ([], [])},
}
SEVERAL_AFTER = {"left": {"a": ([(5, 16)], [])}, "right": {"a": ([(4, 20), (5, 40)], [])}}
SEVERAL_RESULTS = {
    "sums": [(1, "k", 1), (2, "k", 4), (3, "k", 2), (4, "k", 8), (5, "k", 16)],
    "unions": [(1, "k", 10), (2, "k", 24), (3, "k", 2), (4, "k", 28), (5, "k", 56)],
    "joins": [(3, "k", 4, 20), (5, "k", 8, 20), (6, "k", 16, 40)],
    "semis": [(1, "k", 1, 10), (2, "k", 4, 1), (2, "k", 4, 20), (4, "k", 8, 20)],
    "fields": [(1, "k", 1, 10), (2, "k", 4, 1), (2, "k", 4, 20), (4, "k", 8, 20), (5, "k", 16, 40)],
}
PATHS_RESULTS = {
    "crossed": [(5, "k", 16), (6, "k", 10), (7, "k", 20), (9, "k", 20), (10, "k", 40)],
    "nested": [
        *[(1, "k", 2), (2, "k", 12), (3, "k", 2), (4, "k", 16), (5, "k", 32)],
        *[(6, "k", 10), (7, "k", 21), (9, "k", 20), (10, "k", 40)],
    ],
    "near": [
        *[(1, "k", 4, 10), (1, "k", 4, 20), (2, "k", 4, 20), (3, "k", 8, 20), (4, "k", 8, 20), (4, "k", 8, 40)],
        *[(4, "k", 16, 20), (4, "k", 16, 40), (5, "k", 16, 40)],
    ],
}
PATHS_EMITTED_BEFORE = {
    "crossed": [(6, "k", 10), (7, "k", 20)],
    "nested": [(1, "k", 2), (2, "k", 12)],
    "near": [(1, "k", 4, 10), (1, "k", 4, 20), (2, "k", 4, 20)],
}
SEVERAL_EMITTED_BEFORE = {"sums": 4, "unions": 2, "joins": 1, "semis": 3, "fields": 3}

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


def several(spark: Any, folder: Path) -> dict[str, Any]:
    streams = read_channels(spark, {name: str(folder / name) for name in SEVERAL_BEFORE})
    return {name: streams[name] for name in streams}


def write_rows(folder: Path, rows: dict[str, dict[str, Any]]) -> None:
    for channel, producers in rows.items():
        for producer, (entries, then) in producers.items():
            say(Channel.open(folder / channel), producer, *entries, then=then)


def run_queries(spark: Any, folder: Path, queries: dict[str, Callable[[Any, Path], Any]] = QUERIES) -> None:
    """Run every query in both stores until it has taken all there is."""
    for store, provider in STORES.items():
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
        for name, query in queries.items():
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


def write_several(spark: Any, folder: Path) -> None:
    for name in SEVERAL_BEFORE:
        make_channel(folder / name)
    write_rows(folder, SEVERAL_BEFORE)
    run_queries(spark, folder, SEVERAL)


def write_paths(spark: Any, folder: Path) -> None:
    for name in SEVERAL_BEFORE:
        make_channel(folder / name)
    write_rows(folder, SEVERAL_BEFORE)
    run_queries(spark, folder, PATHS)


KINDS = {"flat": write, "several": write_several, "paths": write_paths}


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as scratch, spark_session(Path(scratch)) as spark:
        folder = Path(scratch, "story")
        folder.mkdir()
        KINDS[name.rpartition("-")[2]](spark, folder)
        for left in folder.rglob(".*.crc"):
            left.unlink()
        with tarfile.open(ARCHIVES / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(folder, ".")


if __name__ == "__main__":
    main(sys.argv[1])
