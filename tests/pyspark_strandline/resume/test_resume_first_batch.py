"""The first batch of a query that goes on is compared with what the output has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyspark_strandline.resume.sink import FirstBatch
from pyspark_strandline.resume.written import Rows
from pyspark_strandline.write.channel.channel_output import ChannelOutput
from pyspark_strandline.write.channel.written_files import WrittenFiles
from pyspark_strandline.write.commit_record import CommitRecord
from resumed import commit
from strandline.channel import Channel
from strandline.channel.statements.inputs import Input
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

IMPOSSIBLE, DIFFERS = "STRANDLINE_RESUME_IMPOSSIBLE", "STRANDLINE_RESUME_DIFFERS"


def test_the_first_batch_is_compared_with_what_the_output_has(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    read = Input(source.table_id, 2, 0)
    commit(out, "q", 0, [read], (0, 1), (1, 2), then=1)

    def first(holds: list[int], rows: Rows, others: int = 0, **at: Any) -> None:
        batch = FirstBatch("new", [read._replace(**at)], Antichain(int64, holds), rows, others, state="rows", allows="stateful")
        batch.check(out, batch.producer(out, None))
        with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*how rows are cut into batches"):
            replace(batch, state="batches").producer(out, None)

    good = Rows(2, {0: 1, 1: 1})
    first([1], good)
    first([1], Rows(2, None))
    for message, holds, found, others, at in (
        (f"{DIFFERS}.*frontier is .*1.*that of query new is .*2", [2], good, 0, {}),
        (f"{DIFFERS}.*2 rows, but query new makes 3", [1], Rows(3, None), 0, {}),
        (f"{DIFFERS}.*1 rows at 0, but query new makes 2", [1], Rows(2, {0: 2}), 0, {}),
        (f"{IMPOSSIBLE}.*1 of the query's sources are not channels", [1], good, 1, {}),
        (f"{IMPOSSIBLE}.*on every source", [1], good, 0, {"commit": 3}),
    ):
        with pytest.raises(StrandlineError, match=message):
            first(holds, found, others, **at)


def test_a_query_that_another_overtakes_between_its_check_and_its_commit_writes_nothing(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    read = Input(source.table_id, 2, 0)
    commit(out, "q", 0, [read], (0, 1), then=1)
    before = ChannelOutput(str(out.path), out.schema, "time", int64, producer="q", take_over=True)
    first = FirstBatch("new", [read], Antichain(int64, [1]), Rows(1, {0: 1}), state="none")
    batch = before.batch(("q", 1), WrittenFiles(), [read._replace(commit=3)])
    before.check(batch, CommitRecord("q", None), "")
    replace(before, resume=True).go_on(first)
    with pytest.raises(StrandlineError, match="STRANDLINE_PRODUCER_FENCED"):
        before.commit(batch, Antichain(int64, [2]))
    out.refresh()
    assert out.frontier.to_json() == [0]  # of "r"
    assert list(out.producers["q"].holds) == [1]
    with pytest.raises(StrandlineError, match="STRANDLINE_PRODUCER_LIVE.*Stop the query that runs there.*option takeOver"):
        replace(before, resume=True, take_over=False).go_on(replace(first, query="other"))
