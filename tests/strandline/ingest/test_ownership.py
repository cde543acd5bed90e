"""Whose a partition is: an ingest judges and moves its own alone, and takes over another one as a whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from column_forms import columns_for
from ingest_bench import SCHEMA, Bench
from strandline.channel import Channel, ProducerError, WriterSession
from strandline.delta.table import Table
from strandline.errors import StrandlineError
from strandline.ingest import IngestError, Policy, Settings, idle, manifest, ordered, release_parked, status

RUN: dict[str, Any] = {"run": "r", "to_end": True}
LEAST = -(1 << 63)


@pytest.fixture(params=[False, True], ids=["one by one", "columns"], autouse=True)
def form(request: pytest.FixtureRequest) -> Any:
    with columns_for(all_=request.param):
        yield


def owners(bench: Bench) -> dict[str, str | None]:
    return {name: state.owner.id if state.owner else None for name, state in bench.channel.producers.items()}


def test_a_named_partition_is_its_ingests_before_it_speaks(tmp_path: Path) -> None:
    one = Bench(tmp_path, idle(ordered(), "10 seconds"), query="one", partitions=["a", "*"])
    two = Bench(tmp_path, ordered(), query="two", partitions=["x", "y"])
    one.run((5, "a", 0), now=1, **RUN)
    two.run((7, "x", 0), now=1)  # that its own names join is no reason to refuse the batch
    assert owners(two) == {"a": "one", "x": "two", "y": "two"}
    one.run((9, "a", 2), now=10_001, **RUN)
    assert one.holds() == {"a": [9], "x": [7], "y": [5]}
    two.run((7, "y", 1), (8, "x", 1), now=2)
    assert not two.late()


def test_a_closed_producer_is_nobodys_and_not_judged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run((5, "a", 0), now=1, **RUN)
    rows = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64())])
    with bench.channel.producer("writer") as writer:
        writer.send(pa.table({"t": [5], "p": ["w"], "n": [1]}, schema=rows))
        writer.delay(6)
    bench.run((9, "a", 2), now=10_001, **RUN)
    assert bench.holds() == {"a": [9], "writer": [6]}
    with bench.channel.producer("writer") as writer:
        writer.send(pa.table({"t": [7], "p": ["w"], "n": [2]}, schema=rows))


def test_who_takes_over_one_ingest_leaves_a_third_alone(tmp_path: Path) -> None:
    one = Bench(tmp_path, idle(ordered(), "10 seconds"), query="one")
    third = Bench(tmp_path, ordered(), query="third")
    one.run((5, "a", 0), (3, "b", 1), now=1, **RUN)
    third.run((6, "x", 0), now=1)
    one.run((9, "a", 2), now=10_001, **RUN)
    two = Bench(tmp_path, idle(ordered(), "10 seconds"), query="two", take_over=True)
    two.run((11, "a", 3), now=10_002, **RUN)
    assert owners(two) == {"a": "two", "b": "two", "x": "third"}
    two.run((12, "b", 4), now=10_003, **RUN)  # goes on where the others of its own are
    two.run((20, "a", 5), now=100_000, **RUN)
    assert two.holds() == {"a": [20], "b": [], "x": [6]}
    third.run((7, "x", 1), now=2)
    assert not third.late()


def test_all_of_an_ingest_is_taken_over_so_no_row_comes_twice(tmp_path: Path) -> None:
    one = Bench(tmp_path, ordered(), query="one")
    one.run((10, "a", 0), (10, "c", 0))
    two = Bench(tmp_path, ordered(), query="two", take_over=True)
    two.run((11, "a", 1))
    for row in ((12, "c", 1), (12, "new", 1), (12, "a", 1)):
        with pytest.raises(IngestError, match="STRANDLINE_INGEST_FENCED.*session two"):
            one.run(row)
        one.restart()
    two.run((12, "c", 1))
    assert one.rows() == [(10, "a", 0), (10, "c", 0), (11, "a", 1), (12, "c", 1)]


def test_a_source_that_begins_anew_does_not_take_over_without_a_second_word(tmp_path: Path) -> None:
    Bench(tmp_path, ordered(), query="one").run((3, "a", 0))
    for take_over, condition in ((False, "PRODUCER_LIVE"), (True, "TAKE_OVER_READS_AGAIN")):
        two = Bench(tmp_path, ordered(), query="two", take_over=take_over, from_beginning="csv")
        reports = two.take([(3, "a", 0)])
        with pytest.raises(StrandlineError, match=rf"STRANDLINE_{condition}.*reads its source from the beginning \(csv\)"):
            two.commit(reports)
        two.ingest.abort(("two", 0), reports)
    told = Bench(tmp_path, ordered(), query="two", take_over=True)  # that it begins where the other one ended
    told.run((5, "a", 1))
    again = Bench(tmp_path, ordered(), query="two", take_over=True, from_beginning="csv")  # it has written before
    again.batch = 1
    again.run((6, "a", 2))
    assert again.holds() == {"a": [6]}


def test_two_that_take_over_do_not_take_turns(tmp_path: Path) -> None:
    one, two = (Bench(tmp_path, ordered(), query=query, take_over=True) for query in ("one", "two"))
    one.run((1, "a", 0))
    two.run((2, "a", 1))
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_FENCED"):
        one.run((3, "a", 2))
    one.restart()  # whoever starts it again means it
    one.run((3, "a", 2))
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_FENCED"):
        two.run((4, "a", 3))
    assert [n for *_, n in one.rows()] == [0, 1, 2]


def test_silence_is_not_told_by_another_ingests_clock(tmp_path: Path) -> None:
    one = Bench(tmp_path, idle(ordered(), "10 seconds"), query="one")
    one.run((5, "a", 0), (5, "b", 0), now=1, **RUN)
    one.run((6, "a", 0), (6, "b", 0), now=864_000_000, **RUN)
    two = Bench(tmp_path, idle(ordered(), "10 seconds"), query="two", take_over=True)
    two.run((7, "a", 0), now=900_000_000, run="t", to_end=True)
    two.run((8, "a", 0), now=900_009_999, run="t", to_end=True)
    assert two.holds() == {"a": [8], "b": [6]}
    two.run((9, "a", 0), now=900_010_000, run="t", to_end=True)
    assert two.holds() == {"a": [9], "b": []}


def test_an_ingest_leaves_the_parked_rows_of_another_where_they_are(tmp_path: Path) -> None:
    one, two = Bench(tmp_path, ordered(), query="one", max_ahead=10), Bench(tmp_path, ordered(), query="two")
    three = Bench(tmp_path, ordered(), query="three", max_ahead=20)
    one.run((1, "a", 0), (2, "b", 0))
    two.run((1, "x", 0))
    three.run((1, "u", 0), (2, "v", 0))
    one.run((1, "a", 1), (50, "b", 1))
    two.run((2, "x", 1))
    three.run((2, "u", 1), (60, "v", 1))
    assert status(one.settings.path).parked_rows == 2
    assert [t for t, *_ in one.rows()] == [1, 1, 1, 1, 2, 2, 2, 2]
    two.run((70, "x", 2))
    one.run((70, "a", 2))
    three.run((70, "u", 2))
    one.run((70, "b", 3))
    three.run((70, "v", 3))
    two.run((71, "x", 3))
    assert status(one.settings.path).parked_rows == 0
    assert [t for t, *_ in one.rows()] == [1, 1, 1, 1, 2, 2, 2, 2, 50, 60, 70, 70, 70, 70, 70, 71]
    assert one.frontier() == [70]


def test_parked_rows_of_an_ingest_that_is_gone_are_released_by_an_operator(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=10)
    bench.run((1, "a", 0), (2, "b", 0), (50, "b", 1))
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_LIVE"):
        release_parked(bench.settings.path)
    bench.owner = type(bench.owner)("q", bench.owner.host, bench.owner.pid, 0.0)  # a process that is no more
    bench.run((1, "a", 1), (51, "b", 2))
    assert release_parked(bench.settings.path) is not None
    assert release_parked(bench.settings.path) is None
    assert [t for t, *_ in bench.rows()] == [1, 1, 2, 50, 51]
    assert status(bench.settings.path).parked_rows == 0
    bench.run((60, "a", 3))
    assert bench.frontier() == [51]


def test_a_dead_ingest_is_taken_over_as_a_whole_too_if_the_user_says_so(tmp_path: Path) -> None:
    """With a new checkpoint a query may read again what the other one has written: each row would come twice."""
    one = Bench(tmp_path, idle(ordered(), "10 seconds"), query="one")
    one.owner = type(one.owner)("one", one.owner.host, one.owner.pid, 0.0)
    one.run((5, "a", 0), (3, "b", 1), now=1, **RUN)
    one.run((9, "a", 2), now=10_001, **RUN)
    two = Bench(tmp_path, ordered(), query="two")
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_OF_ANOTHER_QUERY.*partition 'b' .* query one .*set takeOver"):
        two.run((8, "b", 3), (12, "b", 4))
    two = Bench(tmp_path, ordered(), query="two", take_over=True)
    two.run((8, "b", 3), (12, "b", 4))
    two.owner = dead("two")
    two.run((13, "b", 5))
    assert two.late("n", "_frontier") == [(3, [9])]
    assert owners(two) == {"a": "two", "b": "two"}
    one.restart()
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_FENCED"):
        one.run((13, "a", 5), now=20_000, **RUN)  # its successor's process is dead too, as between two runs of a scheduler


def test_a_newly_named_partition_has_not_been_silent_yet(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"), partitions=["a", "z-*"])
    bench.run((5, "a", 0), now=1, **RUN)
    bench.run((7, "a", 0), now=100_001, **RUN)
    more = Bench(tmp_path, idle(ordered(), "10 seconds"), partitions=["a", "b", "z-*"])
    more.batch = bench.batch
    again = {"run": "s", "to_end": True}
    more.run((9, "a", 1), now=200_000, **again)
    assert more.holds() == {"a": [9], "b": [7]}
    more.run((8, "b", 1), now=200_001, **again)
    assert not more.late()


def test_a_channel_in_which_nobody_is_left_to_go_on_from_takes_rows_again(tmp_path: Path) -> None:
    """A program gave up all that an ingest had but one that nobody waited for: it goes on where new partitions join."""
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run((5, "a", 0), (3, "b", 1), now=1, **RUN)
    bench.run((9, "a", 2), now=10_001, **RUN)
    channel = Channel.open(bench.settings.path)
    with channel.producer("a", take_over=True) as session:
        session.drop()
    bench.restart()
    bench.run((20, "b", 3), now=10_002, **RUN)
    assert not bench.late()
    assert bench.holds() == {"a": [], "b": [20]}


@pytest.mark.parametrize("policy", [ordered(), idle(ordered(), "10 seconds")], ids=str)
def test_what_a_snapshot_promised_that_did_not_end_is_not_believed_by_who_takes_over(policy: Policy, tmp_path: Path) -> None:
    one = Bench(tmp_path, ordered(), query="one", partitions=["a", "b"])
    one.run((50, "a", 0), (60, "b", 1), in_snapshot=True)
    two = Bench(tmp_path, policy, query="two", take_over=True)
    two.run((5, "a", 2), now=1, **RUN)
    assert two.holds() == {"a": [5], "b": [LEAST]}
    two.run((4, "b", 3), now=2, **RUN)
    assert not two.late()
    assert two.holds() == {"a": [5], "b": [4]}


def dead(query: str) -> WriterSession:
    """A process of a query that is gone from this machine."""
    return WriterSession(query, WriterSession.here().host, 3_999_999, 1.0)


def restarted(tmp_path: Path, query: str, **settings: Any) -> Bench:
    """A query that states ``x`` and ``y``, is gone, and states only ``y`` after it was started again."""
    bench = Bench(tmp_path, ordered(), query=query, **settings)
    bench.owner = dead(query)
    bench.run((1, "x", 0), (1, "y", 0))
    bench.restart()
    bench.owner = WriterSession.here(query)
    bench.run((5, "y", 1))
    return bench


@pytest.mark.parametrize("brought", ["x", "xy", "yx"])
def test_a_query_that_was_started_again_is_alive_whatever_it_has_not_stated_since(brought: str, tmp_path: Path) -> None:
    one = restarted(tmp_path, "one")
    two = Bench(tmp_path, ordered(), query="two")
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_LIVE.*with the checkpoint that it had.*twice"):
        two.run(*[(9, name, 2) for name in brought])
    one.run((8, "x", 3), (8, "y", 4))
    assert two.rows() == [(1, "x", 0), (1, "y", 0), (5, "y", 1), (8, "x", 3), (8, "y", 4)]


def test_a_fence_stands_while_the_one_that_made_it_was_started_again(tmp_path: Path) -> None:
    one = Bench(tmp_path, ordered(), query="one")
    one.run((0, "x", 0), (0, "y", 0))
    restarted(tmp_path, "two", take_over=True)
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_FENCED"):
        one.run((2, "x", 1))


def test_rows_that_come_between_two_attempts_of_a_take_over_are_counted(tmp_path: Path) -> None:
    one = Bench(tmp_path, ordered(), query="one")
    one.run((1, "x", 0), (1, "y", 0))
    announced = manifest({("x", 1): 1, ("x", 9): 1, ("y", 1): 1, ("y", 5): 1})
    announced.save(str(tmp_path / "m"), Settings.of(str(tmp_path / "channel"), SCHEMA, time="t", partition="p", policy=announced))
    two = Bench(tmp_path, announced, query="two", take_over=True, partitions=["x", "y"])
    reports = two.take([(9, "x", 1)])
    real = Table.commit

    def overtaken(self: Table, version: int, files: Any, text: str, transactions: Any, *lines: Any) -> bool:
        if "two" in transactions:
            patch.setattr(Table, "commit", real)
            one.run((5, "y", 1))
        return real(self, version, files, text, transactions, *lines)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "commit", overtaken)
        two.commit(reports)
    assert sorted(two.rows()) == [(1, "x", 0), (1, "y", 0), (5, "y", 1), (9, "x", 1)]
    assert two.holds() == {"x": [], "y": []}


def test_a_query_that_is_started_again_with_take_over_takes_over(tmp_path: Path) -> None:
    """Its process, and with it what its last run knew, may be the same."""
    first = Bench(tmp_path, ordered(), query="first", partitions=["a"], take_over=True)
    first.run((1, "a", 0), run="1")
    Bench(tmp_path, ordered(), query="second", partitions=["a"], take_over=True).run((2, "a", 1))
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_FENCED"):
        first.run((3, "a", 2), run="1")
    first.run((3, "a", 2), run="2")
    assert first.holds() == {"a": [3]}
