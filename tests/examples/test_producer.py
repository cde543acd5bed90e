"""An airport sends its events once: in one go, in pieces, and killed at any moment."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pandas as pd
import pytest

from flights.data import AIRPORTS, Pause, events, load
from flights.pipeline import Folder, Pipeline
from flights.producer import Replay, replay
from flights.results import AirportProgress
from flights.trace import SCHEMA, write_trace
from strandline.channel import Channel

KEY = ["airport", "scheduled", "carrier", "flight"]


def rows_of(channel: Channel) -> pd.DataFrame:
    rows = Channel.open(channel.path).read().to_pandas()
    rows["scheduled"] = (rows["scheduled"] - pd.Timestamp(0, tz="UTC")) // pd.Timedelta("1min")
    return rows[KEY].sort_values(KEY, ignore_index=True)


def departures(arrivals: pd.DataFrame) -> pd.DataFrame:
    return arrivals.loc[~arrivals["cancelled"], KEY].sort_values(KEY, ignore_index=True)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    flights = load(3)
    made = Pipeline(Folder(tmp_path), flights, events(flights, Pause("LGA", 1, 1)))
    made.prepare()
    return made


@pytest.mark.drawn("core")
def test_a_producer_that_is_started_anew_for_every_hour_tells_each_row_once(tmp_path: Path) -> None:
    flights = load(2)
    arrivals = events(flights)
    write_trace(tmp_path / "trace", flights, arrivals)
    channel = Channel.create(tmp_path / "flights", SCHEMA, producers=["JFK"])
    for _ in range(200):
        with channel.producer("JFK") as producer:
            expected_progress = Replay(tmp_path / "trace", "JFK")
            expected_progress.resume(producer)
            if not list(expected_progress):
                break
            rows = expected_progress.next_rows()
            if rows.num_rows:
                producer.send(rows)
            producer.delay(list(expected_progress.manifest.holds()))
            producer.commit()
    assert len(channel.frontier) == 0
    assert rows_of(channel).equals(departures(arrivals[arrivals["airport"] == "JFK"]))


def test_a_channel_of_another_story_is_refused(tmp_path: Path) -> None:
    flights = load(1)
    write_trace(tmp_path / "trace", flights, events(flights))
    channel = Channel.create(tmp_path / "flights", SCHEMA, producers=["JFK"])
    with channel.producer("JFK") as producer:
        producer.delay([])
        producer.commit()
        with pytest.raises(ValueError, match="this trace has no such state"):
            Replay(tmp_path / "trace", "JFK").resume(producer)


@pytest.mark.drawn("core")
def test_processes_killed_at_random_moments_lose_and_repeat_nothing(pipeline: Pipeline) -> None:
    chance = random.Random(11)
    try:
        for airport in AIRPORTS:
            pipeline.start_producer(airport)
        deadline = time.monotonic() + 240
        kills = 0
        at = 0
        while any(map(pipeline.running, AIRPORTS)) or at < len(pipeline.expected_progress.steps):
            assert time.monotonic() < deadline
            pipeline.airports.refresh()
            if at < len(pipeline.expected_progress.steps) and (
                at == 0 or pipeline.airports.has_reported(pipeline.expected_progress.steps[at - 1])
            ):
                pipeline.clock.set(pipeline.expected_progress.steps[at])
                at += 1
            if kills < 6 and pipeline.airports.version > 8 * (kills + 1):
                victim = chance.choice(AIRPORTS)
                time.sleep(chance.uniform(0, 0.03))
                pipeline.kill(victim)
                pipeline.start_producer(victim)
                kills += 1
            time.sleep(0.002)
        pipeline.check_alive()
    finally:
        pipeline.stop()
    assert kills == 6
    channel = Channel.open(pipeline.folder.flights)
    assert len(channel.frontier) == 0
    assert rows_of(channel).equals(departures(pipeline.arrivals))
    arrivals = AirportProgress(pipeline.folder.flights, pipeline.expected_progress)
    arrivals.refresh()
    assert arrivals.has_reported(pipeline.expected_progress.steps[-1])


def test_the_clock_holds_the_airports_back(tmp_path: Path) -> None:
    flights = load(1)
    arrivals = events(flights)
    write_trace(tmp_path / "trace", flights, arrivals)
    channel = Channel.create(tmp_path / "flights", SCHEMA, producers=["EWR"])

    class Stopped:
        """A clock that stands at one step, and ends the replay when it is asked for more."""

        def get(self) -> int:
            steps.append(True)
            if len(steps) > 3:
                raise InterruptedError
            return int(arrivals["step"].min()) - 1

    steps: list[bool] = []
    with pytest.raises(InterruptedError):
        replay(channel, "EWR", tmp_path / "trace", Stopped())  # type: ignore[arg-type]
    assert Channel.open(tmp_path / "flights").read().num_rows == 0
