"""Aborts, lost answers, replays: the commit of the channel alone decides what a batch was, and the log says what it decided."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest_bench import Bench
from strandline.channel import Channel
from strandline.channel.statements.log import Log
from strandline.delta.table import Table
from strandline.ingest import (
    Ingest,
    IngestError,
    accept_replay,
    drop_partitions,
    give_up_late_rows,
    idle,
    ordered,
    readmit,
    status,
)
from strandline.ingest.late.late_table import LateTable


class CrashError(Exception):
    """The process is gone."""


class Dies(Ingest):
    """Dies before the channel's commit."""

    def _append(self, *_: Any) -> int | None:
        raise CrashError


@contextmanager
def commits_end_in(answer: Callable[[bool], bool], path: str = "", *, times: int = 1) -> Iterator[None]:
    """Commits to tables whose path ends so take effect, and the caller is told ``answer``, so many times."""
    real, left = Table.commit, [times]

    def commit(self: Table, *args: Any, **kwargs: Any) -> bool:
        done = real(self, *args, **kwargs)
        if left[0] and self.path.endswith(path):
            left[0] -= 1
            return answer(done)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "commit", commit)
        yield


def refused(_: bool) -> bool:
    """What a retry of the store's client sees that finds the first try's file."""
    return False


def times_out(*_: Any) -> bool:
    raise OSError("timed out waiting for the answer")


@pytest.mark.parametrize("table", ["channel", "channel_late"])
@pytest.mark.parametrize("answer", [refused, times_out])
def test_a_commit_whose_answer_is_lost_counts_once(table: str, answer: Callable[[bool], bool], tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0))
    with commits_end_in(answer, table):
        reports = bench.take([(3, "a", 1), (6, "a", 2)])
        try:
            bench.commit(reports)
        except OSError:
            bench.ingest.abort(("q", bench.batch), reports)
            bench.restart()
            bench.run((3, "a", 1), (6, "a", 2))
    assert bench.rows() == [(5, "a", 0), (6, "a", 2)]
    assert bench.late() == [(3, "a", 1)]
    assert status(bench.settings.path).aside == 1


def test_what_may_still_take_effect_is_not_removed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0))
    reports = bench.take([(3, "a", 1), (6, "a", 2)])
    arrives: list[Callable[[], bool]] = []
    real = Table.commit

    def slow(self: Table, *args: Any, **kwargs: Any) -> bool:
        if self.path != bench.settings.path:
            return real(self, *args, **kwargs)
        arrives.append(lambda: real(self, *args, **kwargs))
        raise OSError("timed out")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="timed out"):
        patch.setattr(Table, "commit", slow)
        bench.commit(reports)
    bench.restart()
    bench.ingest.abort(("q", bench.batch), reports)
    assert arrives[0]()  # the store takes it up after all
    bench.restart()
    assert bench.run((3, "a", 1), (6, "a", 2)) is None
    assert bench.rows() == [(5, "a", 0), (6, "a", 2)]
    assert bench.late() == [(3, "a", 1)]


def test_a_retry_with_the_same_files_does_not_remove_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=10)
    bench.run((5, "a", 0), (6, "b", 0))
    reports = bench.take([(3, "a", 1), (7, "a", 2), (99, "b", 3)])
    assert bench.commit(reports) is not None
    assert bench.commit(reports) is None
    bench.ingest.abort(("q", bench.batch), reports)
    bench.batch += 1
    bench.run((100, "a", 4))
    assert bench.rows() == [(5, "a", 0), (6, "b", 0), (7, "a", 2), (99, "b", 3), (100, "a", 4)]
    assert bench.late() == [(3, "a", 1)]


def test_only_the_attempt_that_was_committed_counts(tmp_path: Path) -> None:
    """A source that gives other rows after a crash: neither table has the rows of the attempt that failed."""
    for i, again in enumerate(
        [[(3, "a", 1), (4, "a", 9), (6, "a", 2)], [(3, "a", 1), (6, "a", 2)], [(6, "a", 1), (3, "a", 2)], [(8, "a", 7)], []]
    ):
        bench = Bench(tmp_path / str(i), ordered())
        bench.run((5, "a", 0))
        with pytest.raises(CrashError):
            Dies(bench.settings).commit(("q", bench.batch), bench.take([(3, "a", 1), (6, "a", 2)]), bench.owner)
        bench.restart()
        bench.run(*again)
        assert bench.rows() == sorted([(5, "a", 0), *(row for row in again if row[0] > 5)])
        assert bench.late() == [row for row in again if row[0] < 5]


