"""A program of three strata in a process of its own, until it is at rest: ``python program_query.py FOLDER SEED``."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from loop_query import SETTINGS
from pyspark_strandline import configure, evaluate
from strandline.channel import Channel
from strandline.program import Program, col
from strandline.time.arrow import time_field
from strandline.time.domain import int64

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TICKS = 3


def program() -> Program:
    """What is reached and kept for good, which nodes a tick does not reach, and how many; a tick remembers the one before."""
    p = Program("network")
    link, node = p.input("link", "x long, y long", keep="always"), p.input("node", "x long")
    reach = p.relation("reach", "x long, y long", keep="always")
    dark, counted, before = p.relation("dark", "x long"), p.relation("counted", "n long"), p.relation("before", "x long")
    p.rule(reach, link)
    p.rule(reach, reach.meet(link.select(y="x", z="y"), on="y").select("x", y="z"))
    p.rule(dark, node.meet(reach.where(col("x") == 0), on={"x": "y"}, how="left_anti"))
    p.rule(counted, dark.union(before).group_by().agg(n=("count", None)))
    p.rule(before, dark, next_tick=True)
    return p


def facts(seed: int) -> dict[str, dict[int, list[tuple[int, ...]]]]:
    """Links and nodes of each tick."""
    r = random.Random(seed)
    links = {tick: [(r.randrange(9), r.randrange(9)) for _ in range(5)] for tick in range(TICKS)}
    return {"link": links, "node": {tick: [(n,) for n in range(9) if r.random() < 0.8] for tick in range(TICKS)}}


def send(folder: Path, given: dict[str, dict[int, list[tuple[int, ...]]]]) -> None:
    """All facts, in commits of two rows."""
    for name, columns in (("link", ("x", "y")), ("node", ("x",))):
        schema = pa.schema([time_field("tick", int64), *((each, pa.int64()) for each in columns)])
        channel = Channel.create(folder / name, schema, time="tick", producers=["p"], at=0)
        rows = [(tick, *row) for tick, some in given[name].items() for row in some]
        with channel.producer("p") as producer:
            for at in range(0, len(rows), 2):
                values = list(zip(*rows[at : at + 2], strict=True))
                producer.send(pa.table(dict(zip(schema.names, values, strict=True)), schema=schema))
                producer.delay(rows[at][0])
                producer.commit()
            producer.delay([])


def start(spark: Any, folder: Path, seed: int) -> Any:
    """Start the query, with options that the seed decides."""
    r = random.Random(seed)
    inputs = {name: folder / name for name in ("link", "node")}
    buffering, limit = r.choice(["none", "stratum", "tick"]), r.choice([1, 3, 100])
    writer = evaluate(spark, program(), inputs, folder / "out", buffering=buffering, maxFilesPerTrigger=limit)  # type: ignore[arg-type]
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def main(folder: Path, seed: int) -> None:
    """Run the query over all that is there."""
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    if seed % 2:
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", ROCKS)
    spark = configure(builder, delta=False).getOrCreate()
    start(spark, folder, seed).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
