"""Errors in a loop advise only what a loop accepts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.streaming.datasource import ReadAllAvailable

import error_reference
from helpers import ROOT
from loop_lake import all_rows, finish, make_lake
from loop_plans import FLAT
from pyspark_strandline import read_loop
from pyspark_strandline.loop_remedies import loop_remedies
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.source import StreamReader
from strandline.channel import Channel
from strandline.errors import StrandlineError

REFUSED = re.compile("startingVersion|startingTimestamp|skipChangeCommits|ignoreDeletes|option resume")
"""Options that a loop refuses."""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make_lake(tmp_path)


def reader(lake: Path) -> StreamReader:
    channels = {name: str(lake / name) for name in ("numbers", "back")}
    given = {"channels": json.dumps(channels), "feedback": json.dumps({"back": {"iter": 1}}), "domain": str(FLAT)}
    options = ReadOptions.parse(given).for_stream()
    return StreamReader(options, Inputs(options).schema())


def send(lake: Path) -> None:
    with Channel.open(lake / "numbers").producer("p") as producer:
        producer.send(pa.table({"time": [1], "n": [3]}))


def deleted(lake: Path) -> None:
    DeltaTable(lake / "numbers").delete()


def rewritten(lake: Path) -> None:
    DeltaTable(lake / "numbers").update({"n": "n + 1"})


def written_by_another(lake: Path) -> None:
    write_deltalake(lake / "numbers", Channel.open(lake / "numbers").read(), mode="append")


def truncated(lake: Path) -> None:
    send(lake)
    DeltaTable(lake / "numbers").create_checkpoint()
    for path in sorted((lake / "numbers" / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()


def replaced(lake: Path) -> None:
    shutil.rmtree(lake / "numbers")
    make_lake(lake / "other")
    shutil.move(lake / "other" / "numbers", lake / "numbers")


@pytest.mark.parametrize(
    ("damage", "condition"),
    [
        (deleted, "STRANDLINE_ROWS_CHANGED"),
        (rewritten, "STRANDLINE_ROWS_CHANGED"),
        (written_by_another, "STRANDLINE_STATEMENT_MISSING"),
        (truncated, "STRANDLINE_LOG_TRUNCATED"),
        (replaced, "STRANDLINE_CH"),
    ],
)
def test_a_channel_that_was_changed_says_how_to_begin_the_loop_anew(
    lake: Path, damage: Callable[[Path], None], condition: str
) -> None:
    source = reader(lake)
    begin = json.loads(json.dumps(source.latestOffset(source.initialOffset(), ReadAllAvailable())))
    damage(lake)
    for each in (source, reader(lake)):  # a query that runs, and one that is started again
        with pytest.raises(StrandlineError, match=condition) as caught:
            each.latestOffset(begin, ReadAllAvailable())
        assert "new channels for its feedback" in caught.value.remedy
        assert not REFUSED.search(caught.value.remedy.split("by a query of its own")[0])


def test_a_missing_file_says_so_for_a_loop(lake: Path) -> None:
    source = reader(lake)
    begin = source.initialOffset()
    end = source.latestOffset(begin, ReadAllAvailable())
    parts = source.partitions(begin, end)
    for path in (lake / "numbers").glob("*.parquet"):
        path.unlink()
    calls: list[Callable[[], Any]] = [
        lambda: [row for part in parts for row in source.read(part)],
        lambda: reader(lake).partitions(begin, {**end, "statistics": []}),
    ]
    for call in calls:
        with pytest.raises(StrandlineError, match="STRANDLINE_DATA_FILE_MISSING.*failOnDataLoss") as caught:
            call()
        assert "new channels for its feedback" in caught.value.remedy


def test_no_error_of_the_source_advises_what_a_loop_refuses() -> None:
    """Every remedy in the modules that a source runs is looked at, also those that are added later."""
    # About these options themselves, or of a replay, which a loop refuses.
    alone = {
        *("STRANDLINE_VERSION_MISSING", "STRANDLINE_OPTION_CONFLICT", "STRANDLINE_RESUME_IMPOSSIBLE"),
        "STRANDLINE_RECORDING_INCOMPLETE",
    }
    found = set()
    for folder in ("python/strandline/channel", "python/strandline/delta", "connector/pyspark_strandline/read"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for raised in (
                error_reference.package_errors(path) if path.name == "errors.py" else error_reference.inline_errors(path)
            ):
                if REFUSED.search(raised.remedy) or "newest snapshot" in raised.remedy:
                    found.add(raised.condition)
    assert len(found - alone) > 2
    for condition in found - alone:
        with pytest.raises(StrandlineError) as caught, loop_remedies(True):
            raise StrandlineError(condition, "It happened.", "Set startingVersion.")
        assert caught.value.remedy != "Set startingVersion.", condition
    with pytest.raises(StrandlineError, match="Set startingVersion"), loop_remedies(False):
        raise StrandlineError("STRANDLINE_ROWS_CHANGED", "It happened.", "Set startingVersion.")


@pytest.mark.drawn
@pytest.mark.spark
def test_a_result_that_is_gone_says_how_to_begin_the_loop_anew(spark: Any, lake: Path) -> None:
    def run() -> None:
        paths = {"numbers": str(lake / "numbers"), "back": str(lake / "back")}
        loop = read_loop(spark, paths, feedback={"back": {"iter": 1}}, domain=FLAT)
        outputs = {"back": all_rows(loop).where("n > 9"), "seen": (all_rows(loop), str(lake / "seen"))}
        finish(loop.write(outputs), lake / "checkpoint")

    run()
    shutil.rmtree(lake / "seen")
    send(lake)
    with pytest.raises(Exception, match="STRANDLINE_OUTPUT_MISSING.*new channels for its feedback"):
        run()
