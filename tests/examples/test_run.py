"""The demo end to end: real processes, real Spark, its own comparison, and an exit status that tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from flights import run
from flights.data import Pause, events, load
from flights.pipeline import Folder, Pipeline
from flights.results import check_days, emitted, hourly_outcome
from forked_runners import forking_python

pytestmark = pytest.mark.spark
SCRIPT = Path(run.__file__)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two days with a pause leave behind."""
    folder = tmp_path_factory.mktemp("flights") / "out"
    command = [sys.executable, str(SCRIPT), "--days", "2", "--pause", "EWR:0:1", "--out", str(folder)]
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    assert "equals the count by pandas over the same file" in " ".join(ended.stdout.split())
    return folder


def judged(out: Path, flights: pd.DataFrame) -> list[str]:
    arrivals = events(load(2), Pause("EWR", 0, 1))
    pipeline = Pipeline(Folder(out), load(2), arrivals)
    pipeline.airports.refresh()
    folder = pipeline.folder
    _, problems = hourly_outcome(flights, arrivals, pipeline.airports, folder.hourly, folder.checkpoints / "hourly")
    return problems + check_days(flights, folder.daily)


@pytest.mark.drawn("processes")
def test_every_row_is_counted_and_every_hour_comes_in_the_batch_that_closes_it(out: Path) -> None:
    found = json.loads((out / "result.json").read_text())
    assert found["exact"]
    assert found["strandline"]["rows_counted"] == found["rows"] == int(load(2)["departed"].notna().sum())
    assert (found["strandline"]["rows_lost"], found["strandline"]["hours_wrong"]) == (0, 0)
    assert (found["strandline"]["batches_median"], found["strandline"]["batches_p99"]) == (0, 0)
    assert found["strandline"]["minutes_p99"] <= 60


@pytest.mark.drawn("processes")
def test_sparks_own_watermark_loses_on_the_same_rows(out: Path) -> None:
    result = json.loads((out / "result.json").read_text())
    found = result["withWatermark"]
    assert list(found) == ["10", "60", "120"]
    for spark in found.values():
        assert spark["source"] == "run"
        assert spark["rows_lost"] > 0
        assert spark["hours_wrong"] > 0
        assert spark["batches_median"] >= 1
    # Its own count is taken after rows of one group in one batch were added up.
    assert 0 < result["dropped_by_spark_s_count"] < sum(spark["rows_lost"] for spark in found.values())


@pytest.mark.drawn("processes")
def test_no_result_comes_before_its_airport_is_heard_of_again(out: Path) -> None:
    """EWR is silent on the first day: none of its hours may be complete before it speaks."""
    hours = emitted(out / "hourly")
    silent = (hours["airport"] == "EWR") & (hours["time"].map(lambda t: t["hour"]) < pd.Timestamp("2013-01-02T05:00", tz="UTC"))
    others = hours[(hours["airport"] != "EWR")]
    assert silent.any()
    assert hours.loc[silent, "batch"].min() > others["batch"].iloc[len(others) // 4], "the others' hours did not wait for it"


@pytest.mark.drawn("processes")
def test_a_count_that_is_off_by_one_is_found(out: Path) -> None:
    flights = load(2)
    assert judged(out, flights) == []
    one_less = flights.drop(flights.index[flights["departed"].notna()][100])
    problems = judged(out, one_less)
    assert any("hours have a wrong flights" in problem for problem in problems)
    assert any("days have a wrong flights" in problem for problem in problems)


@pytest.mark.drawn("processes")
def test_the_page_and_the_picture_need_nothing_from_elsewhere(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "When is an hour of flights complete?" in page
    for word in ("http://", "https://", "<link", "@import", 'src="/'):
        assert word not in page
    assert (out / "frontier.png").read_bytes()[:4] == b"\x89PNG"


def test_a_folder_that_is_not_the_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(SystemExit, match="was not made by this program"):
        run.fresh(tmp_path)
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize("wrong", [["--days", "0"], ["--days", "366"], ["--pause", "BOS:1:1"], ["--days", "3", "--year"]])
def test_a_wrong_argument_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.arguments(wrong)
    assert "error:" in capsys.readouterr().err


@pytest.mark.drawn("processes")
def test_a_process_that_dies_ends_the_run_with_its_log(tmp_path: Path) -> None:
    flights = load(1)
    pipeline = Pipeline(Folder(tmp_path), flights, events(flights))
    pipeline.prepare()
    (tmp_path / "trace" / "JFK.events.parquet").write_bytes(b"no Parquet")
    pipeline.start_producer("JFK")
    pipeline.processes["JFK"].wait(60)
    with pytest.raises(RuntimeError, match=r"'JFK' ended with status 1(.|\n)*Parquet"):
        pipeline.check_alive()
