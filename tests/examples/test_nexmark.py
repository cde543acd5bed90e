"""Nexmark: the events are those of the reference, and every query has DuckDB's answer at every time that is complete."""

from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from forked_runners import forking_python
from helpers import ROOT
from nexmark.answers import ANSWERS, compare, connect
from nexmark.events import nexmark
from nexmark.feed import BOUNDS, Feed, Silence, partitions
from nexmark.pipeline import end, run_query, take_in
from nexmark.queries import QUERIES, inputs_of


@pytest.mark.parametrize("name", ["answers", "compare", "events", "feed", "pipeline", "processors", "queries", "run"])
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(f"nexmark.{name}")
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL).failed == 0


EVENTS = 200_000


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return nexmark(EVENTS)


def test_a_seed_gives_the_same_events() -> None:
    first, again, other = (nexmark(500, seed=seed)["bid"] for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)


def test_persons_auctions_and_bids_are_as_often_as_in_the_reference(tables: dict[str, pa.Table]) -> None:
    assert [tables[name].num_rows * 50 for name in ("person", "auction", "bid")] == [EVENTS, 3 * EVENTS, 46 * EVENTS]
    for name, first in (("person", 1000), ("auction", 1000)):
        assert tables[name]["id"].to_pylist() == list(range(first, first + tables[name].num_rows))
    assert pc.all(pc.less(tables["auction"]["dateTime"], tables["auction"]["expires"])).as_py()


def test_ids_are_of_persons_and_auctions_that_exist_or_come_soon(tables: dict[str, pa.Table]) -> None:
    auction, bid = tables["auction"], tables["bid"]
    newest_person = 1000 + np.arange(EVENTS) // 50
    newest_auction = 1000 + np.arange(EVENTS) // 50 * 3 + 2
    numbers = np.arange(EVENTS) % 50
    of_auction, of_bid = (numbers >= 1) & (numbers < 4), numbers >= 4
    for ids, newest, lead in (
        (auction["seller"], newest_person[of_auction], 10),
        (bid["bidder"], newest_person[of_bid], 10),
        (bid["auction"], newest_auction[of_bid], 10),
    ):
        ahead = ids.to_numpy() - newest
        assert ids.to_numpy().min() >= 1000
        assert ahead.max() == lead
    behind = newest_auction[of_bid] - bid["auction"].to_numpy()
    assert behind.max() == 100  # as many as are in flight


def test_some_persons_and_auctions_are_hot(tables: dict[str, pa.Table]) -> None:
    auction, bid = tables["auction"], tables["bid"]
    # 3 of 4 sellers, 3 of 4 bidders and 1 of 2 auctions are the hot one of a hundred; the others are it now and then.
    assert np.mean(auction["seller"].to_numpy() % 100 == 0) == pytest.approx(0.75 + 0.25 / 100, abs=0.01)
    assert np.mean(bid["bidder"].to_numpy() % 100 == 1) == pytest.approx(0.75 + 0.25 / 100, abs=0.01)
    assert np.mean(bid["auction"].to_numpy() % 100 == 0) == pytest.approx(0.5 + 0.5 / 100, abs=0.01)
    named = pc.is_in(bid["channel"], value_set=pc.cast(["Google", "Facebook", "Baidu", "Apple"], "string"))
    assert pc.mean(named).as_py() == pytest.approx(0.5, abs=0.01)
    prices = np.log10(bid["price"].to_numpy())
    assert prices.min() >= 2
    assert prices.max() <= 8
    assert np.mean(prices) == pytest.approx(5, abs=0.02)


