"""The exact model: Spark's loss over the whole year at every delay, held to the known figures and to a row-by-row replay."""

from __future__ import annotations

import pandas as pd
import pytest

from flights import data, model


@pytest.fixture(scope="module")
def year() -> pd.DataFrame:
    return data.events(data.load())


@pytest.mark.parametrize(
    ("delay", "lost", "wrong", "median", "high"),
    [
        (0, 50_635, 14_116, 12, 325),
        (10, 17_678, 7_735, 51, 305),
        (60, 13_177, 6_556, 57, 396),
        (120, 4_411, 2_892, 110, 444),
        (360, 102, 113, 358, 662),
        (1440, 0, 55, 1410, 1741),
    ],
)
def test_the_years_loss_at_each_guessed_delay(
    year: pd.DataFrame, delay: int, lost: int, wrong: int, median: int, high: int
) -> None:
    outcome = model.watermark(year, delay)
    assert (outcome.rows_lost, outcome.hours_wrong) == (lost, wrong)
    assert tuple(map(round, model.percentiles(outcome.minutes))) == (median, high)
    assert outcome.right["batches"].min() >= 1, "Spark emits in the batch after the one that closed the hour, at the earliest"


def test_the_manifest_loses_nothing_and_waits_for_nothing(year: pd.DataFrame) -> None:
    outcome = model.exact(year, batch=1)
    assert (outcome.rows_lost, outcome.hours_wrong) == (0, 0)
    assert model.percentiles(outcome.minutes) == (0, 0)
    assert model.percentiles(model.exact(year).right["batches"]) == (0, 0)


def test_a_total_order_makes_hours_wait_for_the_latest_flight_of_any_airport(year: pd.DataFrame) -> None:
    outcome = model.exact_in_order(year, batch=1)
    assert (outcome.rows_lost, outcome.hours_wrong) == (0, 0)
    assert tuple(map(round, model.percentiles(outcome.minutes))) == (50, 588)


@pytest.mark.parametrize("delay", [0, 10, 60, 120])
@pytest.mark.parametrize("pause", [None, data.Pause("EWR", 1, 1)])
def test_the_model_is_a_replay_row_by_row(delay: int, pause: data.Pause | None) -> None:
    arrivals = data.events(data.load(4), pause)
    outcome = model.watermark(arrivals, delay)
    mark, newest = -(1 << 60), -(1 << 60)
    state: dict[tuple[int, str], int] = {}
    emitted: dict[tuple[int, str], tuple[int, int]] = {}
    lost = 0
    for step, rows in arrivals[~arrivals["cancelled"]].groupby("step"):
        for hour, airport, scheduled in rows[["hour", "airport", "scheduled"]].itertuples(index=False):
            newest = max(newest, scheduled)
            if hour + data.HOUR <= mark:
                lost += 1
            else:
                state[hour, airport] = state.get((hour, airport), 0) + 1
        mark = newest - delay
        for key in [key for key in state if key[0] + data.HOUR <= mark]:
            emitted[key] = (state.pop(key), (int(step) + 1) * data.HOUR)
    assert outcome.rows_lost == lost
    found = outcome.hours[outcome.hours["result"].notna()]
    assert {key: (row.counted, row.result) for key, row in zip(found.index, found.itertuples(), strict=True)} == emitted
