"""The answers of DuckDB: the same queries in SQL over all files of the feed at once, and what a channel has beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from strandline.channel import Channel

__all__ = ["ANSWERS", "Compared", "compare", "connect"]

_WINNING = """(
    SELECT A.id, A.seller, A.category, A.expires AS closed, max(B.price) AS price
    FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
    GROUP BY ALL)"""

ANSWERS = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price, dateTime FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT P.name, P.city, P.state, A.id, greatest(P.dateTime, A.dateTime) AS dateTime
        FROM auction A JOIN person P ON A.seller = P.id WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""
        SELECT DISTINCT category, closed, sum(price) OVER of // count(*) OVER of AS final
        FROM {_WINNING} WINDOW of AS (PARTITION BY category ORDER BY closed RANGE UNBOUNDED PRECEDING)""",
    "q5": """
        SELECT auction, count(*) AS num, endtime
        FROM (
            SELECT auction, time_bucket(INTERVAL 2 SECONDS, dateTime) + unnest(range(2, 12, 2)) * INTERVAL 1 SECOND AS endtime
            FROM bid)
        GROUP BY auction, endtime QUALIFY num = max(num) OVER (PARTITION BY endtime)""",
    "q6": f"""
        SELECT seller, closed, sum(price) OVER last // count(*) OVER last AS avg_price
        FROM {_WINNING} WINDOW last AS (PARTITION BY seller ORDER BY closed, id ROWS 9 PRECEDING)
        QUALIFY row_number() OVER (PARTITION BY seller, closed ORDER BY id DESC) = 1""",
    "q7": """
        SELECT auction, bidder, price, dateTime AS bid_dateTime, extra,
            time_bucket(INTERVAL 10 SECONDS, dateTime) + INTERVAL 10 SECONDS AS endtime
        FROM bid QUALIFY price = max(price) OVER (PARTITION BY endtime)""",
    "q8": """
        SELECT DISTINCT P.id, P.name, time_bucket(INTERVAL 10 SECONDS, P.dateTime) AS stime
        FROM person P JOIN auction A
        ON P.id = A.seller AND time_bucket(INTERVAL 10 SECONDS, A.dateTime) = time_bucket(INTERVAL 10 SECONDS, P.dateTime)""",
    "q11": """
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime, max(dateTime) + INTERVAL 10 SECONDS AS endtime
        FROM (
            SELECT bidder, dateTime, sum(begins) OVER (PARTITION BY bidder ORDER BY dateTime RANGE UNBOUNDED PRECEDING) AS session
            FROM (
                SELECT bidder, dateTime, CAST(coalesce(dateTime > lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)
                    + INTERVAL 10 SECONDS, true) AS INT) AS begins
                FROM bid))
        GROUP BY bidder, session""",
    "q12": """
        SELECT bidder, count(*) AS bid_count, time_bucket(INTERVAL 10 SECONDS, landed) AS starttime
        FROM bid JOIN (SELECT filename, last_modified AS landed FROM read_blob(getvariable('feed') || '/bid/*.parquet'))
        USING (filename) GROUP BY bidder, starttime""",
    "q20": """
        SELECT B.auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
            itemName, description, initialBid, reserve, expires, seller, category,
            A.dateTime AS auction_dateTime, A.extra AS auction_extra, greatest(A.dateTime, B.dateTime) AS dateTime
        FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
}


@dataclass(frozen=True)
class Compared:
    """How many results have complete times, and how many of these are only in one of the two answers."""

    results: int
    missing: int
    wrong: int


def connect(feed: Path) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with the files of the feed as views ``person``, ``auction`` and ``bid``."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.execute("SET VARIABLE feed = $feed", {"feed": str(feed)})
    for name in ("person", "auction", "bid"):
        files = f"getvariable('feed') || '/{name}/*.parquet'"
        duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({files}, filename = true)")
    return duck


def compare(duck: duckdb.DuckDBPyConnection, query: str, path: str) -> Compared:
    """Compare the results that a channel has at complete times with DuckDB's at these times."""
    channel = Channel.open(path)
    found = channel.read()
    open_from = min(channel.frontier, default=None)
    closed = "" if open_from is None else f" WHERE {channel.time_column} < make_timestamptz({open_from})"
    return differ(duck, query, found, closed)


def differ(duck: duckdb.DuckDBPyConnection, query: str, found: pa.Table, where: str = "") -> Compared:
    """Compare rows with DuckDB's, those of both for which a condition holds. DuckDB's are the table ``expected`` afterwards."""
    columns = ", ".join(found.column_names)
    duck.register("found", found)
    duck.execute(f"CREATE OR REPLACE TEMP TABLE expected AS SELECT {columns} FROM ({ANSWERS[query]})")
    right, given = f"SELECT * FROM expected{where}", f"SELECT * FROM found{where}"
    counts = [f"({right})", f"({right} EXCEPT ALL {given})", f"({given} EXCEPT ALL {right})"]
    results, missing, wrong = (duck.execute(f"SELECT count(*) FROM ({each})").fetchall()[0][0] for each in counts)
    return Compared(results, missing, wrong)
