"""Who keeps a time open is named: in each story one culprit, who is at the end of the way, and what would release it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest_bench import Bench
from object_stores import S3
from strandline.channel import Channel
from strandline.channel.statements.inputs import Input
from strandline.errors import ScopeError, TimeError
from strandline.ingest import idle, manifest, ordered
from strandline.report import explain
from strandline.scope import Scope
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time, TimeDomain, int64, lex, product
from strandline.tracker.capability import Capability
from strandline.tracker.notificator import Notificator
from why_channels import dead, make, read, send, the_culprit


def test_a_closed_time_is_closed(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", producers=["a"])
    send(channel, "a", [1], [5])
    answer = explain(channel, 4)
    assert (answer.open, answer.holders) == (False, ())
    assert str(answer) == f"4 is closed in {channel.path}, whose frontier is {{5}}."
    assert explain(channel.path, 5).open
    with pytest.raises(TimeError):
        explain(channel, "noon")


def test_a_silent_partition(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((3, "a", 0), (2, "b", 0), now=1000)
    bench.run((9, "a", 0), now=2000)
    bench.channel.seal()
    culprit = the_culprit(explain(bench.settings.path, 7))
    assert (culprit.kind, culprit.name, culprit.shown) == ("partition", "b", ("2",))
    assert culprit.what.startswith("last rows at 1970-01-01T00:00:01Z; query q takes it in by ordered()")
    assert f"strandline drop {bench.settings.path} b" in culprit.release
    assert (culprit.since.version, culprit.since.exact) == (1, True)


def test_an_idle_policy_and_an_unsealed_channel(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "1 second"))
    bench.run((3, "a", 0), now=1000)
    answer = explain(bench.settings.path, 3)
    assert {(holder.kind, holder.name) for holder in answer.culprits} == {("partition", "a")}
    assert {holder.kind for holder in answer.holders} == {"partition", "registrar"}
    assert "strandline seal" not in "\n".join(answer.words())


def test_a_manifest_that_announced_a_row_which_never_came(tmp_path: Path) -> None:
    announced = {"p": ["a", "a", "b"], "t": [1, 4, 2], "expected": [2, 1, 1]}
    write_deltalake(str(tmp_path / "manifest"), pa.table(announced))
    bench = Bench(tmp_path, manifest(str(tmp_path / "manifest")), partitions=["a", "b"])
    bench.run((1, "a", 0), (4, "a", 0), (2, "b", 0))
    culprit = the_culprit(explain(bench.settings.path, 3))
    assert (culprit.kind, culprit.name) == ("partition", "a")
    assert "its manifest announces 1 row that never came, the first of them at 1" in culprit.what
    assert f"strandline cancel {bench.settings.path} a 1 1" in culprit.release


def test_a_dead_producer(tmp_path: Path) -> None:
    channel = make(tmp_path / "c")
    with channel.producer("a") as a:
        a.delay([9])
    program = f"import os; from strandline.channel import Channel; Channel.open({channel.path!r}).producer('b'); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    culprit = the_culprit(explain(channel.path, 5))
    assert (culprit.kind, culprit.name, culprit.gone) == ("producer", "b", True)
    assert "its process is gone (process " in culprit.what
    assert f"strandline drop {channel.path} b" in culprit.release


def test_a_slow_query_upstream_that_has_not_read_what_its_input_has(tmp_path: Path) -> None:
    first = make(tmp_path / "first", producers=["p"])
    middle = make(tmp_path / "middle", producers=["query-1"])
    last = make(tmp_path / "last", producers=["query-2"])
    send(first, "p", [0], [2])
    read = Input(first.table_id, first.version + 1, 0, first.path, ())
    send(middle, "query-1", [0], [2], [read])
    send(last, "query-2", [0], [2], [Input(middle.table_id, middle.version + 1, 0, middle.path, ())])
    for n in range(3, 6):
        send(first, "p", [n, n], [n])
    answer = explain(last.path, 3)
    assert [(holder.name, holder.kind, holder.culprit) for holder in answer.holders] == [
        ("query-2", "query", False),
        ("query-1", "query", True),
    ]
    culprit = the_culprit(answer)
    [behind] = culprit.behind
    assert (behind.channel, behind.commits, behind.rows, behind.exact, behind.at_most) == (first.path, 3, 6, False, True)
    assert (
        "its inputs have closed the time, but the query has not: it has read all but at most 3 commits (6 rows) of"
        in culprit.what
    )
    assert culprit.way == ("query-1", middle.path, "query-2", last.path)
    # The input holds it too: the query is not to blame, though it is behind.
    culprit = the_culprit(explain(last.path, 5))
    assert (culprit.name, culprit.kind, culprit.channel) == ("p", "producer", first.path)


def test_a_window_waits_for_the_input_that_keeps_it_open(tmp_path: Path) -> None:
    first, counts = make(tmp_path / "first", producers=["p", "r"]), make(tmp_path / "counts", producers=["query-1"])
    send(first, "p", [1], [47])
    send(first, "r", [1], [23])
    steps = ({"window": "start", "width": 10, "slide": 10, "offset": 0},)
    send(counts, "query-1", [0], [20], [Input(first.table_id, first.version + 1, 0, first.path, steps)])
    assert the_culprit(explain(counts.path, 20)).name == "r"
    assert {holder.name for holder in explain(counts.path, 40).culprits} == {"p", "r"}
    sessions = ({"window": "end", "session": True},)
    send(counts, "query-1", [21], [23], [Input(first.table_id, first.version + 1, 0, first.path, sessions)])
    assert the_culprit(explain(counts.path, 23)).name == "r"  # a session may end right after a row at 23


def test_a_stuck_loop(tmp_path: Path) -> None:
    inner = product(epoch="int64", iter="int64")
    outside = make(tmp_path / "outside", inner, producers=["p"], at=(0, 0))
    loop = make(tmp_path / "loop", inner, producers=["query-1"], at=(0, 0))
    result = make(tmp_path / "result", inner, producers=["query-1"], at=(0, 0))
    send(outside, "p", [(0, 0)], [(5, 0)])

    def reads(commit: int) -> list[Input]:
        return [
            Input(outside.table_id, outside.version + 1, 0, outside.path, ()),
            Input(loop.table_id, commit, 0, loop.path, ()),
        ]

    send(loop, "query-1", [(0, 1), (0, 1)], [(0, 1), (5, 0)], reads(1))
    send(result, "query-1", [], [(0, 1), (5, 0)], reads(1))
    for asked in (loop, result):
        culprit = the_culprit(explain(asked.path, (0, 7)))
        assert (culprit.name, culprit.kind, culprit.channel) == ("query-1", "loop", loop.path)
        assert "rows still go round its loop: it has read all but at most 1 commit (2 rows) of" in culprit.what
        assert "STRANDLINE_LOOP_UNBOUNDED, do first what" in culprit.release
    assert the_culprit(explain(loop.path, (5, 0))).name == "p"  # an epoch that the outside has not closed


def test_a_notification_that_a_processor_holds(tmp_path: Path) -> None:
    """A process of its own: it reads one channel, and writes another at the times of which it is notified."""
    events, sums = make(tmp_path / "events", producers=["p"]), make(tmp_path / "sums", producers=["adder"])
    send(events, "p", [1], [8])
    held = Capability(int64, 0, ChangeBatch())
    notificator = Notificator(int64)
    for time in (4, 10):
        notificator.notify_at(held.delayed(time))
    with sums.producer("adder") as adder:
        for capability, _ in notificator.ready([events.frontier]):
            adder.send(pa.table({"time": [capability.time], "n": [1]}, schema=sums.schema))
        waiting = [time for time, _ in notificator.pending()]
        adder.state = {"notifications": waiting}
        adder.delay(waiting)
    culprit = the_culprit(explain(sums.path, 12))
    assert (culprit.kind, culprit.name, culprit.shown) == ("producer", "adder", ("10",))
    assert culprit.what.startswith("it waits for a notification that it asked for, at 10; no session has it open")
    assert not explain(sums.path, 9).open


def test_a_scope_says_what_the_log_does_not(tmp_path: Path) -> None:
    orders, sums = make(tmp_path / "orders", producers=["shop"]), make(tmp_path / "sums", producers=["query-1"])
    scope = Scope.create(tmp_path / "scope", int64)
    for name in ("orders", "sums"):
        scope.add_channel(name, tmp_path / name)
    scope.add_query("daily", reads=["orders"], writes=["sums"])
    send(orders, "shop", [0], [5])
    send(sums, "query-1", [], [1])
    unknown = the_culprit(explain(sums.path, 7))
    assert (unknown.kind, unknown.reads) == ("query", None)
    assert unknown.what.startswith(
        "it is not known which channels it reads, because its commits do not say it; add it to a scope"
    )
    culprit = the_culprit(explain(scope, 7, channel="sums"))
    assert (culprit.name, culprit.channel) == ("shop", orders.path)
    slow = the_culprit(explain(sums.path, 3, scopes=[scope]))
    assert (slow.name, slow.reads) == ("query-1", (orders.path,))
    assert slow.what.startswith("in its scope it is daily; its inputs have closed the time, but the query has not")
    with pytest.raises(ScopeError):
        explain(scope, 7)
    with pytest.raises(ScopeError):
        explain(scope, 7, channel="nobody")


def test_an_input_that_cannot_be_opened_ends_the_explanation_with_a_note(tmp_path: Path) -> None:
    first, second = make(tmp_path / "first", producers=["p"]), make(tmp_path / "second", producers=["query-1"])
    send(second, "query-1", [], [2], [Input(first.table_id, 1, 0)])
    answer = explain(second.path, 2)
    assert the_culprit(answer).reads == (f"table {first.table_id}",)
    [note] = answer.notes
    assert note.startswith(f"query-1 reads table {first.table_id}, which cannot be opened: its path is not recorded: add it to a")
    assert the_culprit(explain(second.path, 2, channels=[first.path])).name == "p"
    send(second, "query-1", [], [3], [Input("another id", 1, 0, first.path)])
    [note] = explain(second.path, 3).notes
    assert note.endswith(f"{first.path} holds another table now")


@pytest.mark.parametrize("path", ["s3://elsewhere/first", "http://127.0.0.1:1/x", "../first", "s3://key:secret@b/x", "\0"])
def test_a_path_of_another_storage_is_not_opened_because_a_log_names_it(path: str, tmp_path: Path) -> None:
    channel = make(tmp_path / "c", producers=["query-1"])
    send(channel, "query-1", [], [2], [Input("an id", 1, 0, path)])
    answer = explain(channel.path, 2)
    [note] = answer.notes
    refused = ("on another storage", "relative to an unknown folder", "STRANDLINE", "cannot be read", "password")
    assert any(each in note for each in refused)
    assert "secret" not in str(answer) + str(answer.to_json())


def test_since_when_is_found_far_back_within_a_bound(tmp_path: Path) -> None:
    channel = make(tmp_path / "c")
    send(channel, "b", [1], [3])
    for n in range(1, 230):
        send(channel, "a", [], [n])
    since = the_culprit(explain(channel, 5)).since
    assert (since.version, since.exact) == (1, True)
    assert explain(channel, 5, history=150).culprits[0].since.exact is False
    assert [holder.since.version for holder in explain(channel, 1000).holders] == [1, channel.version]


def test_names_of_others_are_escaped_and_the_answer_is_json(tmp_path: Path) -> None:
    name = "\x1b[2Jevil\n[red]<script>"
    channel = make(tmp_path / "c", producers=[name])
    answer = explain(channel, 5)
    assert "\x1b" not in str(answer)
    assert "\\x1b[2Jevil\\n[red]<script>" in str(answer)
    body = json.loads(json.dumps(answer.to_json()))
    assert (body["open"], body["frontier"], body["holders"][0]["name"]) == (True, ["0"], name)


def test_the_times_of_a_partial_order_are_held_by_those_below_them(tmp_path: Path) -> None:
    domain = product(x="int64", y="int64")
    channel = make(tmp_path / "c", domain, at=(0, 0))
    send(channel, "a", [], [(0, 5)])
    send(channel, "b", [], [(5, 0)])
    assert the_culprit(explain(channel, (1, 9))).name == "a"
    assert the_culprit(explain(channel, [9, 1])).name == "b"
    assert len(explain(channel, (9, 9)).culprits) == 2
    assert not explain(channel, (4, 4)).open
    assert explain(channel, (9, 9), most=1).hidden == 1
    assert Antichain(domain, explain(channel, (9, 9)).frontier) == channel.frontier


LOOP = product(epoch="int64", iter="int64")
STRATA = lex(tick="int64", stratum="int64")
KINDS = {  # the domains of the input and the output, the domain that is recorded, the steps; then a time n of the two
    "the end of sessions": (int64, int64, None, {"window": "end", "session": True}),
    "the next stratum": (STRATA, STRATA, None, {"shift": 1, "coordinate": "stratum"}),
    "entry into a loop": (int64, LOOP, LOOP, {"shift": 1, "coordinate": "iter"}),
    "entry into a loop, not recorded": (int64, LOOP, None, {"shift": 1, "coordinate": "iter"}),
    "the result of a loop": (int64, int64, LOOP, {"coordinate": "epoch"}),
    "the least of two ways": (int64, int64, None, {"least": [[{"shift": 7}], []]}),
    "a step of a later release": (int64, int64, None, {"leap": 3}),
}


def at(domain: TimeDomain, n: int) -> Time:
    return (n, 0) if domain.coordinates else n


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_that_is_behind_is_named_whatever_it_does_to_times(kind: str, tmp_path: Path) -> None:
    outer, domain, inner, step = KINDS[kind]
    events, sums = make(tmp_path / "e", outer, ["p"], at(outer, 0)), make(tmp_path / "s", domain, ["query-1"], at(domain, 0))
    send(events, "p", [at(outer, 1)], [at(outer, 5)])
    send(sums, "query-1", [], [at(domain, 5)], [read(events, step, domain=inner)], dead())
    known = "leap" not in step
    asked = (6, 9) if domain.coordinates else 6
    answer = explain(sums, asked)
    assert (the_culprit(answer).name, bool(answer.notes)) == (("p", False) if known else ("query-1", True))
    send(events, "p", [at(outer, 8)], [at(outer, 9)])
    answer = explain(sums, asked)  # the producer has passed it
    culprit = the_culprit(answer)
    assert (culprit.name, culprit.gone, [each.commits for each in culprit.behind]) == ("query-1", True, [1])
    assert culprit.release == "start the query again: its process is gone"
    assert ("it is not known whether its input" in culprit.what) is not known
    assert "drop" not in str(answer)


def test_who_may_be_healthy_is_not_to_be_dropped(tmp_path: Path) -> None:
    """The query has read all that there is, so its input holds it back. By what it does to times one cannot say how far."""
    events, sums = make(tmp_path / "e", producers=["p", "q"]), make(tmp_path / "s", producers=["query-1"])
    send(events, "p", [1], [5])
    send(events, "q", [1], [9])
    send(sums, "query-1", [], [5], [read(events, {"leap": 3})])
    answer = explain(sums, 6)
    culprit = the_culprit(answer)
    assert (culprit.name, culprit.sure, culprit.to_json()["sure"]) == ("p", False, False)
    assert "It may wait for producer p of" in str(answer)
    assert "strandline drop" not in str(answer)
    assert answer.notes == (f"it is not known what times of {events.path} query-1 can still cause, by the steps in its log",)


@pytest.mark.parametrize("stopped", ["query-1", "query-2", None])
def test_a_loop_through_two_queries_has_one_culprit_whichever_channel_is_asked(stopped: str | None, tmp_path: Path) -> None:
    """The one whose process is gone, or else the one that has not read everything, which is query-1."""
    outside = make(tmp_path / "outside", LOOP, ["p"], (0, 0))
    first, second = make(tmp_path / "1", LOOP, ["query-1"], (0, 0)), make(tmp_path / "2", LOOP, ["query-2"], (0, 0))
    send(outside, "p", [(0, 0)], [(5, 0)])
    owners = {} if stopped is None else {stopped: dead(stopped[-1])}
    back = Input(second.table_id, 1, 0, second.path, ())
    send(first, "query-1", [(0, 0)], [(0, 1), (5, 0)], [read(outside), back], owners.get("query-1"))
    around = read(first, {"shift": 1, "coordinate": "iter"})
    send(second, "query-2", [(0, 1)], [(0, 2), (5, 1)], [around], owners.get("query-2"))
    named = stopped or "query-1"
    for asked in (first, second):
        answer = explain(asked.path, (0, 7))
        culprit = the_culprit(answer)
        assert (culprit.name, culprit.kind, culprit.gone) == (named, "loop", stopped and True)
        assert culprit.release.startswith("start the query again: its process is gone" if stopped else "the query's next batches")
        [other] = [holder for holder in answer.holders if not holder.culprit]
        assert other.what.startswith(f"it waits for its loop, where {named} must go on")
        assert the_culprit(explain(asked.path, (5, 9))).name == "p"


def test_a_channel_that_is_reached_by_two_ways_is_followed_by_both(tmp_path: Path) -> None:
    names = {"e": "p", "d": "query-3", "left": "query-1", "right": "query-2", "out": "query-4"}
    events, middle, left, right, out = (make(tmp_path / name, producers=[producer]) for name, producer in names.items())
    send(events, "p", [1], [50])
    send(middle, "query-3", [1], [10], [read(events)])
    send(left, "query-1", [1], [40], [read(middle, {"shift": 30})])
    send(right, "query-2", [1], [10], [read(middle)])
    send(out, "query-4", [1], [10], [read(left), read(right)])
    culprit = the_culprit(explain(out.path, 60))
    assert culprit.name == "p"
    assert culprit.way == ("p", events.path, "query-3", middle.path, "query-2", right.path, "query-4", out.path)
    assert the_culprit(explain(out.path, 45)).name == "query-3"


def test_a_dead_query_in_between_is_said_to_be_dead(tmp_path: Path) -> None:
    events, sums = make(tmp_path / "e", producers=["p"]), make(tmp_path / "s", producers=["query-1"])
    send(events, "p", [1], [2])
    send(sums, "query-1", [1], [2], [read(events)], dead())
    send(events, "p", [3], [8])
    answer = explain(sums.path, 9)
    assert the_culprit(answer).name == "p"
    assert f"These wait in between: query query-1 of {sums.path} (its process is gone)." in str(answer)
    assert "; then start the query again" in answer.holders[0].release


def test_what_an_input_that_cannot_be_opened_holds_is_not_known(tmp_path: Path) -> None:
    here, there = make(tmp_path / "here", producers=["p"]), make(tmp_path / "there", producers=["q"])
    sums = make(tmp_path / "s", producers=["query-1"])
    send(here, "p", [1], [50])
    send(there, "q", [1], [5])
    send(sums, "query-1", [1], [5], [read(here), read(there)])
    (tmp_path / "there").rename(tmp_path / "moved")
    answer = explain(sums.path, 7)
    culprit = the_culprit(answer)
    assert culprit.what.startswith(f"its input {there.path} cannot be opened, so it is not known whether this input has closed")
    assert culprit.release.startswith(f"make {there.path} readable from here, or name it too (--upstream")
    assert the_culprit(explain(sums.path, 7, channels=[tmp_path / "moved"])).name == "q"


def test_an_ingest_whose_process_is_gone(tmp_path: Path) -> None:
    """Its partitions are not silent: nobody listens."""
    bench = Bench(tmp_path, ordered())
    bench.owner = dead("q")
    bench.run((3, "a", 0), (2, "b", 0), now=1000)
    bench.channel.seal()
    answer = explain(bench.settings.path, 7)
    assert [holder.name for holder in answer.culprits] == ["b", "a"]
    for culprit in answer.culprits:
        assert culprit.what.startswith(f"query q takes it in, and its process is gone ({bench.owner}); last rows at 1970")
        assert culprit.release == "start query q again: it takes in what the partition has delivered"


def test_a_scope_with_loops_takes_times_of_fewer_coordinates(tmp_path: Path) -> None:
    orders, sums = make(tmp_path / "orders", producers=["shop"]), make(tmp_path / "sums", LOOP, ["query-1"], (0, 0))
    scope = Scope.create(tmp_path / "scope", LOOP)
    for name in ("orders", "sums"):
        scope.add_channel(name, tmp_path / name)
    scope.add_query("daily", reads=["orders"], writes=["sums"])
    send(orders, "shop", [0], [5])
    send(sums, "query-1", [], [(1, 0)])
    assert the_culprit(explain(scope, (7, 2), channel="sums")).name == "shop"
    assert the_culprit(explain(scope, (3, 2), channel="sums")).name == "query-1"


@pytest.mark.drawn
def test_spark_and_others_name_the_same_store_in_different_ways() -> None:
    """Spark's queries record s3a://, and the operator asks for s3://."""
    schema = pa.schema([time_field("time", int64), ("n", pa.int64())])
    with S3() as s3:
        bucket, options = s3.bucket(), s3.options()
        events, sums = (
            Channel.create(f"s3://{bucket}/{name}", schema, producers=[producer], at=0, storage_options=options)
            for name, producer in (("events", "p"), ("sums", "query-1"))
        )
        send(sums, "query-1", [], [5], [read(events)._replace(path=f"s3a://{bucket}/events")])
        for asked in (f"s3://{bucket}/sums", f"s3a://{bucket}/sums"):
            assert the_culprit(explain(asked, 7, storage=options)).name == "p"
