"""The parts of queries that no operator can do exactly: auctions that close when they say.

Each is a ``Processor``: it has a state for each key, gets the rows, and is notified when a time is complete. Rows of two streams
come united. Times are microseconds since 1970.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_strandline import Processor

__all__ = ["AverageByCategory", "LastTen", "WinningBid"]


_NO_AUCTION: dict[str, Any] = dict.fromkeys(("begins", "expires", "seller", "category", "price"))


class WinningBid(Processor):
    """Emits the highest bid of an auction when the auction closes, if there is one.

    Bids may come before their auction, because rows are out of order, and because bids name auctions that do not exist yet. They
    wait until their time is complete: an auction that comes later begins after them.
    """

    schema = "seller bigint, category bigint, price bigint"
    state_schema = (
        "begins bigint, expires bigint, seller bigint, category bigint, price bigint, "
        "waiting array<struct<time bigint, price bigint>>"
    )

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        """Keep the auction, and the highest of its bids so far."""
        state: dict[str, Any] = self.state or _NO_AUCTION | {"waiting": []}
        for row in rows.select(["expires", "seller", "category", "price"]).to_pylist():
            if row["expires"] is None:
                state["waiting"].append({"time": time, "price": row["price"]})
            else:
                state |= {"begins": time, "expires": row["expires"], "seller": row["seller"], "category": row["category"]}
                self.notify_at(row["expires"])
        if state["expires"] is None:
            self.notify_at(time)
        else:
            prices = [bid["price"] for bid in state["waiting"] if state["begins"] <= bid["time"] <= state["expires"]]
            state |= {"price": max(filter(None, [*prices, state["price"]]), default=None), "waiting": []}
        self.state = state

    def on_notify(self, time: Any) -> None:
        """Close the auction, or forget bids for which there is none."""
        state = self.state
        if state is None:
            return
        if state["expires"] is None:
            waiting = [bid for bid in state["waiting"] if bid["time"] > time]
            self.state = {**state, "waiting": waiting} if waiting else None
        elif time == state["expires"]:
            if state["price"] is not None:
                self.emit(time, [{name: state[name] for name in ("seller", "category", "price")}])
            self.state = None


class AverageByCategory(Processor):
    """Emits the average of all prices so far. The rows of a time come in one batch, because they come when it is complete."""

    schema = "final bigint"
    state_schema = "total bigint, auctions bigint"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        """Add the prices of the auctions that closed at ``time``."""
        before = self.state or {"total": 0, "auctions": 0}
        total = before["total"] + sum(rows["price"].to_pylist())
        auctions = before["auctions"] + rows.num_rows
        self.state = {"total": total, "auctions": auctions}
        self.emit(time, [{"final": total // auctions}])


class LastTen(Processor):
    """Emits the average of the last ten prices. The rows of a time come in one batch, because they come when it is complete."""

    schema = "avg_price bigint"
    state_schema = "prices array<bigint>"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        """Add the prices of the auctions that closed at ``time``, in the order of their numbers."""
        before = [] if self.state is None else self.state["prices"]
        prices = [*before, *rows.sort_by("auction")["price"].to_pylist()][-10:]
        self.state = {"prices": prices}
        self.emit(time, [{"avg_price": sum(prices) // len(prices)}])
