"""Matches the orders of a market by price and time, where a trade may wake up stop orders, which come round a loop.

    python examples/record/order_book.py [--orders 300] [--seed 1] [--out FOLDER]

A limit order trades with the best prices of the other side, the oldest first, and the rest of it stays in the book. A market
order takes any price, and its rest lapses. A stop order waits for a trade at its price or beyond. Then it comes round as a market
order, a millisecond later, so orders from outside may be faster. It may wake up others.

The loop runs with small and with large batches. The exit status is 0 if both give the same trades, and a book in plain Python
gives them too; otherwise 1.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from flights.session import session
from pyspark_strandline import Processor, process, read_loop
from record.checks import exit_status
from strandline.channel import Channel
from strandline.replay import CLOCK, Timestamper, compare
from strandline.time.arrow import time_field, times_of
from strandline.time.domain import Time

__all__ = ["Book", "Order", "Trade", "draw_orders", "main", "plain_trades", "run"]

_LATENCY = 1000
_FIRST = 1_700_000_000_000_000
_SYMBOLS = ("AAA", "BBB", "CCC")
_COLUMNS = [
    ("symbol", pa.string()),
    ("id", pa.int64()),
    ("side", pa.string()),
    ("kind", pa.string()),
    ("price", pa.int64()),
    ("quantity", pa.int64()),
    ("trader", pa.string()),
]
_ORDERS = pa.schema([time_field("time", CLOCK), *_COLUMNS])
_TRADED = ("symbol", "price", "quantity", "buy", "sell", "buyer", "seller")
_TRADES = {name: name for name in _TRADED}
_ORDER = "id bigint, side string, kind string, price bigint, quantity bigint, trader string"
_KEPT = f"array<struct<instant bigint, node bigint, n bigint, {_ORDER}>>"


class Book(Processor):
    """The book of a symbol. ``on_rows`` only keeps the orders, and ``on_notify`` takes them in the order of times."""

    schema = f"to string, {_ORDER}, buy bigint, sell bigint, buyer string, seller string"
    state_schema = f"came {_KEPT}, book {_KEPT}, stops {_KEPT}"

    def on_rows(self, time: Time, rows: pa.Table) -> None:
        """Keep the orders until their time is closed."""
        state = self.state or {"came": [], "book": [], "stops": []}
        at = dict(zip(("instant", "node", "n"), time, strict=True))
        came = [at | {name: row[name] for name, _ in _COLUMNS[1:]} for row in rows.to_pylist()]
        self.state = state | {"came": state["came"] + came}
        self.notify_at(time)

    def on_notify(self, time: Time) -> None:
        """Match the orders of this time. Stop orders that one trade has woken up have one time, and are taken by their ids."""
        state = self.state or {}  # on_rows has kept something
        now = [each for each in state["came"] if (each["instant"], each["node"], each["n"]) == time]
        book, stops, made = list(state["book"]), list(state["stops"]), []
        for order in sorted(now, key=lambda each: each["id"]):
            if order["kind"] == "stop":
                stops.append(order)
                continue
            while order["quantity"] and (best := self._best(book, order)):
                quantity = min(order["quantity"], best["quantity"])
                order["quantity"] -= quantity
                best["quantity"] -= quantity
                made.append(self._trade(order, best, quantity))
                book = [each for each in book if each["quantity"]]
                woken = [each for each in stops if self._wakes(each, best["price"])]
                stops = [each for each in stops if each not in woken]
                made += [self._row("triggered", each | {"kind": "market", "price": None}) for each in woken]
            if order["kind"] == "limit" and order["quantity"]:
                book.append(order)
        self.emit(time, made)
        self.state = {"came": [each for each in state["came"] if each not in now], "book": book, "stops": stops}

    @staticmethod
    def _best(book: list[dict[str, Any]], order: dict[str, Any]) -> dict[str, Any] | None:
        """Return the order of the book with which an order trades next. Of equal prices it is the oldest, which stands first."""
        sign = 1 if order["side"] == "buy" else -1
        others = [each for each in book if each["side"] != order["side"]]
        best = min(others, key=lambda each: sign * each["price"], default=None)
        return best if best and (order["kind"] == "market" or sign * best["price"] <= sign * order["price"]) else None

    @staticmethod
    def _wakes(stop: dict[str, Any], price: int) -> bool:
        return bool(price >= stop["price"] if stop["side"] == "buy" else price <= stop["price"])

    def _trade(self, order: dict[str, Any], best: dict[str, Any], quantity: int) -> dict[str, Any]:
        buy, sell = (order, best) if order["side"] == "buy" else (best, order)
        traded = {"price": best["price"], "quantity": quantity, "buy": buy["id"], "sell": sell["id"]}
        return self._row("trades", traded | {"buyer": buy["trader"], "seller": sell["trader"]})

    @staticmethod
    def _row(to: str, values: dict[str, Any]) -> dict[str, Any]:
        names = ("id", "side", "kind", "price", "quantity", "trader", "buy", "sell", "buyer", "seller")
        return {"to": to, **{name: values.get(name) for name in names}}


class Order(NamedTuple):
    """An order, with its instant in microseconds."""

    instant: int
    symbol: str
    id: int
    side: str
    kind: str
    price: int | None
    quantity: int
    trader: str


class Trade(NamedTuple):
    """A trade, with the instant at which it was made. ``buy`` and ``sell`` are the ids of the orders."""

    instant: int
    symbol: str
    price: int
    quantity: int
    buy: int
    sell: int
    buyer: str
    seller: str


def draw_orders(count: int, seed: int) -> list[Order]:
    """Draw orders, some of them at one instant."""
    draw = random.Random(seed)
    instant, found = _FIRST, []
    for number in range(1, count + 1):
        instant += draw.choice([0, 1, 20, 100, 200])
        symbol, side = draw.choice(_SYMBOLS), draw.choice(["buy", "sell"])
        kind = draw.choices(["limit", "market", "stop"], [6, 1, 3])[0]
        # A buy stop lies above the market and a sell stop below it, and a limit on the other side, mostly.
        away = draw.randint(0, 4) if kind == "stop" else draw.randint(-6, 2)
        price = None if kind == "market" else 100 + (away if side == "buy" else -away)
        found.append(Order(instant, symbol, number, side, kind, price, draw.randint(1, 9), f"trader {draw.randint(1, 5)}"))
    return found


def record(path: Path, orders: list[Order]) -> None:
    """Record the orders as they come from outside, with a commit for every ten of them."""
    shown = [0]
    channel = Channel.create(path, _ORDERS)
    with Timestamper(channel, "market", clock=lambda: shown[0]) as node:
        channel.seal()
        for number, order in enumerate(orders):
            shown[0] = order.instant
            node.send(pa.table({name: pa.array([getattr(order, name)], kind) for name, kind in _COLUMNS}))
            if number % 10 == 9:
                node.commit()
        node.drop()


def match(spark: SparkSession, orders: Path, folder: Path, files: int) -> list[Trade]:
    """Run the loop over the recorded orders, with as many files in a batch. Return the trades."""
    Channel.create(folder / "triggered", _ORDERS, producers=["loop"])
    channels = {"orders": orders, "triggered": folder / "triggered"}
    feedback = {"triggered": {"instant": f"{_LATENCY} microseconds"}}
    loop = read_loop(spark, channels, feedback=feedback, domain=CLOCK, maxFilesPerTrigger=files)
    made = process(loop["orders"].unionByName(loop["triggered"]), Book(), key="symbol")
    writer = loop.route(made, "to", {"triggered": None, "trades": folder / "trades"}, columns={"trades": _TRADES})
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    rows = Channel.open(folder / "trades").read()
    instants = [time[0] for time in times_of(rows.column("time"), CLOCK)]
    return sorted(Trade(*each) for each in zip(instants, *(rows.column(name).to_pylist() for name in _TRADED), strict=True))


def plain_trades(orders: list[Order]) -> list[Trade]:
    """Return all trades by plain Python: one pass over the orders, with two heaps for each symbol."""
    coming = [(order.instant, number, order.id, order) for number, order in enumerate(orders)]
    heapq.heapify(coming)
    resting: dict[tuple[str, str], list[Any]] = {}
    stops: dict[str, list[Order]] = {}
    trades = []
    arrivals = 0
    while coming:
        instant, number, _, order = heapq.heappop(coming)
        arrivals += 1
        if order.kind == "stop":
            stops.setdefault(order.symbol, []).append(order)
            continue
        buys, left = order.side == "buy", order.quantity
        others = resting.setdefault((order.symbol, "sell" if buys else "buy"), [])
        while left and others:
            key, age, there, other = others[0]
            if order.price is not None and (other.price > order.price if buys else other.price < order.price):
                break
            quantity = min(left, there)
            left -= quantity
            heapq.heappop(others)
            if there > quantity:
                heapq.heappush(others, (key, age, there - quantity, other))
            buy, sell = (order, other) if buys else (other, order)
            trades.append(
                Trade(instant, order.symbol, other.price, quantity, buy.id, sell.id, buyer=buy.trader, seller=sell.trader)
            )
            for stop in list(stops.get(order.symbol, [])):
                if (other.price >= stop.price) if stop.side == "buy" else (other.price <= stop.price):
                    stops[order.symbol].remove(stop)
                    market = stop._replace(kind="market", price=None)
                    heapq.heappush(coming, (instant + _LATENCY, number, stop.id, market))
        if left and order.price is not None:
            key = -order.price if buys else order.price
            heapq.heappush(resting.setdefault((order.symbol, order.side), []), (key, arrivals, left, order))
    return sorted(trades)


def run(spark: SparkSession, folder: Path, *, count: int = 300, seed: int = 1) -> int:
    """Run everything in ``folder``. Return the exit status."""
    orders = draw_orders(count, seed)
    record(folder / "orders", orders)
    found = {}
    for name, files in (("small", 2), ("large", 1000)):
        (folder / name).mkdir()
        found[name] = match(spark, folder / "orders", folder / name, files)
    triggered = Channel.open(folder / "large" / "triggered").read()
    stops = {order.id: order for order in orders if order.kind == "stop"}
    print(f"{count} orders and {len(found['large'])} trades; {triggered.num_rows} of {len(stops)} stop orders came round")
    for trade in [each for each in found["large"] if each.buy in stops or each.sell in stops][:1]:
        own = trade.buy if trade.buy in stops else trade.sell
        stop, after = stops[own], trade.instant - stops[own].instant
        print(f"the first of them is the order to {stop.side} {stop.quantity} {stop.symbol} with the stop at {stop.price}:")
        print(f"  it trades {trade.quantity} at {trade.price}, {after} microseconds after it was given")
    same = compare(folder / "small" / "trades", folder / "large" / "trades").equal
    return exit_status(
        {
            "small and large batches give the same trades": same and found["small"] == found["large"],
            "plain Python gives these trades": found["large"] == plain_trades(orders),
            "some stop orders came round": triggered.num_rows > 0,
        }
    )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python examples/record/order_book.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--orders", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the folder for all results; new or empty (default: none are kept)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.out or Path(scratch)).resolve()
        if folder.exists() and any(folder.iterdir()):
            parser.error(f"{folder} is not empty")
        folder.mkdir(parents=True, exist_ok=True)
        return run(session("order book"), folder, count=options.orders, seed=options.seed)


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not have this folder

if __name__ == "__main__":
    sys.exit(main())
