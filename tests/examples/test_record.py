"""The examples of loops over recorded times: planes that come back, and stop orders that wake up."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.drawn]


def test_planes_come_back_as_plain_python_says_and_a_longer_turnaround_shows_where_it_says(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from record.aircraft import legs
    from record.run_aircraft import run

    day = legs(1)
    evening = day["scheduled"].between(day["scheduled"].min() + 12 * 60, day["scheduled"].min() + 18 * 60)
    assert run(spark, tmp_path, day[evening & (day["air"] < 90)], ways=2) == 0
    said = capsys.readouterr().out
    assert said.count("partitions: equal") == 2
    assert "first leg that leaves at another time: N" in said


def test_a_plane_that_comes_back_late_leaves_late_again() -> None:
    import pandas as pd

    from record.aircraft import simulate

    legs = pd.DataFrame({"scheduled": [0, 200, 380], "tailnum": "N1", "flight": [1, 2, 3], "own": [60, 0, 0], "air": 60})
    assert [(each.begins, each.departed, each.ready) for each in simulate(legs, 40)] == [
        (0, 60, 260),
        (260, 260, 460),
        (460, 460, 660),
    ]


def test_the_book_gives_the_trades_of_plain_python(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from record.order_book import run

    assert run(spark, tmp_path, count=100, seed=2) == 0
    assert "stop orders came round" in capsys.readouterr().out


def test_a_stop_order_comes_a_millisecond_later_and_may_wake_up_another() -> None:
    from record.order_book import Order, plain_trades

    number = itertools.count(1)

    def order(instant: int, side: str, kind: str, price: int | None, quantity: int) -> Order:
        return Order(instant, "A", next(number), side, kind, price, quantity, "t")

    orders = [
        order(0, "sell", "limit", 100, 1),
        order(0, "sell", "limit", 101, 1),
        order(0, "sell", "limit", 102, 1),
        order(1, "buy", "stop", 101, 1),
        order(1, "buy", "stop", 100, 1),
        order(2, "buy", "market", None, 1),
        order(1001, "buy", "limit", 101, 1),  # faster than the stop
    ]
    found = plain_trades(orders)
    assert [(each.instant, each.price, each.buy) for each in found] == [(2, 100, 6), (1001, 101, 7), (1002, 102, 5)]
