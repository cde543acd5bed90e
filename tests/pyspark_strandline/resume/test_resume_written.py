"""What the log of an output says of the query that wrote it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pyspark_strandline.resume.sink import FirstBatch
from pyspark_strandline.resume.written import Rows, rows_of, written
from resumed import commit
from strandline.channel import Channel
from strandline.channel.statements.inputs import Input
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

IMPOSSIBLE, DIFFERS = "STRANDLINE_RESUME_IMPOSSIBLE", "STRANDLINE_RESUME_DIFFERS"


def test_what_the_log_of_an_output_says(pair: tuple[Channel, Channel]) -> None:
    source, out = pair
    inputs, read = {source.table_id: source.path}, Input(source.table_id, 2, 0)
    commit(out, "r", 0, [], (0, 1))
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*newest commit of producer 'r' .* does not say"):
        written(out, inputs)
    commit(out, "q", 0, [read, read._replace(commit=3)], (0, 1), (0, 2), then=1)
    assert written(out, inputs).producer == "q"
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*two sources of the channel"):
        written(out, inputs).position(*next(iter(inputs.items())))
    commit(out, "q", 1, [read._replace(commit=3)], (1, 1), then=2)
    with out.producer("q", take_over=True) as by_hand:
        by_hand.delay([3])
    assert written(out, inputs).reads == (read._replace(commit=3),)
    assert rows_of(out, "q") == Rows(3, {0: 2, 1: 1})
    commit(out, "r", 1, [read], then=2)
    with pytest.raises(StrandlineError, match=f"{IMPOSSIBLE}.*Several producers .*'q', 'r'"):
        written(out, inputs)
    assert written(out, inputs, "r").reads == (read,)
    out.clean_log(timedelta(0))
    assert rows_of(out, "q") is None


def test_rows_of_very_many_times_are_compared_time_by_time(pair: tuple[Channel, Channel]) -> None:
    """Their statement has spans, so the times are read from the commit's files, as long as these exist."""
    source, out = pair
    read, most = Input(source.table_id, 2, 0), 3000
    commit(out, "q", 0, [read], (0, 1), (0, 2))
    commit(out, "q", 1, [read], *((time, 1) for time in range(1, most)), then=most)
    written_by_q = dict.fromkeys(range(1, most), 1) | {0: 2}
    assert rows_of(out, "q") == Rows(most + 1, written_by_q)
    batch = FirstBatch("new", [read], Antichain(int64, [most]), Rows(most + 1, written_by_q | {7: 0, 8: 2}), state="none")
    with pytest.raises(StrandlineError, match=f"{DIFFERS}.*has written 1 rows at 7, but query new makes 0"):
        batch.check(out, batch.producer(out, None))
    [file] = [file.path for commit in out.log.tail(2) for file in commit.files]
    Path(out.path, file).unlink()
    assert rows_of(out, "q") == Rows(most + 1, None)
