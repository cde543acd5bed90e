"""Everything where Spark runs in processes of its own: in Spark Connect, and on a local cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from completion_query import fill
from forked_runners import forking_python
from helpers import ROOT, contents, make_channel, say
from ingest_files import Feed
from strandline.channel import Channel

pytestmark = [pytest.mark.spark, pytest.mark.drawn("processes")]


class Ran(NamedTuple):
    """The folder in which the queries of ``mode_queries.py`` ran, what they said, and what completion must have given."""

    folder: Path
    result: dict[str, Any]
    told: list[tuple[int, str, int]]


# In `make test`, test_executors.py has the cluster.
@pytest.fixture(scope="module", params=["connect", pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.soak)])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """All queries, run in one session."""
    folder = tmp_path_factory.mktemp("mode")
    left, right = (make_channel(folder / "native" / name, producers=("a",)) for name in ("left", "right"))
    say(left, "a", (1, 1), (2, 2), then=[2])
    say(right, "a", (1, 10), (3, 30), then=[3])
    feed = Feed(folder / "ingest" / "in", pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64())]))
    feed.add([(5, "a", 0), (9, "a", 1), (3, "b", 2)])
    feed.add([(6, "a", 3), (7, "a", 4), (2, "b", 5)])
    say(make_channel(folder / "tables" / "in", producers=("a",)), "a", (1, 1), (1, 2), (3, 4), then=[2])
    (folder / "completion").mkdir()
    say(make_channel(folder / "loop" / "in", producers=("a",)), "a", (1, 2), (3, 1), then=[4])
    told = fill(folder / "completion" / "in", seed=3, commits=3)
    environment = {k: v for k, v in os.environ.items() if k not in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")}
    environment |= {"SPARK_LOCAL_DIRS": str(folder / "local"), "PYSPARK_PYTHON": forking_python()}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "support" / "mode_queries.py"), request.param, str(folder)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    results = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("\tat "))
    assert results, done.stdout[-2000:] + said[-6000:]
    result = json.loads(results[0])
    assert result["connect"] == (request.param == "connect")
    return Ran(folder, result, told)


def test_the_native_scan_and_moved_times(ran: Ran) -> None:
    assert "StrandlineFileIndex" in ran.result["plan"]
    assert "(Python, because nativeScan is off)" in ran.result["plan"]
    out = ran.folder / "native" / "out"
    assert contents(out) == [(6, 11)]
    assert Channel.open(out).frontier.to_json() == [7]
    assert ran.result["read"] == [[6, 11]]


def test_an_ingest_by_the_call_and_by_options(ran: Ran) -> None:
    assert ran.result["back"] == 5
    for name in ("call", "alone"):
        path = ran.folder / "ingest" / name
        channel = Channel.open(path)
        assert {partition: state.holds.to_json() for partition, state in channel.producers.items()} == {"a": [7], "b": [1]}
        assert [row[2] for row in contents(path)] == [5, 2, 0, 4, 1]
        late = DeltaTable(f"{path}_late").to_pyarrow_table()
        assert late.select(["n", "_reason", "_partition"]).to_pylist() == [{"n": 3, "_reason": "late", "_partition": "a"}]


def test_tables_by_name_and_a_query_that_goes_on_without_its_checkpoint(ran: Ran) -> None:
    seen = ran.result["tables"]
    assert (seen["first"], seen["resumed"]) == ([[1, 3]], [[1, 3], [3, 12]])
    assert "STRANDLINE_BATCH_WRITE_UNSUPPORTED" in seen["DELETE"]
    assert "STRANDLINE_TABLE_COLUMNS_UNSUPPORTED" in seen["CREATE"]


def test_hold_on_complete_and_processors(ran: Ran) -> None:
    out = Channel.open(ran.folder / "completion" / "out")
    assert sorted((row["time"], row["k"], row["n"]) for row in out.read().to_pylist()) == ran.told


def test_a_loop(ran: Ran) -> None:
    assert contents(ran.folder / "loop" / "result") == [(1, "k", 0), (1, "k", 1), (1, "k", 2), (3, "k", 0), (3, "k", 1)]
    assert Channel.open(ran.folder / "loop" / "result").frontier.to_json() == [4]
