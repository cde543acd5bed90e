"""The native scan, and moved times, where Spark runs in processes of its own: Spark Connect and a local cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.channel import Channel
from support import ROOT, contents, make_channel, say

pytestmark = pytest.mark.spark

# A union of a channel read natively and one read by Python, summed by exact time into a third, five later; then a batch read.
QUERY = """
import contextlib, io, json, sys
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
from pyspark_strandline import advance, configure

mode, folder = sys.argv[1], Path(sys.argv[2])
builder = SparkSession.builder.remote("local[2]") if mode == "connect" else SparkSession.builder.master(mode)
settings = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.sql.warehouse.dir": str(folder / "warehouse"),
}
for key, value in settings.items():
    builder = builder.config(key, value)
spark = configure(builder, delta=False).getOrCreate()

def stream(name, way):
    return spark.readStream.format("strandline").option("nativeScan", way).load(str(folder / name))

table = spark.read.format("strandline").option("nativeScan", "on").load(str(folder / "left"))
table = table.select("time", F.col("n").alias("m"))
rows = stream("left", "on").where("n > 0").join(table, "time", "left").drop("m").unionByName(stream("right", "off"))
sums = advance(rows.groupBy("time").agg(F.sum("n").alias("n")), 5)
writer = sums.writeStream.format("strandline").option("checkpointLocation", str(folder / "checkpoint"))
query = writer.trigger(availableNow=True).start(str(folder / "out"))
query.awaitTermination()
plan = io.StringIO()
with contextlib.redirect_stdout(plan):
    query.explain()
read = sorted(map(tuple, spark.read.format("strandline").load(str(folder / "out")).where("n > 10").collect()))
connected = type(spark).__module__.startswith("pyspark.sql.connect")
print("RESULT " + json.dumps({"plan": plan.getvalue(), "read": read, "connect": connected}))
spark.stop()
"""


@pytest.mark.parametrize("mode", ["connect", "local-cluster[2,1,1024]"])
def test_the_native_scan_in_processes_of_their_own(tmp_path: Path, mode: str) -> None:
    left, right = (make_channel(tmp_path / name, producers=("a",)) for name in ("left", "right"))
    say(left, "a", (1, 1), (2, 2), then=[2])
    say(right, "a", (1, 10), (3, 30), then=[3])
    script = tmp_path / "query.py"
    script.write_text(QUERY)
    environment = {k: v for k, v in os.environ.items() if k not in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")}
    environment["SPARK_LOCAL_DIRS"] = str(tmp_path / "local")
    done = subprocess.run(
        [sys.executable, str(script), mode, str(tmp_path)],
        env=environment | {"PYSPARK_PYTHON": sys.executable},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    results = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, (
        done.stdout[-2000:] + "\n".join(line for line in done.stderr.splitlines() if not line.startswith("\tat "))[-6000:]
    )
    result = json.loads(results[0])
    assert result["connect"] == (mode == "connect")
    assert "StrandlineFileIndex" in result["plan"]
    assert "(Python, because nativeScan is off)" in result["plan"]
    assert contents(tmp_path / "out") == [(6, 11)]
    assert Channel.open(tmp_path / "out").frontier.to_json() == [7]
    assert result["read"] == [[6, 11]]
