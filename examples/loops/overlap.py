"""A picture of a loop in which later epochs go round while earlier ones still do.

    python examples/loops/overlap.py [PICTURE]

Each epoch brings numbers, which are halved until they are 1. A batch reads one file, so the epochs begin one after the other. The
picture has, for each batch, the round that each epoch closes in it. All of it is read from the offsets in the query's checkpoint.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import pyarrow as pa
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flights.session import session
from pyspark_strandline import read_loop
from strandline.channel import Channel
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import int64, product

__all__ = ["closed_in_batches", "main"]

INNER = product(epoch="int64", iter="int64")
LARGEST = [512, 64, 256, 32]
"""The number of each epoch: an epoch goes round as often as it can be halved."""


def run(folder: Path) -> None:
    """Let every epoch go round until the loop is at rest."""
    numbers = Channel.create(folder / "numbers", pa.schema([time_field("time", int64), ("n", pa.int64())]), producers=["p"], at=0)
    Channel.create(folder / "halves", pa.schema([time_field("time", INNER), ("n", pa.int64())]), producers=["loop"])
    with numbers.producer("p") as producer:
        for epoch, largest in enumerate(LARGEST):
            producer.send(pa.table({"time": [epoch], "n": [largest]}))
            producer.delay(epoch + 1)
            producer.commit()
        producer.delay([])
    spark = session("loops")
    paths = {name: str(folder / name) for name in ("numbers", "halves")}
    loop = read_loop(spark, paths, feedback={"halves": {"iter": 1}}, domain=INNER, maxFilesPerTrigger=2)
    rows = loop["numbers"].union(loop["halves"]).groupBy("time", "n").count().select("time", "n")
    writer = loop.write({"halves": rows.where("n > 1").select("time", F.expr("n div 2").alias("n"))})
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def closed_in_batches(checkpoint: Path) -> list[dict[int, int]]:
    """Return for each batch, by epoch, the last round that the batch closes."""
    result = []
    before = Antichain.least(INNER)
    for number in range(len(list((checkpoint / "offsets").glob("[0-9]*")))):
        offset = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
        frontier = Antichain.from_json(INNER, offset["frontier"])
        closed: dict[int, int] = {}
        for epoch, largest in enumerate(LARGEST):
            for round_ in range(largest.bit_length()):
                if frontier.closed((epoch, round_)) and not before.closed((epoch, round_)):
                    closed[epoch] = round_
        result.append(closed)
        before = frontier
    return result


def draw(batches: list[dict[int, int]], picture: Path) -> None:
    """Draw a line for each epoch: over the batches, the rounds that are complete."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for epoch in range(len(LARGEST)):
        points = [(batch, closed[epoch]) for batch, closed in enumerate(batches) if epoch in closed]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=f"epoch {epoch}")
    axes.set(xlabel="batch", ylabel="rounds that are complete", title="Epochs of a loop overlap")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=120)


def main(picture: Path) -> None:
    """Run the loop, draw the picture, and print what each batch closes."""
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))
        batches = closed_in_batches(Path(folder) / "checkpoint")
    draw(batches, picture)
    for batch, closed in enumerate(batches):
        print(f"batch {batch}: " + ", ".join(f"epoch {epoch} round {round_}" for epoch, round_ in closed.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "loops.png"))
