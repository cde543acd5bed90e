"""Policies and manifests that change on a running channel: nothing promised is taken back, nothing is waited for in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest_bench import SCHEMA, Bench
from strandline.channel import Channel
from strandline.ingest import IngestError, Policy, Settings, bounded, composed, drop_partitions, idle, manifest, ordered, readmit
from strandline.ingest.policies.manifest import Manifest
from strandline.time.arrow import time_field
from strandline.time.domain import int64

FLAGGED = pa.schema([*SCHEMA, pa.field("gone", pa.bool_())])


def saved(folder: Path, policy: Policy, schema: pa.Schema = SCHEMA) -> Policy:
    policy.save(str(folder / "m"), Settings.of(str(folder / "channel"), schema, time="t", partition="p", policy=policy))
    return policy


def goes_on(bench: Bench, policy: Policy, schema: pa.Schema = SCHEMA, **options: Any) -> Bench:
    """The same query, started again with another policy."""
    path = Path(bench.settings.path).parent
    other = Bench(path, policy, schema, **options)
    other.batch = bench.batch
    return other


def table(path: Path, *rows: tuple[int, str, int, int]) -> str:
    names = ("t", "p", "expected", "cancelled")
    write_deltalake(str(path), pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}), mode="overwrite")
    return str(path)


class Growing:
    """A manifest that is a channel."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        schema = pa.schema([time_field("t", int64), ("p", pa.string()), ("expected", pa.int64())])
        self._channel = Channel.create(path, schema, time="t", producers=["planner"], at=0)

    def announce(self, *rows: tuple[int, str, int], then: list[int] | None = None) -> None:
        with self._channel.producer("planner") as planner:
            if rows:
                planner.send(pa.table({name: [row[i] for row in rows] for i, name in enumerate(("t", "p", "expected"))}))
            if then is not None:
                planner.delay(then)


# -------------------------------------------------------------------------------------------------------- policies


@pytest.mark.parametrize("first", [ordered(), bounded(5), idle(ordered(), "10 seconds")], ids=str)
def test_rows_that_came_under_another_policy_count_for_the_manifest(first: Policy, tmp_path: Path) -> None:
    bench = Bench(tmp_path, first)
    bench.run((1, "a", 0), (2, "a", 1), (2, "b", 2))
    announced = {("a", 1): 1, ("a", 2): 1, ("a", 3): 1, ("b", 2): 2}
    bench = goes_on(bench, saved(tmp_path, manifest(announced)))
    bench.run((3, "a", 2))
    assert bench.holds()["a"] == []
    assert bench.holds()["b"] == [2]
    bench.run((2, "b", 3))
    assert not any(bench.holds().values())


def test_rows_are_counted_anew_when_the_manifest_was_left_in_between(tmp_path: Path) -> None:
    policy = saved(tmp_path, manifest({("a", 1): 1, ("a", 5): 3}))
    bench = Bench(tmp_path, policy, max_ahead=2)
    bench.run((1, "a", 0), (5, "a", 1))
    bench = goes_on(bench, ordered(), max_ahead=2)
    bench.run((5, "a", 2))
    bench = goes_on(bench, saved(tmp_path, manifest({("a", 1): 1, ("a", 5): 3})))
    bench.run()
    assert bench.holds()["a"] == [5]
    bench.run((5, "a", 3))
    assert bench.holds()["a"] == []


def test_a_time_that_another_policy_has_passed_is_not_waited_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((7, "a", 0))
    bench = goes_on(bench, saved(tmp_path, manifest({("a", 3): 1, ("a", 7): 1, ("a", 9): 1})))
    bench.run()
    assert bench.holds() == {"a": [9]}
    bench.run((9, "a", 1))
    assert bench.holds() == {"a": []}