def test_a_partition_is_out_of_order_by_its_bound_and_silent_when_it_should(tmp_path: Path) -> None:
    tables = nexmark(20_000)
    seconds = Feed(silence=Silence(3, 5, 12)).write(tmp_path, tables)
    assert len(list((tmp_path / "bid").iterdir())) == seconds * len(BOUNDS)
    rows = 0
    for number, bound in enumerate(BOUNDS):
        newest = np.int64(0)
        for second in range(seconds):
            table = pq.read_table(tmp_path / "bid" / f"{second:05d}-{number}.parquet")
            times = table["dateTime"].cast("int64").to_numpy()
            assert set(table["partition"].to_pylist()) <= {partitions()[number]}
            if number == 3 and 5 <= second < 12:
                assert not len(times)
            newest_before = np.maximum.accumulate(np.concatenate([[newest], times]))
            assert (newest_before[:-1] - times <= bound * 1_000_000).all()
            newest, rows = newest_before[-1], rows + len(times)
    assert rows == tables["bid"].num_rows


def test_a_malformed_silence_is_refused_with_the_form_it_should_have() -> None:
    with pytest.raises(ValueError, match="is not a silence"):
        Silence.parse("3:20")


def check(
    spark: Any, folder: Path, events: int, silence: Silence, queries: list[str], seconds_a_batch: int | None = None
) -> None:
    """Compare the queries with DuckDB while the streams are open, and at their end. By default a batch has all that there is."""
    streams = sorted({stream for query in queries for stream in inputs_of(query)})
    bounds = BOUNDS if events > 2000 else (1, 2)
    Feed(bounds, silence).write(folder / "feed", nexmark(events, rate=100))
    files_a_batch = None if seconds_a_batch is None else seconds_a_batch * len(bounds)
    take_in(spark, folder / "feed", folder, streams, bounds, files_a_batch, tasks=1)
    options = {} if seconds_a_batch is None else {"maxFilesPerTrigger": "2"}  # one of each channel
    duck = connect(folder / "feed")
    found = {}
    for state in ("open", "ended"):
        if state == "ended":
            end(folder, streams, bounds)
        for query in queries:
            run_query(spark, query, folder, **options)
            found[query, state] = compared = compare(duck, query, str(folder / query))
            assert (compared.missing, compared.wrong) == (0, 0), (query, state)
            assert compared.results, (query, state)
    assert all(found[query, "open"].results < found[query, "ended"].results for query in queries)


@pytest.mark.spark
def test_hot_items_are_duckdbs(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, 800, Silence(1, 4, 6), ["q5"])


@pytest.mark.drawn
@pytest.mark.spark
def test_processors_keep_from_batch_to_batch_what_they_need(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, 2000, Silence(1, 8, 12), ["q3", "q4", "q6", "q20"], seconds_a_batch=3)


@pytest.mark.drawn
@pytest.mark.spark
def test_every_query_is_duckdbs(spark: Any, tmp_path: Path) -> None:
    assert list(ANSWERS) == list(QUERIES)
    check(spark, tmp_path, 6000, Silence(3, 20, 35), list(QUERIES))


def program(name: str, *arguments: str) -> str:
    """Run a program as a user does, whose workers do not have the folder of examples."""
    path = os.pathsep.join(part for part in os.environ["PYTHONPATH"].split(os.pathsep) if not part.endswith("examples"))
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": forking_python()}
    command = [sys.executable, str(ROOT / "examples" / "nexmark" / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


@pytest.mark.drawn("processes")
@pytest.mark.spark
def test_the_program_says_what_it_compared() -> None:
    said = program("run.py", "--events", "3000", "--rate", "100", "--silence", "3:5:8", "--queries", "q3", "q8")
    assert said.count(" 0 missing, 0 wrong; ") == 4


@pytest.mark.drawn("processes")
@pytest.mark.spark
def test_the_comparison_has_a_line_for_each_way() -> None:
    options = ["--seconds", "22", "--rate", "100", "--silence", "3:3:16", "--delays", "1", "--queries", "q11"]
    lines = [line for line in program("compare.py", *options).splitlines() if line.startswith("| q11")]
    spark, ours = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert (spark[1], ours[1]) == ("Spark, 1 s", "Strandline")
    assert int(spark[5]) > 0
    assert ours[3:6] == ["0", "0", "0"]
