"""Queries that must give the same in Spark's every mode: ``python mode_queries.py MODE FOLDER`` runs them in one session.

``MODE`` is ``connect`` or a master. Prints ``RESULT`` and what it saw, as JSON; the rest is in the channels under the folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import completion_query
from pyspark_strandline import advance, configure, enter, ingest, iterate, project
from strandline.channel import Channel
from strandline.ingest import bounded

cloudpickle.register_pickle_by_value(completion_query)  # workers do not have it

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
}


def native(spark: Any, folder: Path) -> dict[str, Any]:
    """A union of a channel read natively and one read by Python, summed by exact time into a third; a batch read.

    The sums are five later, and their times enter a loop's and leave again.
    """

    def stream(name: str, way: str) -> Any:
        return spark.readStream.format("strandline").option("nativeScan", way).load(str(folder / name))

    table = spark.read.format("strandline").option("nativeScan", "on").load(str(folder / "left"))
    table = table.select("time", F.col("n").alias("m"))
    rows = stream("left", "on").where("n > 0").join(table, "time", "left").drop("m").unionByName(stream("right", "off"))
    inside = enter(advance(rows.groupBy("time").agg(F.sum("n").alias("n")), 5), "iter")
    sums = project(inside.where("time.iter = 0"), "time")
    writer = sums.writeStream.format("strandline").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        query.explain()
    read = sorted(map(tuple, spark.read.format("strandline").load(str(folder / "out")).where("n > 10").collect()))
    return {"plan": plan.getvalue(), "read": read}


def ingested(spark: Any, folder: Path) -> dict[str, Any]:
    """An ingest by the call, and one by options alone."""
    rows = spark.readStream.schema("t long, p string, n long").option("maxFilesPerTrigger", "1").parquet(str(folder / "in"))
    call = ingest(rows, str(folder / "call"), time="t", partition="p", policy=bounded(2))
    alone = rows.writeStream.format("strandline").option("path", str(folder / "alone"))
    alone = alone.option("policy", "bounded(2)").option("time", "t").option("partition", "p")
    for name, writer in (("call", call), ("alone", alone)):
        checkpoint = writer.option("checkpointLocation", str(folder / f"{name}-checkpoint"))
        checkpoint.trigger(availableNow=True).start().awaitTermination()
    return {"back": spark.read.format("strandline").load(str(folder / "call")).count()}


def looped(spark: Any, folder: Path) -> None:
    """Numbers that go round in a loop until they are 0."""

    def fewer(rows: Any) -> Any:
        return rows.where("n > 0").withColumn("n", F.col("n") - 1)

    writer = iterate(spark, str(folder / "in"), fewer, folder)
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def refused(spark: Any, command: str) -> str:
    """Return the error of a command."""
    try:
        spark.sql(command).collect()
    except PySparkException as error:
        return str(error)
    return ""


def tables(spark: Any, folder: Path) -> dict[str, Any]:
    """A query from table to table whose checkpoint is lost, and a second one that goes on with its output."""
    spark.sql(f"CREATE TABLE numbers USING strandline LOCATION '{folder}/in'")

    def copy(checkpoint: str, source: dict[str, str] | None = None, sink: dict[str, str] | None = None) -> list[list[int]]:
        rows = spark.readStream.options(**(source or {})).table("numbers").groupBy("time").agg(F.sum("n").alias("n"))
        writer = rows.writeStream.format("strandline").options(**(sink or {})).option("path", str(folder / "out"))
        writer = writer.option("checkpointLocation", str(folder / checkpoint)).trigger(availableNow=True)
        writer.toTable("sums").awaitTermination()
        return [list(row) for row in spark.sql("SELECT time, n FROM sums ORDER BY time").collect()]

    seen: dict[str, Any] = {"first": copy("lost")}
    with Channel.open(folder / "in").producer("a") as producer:
        producer.send(pa.table({"time": [3], "key": ["k"], "n": [8]}, schema=producer.channel.schema))
        producer.delay(4)
    [path] = [row.data_type for row in spark.sql("DESCRIBE EXTENDED sums").collect() if row.col_name == "Path"]
    seen["resumed"] = copy("next", {"resume": path}, {"resume": "true"})
    seen["DELETE"] = refused(spark, "DELETE FROM numbers")
    seen["CREATE"] = refused(spark, "CREATE TABLE other (n INT) USING strandline LOCATION '/nowhere'")
    return {"tables": seen}


def main(mode: str, folder: Path) -> None:
    """Run all, in a session of ``mode``."""
    builder: Any = SparkSession.builder
    builder = builder.remote("local[2]") if mode == "connect" else builder.master(mode)
    for key, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(key, value)
    spark = configure(builder, delta=False).getOrCreate()
    result = {"connect": type(spark).__module__.startswith("pyspark.sql.connect")}
    result |= native(spark, folder / "native") | ingested(spark, folder / "ingest")
    result |= tables(spark, folder / "tables")
    completion_query.run(spark, folder / "completion")
    looped(spark, folder / "loop")
    print("RESULT " + json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
