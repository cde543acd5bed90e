"""Nexmark over channels: files of four partitions, out of order, become channels; twelve queries run; DuckDB checks each result.

Run it as ``python examples/nexmark/run.py``. The queries run twice: while the streams are open, and after their end. Each time
every result at a complete time is compared with DuckDB's. The exit status says whether all are equal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flights.session import session
from nexmark.answers import Compared, compare, connect
from nexmark.events import nexmark
from nexmark.feed import Feed, Silence
from nexmark.pipeline import end, run_query, take_in
from nexmark.queries import QUERIES

__all__ = ["main", "run"]


def run(events: int, rate: int, silence: Silence | None, queries: Sequence[str], folder: Path) -> list[Compared]:
    """Run the queries in ``folder`` and print a line for each of their runs. Return what was compared."""
    seconds = Feed(silence=silence).write(folder / "feed", nexmark(events, rate))
    print(f"{events} events in {seconds} seconds")
    spark = session("nexmark")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    take_in(spark, folder / "feed", folder)
    duck = connect(folder / "feed")
    found = []
    for state in ("open", "ended"):
        if state == "ended":
            end(folder)
        for query in queries:
            began = time.perf_counter()
            run_query(spark, query, folder)
            took = time.perf_counter() - began
            found.append(compared := compare(duck, query, str(folder / query)))
            counts = f"{compared.results} complete results, {compared.missing} missing, {compared.wrong} wrong"
            print(f"{query}, streams {state}: {counts}; {took:.1f} s", flush=True)
    return found


def main() -> int:
    """Run the command line. Return 0 if each run has complete results, all of them are DuckDB's, and none is missing."""
    parser = argparse.ArgumentParser(prog="python examples/nexmark/run.py", description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=1000, help="events a second")
    parser.add_argument("--silence", type=Silence.parse, default="3:20:60", help="PARTITION:BEGINS:ENDS, in seconds")
    parser.add_argument("--queries", nargs="+", metavar="QUERY", default=list(QUERIES), help=f"some of {', '.join(QUERIES)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.queries) - set(QUERIES):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as scratch:
        found = run(arguments.events, arguments.rate, arguments.silence, arguments.queries, Path(scratch))
    return 0 if all(each.results and not each.missing and not each.wrong for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
