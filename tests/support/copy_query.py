"""A query of one channel into another, in a driver of its own: ``python copy_query.py FOLDER CHECKPOINT SOURCE SINK``.

It reads ``FOLDER/in`` and writes ``FOLDER/out`` under the name ``copy``, to the end of what there is, as a scheduler runs it.
``SOURCE`` and ``SINK`` are the options of each, as JSON. It ends with 1, and prints the error, if the query fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_strandline import configure

SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "1"}


def main(folder: Path, checkpoint: str, source: dict[str, str], sink: dict[str, str]) -> int:
    """Run it to its end."""
    spark = configure(SparkSession.builder.master("local[1]").config(map=SETTINGS), delta=False).getOrCreate()
    rows = spark.readStream.format("strandline").options(**source).load(str(folder / "in")).select("time", "n")
    writer = rows.writeStream.format("strandline").option("producer", "copy").options(**sink)
    writer = writer.option("checkpointLocation", str(folder / checkpoint)).trigger(availableNow=True)
    try:
        writer.start(str(folder / "out")).awaitTermination()
    except StreamingQueryException as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])))