@pytest.mark.parametrize("who", ["the ingest", "another ingest", "readmit"])
def test_late_rows_whose_publication_was_interrupted_are_published_by_whoever_comes_next(who: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((5, "a", 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LateTable, "publish", lambda *_: times_out(True))
        with pytest.raises(OSError, match="timed out"):
            bench.commit(bench.take([(3, "a", 1), (6, "a", 2)]))
    assert bench.late() == []
    # VACUUM passes over what the channel's commit has named, though no version of the late table has it.
    late = DeltaTable(bench.settings.late_path)
    late.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    for _ in range(2):
        if who == "the ingest":
            bench.restart()
            bench.ingest.start()
        elif who == "another ingest":
            Bench(tmp_path, ordered(), corrections=True, query="other").run((9, "x", 7))
        else:
            readmit(bench.settings.path)
        assert bench.late() == [(3, "a", 1)]


def test_two_queries_with_one_id_do_not_lose_the_seconds_rows_in_silence(tmp_path: Path) -> None:
    one, two = Bench(tmp_path, ordered(), query="q"), Bench(tmp_path, ordered(), query="q")
    one.run((1, "a", 0))
    for other in [[(1, "x", 0)], [(2, "a", 0)], [(1, "a", 7)], [(1, "a", 0)] * 2, [(None, "a", 0)], [(1, None, 0)], []]:
        two.restart()
        with pytest.raises(IngestError, match="STRANDLINE_REPLAY_DIFFERS"):
            two.commit(two.take(other))
    assert one.rows() == [(1, "a", 0)]
    assert two.run((1, "a", 0)) is None


def test_a_batch_without_rows_does_not_come_again_with_some(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a", "b"])
    bench.run()
    bench.batch = 0
    with pytest.raises(IngestError, match="STRANDLINE_REPLAY_DIFFERS.*with 0 rows"):
        bench.run((1, "a", 0))
    assert bench.run() is None
    bench.run((1, "a", 0))
    drop_partitions(bench.settings.path, ["b"])
    bench.run(in_snapshot=True)
    assert bench.channel.transaction_version("q") == 2
    bench.batch = 2
    with pytest.raises(IngestError, match="STRANDLINE_REPLAY_DIFFERS.*with 0 rows"):
        bench.run((2, "a", 0))
    assert bench.run() is None


def test_a_replay_is_known_however_its_rows_are_judged_then(tmp_path: Path) -> None:
    """Committed, but Spark was not told: the rows come again, some are behind by now, and other tasks have them."""
    rows = [(1, "a", 0), (5, "a", 1), (None, "a", 2), (99, "b", 3), (3, None, 4)]
    for on_late in ("setAside", "fail"):
        bench = Bench(tmp_path / on_late, ordered(), max_ahead=10, on_late=on_late)
        brought = rows if on_late == "setAside" else [row for row in rows if None not in row]
        bench.run(*brought, tasks=1)
        files = sorted((tmp_path / on_late).rglob("*.parquet"))
        bench.restart()
        bench.batch = 0
        assert bench.run(*reversed(brought), tasks=3) is None
        assert sorted((tmp_path / on_late).rglob("*.parquet")) == files


def test_a_batch_before_the_newest_comes_again_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    """A checkpoint was restored to an earlier state: its next batch may have what came in several."""
    bench = Bench(tmp_path, ordered(), partitions=["a"])
    for n in range(3):
        bench.run((n, "a", n))
    bench.run()  # no rows
    bench.run((9, "a", 9))
    bench.restart()
    for batch, other in [(1, [(1, "a", 1), (2, "a", 2)]), (1, []), (1, [(1, "a", 101)]), (3, [(10, "a", 10)])]:
        bench.batch = batch
        with pytest.raises(IngestError, match="STRANDLINE_REPLAY_DIFFERS.*batches up to 4.*restored"):
            bench.run(*other)
    for batch, same in [(1, [(1, "a", 1)]), (3, []), (4, [(9, "a", 9)])]:
        bench.batch = batch
        assert bench.run(*same) is None
    assert sorted(bench.rows()) == [(0, "a", 0), (1, "a", 1), (2, "a", 2), (9, "a", 9)]


def test_other_rows_of_the_same_partitions_and_times_are_other_rows(tmp_path: Path) -> None:
    """Times are hours, and a sensor sends a row a minute. Also rows that were set aside, parked, or only cancel one count."""
    rows = [(5, "a", 0), (5, "a", 1), (99, "b", 2), (None, "a", 3), (1, "a", 4), (5, None, 5)]
    bench = Bench(tmp_path, ordered(), max_ahead=10)
    bench.run((5, "a", 9))
    bench.run(*rows)
    bench.restart()
    for changed in range(len(rows)):
        bench.batch = 1
        with pytest.raises(IngestError, match="STRANDLINE_REPLAY_DIFFERS.*6 rows that are not the same"):
            bench.run(*((*row[:2], row[2] + 100 * (n == changed)) for n, row in enumerate(rows)))
    assert bench.run(*rows[::-1], tasks=3) is None


def test_a_channel_that_was_restored_does_not_go_on_beside_a_late_table_that_was_not(tmp_path: Path) -> None:
    """A row that was late might be in time when its batch comes again. It would be in both."""
    bench = Bench(tmp_path, ordered(), partitions=["a"])
    bench.run((5, "a", 0))
    shutil.copytree(tmp_path / "channel", tmp_path / "backup")
    assert not bench.ingest.has_late_rows_after("q", 0)
    bench.run((9, "a", 1))
    bench.run((7, "a", 2))  # late
    assert bench.ingest.has_late_rows_after("q", 0)
    shutil.rmtree(tmp_path / "channel")
    (tmp_path / "backup").rename(tmp_path / "channel")
    bench.batch = 1
    bench.restart()
    for brought in ([(7, "a", 2), (9, "a", 1)], [(9, "a", 1)], []):
        with pytest.raises(IngestError, match="STRANDLINE_LATE_TABLE_SHARED.*batch 2 of query q.*up to 0.*restored"):
            bench.commit(bench.take(brought))
    assert bench.rows() == [(5, "a", 0)]


def test_an_operator_lets_stand_what_was_committed_of_a_source_that_does_not_repeat(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((1, "a", 0), (2, "a", 1))
    bench.restart()
    bench.batch = 0
    with pytest.raises(IngestError, match="STRANDLINE_REPLAY_DIFFERS"):
        bench.run((1, "a", 0), (3, "a", 1))
    with pytest.raises(IngestError, match="STRANDLINE_QUERY_UNKNOWN"):
        accept_replay(bench.settings.path, "another")
    accept_replay(bench.settings.path, "q")
    bench.restart()
    assert bench.run((1, "a", 0), (3, "a", 1)) is None
    bench.run((4, "a", 2))
    assert bench.rows() == [(1, "a", 0), (2, "a", 1), (4, "a", 2)]


class Slow(Ingest):
    """Somebody does something just before this one commits."""

    hook: Callable[[], object] | None = None

    def _append(self, *arguments: Any) -> int | None:
        if self.hook is not None:
            hook, self.hook = self.hook, None
            hook()
        return super()._append(*arguments)


def test_a_drop_just_before_the_commit_is_not_undone_and_overturns_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), (9, "c", 0))
    rows = [(4, "a", 1), (6, "a", 2), (10, "c", 1)]
    slow = bench.ingest = Slow(bench.settings)
    slow.hook = lambda: drop_partitions(bench.settings.path, ["a"])
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_OVERTAKEN.*'a'"):
        bench.run(*rows)
    assert not bench.late()
    bench.restart()
    bench.run(*rows)
    assert bench.holds() == {"a": [], "c": [10]}
    assert bench.late("t", "_frontier") == [(4, []), (6, [])]
    assert bench.rows() == [(5, "a", 0), (9, "c", 0), (10, "c", 1)]


def test_what_ingests_keep_in_common_is_decided_on_the_newest_commit(tmp_path: Path) -> None:
    one, two = Bench(tmp_path, ordered(), query="one"), Bench(tmp_path, ordered(), query="two")
    one.run((1, "a", 0))
    two.run((1, "x", 0), (None, None, 1))
    slow = one.ingest = Slow(one.settings)
    slow.hook = lambda: two.run((2, "x", 1), (None, None, 2), (None, None, 3))
    one.run((2, "a", 1))
    assert status(one.settings.path).aside_without_partition == 3 == len(one.late())


def test_a_snapshots_promises_count_after_it_though_another_ingest_commits_in_between(tmp_path: Path) -> None:
    one, two = Bench(tmp_path, ordered(), query="one"), Bench(tmp_path, ordered(), query="two")
    one.run((1, "a", 0))
    slow = one.ingest = Slow(one.settings)
    slow.hook = lambda: two.run((50, "x", 0), (60, "y", 0), in_snapshot=True)
    one.run((2, "a", 1))
    two.run((70, "x", 1))
    assert two.holds() == {"a": [2], "x": [70], "y": [60]}


def test_the_state_of_a_batch_is_in_the_channel_before_it_is_in_the_late_table(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), (1, "b", 0))
    version = bench.run((3, "a", 1), (0, "b", 2))
    assert version is not None
    said = Channel.open(bench.settings.path).log.require(version).statement
    assert said is not None
    pending = said.statements["$registrar"].state["q"]["pending"]
    assert pending["batch"] == 1
    assert sum(rows for _, _, rows in pending["files"]) == 2


def test_late_rows_reach_the_table_that_their_commit_named_though_the_path_changes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="timed out"):
        patch.setattr(LateTable, "publish", lambda *_: times_out(True))
        bench.commit(bench.take([(3, "a", 1), (6, "a", 2)]))
    bench.batch += 1
    other = Bench(tmp_path, ordered(), late_path=str(tmp_path / "elsewhere"))
    other.batch = bench.batch
    other.run((4, "a", 3), (7, "a", 4))
    assert bench.late() == [(3, "a", 1)]
    assert other.late() == [(4, "a", 3)]