@pytest.mark.parametrize("again", [ordered(), bounded(3), idle(bounded(3), "1 hour")], ids=str)
def test_what_was_promised_stays_so(again: Policy, tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((10, "a", 0))
    bench = goes_on(bench, again)
    bench.run((9, "a", 1), (11, "a", 2))
    assert bench.late("t") == [(9,)]
    assert bench.holds() == {"a": [11 if again == ordered() else 10]}


def test_one_partition_comes_under_another_policy(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((1, "a", 0), (1, "b", 1))
    inner = manifest({("a", 1): 2, ("a", 4): 1})
    saved(tmp_path, inner)
    bench = goes_on(bench, composed({"a": inner, "*": bounded(2)}))
    bench.run((1, "a", 2), (8, "b", 3))
    assert bench.holds() == {"a": [4], "b": [6]}


def test_an_ingest_that_takes_over_may_have_another_policy(tmp_path: Path) -> None:
    one = Bench(tmp_path, ordered(), query="one")
    one.run((1, "a", 0), (2, "b", 1))
    two = Bench(tmp_path, saved(tmp_path, manifest({("a", 1): 2, ("b", 2): 1})), query="two", take_over=True)
    two.run((1, "a", 2))
    assert not any(two.holds().values())


# -------------------------------------------------------------------------------------------------------- manifests


def test_a_partition_that_is_announced_holds_its_times_before_it_brings_anything(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "m")
    growing.announce((1, "a", 1), (5, "a", 1), (2, "b", 3), then=[9])
    bench = Bench(tmp_path, manifest(growing.path))
    bench.run((1, "a", 0), (5, "a", 1))
    assert bench.holds() == {"a": [9], "b": [2]}
    bench.run((2, "b", 2), (2, "b", 3), (2, "b", 4))
    assert not bench.late()
    growing.announce((10, "c", 1))
    bench.run()
    assert bench.holds() == {"a": [9], "b": [9], "c": [9]}
    growing.announce(then=[])
    bench.run()
    assert bench.holds() == {"a": [], "b": [], "c": [10]}
    bench.run((10, "c", 5))
    assert bench.frontier() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_partition_without_announcements_is_not_waited_for(restarts: bool, tmp_path: Path) -> None:
    growing = Growing(tmp_path / "m")
    growing.announce((1, "a", 1), then=[4])
    bench = Bench(tmp_path, manifest(growing.path), partitions=["a", "b"])
    bench.run((1, "a", 0))
    assert bench.holds() == {"a": [4], "b": [4]}
    growing.announce(then=[])
    if restarts:
        bench.restart()
    bench.run()
    assert bench.frontier() == []
    plain = Bench(tmp_path / "plain", saved(tmp_path / "plain", manifest({("a", 1): 1})), partitions=["a", "b"])
    plain.run((1, "a", 0))
    assert plain.frontier() == []


def test_a_stranger_under_a_growing_manifest_is_done_when_that_is(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "m")
    growing.announce((1, "a", 1), (5, "a", 1))
    bench = Bench(tmp_path, manifest(growing.path))
    bench.run((1, "a", 0), (0, "u", 0))
    growing.announce(then=[7])
    bench.run((5, "a", 1))
    assert bench.frontier() == [7]
    growing.announce(then=[])
    bench.run()
    assert bench.frontier() == []
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_UNKNOWN"):
        bench.run((8, "new", 1))


def test_the_end_of_a_manifest_does_not_shut_others_out(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "m")
    growing.announce((1, "a", 1), then=[])
    bench, other = Bench(tmp_path, manifest(growing.path)), Bench(tmp_path, ordered(), query="other")
    other.run((0, "x", 0))
    bench.run((1, "a", 0))
    other.run((3, "y", 0))
    assert bench.holds() == {"a": [], "x": [0], "y": [3]}


def test_rows_of_a_complete_time_are_not_un_cancelled(tmp_path: Path) -> None:
    path = table(tmp_path / "m", (1, "a", 1, 1), (9, "a", 1, 0))
    bench = Bench(tmp_path, manifest(path))
    bench.run()
    assert bench.holds() == {"a": [9]}
    for restarts in (False, True):
        table(tmp_path / "m", (1, "a", 1, 0), (9, "a", 1, 0))
        if restarts:
            bench.restart()
        with pytest.raises(IngestError, match="STRANDLINE_MANIFEST_CONTRADICTION.*expects 1 rows of 'a'"):
            bench.run((1, "a", 0), (9, "a", 1))
    table(tmp_path / "m", (1, "a", 1, 1), (9, "a", 1, 0))  # the way out: cancel it again
    bench.run((1, "a", 0), (9, "a", 1))
    assert bench.late("t") == [(1,)]
    assert bench.frontier() == []


def test_a_wrong_announcement_in_a_growing_manifest_is_taken_back(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "m")
    growing.announce((1, "a", 1), (9, "a", 1))
    bench = Bench(tmp_path, manifest(growing.path))
    bench.run((1, "a", 0))
    growing.announce(then=[1])
    bench.run()
    growing.announce((3, "a", 1), then=[5])
    bench.run((3, "a", 2))
    assert bench.holds() == {"a": [5]}
    with pytest.raises(Exception, match="negative|NOT_HELD"):
        growing.announce((1, "a", 1))  # a channel does not announce behind its own frontier
    growing.announce((9, "a", 1))
    growing.announce((9, "a", -1), then=[])
    bench.run((9, "a", 3))
    assert bench.frontier() == []


def test_rows_that_only_cancel_are_not_readmitted(tmp_path: Path) -> None:
    policy = saved(tmp_path, manifest({("a", 1): 1, ("a", 2): 2, ("a", 9): 1}, cancelled="gone"), FLAGGED)
    bench = Bench(tmp_path, policy, FLAGGED, corrections=True)
    bench.run((1, "a", 0, False))
    bench.run((2, "a", 1, False), (2, "a", 2, True))
    bench.run((2, "a", 3, True), (2, "a", 4, False))
    done = readmit(bench.settings.path)
    assert (done.rows, done.left) == (1, 1)
    assert [row for row in bench.rows() if row[0][1]] == [((2, 1), "a", 4, False)]
    assert readmit(bench.settings.path, where=lambda rows: rows).rows == 0


def test_a_time_that_a_manifest_holds_for_ever_is_given_up_by_cancelling_or_dropping(tmp_path: Path) -> None:
    path = table(tmp_path / "m", (1, "a", 2, 0), (1, "b", 1, 0))
    bench = Bench(tmp_path, manifest(path))
    bench.run((1, "a", 0))
    assert bench.frontier() == [1]
    table(tmp_path / "m", (1, "a", 2, 1), (1, "b", 1, 0))
    bench.run()
    assert bench.holds() == {"a": [], "b": [1]}
    drop_partitions(bench.settings.path, ["b"])
    assert bench.frontier() == []


# -------------------------------------------------------------------------------------------------------- names


TWO = pa.schema([("t", pa.int64()), ("p", pa.string()), ("q", pa.string()), ("n", pa.int64())])


def test_partitions_of_several_columns_do_not_share_a_name(tmp_path: Path) -> None:
    values = ["a", "a-b", "b-c", "c", "", "-", "\\", "a\\", "\\-", "b\\-c", "a-", "-b"]
    bench = Bench(tmp_path, ordered(), TWO, partition=["p", "q"])
    pairs = [(p, q) for p in values for q in values]
    bench.run(*((i, p, q, i) for i, (p, q) in enumerate(pairs)))
    assert not bench.late()
    assert sorted(holds[0] for holds in bench.holds().values()) == list(range(len(pairs)))
    assert {"a-b-c", "a-b\\-c"} <= bench.holds().keys()


def test_a_manifest_names_partitions_of_several_columns_as_its_rows_do(tmp_path: Path) -> None:
    rows = pa.table({"t": [1, 2], "p": ["a", "a-b"], "q": ["b-c", "c"], "expected": [1, 1]})
    write_deltalake(str(tmp_path / "m"), rows)
    bench = Bench(tmp_path, manifest(str(tmp_path / "m")), TWO, partition=["p", "q"])
    bench.run((1, "a", "b-c", 0))
    assert bench.holds() == {"a-b\\-c": [], "a-b-c": [2]}


def test_a_batch_of_nobodys_rows_is_taken_in_under_policies_that_ask_for_different_things(tmp_path: Path) -> None:
    inner = saved(tmp_path, manifest({("a", 1): 1}))
    bench = Bench(tmp_path, composed({"a": inner, "*": ordered()}))
    bench.run((0, None, 0), (None, None, 1), tasks=1)
    assert bench.late("n", "_reason") == [(0, "null partition"), (1, "null partition")]


def test_what_was_cancelled_under_one_manifest_counts_under_the_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path, manifest(table(tmp_path / "m", (2, "a", 3, 0)), cancelled="gone"), FLAGGED)
    bench.run((2, "a", 0, True), (2, "a", 1, False))
    other = goes_on(bench, manifest(table(tmp_path / "moved", (2, "a", 3, 0), (5, "a", 1, 0)), cancelled="gone"), FLAGGED)
    other.run()
    assert other.holds() == {"a": [2]}
    other.run((2, "a", 2, False))
    assert other.holds() == {"a": [5]}


def test_rows_that_were_cancelled_stay_so_under_another_policy(tmp_path: Path) -> None:
    """Whether a late row only cancels one is a matter of the policy of its batch, not of the newest."""
    path = table(tmp_path / "m", (9, "a", 5, 0))
    bench = Bench(tmp_path, manifest(path, cancelled="gone"), FLAGGED, corrections=True)
    bench.run((9, "a", 0, False))
    bench.run((1, "a", 1, False), (1, "a", 2, True))
    other = goes_on(bench, ordered(), FLAGGED, corrections=True)
    other.run((9, "a", 3, True), (2, "a", 4, True))
    again = goes_on(other, manifest(path, cancelled="gone"), FLAGGED, corrections=True)
    again.run((3, "a", 5, True), (3, "a", 6, False))
    assert readmit(bench.settings.path).rows == 3
    assert sorted(row[2] for row in bench.rows()) == [0, 1, 3, 4, 6]


def test_who_takes_over_hears_what_the_manifest_has_said_meanwhile(tmp_path: Path) -> None:
    path = table(tmp_path / "m", (2, "a", 1, 0), (5, "a", 1, 0))
    first = Bench(tmp_path, manifest(path), FLAGGED)
    first.run()
    assert first.holds() == {"a": [2]}
    table(tmp_path / "m", (2, "a", 1, 1), (5, "a", 1, 0))
    second = Bench(tmp_path, manifest(path), FLAGGED, query="second", take_over=True)
    second.run()
    assert second.holds() == {"a": [5]}


def test_what_a_snapshot_promised_closes_announced_times_when_it_ends(tmp_path: Path) -> None:
    path = table(tmp_path / "m", (2, "a", 1, 0))
    bench = Bench(tmp_path, ordered(), FLAGGED)
    bench.run((4, "a", 0, False), in_snapshot=True)
    other = goes_on(bench, manifest(path), FLAGGED)
    other.run()
    assert other.holds() == {"a": []}


@pytest.mark.parametrize("past", [bounded(5), manifest("m0"), None])
def test_who_takes_back_counts_rows_once(past: Policy | None, tmp_path: Path) -> None:
    """What it takes over was judged by the other's policy, not by the one that it had itself before."""
    for name, rows in (("m0", 3), ("m1", 4)):
        table(tmp_path / name, (5, "a", rows, 0), (7, "a", 2, 0))
    options: dict[str, Any] = {"partitions": ["a"], "take_over": True}
    if past is not None:
        past = manifest(str(tmp_path / "m0")) if isinstance(past, Manifest) else past
        Bench(tmp_path, past, query="back", **options).run()
    taker = Bench(tmp_path, manifest(str(tmp_path / "m1")), query="taker", **options)
    taker.run((5, "a", 1))
    back = Bench(tmp_path, idle(manifest(str(tmp_path / "m0")), "10 minutes"), query="back", **options)
    back.batch = 1
    for n, holds in enumerate(([5], [7], [7], []), start=2):
        assert back.run((5 if n < 4 else 7, "a", n)) is not None
        assert back.holds() == {"a": holds}
    assert back.late() == []


def test_who_takes_back_has_what_was_cancelled_meanwhile(tmp_path: Path) -> None:
    policy = manifest(table(tmp_path / "m", (5, "a", 3, 0), (9, "a", 1, 0)), cancelled="gone")
    options: dict[str, Any] = {"partitions": ["a"], "take_over": True}
    Bench(tmp_path, bounded(5), FLAGGED, query="back", **options).run((1, "a", 0, False))
    Bench(tmp_path, policy, FLAGGED, query="taker", **options).run((5, "a", 1, True), (5, "a", 2, False))
    back = Bench(tmp_path, policy, FLAGGED, query="back", **options)
    back.batch = 1
    back.run((5, "a", 3, False), (9, "a", 4, False))
    assert back.holds() == {"a": []}
