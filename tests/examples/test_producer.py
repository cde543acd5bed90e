"""An airport tells its story once: in one go, in pieces, and killed at any moment."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pandas as pd
import pytest

from flights.data import AIRPORTS, Pause, events, load
from flights.pipeline import Folder, Pipeline
from flights.producer import Replay, replay
from flights.results import Telling
from flights.trace import SCHEMA, write_trace
from strandline.channel import Channel

KEY = ["airport", "scheduled", "carrier", "flight"]


def rows_of(channel: Channel) -> pd.DataFrame:
    rows = Channel.open(channel.path).read().to_pandas()
    rows["scheduled"] = (rows["scheduled"] - pd.Timestamp(0, tz="UTC")) // pd.Timedelta("1min")
    return rows[KEY].sort_values(KEY, ignore_index=True)


def departures(told: pd.DataFrame) -> pd.DataFrame:
    return told.loc[~told["cancelled"], KEY].sort_values(KEY, ignore_index=True)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    flights = load(3)
    made = Pipeline(Folder(tmp_path), flights, events(flights, Pause("LGA", 1, 1)))
    made.prepare()
    return made


def test_a_producer_that_is_started_anew_for_every_hour_tells_each_row_once(tmp_path: Path) -> None:
    flights = load(2)
    told = events(flights)
    write_trace(tmp_path / "trace", flights, told)
    channel = Channel.create(tmp_path / "flights", SCHEMA, producers=["JFK"])
    for _ in range(200):
        with channel.producer("JFK") as producer:
            story = Replay(tmp_path / "trace", "JFK")
            story.resume(producer)
            if not list(story):
                break
            rows = story.tell()
            if rows.num_rows:
                producer.send(rows)
            producer.delay(list(story.manifest.holds()))
            producer.commit()
    assert len(channel.frontier) == 0
    assert rows_of(channel).equals(departures(told[told["airport"] == "JFK"]))


def test_a_channel_of_another_story_is_refused(tmp_path: Path) -> None:
    flights = load(1)
    write_trace(tmp_path / "trace", flights, events(flights))
    channel = Channel.create(tmp_path / "flights", SCHEMA, producers=["JFK"])
    with channel.producer("JFK") as producer:
        producer.delay([])
        producer.commit()
        with pytest.raises(ValueError, match="this trace is never there"):
            Replay(tmp_path / "trace", "JFK").resume(producer)


def test_processes_killed_at_random_moments_lose_and_repeat_nothing(pipeline: Pipeline) -> None:
    chance = random.Random(11)
    try:
        for airport in AIRPORTS:
            pipeline.start_producer(airport)
        deadline = time.monotonic() + 240
        kills = 0
        at = 0
        while any(map(pipeline.running, AIRPORTS)) or at < len(pipeline.story.steps):
            assert time.monotonic() < deadline
            pipeline.telling.refresh()
            if at < len(pipeline.story.steps) and (at == 0 or pipeline.telling.has_told(pipeline.story.steps[at - 1])):
                pipeline.clock.set(pipeline.story.steps[at])
                at += 1
            if kills < 6 and pipeline.telling.version > 8 * (kills + 1):
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
    assert rows_of(channel).equals(departures(pipeline.told))
    told = Telling(pipeline.folder.flights, pipeline.story)
    told.refresh()
    assert told.has_told(pipeline.story.steps[-1])


def test_the_clock_holds_the_airports_back(tmp_path: Path) -> None:
    flights = load(1)
    told = events(flights)
    write_trace(tmp_path / "trace", flights, told)
    channel = Channel.create(tmp_path / "flights", SCHEMA, producers=["EWR"])

    class Stopped:
        """A clock that stands at one step, and ends the replay when it is asked for more."""

        def get(self) -> int:
            steps.append(True)
            if len(steps) > 3:
                raise InterruptedError
            return int(told["step"].min()) - 1

    steps: list[bool] = []
    with pytest.raises(InterruptedError):
        replay(channel, "EWR", tmp_path / "trace", Stopped())  # type: ignore[arg-type]
    assert Channel.open(tmp_path / "flights").read().num_rows == 0
