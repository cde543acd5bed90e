"""Which beginnings give a new query the rows that the query before had read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_strandline.resume.beginnings import check_beginnings
from pyspark_strandline.resume.sink import FirstBatch
from pyspark_strandline.resume.written import Rows
from resumed import commit, reader
from strandline.channel import Channel
from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.inputs import Input
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

IMPOSSIBLE, DIFFERS = "STRANDLINE_RESUME_IMPOSSIBLE", "STRANDLINE_RESUME_DIFFERS"


def test_an_offset_of_a_release_before_stays_without_a_beginning(pair: tuple[Channel, Channel]) -> None:
    """And what a later release says of a beginning may mean something else."""
    source, out = pair
    start = first = reader(source, out).initialOffset()
    assert first["began"] == {"commit": 0}
    for began in (None, {"commit": 0, "later": 5}):
        start = {key: value for key, value in first.items() if key != "began"} | ({} if began is None else {"began": began})
        assert "began" not in reader(source, out).latestOffset(start, ReadAllAvailable())
    read = Input(source.table_id, 2, 0)
    commit(out, "q", 0, [read], (0, 1), then=1)
    for had, has in ((None, Beginning(commit=0)), (Beginning(commit=0), None)):
        batch = FirstBatch("new", [read._replace(began=has)], Antichain(int64, [1]), Rows(1, {0: 1}), state="rows")
        commit(out, "q", 1, [read._replace(began=had)], then=1)
        with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*do not say where the query before began.*resume to stateful"):
            batch.producer(out, None)
        assert replace(batch, allows="stateful").producer(out, None).producer == "q"


@pytest.mark.parametrize(
    ("was", "new", "message"),
    [
        (Beginning(0), Beginning(0), None),
        (Beginning(0), Beginning(None, 4), None),
        (Beginning(None, 2), Beginning(None, 4), None),
        (Beginning(None, 2), Beginning(0), None),
        (Beginning(3), Beginning(3), None),
        (Beginning(3, since="{5}"), Beginning(3), f"{DIFFERS}.*with commit 3, but .* with commit 3, by startingFrontier .5."),
        (Beginning(0, since="{5}"), Beginning(None, 4), f"{DIFFERS}.*cannot go on by resume"),
        (Beginning(3), Beginning(4), f"{DIFFERS}.*with commit 4, but .* began with commit 3"),
        (Beginning(3), Beginning(0), f"{DIFFERS}.*with commit 0, but .* began with commit 3"),
        (Beginning(3), Beginning(None, 4), f"{DIFFERS}.*with the snapshot of version 4, but .* began with commit 3"),
        (Beginning(None, 4), Beginning(3), f"{DIFFERS}.*with commit 3, but .* began with the snapshot of version 4"),
        (Beginning(3, None, 5), Beginning(3, None, 5), f"{IMPOSSIBLE}.*Commit 5 .*to stateful"),
        (Beginning(0, None, 5), Beginning(None, 7), f"{IMPOSSIBLE}.*Commit 5 .*to stateful"),
        (Beginning(None, 4), Beginning(0, None, 2), f"{IMPOSSIBLE}.*Commit 2 .*startingVersion to snapshot"),
        (Beginning(None, 4, 6), Beginning(0, None, 6), f"{IMPOSSIBLE}.*Commit 6 .*to stateful"),
        (Beginning(0, lossy=True), Beginning(0), f"{IMPOSSIBLE}.*failOnDataLoss.*to stateful"),
    ],
)
def test_which_beginnings_have_the_same_rows(was: Beginning, new: Beginning, message: str | None) -> None:
    had, has = ([Input("7c1f", 9, 0, "/in", began=began)] for began in (was, new))
    for trusted in (False, True):
        if message is None or (trusted and IMPOSSIBLE in message):
            check_beginnings("/out", "q", had, has, trusted=trusted)
        else:
            with pytest.raises(StrandlineError, match=message):
                check_beginnings("/out", "q", had, has, trusted=trusted)


def test_two_sources_of_one_channel_are_compared_each_with_its_own(pair: tuple[Channel, Channel]) -> None:
    source, _ = pair
    reads = [Input(source.table_id, 4, 0, began=Beginning(commit=at)) for at in (0, 2)]
    check_beginnings("out", "q", reads, reads, trusted=False)
    for other in (reads[::-1], reads[:1], reads[1:]):
        with pytest.raises(StrandlineError, match=f"{DIFFERS}.*begin"):
            check_beginnings("out", "q", reads, other, trusted=False)