def test_an_operator_gives_up_late_rows_whose_files_are_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="timed out"):
        patch.setattr(LateTable, "publish", lambda *_: times_out(True))
        bench.commit(bench.take([(3, "a", 1), (6, "a", 2)]))
    for file in (tmp_path / "channel_late" / "_staged").iterdir():
        file.unlink()
    bench.restart()
    with pytest.raises(IngestError, match="STRANDLINE_LATE_FILE_MISSING.*with 1 late rows.*give_up_late_rows"):
        bench.ingest.start()
    give_up_late_rows(bench.settings.path, "q")
    bench.restart()
    bench.batch += 1
    bench.run((7, "a", 3), (4, "a", 4))
    assert bench.late() == [(4, "a", 4)]
    assert status(bench.settings.path).aside == 2


def test_of_two_queries_with_one_id_the_slower_is_refused(tmp_path: Path) -> None:
    one, two = Bench(tmp_path, ordered(), query="q"), Bench(tmp_path, ordered(), query="q")
    slow = one.ingest = Slow(one.settings)
    one.run((1, "a", 0))
    slow.hook = lambda: two.commit(two.take([(2, "b", 1)]))
    two.batch = 1
    with pytest.raises(IngestError, match="STRANDLINE_REPLAY_DIFFERS"):
        one.run((2, "a", 1))
    assert one.rows() == [(1, "a", 0), (2, "b", 1)]


