"""Where the first batch of a query that goes on with an output ends, and where it begins."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.source import StreamReader
from pyspark_strandline.schema import spark_schema
from resumed import commit, reader, send
from strandline.channel import Channel
from strandline.channel.statements.inputs import Input
from strandline.errors import StrandlineError
from strandline.time.domain import int64

IMPOSSIBLE = "STRANDLINE_RESUME_IMPOSSIBLE"
LEAST = int64.minimum


def first_end(source: Channel, out: Channel, **options: str) -> dict[str, Any]:
    own = reader(source, out, **options)
    end = own.latestOffset(own.initialOffset(), ReadMaxFiles(1))
    own.initialOffset()
    own.partitions(own.initialOffset(), end)
    assert own.latestOffset(end, ReadAllAvailable())["commit"] == source.version + 1 or "snapshot" in end
    return end


@pytest.mark.parametrize(("at", "frontier"), [((0, 0), [LEAST]), ((1, 0), [0]), ((2, 0), [1]), ((2, 1), [1]), ((4, 0), [3])])
def test_the_first_batch_ends_where_the_query_had_stopped(
    pair: tuple[Channel, Channel], at: tuple[int, int], frontier: list[int]
) -> None:
    source, out = pair
    commit(out, "q", 0, [Input(source.table_id, *at)])
    end = first_end(source, out)
    assert ((end["commit"], end["file"]), end["frontier"]) == (at, frontier)


def test_the_first_batch_ends_within_a_snapshot(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    commit(out, "q", 0, [Input(source.table_id, 3, 2, snapshot=2)])
    own = reader(source, out, startingVersion="snapshot")
    start = own.initialOffset()
    end = own.latestOffset(start, ReadAllAvailable())
    assert (end["commit"], end["file"], end["snapshot"], end["frontier"]) == (3, 2, 2, [LEAST])
    with pytest.raises(
        StrandlineError, match=f"{IMPOSSIBLE}.*up to file 2 of the snapshot of version 2.*startingVersion to snap"
    ):
        first_end(source, out)


def test_a_snapshot_that_is_not_in_the_log_any_more_is_refused(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    commit(out, "q", 0, [Input(source.table_id, 3, 0)])
    source.clean_log(timedelta(0))
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*up to commit 3, but the new query cannot read it there any more"):
        first_end(source, out)


@pytest.mark.parametrize("several", [False, True], ids=["one channel", "several channels"])
def test_a_batch_that_is_repeated_begins_where_it_was_planned(pair: tuple[Channel, Channel], several: bool) -> None:
    """After a crash in a query's first batch, Spark asks again where the query begins, and ``latest`` is elsewhere then."""
    source, other = pair

    def latest() -> StreamReader:
        if several:
            names = json.dumps({"in": str(source.path), "out": str(other.path)})
            options = ReadOptions.parse({"channels": names, "startingVersion": "latest"})
            return StreamReader(options, Inputs(options).schema())
        options = ReadOptions.parse({"path": str(source.path), "startingVersion": "latest"})
        return StreamReader(options, spark_schema(source.schema, source.time_column, source.domain))

    before = latest()
    start = before.initialOffset()
    send(Path(source.path), [(3, 7), (4, 8)], then=5)
    end = before.latestOffset(start, ReadAllAvailable())
    assert (end["channels"]["in"] if several else end)["began"] == {"commit": 4}
    for own, begin in ((before, start), (latest(), latest().initialOffset())):
        assert sum(batch.num_rows for part in own.partitions(begin, end) for batch in own.read(part)) == 2


def test_a_query_that_has_begun_does_not_look_for_its_output(pair: tuple[Channel, Channel], tmp_path: Path) -> None:
    """Also at the position where it began: Spark asks for the initial offset only of a new query."""
    source, out = pair
    commit(out, "q", 0, [Input(source.table_id, 1, 0)])
    start = reader(source, out).initialOffset()
    shutil.rmtree(tmp_path / "out")
    own = reader(source, out)
    assert own.latestOffset(start, ReadAllAvailable())["commit"] == 4
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*There is no channel at"):
        first_end(source, out)


@pytest.mark.parametrize(
    ("read", "options", "message"),
    [
        ({"commit": 9}, {}, "STRANDLINE_CHANNEL_REPLACED.*has read commit 8 .*newest commit is now 3"),
        ({"after": "0" * 32}, {}, "STRANDLINE_CHANNEL_REPLACED.*is not the one that was read before"),
        ({"commit": 2, "file": 3}, {}, "STRANDLINE_OFFSET_INVALID.*only 2 file"),
        ({"commit": 2, "file": 1}, {"startingVersion": "snapshot"}, f"{IMPOSSIBLE}.*between two commits"),
        ({"commit": 2}, {"startingVersion": "latest"}, f"{IMPOSSIBLE}.*new query begins at commit 4"),
        ({"commit": 2}, {"startingVersion": "3"}, f"{IMPOSSIBLE}.*up to commit 2, but the new query begins at commit 3"),
        ({"table": "other"}, {}, f"{IMPOSSIBLE}.*No producer of .* has read all of them"),
        ({"table": "other", "path": "in"}, {}, f"{IMPOSSIBLE}.*was made anew"),
        ({}, {"producer": "r"}, f"{IMPOSSIBLE}.*has no commit of 'r'"),
        ({}, {"producer": "s"}, f"{IMPOSSIBLE}.*has no producer 's'. Its producers: 'q', 'r'"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(
    pair: tuple[Channel, Channel], tmp_path: Path, read: dict[str, Any], options: dict[str, str], message: str
) -> None:
    source, out = pair
    if "path" in read:
        read = {**read, "path": str(tmp_path / read["path"])}
    commit(out, "q", 0, [Input(source.table_id, 4, 0)._replace(**read)])
    with pytest.raises(StrandlineError, match=message):
        first_end(source, out, **options)
