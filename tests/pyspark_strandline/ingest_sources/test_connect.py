"""An ingest over Spark Connect: by the call, and by options alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ingest_files import Feed
from strandline.channel import Channel
from support import ROOT, contents

pytestmark = pytest.mark.spark

QUERY = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark_strandline import configure, ingest
from strandline.ingest import bounded

folder = Path(sys.argv[1])
builder = SparkSession.builder.remote("local[2]")
for key, value in {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
    builder = builder.config(key, value)
spark = configure(builder, delta=False).getOrCreate()
rows = spark.readStream.schema("t long, p string, n long").option("maxFilesPerTrigger", "1").parquet(str(folder / "in"))
call = ingest(rows, str(folder / "call"), time="t", partition="p", policy=bounded(2))
alone = rows.writeStream.format("strandline").option("path", str(folder / "alone"))
alone = alone.option("policy", "bounded(2)").option("time", "t").option("partition", "p")
for name, writer in (("call", call), ("alone", alone)):
    writer.option("checkpointLocation", str(folder / f"{name}-checkpoint")).trigger(availableNow=True).start().awaitTermination()
back = spark.read.format("strandline").load(str(folder / "call")).count()
print("RESULT " + json.dumps({"connect": type(spark).__module__.startswith("pyspark.sql.connect"), "back": back}))
spark.stop()
"""


def test_the_call_and_the_options_make_the_same_channel(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in", pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64())]))
    feed.add([(5, "a", 0), (9, "a", 1), (3, "b", 2)])
    feed.add([(6, "a", 3), (7, "a", 4), (2, "b", 5)])
    script = tmp_path / "query.py"
    script.write_text(QUERY)
    environment = {k: v for k, v in os.environ.items() if k not in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")}
    environment |= {"SPARK_LOCAL_DIRS": str(tmp_path / "local"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    results = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stdout[-2000:] + done.stderr[-6000:]
    assert json.loads(results[0]) == {"connect": True, "back": 5}
    for name in ("call", "alone"):
        channel = Channel.open(tmp_path / name)
        assert {partition: state.holds.to_json() for partition, state in channel.producers.items()} == {"a": [7], "b": [1]}
        assert [row[2] for row in contents(tmp_path / name)] == [5, 2, 0, 4, 1]
        late = DeltaTable(str(tmp_path / f"{name}_late")).to_pyarrow_table()
        assert late.select(["n", "_reason", "_partition"]).to_pylist() == [{"n": 3, "_reason": "late", "_partition": "a"}]