def test_a_changed_late_path_forgets_what_was_published_in_the_table_of_before(tmp_path: Path) -> None:
    policy = idle(ordered(), "10 seconds")
    before = Bench(tmp_path, policy, late_path=str(tmp_path / "one"))
    before.run((5, "x", 0), (5, "y", 0), now=1_000)
    before.run((1, "x", 7), (6, "y", 0), now=2_000)
    after = Bench(tmp_path, policy, late_path=str(tmp_path / "two"))
    after.batch = before.batch
    after.run(now=3_000)
    after.run(now=4_000)
    after.restart()
    after.run((2, "x", 8), (7, "y", 1), now=5_000)
    assert (before.late(), after.late()) == ([(1, "x", 7)], [(2, "x", 8)])


def test_what_was_refused_once_is_not_refused_when_it_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a", "b"])
    bench.run((1, "a", 0), (1, "b", 0))
    reports = bench.take([(2, "a", 1), (2, "b", 1)])
    drop_partitions(bench.settings.path, ["b"])
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_OVERTAKEN"):
        bench.commit(reports)
    bench.ingest.abort((bench.query, bench.batch), reports)
    reports = bench.take([(2, "a", 1)])

    with pytest.MonkeyPatch.context() as patch:

        def goes_down(_: bool) -> bool:
            patch.setattr(Log, "exists", times_out)
            raise OSError("the store is down")

        with commits_end_in(goes_down), pytest.raises(OSError, match="timed out"):
            bench.commit(reports)
    bench.ingest.abort((bench.query, bench.batch), reports)
    assert (2, "a", 1) in bench.rows()


def test_a_replay_in_a_channel_that_was_made_anew_meanwhile_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a"])
    bench.run((1, "a", 0))
    bench.batch = 0
    bench.restart()
    reports = bench.take([(1, "a", 0)])
    shutil.rmtree(bench.settings.path)
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_OVERTAKEN.*recreated"):
        bench.commit(reports)
    bench.restart()
    bench.run((1, "a", 0))
    assert bench.rows() == [(1, "a", 0)]
