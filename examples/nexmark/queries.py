"""The queries of Nexmark in PySpark. The arguments of a query are the streams that it reads, by their names.

Each is the SQL of https://github.com/nexmark/nexmark with one more column: the time of the result, by which results are complete.
docs/nexmark.md says what that is for each query. Queries that use only Spark's own operators also run over Spark's own streams.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nexmark import processors
from nexmark.processors import AverageByCategory, LastTen, WinningBid
from pyspark_strandline import meet, process

__all__ = ["QUERIES", "inputs_of"]

cloudpickle.register_pickle_by_value(processors)  # Spark's workers do not have this folder


def q0(bid: DataFrame) -> DataFrame:
    """Pass through: what it costs to read and to write."""
    return bid.select("auction", "bidder", "price", "dateTime", "extra")


def q1(bid: DataFrame) -> DataFrame:
    """Currency conversion: prices in euros."""
    return bid.select("auction", "bidder", F.expr("CAST(0.908 * price AS DECIMAL(23, 3)) AS price"), "dateTime", "extra")


def q2(bid: DataFrame) -> DataFrame:
    """Selection: bids on some auctions."""
    return bid.where("auction % 123 = 0").select("auction", "price", "dateTime")


def q3(auction: DataFrame, person: DataFrame) -> DataFrame:
    """Local item suggestion: who sells in some states, in one category.

    The join has no bound of time. It never closes, and keeps all sellers and all auctions.
    """
    auctions = auction.where("category = 10").select("dateTime", "seller", "id")
    persons = person.where("state IN ('OR', 'ID', 'CA')").select("dateTime", F.col("id").alias("person"), "name", "city", "state")
    return meet(auctions, persons, on={"seller": "person"}).select("name", "city", "state", "id", "dateTime")


def q4(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """Average price for a category: of all its auctions that have closed, each time when one closes."""
    return process(_winning(auction, bid), AverageByCategory(), key="category").withColumnRenamed("dateTime", "closed")


def q5(bid: DataFrame) -> DataFrame:
    """Hot items: the auctions with the most bids in the last ten seconds, each two seconds."""
    counts = bid.groupBy(F.window("dateTime", "10 seconds", "2 seconds"), "auction").agg(F.count("*").alias("num"))
    windows = counts.groupBy("window").agg(F.max("num").alias("most"), F.collect_list(F.struct("auction", "num")).alias("all"))
    hot = windows.select(F.col("window.end").alias("endtime"), "most", F.explode("all").alias("hot"))
    return hot.where("hot.num = most").select("hot.*", "endtime")


def q6(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """Average selling price by seller: of the last ten auctions, each time when one closes."""
    return process(_winning(auction, bid), LastTen(), key="seller").withColumnRenamed("dateTime", "closed")


def q7(bid: DataFrame) -> DataFrame:
    """Highest bid: the bids of ten seconds with the highest price."""
    highest = bid.groupBy(F.window("dateTime", "10 seconds")).agg(F.max("price").alias("maxprice"))
    highest = highest.select("maxprice", F.col("window.end").alias("endtime"))
    of_window = "b.price = h.maxprice AND b.dateTime >= h.endtime - INTERVAL 10 SECONDS AND b.dateTime < h.endtime"
    joined = bid.alias("b").join(highest.alias("h"), F.expr(of_window))
    # A sum is no time for Spark and Strandline, so the result has one time only, the end of its window.
    of_bid = F.expr("dateTime + INTERVAL 0 SECONDS AS bid_dateTime")
    return joined.select("auction", "bidder", "price", of_bid, "extra", "endtime")


def q8(auction: DataFrame, person: DataFrame) -> DataFrame:
    """New users: who began to sell in the ten seconds in which they came."""
    persons = person.groupBy(F.window("dateTime", "10 seconds"), "id", "name").agg(F.count("*").alias("persons"))
    sellers = auction.groupBy(F.window("dateTime", "10 seconds"), "seller").agg(F.count("*").alias("auctions"))
    joined = persons.alias("p").join(sellers.alias("a"), F.expr("p.id = a.seller AND p.window = a.window"))
    return joined.select("id", "name", F.col("p.window.start").alias("stime"))


def q11(bid: DataFrame) -> DataFrame:
    """User sessions: how many bids a person made in a session, which ends after ten seconds without any."""
    sessions = bid.groupBy(F.session_window("dateTime", "10 seconds").alias("session"), "bidder")
    counts = sessions.agg(F.count("*").alias("bid_count"))
    return counts.select("bidder", "bid_count", F.col("session.start").alias("starttime"), F.col("session.end").alias("endtime"))


def q12(landed: DataFrame) -> DataFrame:
    """Windows of processing time: how many bids of a person came in ten seconds.

    The stream ``landed`` has the bids at the time at which their file landed. So it does not matter when the query runs.
    """
    counts = landed.groupBy(F.window("landed", "10 seconds"), "bidder").agg(F.count("*").alias("bid_count"))
    return counts.select("bidder", "bid_count", F.col("window.start").alias("starttime"))


def q20(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """Expand each bid of one category with its auction. The join never closes, as that of q3."""
    of_bid = ("auction", "bidder", "price", "channel", "url")
    bids = bid.select("dateTime", *of_bid, _value("dateTime", "bid_dateTime"), F.col("extra").alias("bid_extra"))
    of_auction = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")
    auctions = auction.where("category = 10").select(
        "dateTime", "id", *of_auction, _value("dateTime", "auction_dateTime"), F.col("extra").alias("auction_extra")
    )
    joined = meet(bids, auctions, on={"auction": "id"})
    of_both = (*of_bid, "bid_dateTime", "bid_extra", *of_auction, "auction_dateTime", "auction_extra")
    return joined.select(*of_both, "dateTime")


def _value(time: str, name: str) -> Column:
    """Return a time as a value like any other: it has no frontier."""
    return F.timestamp_micros(F.unix_micros(time)).alias(name)


def _winning(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """Return the highest bid of each auction that has one, at the time at which the auction closes."""
    bids = bid.select("dateTime", "auction", "price")
    expires = F.unix_micros("expires").alias("expires")
    auctions = auction.select("dateTime", F.col("id").alias("auction"), expires, "seller", "category")
    return process(auctions.unionByName(bids, allowMissingColumns=True), WinningBid(), key="auction")


QUERIES: dict[str, Callable[..., DataFrame]] = {
    query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q11, q12, q20)
}


def inputs_of(query: str) -> list[str]:
    """Return the names of the streams that a query reads.

    >>> inputs_of("q3")
    ['auction', 'person']
    """
    return list(inspect.signature(QUERIES[query]).parameters)
