"""Nexmark: files, an ingest and a query over channels beside Spark's own streams with a watermark, from files into Delta.

    python benchmarks/nexmark_throughput.py [--events 300000] [--rounds 3] [--only NAME ...]

The benchmark measures whole availableNow queries, in four batches, including start-up. Both ways read the same files and write a
table. Nobody is silent and Spark's delay is the longest of all rows, so both have the same results. Ours takes two steps: the
ingest writes a channel, and the query reads it. There is a measure for the query alone, and one for both steps. Spark joins q3
and q20 natively, without a watermark, which keeps all rows; ours are processors in Python. Spark has no q4 and q6: they are
alone. Delta is tuned for a small machine. There are no goals. ``examples/nexmark/compare.py`` says what comes of late data.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import functions as F

from _alternating import OURS, TUNED, Measure, alternately, seconds, spark_session, summary, with_settings

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))
from nexmark.events import nexmark
from nexmark.feed import BOUNDS, Feed
from nexmark.pipeline import files, run_query, take_in
from nexmark.queries import QUERIES, inputs_of

RATE, BATCHES = 10_000, 4
SPARK = "Spark with Delta"


def join_sellers(auction: Any, person: Any) -> Any:
    """Return q3 as Spark joins it."""
    of_states = person.where("state IN ('OR', 'ID', 'CA')").alias("p")
    joined = auction.where("category = 10").alias("a").join(of_states, F.expr("a.seller = p.id"))
    return joined.select("name", "city", "state", "a.id", F.greatest("a.dateTime", "p.dateTime").alias("dateTime"))


def join_bids(auction: Any, bid: Any) -> Any:
    """Return q20 as Spark joins it."""
    joined = bid.alias("b").join(auction.where("category = 10").alias("a"), F.expr("b.auction = a.id"))
    columns = ["auction", "bidder", "price", "channel", "url", "itemName", "description", "initialBid", "reserve", "expires"]
    return joined.select(*columns, "seller", "category", F.greatest("a.dateTime", "b.dateTime").alias("dateTime"))


WITHOUT_WATERMARK: dict[str, Callable[..., Any]] = {"q3": join_sellers, "q20": join_bids}
ALONE = ("q4", "q6")


def run_spark(spark: Any, feed: Path, query: str, files_a_batch: int, target: str) -> None:
    """Run a query from files into a Delta table with Spark alone."""
    streams = {name: files(spark, feed, name, files_a_batch) for name in inputs_of(query)}
    if query in WITHOUT_WATERMARK:
        results = WITHOUT_WATERMARK[query](**streams)
    else:
        delay = f"{max(BOUNDS)} seconds"
        time = "landed" if query == "q12" else "dateTime"
        results = QUERIES[query](**{name: rows.withWatermark(time, delay) for name, rows in streams.items()})
    writer = results.writeStream.format("delta").option("checkpointLocation", f"{target}-checkpoint")
    with with_settings(spark, TUNED):
        writer.trigger(availableNow=True).start(target).awaitTermination()


def measure(spark: Any, scratch: Path, query: str, files_a_batch: int, rounds: int) -> list[Measure]:
    """Measure a query in both ways, alternately."""
    feed, alone = scratch / "feed", defaultdict(list)
    rows = sum(ds.dataset(feed / ("bid" if name == "landed" else name)).count_rows() for name in inputs_of(query))

    def ours(turn: int) -> float:
        lake = scratch / f"{query}-{turn}"
        took = seconds(lambda: take_in(spark, feed, lake, inputs_of(query), files_a_batch=files_a_batch, tasks=2))
        then = seconds(lambda: run_query(spark, query, lake, maxFilesPerTrigger=str(2 * len(inputs_of(query)))))
        if turn:
            alone[OURS].append(rows / then)
        return rows / (took + then)

    def others(turn: int) -> float:
        return rows / seconds(lambda: run_spark(spark, feed, query, files_a_batch, f"{scratch}/{query}-spark-{turn}"))

    print(f"{query}: {rows} rows; rows a second", flush=True)
    runs = {OURS: ours} if query in ALONE else {OURS: ours, SPARK: others}
    took = alternately(runs, rounds)
    both = Measure.beside(f"{query} with the ingest", took, "rows/s")
    return [Measure.beside(query, {**took, **alone}, "rows/s"), both]


def main() -> None:
    """Write the feed, run each query alternately, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(QUERIES), default=list(QUERIES))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        lasts = Feed().write(scratch / "feed", nexmark(arguments.events, RATE))
        files_a_batch = -(-lasts // BATCHES) * len(BOUNDS)
        spark = spark_session(scratch)
        measures = [each for query in arguments.only for each in measure(spark, scratch, query, files_a_batch, arguments.rounds)]
        spark.stop()
        summary("nexmark_throughput", measures)


if __name__ == "__main__":
    main()
