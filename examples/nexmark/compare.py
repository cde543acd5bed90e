"""Nexmark's windows beside Spark's own watermark, fed live: the files of a second are a batch.

Run it as ``python examples/nexmark/compare.py``. The same files go through ``withWatermark`` at several guessed delays, and
through channels. Every result is compared with DuckDB's, and the batch in which it came says how long after the end of its window
that was. A last row, a day later, moves Spark's watermark past all windows: otherwise its last windows never come.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich import box
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flights.session import session
from nexmark.answers import Compared, connect, differ
from nexmark.events import BASE_TIME, nexmark
from nexmark.feed import BOUNDS, Feed, Silence
from nexmark.pipeline import end, files, run_query, take_in
from nexmark.queries import QUERIES, inputs_of

__all__ = ["ENDS", "Outcome", "main", "run"]

ENDS = {"q5": "endtime", "q7": "endtime", "q8": "stime + INTERVAL 10 SECONDS", "q11": "endtime"}
"""The queries that have windows, and when the window of a result ends."""

_SETTINGS = {
    # The watermark is a literal in the plan, so that each batch would generate and compile its code anew.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True)
class Outcome:
    """What one way gave for one query. ``seconds`` are those from the ends of windows to their right results."""

    query: str
    way: str
    compared: Compared
    rows_lost: int | None
    seconds: npt.NDArray[np.float64]


def ours(spark: SparkSession, lake: Path, query: str) -> pa.Table:
    """Return the results of a query over channels, with the batch of each. A batch has one commit of each channel."""
    run_query(spark, query, lake, maxFilesPerTrigger=str(len(inputs_of(query))))
    parts: list[pa.Table] = []
    for commit in sorted((lake / query / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        batches = [action["txn"]["version"] for action in actions if "txn" in action]
        for file in (action["add"]["path"] for action in actions if "add" in action):
            rows = pq.read_table(lake / query / file)
            parts.append(rows.append_column("batch", pa.array([batches[0]] * len(rows), pa.int64())))
    return pa.concat_tables(parts)


def spark_alone(spark: SparkSession, folder: Path, query: str, delay: int) -> pa.Table:
    """Return the results of Spark with a watermark ``delay`` seconds behind, with the batch of each."""
    parts: list[pa.Table] = []

    def keep(results: DataFrame, batch: int) -> None:
        rows = results.toArrow()
        parts.append(rows.append_column("batch", pa.array([batch] * len(rows), pa.int64())))

    feed = Path(f"{folder}/{{feed,last}}")
    streams = {
        name: files(spark, feed, name, len(BOUNDS)).withWatermark("dateTime", f"{delay} seconds") for name in inputs_of(query)
    }
    writer = QUERIES[query](**streams).writeStream.foreachBatch(keep).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{folder}/spark/{query}-{delay}").start().awaitTermination()
    return pa.concat_tables(parts)


def write_last(folder: Path, tables: Mapping[str, pa.Table], second: int) -> None:
    """Write a row of each stream that is a day later than its first one. Its file lands after all others."""
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        row: dict[str, Any] = table.slice(0, 1).to_pylist()[0]
        path = folder / name / "last.parquet"
        row |= {"dateTime": row["dateTime"] + timedelta(days=1), "partition": "p0"}
        pq.write_table(pa.Table.from_pylist([row]), path)
        os.utime(path, (BASE_TIME // 1000 + second, BASE_TIME // 1000 + second))


def judge(duck: duckdb.DuckDBPyConnection, query: str, way: str, found: pa.Table, until: int) -> Outcome:
    """Compare results with DuckDB's. ``seconds`` has those whose windows end by the second ``until`` of the feed."""
    results = found.drop_columns("batch")
    compared = differ(duck, query, results)
    duck.register("found", found)
    lost = None
    if "bid_count" in found.column_names:
        ((lost,),) = duck.execute("SELECT (SELECT count(*) FROM bid) - sum(bid_count)::BIGINT FROM found").fetchall()
    delays = duck.execute(f"""
        SELECT batch + 1 - ends AS seconds
        FROM (SELECT *, epoch({ENDS[query]}) - {BASE_TIME // 1000} AS ends FROM found)
        SEMI JOIN expected USING ({", ".join(results.column_names)}) WHERE ends <= {until}""")
    return Outcome(query, way, compared, lost, delays.fetchnumpy()["seconds"])


def run(seconds: int, rate: int, silence: Silence, delays: Sequence[int], queries: Sequence[str], root: Path) -> list[Outcome]:
    """Run every query in each way."""
    tables = nexmark(seconds * rate, rate)
    lasts = Feed(silence=silence).write(root / "feed", tables)
    write_last(root / "last", tables, lasts + 1)
    spark = session("nexmark")
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    streams = sorted({stream for query in queries for stream in inputs_of(query)})
    take_in(spark, root / "feed", root, streams, files_a_batch=len(BOUNDS), tasks=1)
    end(root, streams)
    duck = connect(root / "feed")
    until = seconds - max(delays) - 1  # later windows come at the end of the feed, in whatever way
    found = []
    for query in queries:
        results = {f"Spark, {delay} s": spark_alone(spark, root, query, delay) for delay in delays}
        results["Strandline"] = ours(spark, root, query)
        found += [judge(duck, query, way, rows, until) for way, rows in results.items()]
        print(f"{query} is done", file=sys.stderr, flush=True)
    return found


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return the table that a page has."""
    shown = Table(box=box.MARKDOWN)
    for name in ("query", "", "results", "missing", "wrong", "rows lost", "seconds after the window's end, median / p99"):
        shown.add_column(name, justify="left" if name in ("query", "") else "right")
    for each in outcomes:
        compared = each.compared
        lost = "" if each.rows_lost is None else str(each.rows_lost)
        median, high = np.percentile(each.seconds, [50, 99]) if len(each.seconds) else (np.nan, np.nan)
        counts = map(str, (compared.results, compared.missing, compared.wrong))
        shown.add_row(each.query, each.way, *counts, lost, f"{median:.0f} / {high:.0f}")
    return shown


def main() -> int:
    """Run the command line. Return 0 if every result of Strandline is DuckDB's, and none is missing."""
    parser = argparse.ArgumentParser(prog="python examples/nexmark/compare.py", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=75, help="how long events happen")
    parser.add_argument("--rate", type=int, default=1000, help="events a second")
    parser.add_argument("--silence", type=Silence.parse, default="3:15:30", help="PARTITION:BEGINS:ENDS, in seconds")
    parser.add_argument("--delays", type=int, nargs="+", default=[2, 8, 23], help="Spark's guesses, in seconds")
    parser.add_argument("--queries", nargs="+", metavar="QUERY", default=list(ENDS), help=f"some of {', '.join(ENDS)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.queries) - set(ENDS):
        parser.error(f"there is no {', '.join(sorted(unknown))} here")
    settings = (arguments.seconds, arguments.rate, arguments.silence, arguments.delays, arguments.queries)
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = run(*settings, Path(scratch))
    Console(width=200).print(table(outcomes))
    exact = [each.compared for each in outcomes if each.way == "Strandline"]
    return 0 if all(each.results and not each.missing and not each.wrong for each in exact) else 1


if __name__ == "__main__":
    sys.exit(main())
