"""Scopes: what they record and refuse, who may change them at once, and what follows from their channels' logs."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_spec import closure
from strandline import Antichain, CycleError, StrandlineError, advance, identity, int64, product
from strandline.channel import Channel
from strandline.errors import ChannelError, ScopeError, TimeError
from strandline.loop import LoopQuery
from strandline.scope import Scope
from strandline.scope.definition import ScopeDefinition
from strandline.scope.scope_graph import ScopeGraph
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import TimeDomain, timestamp

LOOP = product(epoch="int64", iter="int64")


def channel(path: Path, domain: TimeDomain = LOOP, *producers: str) -> Channel:
    schema = pa.schema([time_field("time", domain), ("n", pa.int64())])
    return Channel.create(path, schema, producers=producers or ["p"], at=tuple(0 for _ in domain.coordinates) or 0)


def say(path: Path, producer: str, *times: Any, then: list[Any]) -> None:
    opened = Channel.open(path)
    with opened.producer(producer) as session:
        if times:
            session.send(pa.table({"time": array_of(times, opened.domain), "n": list(range(len(times)))}))
        session.delay(then)
        session.commit()


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    """Edges from outside, labels that go round, results that leave."""
    scope = Scope.create(tmp_path / "scope", LOOP)
    for name in ("edges", "labels", "result"):
        channel(tmp_path / name)
        scope.add_channel(name, tmp_path / name)
    return scope


STEP = advance(LOOP, "iter")


def loop(scope: Scope, step: Any = STEP) -> None:
    scope.add_query(
        "spread",
        reads=["edges", "labels"],
        writes=["labels", "result"],
        summaries={
            "edges": {"labels": step, "result": identity(LOOP)},
            "labels": {"labels": step, "result": identity(LOOP)},
        },
    )


def refused(condition: str, call: Callable[[], Any]) -> str:
    with pytest.raises(StrandlineError) as caught:
        call()
    assert caught.value.condition == condition
    return str(caught.value)


# ---- what is recorded ----------------------------------------------------------------------------------------------------


def test_a_scope_that_is_opened_again_has_everything(scope: Scope, tmp_path: Path) -> None:
    loop(scope)
    again = Scope.open(tmp_path / "scope")
    assert (again.id, again.domain, again.channels, again.queries) == (scope.id, LOOP, scope.channels, scope.queries)
    assert again.channel("edges").table_id == Channel.open(tmp_path / "edges").table_id


def test_the_same_again_changes_nothing(scope: Scope, tmp_path: Path) -> None:
    loop(scope)
    files = sorted((tmp_path / "scope" / "_strandline_scope").iterdir())
    loop(Scope.open(tmp_path / "scope"))
    scope.add_channel("edges", tmp_path / "edges")
    Scope.create(tmp_path / "scope", "product(epoch int64, iter int64)", exist_ok=True)
    assert sorted((tmp_path / "scope" / "_strandline_scope").iterdir()) == files


def test_a_scope_moves_with_the_channels_below_it(tmp_path: Path) -> None:
    scope = Scope.create(tmp_path / "lake", int64)
    channel(tmp_path / "lake" / "a", int64)
    scope.add_channel("a", tmp_path / "lake" / "a")
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    assert Scope.open(tmp_path / "elsewhere").frontier("a") == Antichain(int64, [0])


def test_changes_of_many_at_once_all_land(tmp_path: Path) -> None:
    Scope.create(tmp_path / "scope", int64)
    names = [f"c{n}" for n in range(12)]
    for name in names:
        channel(tmp_path / name, int64)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: Scope.open(tmp_path / "scope").add_channel(name, tmp_path / name), names))
    assert set(Scope.open(tmp_path / "scope").channels) == set(names)


PROCESS = """
import sys
from strandline.scope import Scope
root, number = sys.argv[1:]
scope = Scope.create(f"{root}/scope", "int64", exist_ok=True)
for n in range(4):
    scope.add_channel(f"c{number}-{n}", f"{root}/c{number}-{n}")
"""


def test_processes_that_make_one_scope_at_once_share_it(tmp_path: Path) -> None:
    for name in (f"c{p}-{n}" for p in range(3) for n in range(4)):
        channel(tmp_path / name, int64)
    running = [subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path), str(n)]) for n in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    assert len(Scope.open(tmp_path / "scope").channels) == 12


# ---- what is refused -----------------------------------------------------------------------------------------------------


def test_a_cycle_that_does_not_advance_is_refused_and_shown(scope: Scope, tmp_path: Path) -> None:
    with pytest.raises(CycleError) as caught:
        loop(scope, identity(LOOP))
    for part in ("channel labels", "query spread", "does not advance times"):
        assert part in str(caught.value)
    assert Scope.open(tmp_path / "scope").queries == {}
    loop(scope)


def test_a_cycle_through_two_queries_is_refused_too(scope: Scope) -> None:
    scope.add_query("there", reads=["edges", "labels"], writes=["result"])
    with pytest.raises(CycleError):
        scope.add_query("back", reads=["result"], writes=["labels"])
    scope.add_query("back", reads=["result"], writes=["labels"], summaries={"result": {"labels": STEP}})


def test_a_channel_of_a_cycle_has_one_writer(scope: Scope) -> None:
    loop(scope)
    message = refused("STRANDLINE_SCOPE_TWO_WRITERS", lambda: scope.add_query("other", reads=["edges"], writes=["labels"]))
    assert "spread" in message
    assert "other" in message
    scope.add_query("other", reads=["edges"], writes=["result"])  # no cycle goes through it


def test_a_query_that_is_not_as_recorded_is_refused(scope: Scope) -> None:
    loop(scope)
    message = refused("STRANDLINE_SCOPE_QUERY_DIFFERS", lambda: loop(scope, advance(LOOP, "iter", 2)))
    assert "iter+1" in message
    assert "iter+2" in message
    scope.remove_query("spread")
    loop(scope, advance(LOOP, "iter", 2))


def test_names_that_are_not_in_the_scope(scope: Scope) -> None:
    for call in (
        lambda: scope.add_query("q", reads=["edges"], writes=["nowhere"]),
        lambda: scope.add_query("q", reads=["nowhere"], writes=["labels"]),
        lambda: scope.frontier("nowhere"),
        lambda: scope.explain("nowhere", (0, 0)),
        lambda: scope.channel("nowhere"),
        lambda: scope.read("nowhere", scope.cut()),
    ):
        assert "edges, labels, result" in refused("STRANDLINE_SCOPE_CHANNEL_UNKNOWN", call)


@pytest.mark.parametrize("name", ["", "a b", "../a", "1", "a\n", "x" * 256, 7])
def test_names_that_are_none(scope: Scope, tmp_path: Path, name: Any) -> None:
    refused("STRANDLINE_SCOPE_NAME_INVALID", lambda: scope.add_channel(name, tmp_path / "edges"))
    refused("STRANDLINE_SCOPE_NAME_INVALID", lambda: scope.add_query(name, reads=["edges"], writes=["labels"]))


def test_queries_that_are_none(scope: Scope) -> None:
    for arguments in (
        {"reads": [], "writes": ["labels"]},
        {"reads": ["edges"], "writes": []},
        {"reads": ["edges", "edges"], "writes": ["labels"]},
        {"reads": ["edges"], "writes": ["labels"], "summaries": {"labels": {"labels": STEP}}},
        {"reads": ["edges"], "writes": ["labels"], "summaries": {"edges": {"labels": advance(int64)}}},
    ):
        refused("STRANDLINE_SCOPE_QUERY_INVALID", lambda arguments=arguments: scope.add_query("q", **arguments))
    assert scope.queries == {}


def test_a_table_has_one_name_and_a_name_one_table(scope: Scope, tmp_path: Path) -> None:
    channel(tmp_path / "more")
    refused("STRANDLINE_SCOPE_CHANNEL_EXISTS", lambda: scope.add_channel("edges", tmp_path / "more"))
    refused("STRANDLINE_SCOPE_CHANNEL_EXISTS", lambda: scope.add_channel("again", tmp_path / "edges"))


def test_channels_that_do_not_fit(scope: Scope, tmp_path: Path) -> None:
    channel(tmp_path / "days", timestamp)
    refused("STRANDLINE_SCOPE_DOMAIN_DIFFERS", lambda: scope.add_channel("days", tmp_path / "days"))
    refused("STRANDLINE_NOT_A_TABLE", lambda: scope.add_channel("none", tmp_path / "none"))
    refused("STRANDLINE_SCOPE_STORAGE_DIFFERS", lambda: scope.add_channel("far", "s3://bucket/far"))


def test_times_of_channels_from_outside_enter_the_scope(scope: Scope, tmp_path: Path) -> None:
    channel(tmp_path / "seeds", int64)
    scope.add_channel("seeds", tmp_path / "seeds")
    scope.add_query("spread", reads=["seeds", "labels"], writes={"labels": {"iter": 1}})
    refused("STRANDLINE_SCOPE_DOMAIN_DIFFERS", lambda: scope.add_query("out", reads=["labels"], writes=["seeds"]))
    say(tmp_path / "seeds", "p", 0, 1, 3, then=[3])
    say(tmp_path / "edges", "p", (1, 4), then=[(2, 0)])
    say(tmp_path / "result", "p", then=[])
    assert [(hold.channel, hold.arrives) for hold in scope.explain("labels", (3, 1))][-1] == ("seeds", (3, 1))
    assert [hold.channel for hold in scope.explain("seeds", 3)] == ["seeds"]
    assert scope.explain("seeds", 2) == []
    say(tmp_path / "labels", "p", then=[(2, 5)])
    cut = scope.cut()
    assert cut.frontier == Antichain(LOOP, [(2, 0)])
    assert scope.read("seeds", cut)["time"].to_pylist() == [0, 1]
    assert scope.read("edges", cut)["n"].to_pylist() == [0]


def test_queries_of_a_scope_are_those_of_a_loop(scope: Scope) -> None:
    scope.add_query("spread", reads=["edges", "labels"], writes={"labels": {"iter": 1}, "result": {}})
    expected = {"spread": LoopQuery(["edges", "labels"], {"labels": {"iter": 1}, "result": {}})}
    assert scope.loop_queries() == expected
    scope.remove_query("spread")
    loop(scope)
    assert scope.loop_queries() == expected  # the summaries say the same
    scope.remove_query("spread")
    step = {"result": {"result": advance(LOOP, "epoch")}}
    scope.add_query("half", reads=["edges", "result"], writes=["result"], summaries=step)
    assert "half" in refused("STRANDLINE_SCOPE_QUERY_INVALID", scope.loop_queries)
    refused("STRANDLINE_SCOPE_QUERY_INVALID", lambda: scope.add_query("a", reads=["edges"], writes={"labels": {}}, summaries={}))
    refused("STRANDLINE_SUMMARY_INVALID", lambda: scope.add_query("a", reads=["edges"], writes={"labels": {"round": 1}}))


def test_a_channel_in_use_stays(scope: Scope) -> None:
    loop(scope)
    assert "spread" in refused("STRANDLINE_SCOPE_CHANNEL_USED", lambda: scope.remove_channel("edges"))
    scope.remove_query("spread")
    scope.remove_channel("edges")
    assert list(scope.channels) == ["labels", "result"]


def test_a_channel_made_anew_and_one_deleted_are_noticed(scope: Scope, tmp_path: Path) -> None:
    before = scope.frontiers()
    shutil.rmtree(tmp_path / "edges")
    refused("STRANDLINE_NOT_A_TABLE", scope.frontiers)
    channel(tmp_path / "edges")
    for each in (scope, Scope.open(tmp_path / "scope")):
        for call in (each.frontiers, each.cut, lambda each=each: each.explain("result", (0, 0))):
            refused("STRANDLINE_SCOPE_CHANNEL_REPLACED", call)
    assert set(before) == {"edges", "labels", "result"}


def test_a_scope_made_anew_is_noticed(scope: Scope, tmp_path: Path) -> None:
    refused("STRANDLINE_SCOPE_EXISTS", lambda: Scope.create(tmp_path / "scope", LOOP))
    refused("STRANDLINE_SCOPE_EXISTS", lambda: Scope.create(tmp_path / "scope", int64, exist_ok=True))
    shutil.rmtree(tmp_path / "scope")
    refused("STRANDLINE_NOT_A_SCOPE", scope.refresh)
    Scope.create(tmp_path / "scope", LOOP)
    refused("STRANDLINE_SCOPE_REPLACED", scope.refresh)
    refused("STRANDLINE_SCOPE_REPLACED", lambda: scope.remove_query("spread"))


# ---- files that others wrote ---------------------------------------------------------------------------------------------


def rewritten(scope: Scope, change: Callable[[Any], Any]) -> Path:
    newest = max(Path(scope.path, "_strandline_scope").iterdir())
    body = json.loads(newest.read_text())
    changed = change(body)
    newest.write_text(json.dumps(body if changed is None else changed))
    return newest


def test_a_newer_file_is_refused_by_name(scope: Scope) -> None:
    rewritten(scope, lambda body: body.update(strandlineScope=2))
    assert "version 2" in refused("STRANDLINE_SCOPE_NEWER", lambda: Scope.open(scope.path))


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xfe", b'{"strandlineScope":true}', b"[" * 100_000])
def test_text_that_is_no_scope_is_refused_by_name(scope: Scope, text: bytes) -> None:
    newest = max(Path(scope.path, "_strandline_scope").iterdir())
    newest.write_bytes(text)
    assert newest.name in refused("STRANDLINE_SCOPE_INVALID", lambda: Scope.open(scope.path))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.text(max_size=5), inner, max_size=3
    ), max_leaves=5,
)  # fmt: skip


@given(st.data())
@settings(max_examples=80)
def test_any_change_of_a_file_is_read_or_refused_by_name(data: st.DataObject) -> None:
    """Wherever in the file something else stands, the answer is a definition or a ScopeError, and no other exception."""
    whole = {
        "strandlineScope": 1,
        "id": "7c1f",
        "domain": str(LOOP),
        "channels": {"a": {"path": "a", "table": "1"}, "b": {"path": "/b", "table": "2"}},
        "queries": {"q": {"reads": ["a"], "writes": ["b"], "summaries": {"a": {"b": [[0, 1], [1, 0]]}}}},
    }
    at: Any = whole
    while True:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans()):
            break
        at = at[key]
    at[key] = data.draw(JUNK)
    with contextlib.suppress(ScopeError):  # any other exception fails the test
        found = ScopeDefinition.from_text(json.dumps(whole), "file")
        assert ScopeDefinition.from_text(found.to_text(), "file") == found


@pytest.mark.parametrize("path", ["../edges", "a/../../edges", "s3://bucket/edges", "file://host/edges", ""])
def test_a_path_that_leads_elsewhere_is_not_opened(scope: Scope, path: str) -> None:
    rewritten(scope, lambda body: body["channels"]["edges"].update(path=path))
    with pytest.raises((ScopeError, ChannelError)) as caught:
        Scope.open(scope.path).channel("edges")
    assert caught.value.condition in (
        "STRANDLINE_PATH_OUTSIDE_TABLE",
        "STRANDLINE_SCOPE_STORAGE_DIFFERS",
        "STRANDLINE_SCOPE_INVALID",
        "STRANDLINE_SCOPE_CHANNEL_REPLACED",
        "STRANDLINE_NOT_A_TABLE",
    )


# ---- what follows from the logs ------------------------------------------------------------------------------------------


def test_what_holds_a_time_is_named_with_its_way(scope: Scope, tmp_path: Path) -> None:
    loop(scope)
    say(tmp_path / "edges", "p", then=[(3, 0)])
    say(tmp_path / "labels", "p", then=[(3, 0)])
    say(tmp_path / "result", "p", then=[(3, 0)])
    assert scope.explain("result", (2, 9)) == []
    found = {(h.channel, h.time, h.arrives): h.path for h in scope.explain("result", (3, 1))}
    assert found[("result", (3, 0), (3, 0))] == ("channel result",)
    assert found[("edges", (3, 0), (3, 0))] == ("channel edges", "query spread", "channel result")
    with pytest.raises(TimeError):
        scope.explain("result", 3)


def test_an_open_registrar_is_a_holder(tmp_path: Path) -> None:
    schema = pa.schema([time_field("time", int64), ("n", pa.int64())])
    Channel.create(tmp_path / "open", schema, at=4)
    scope = Scope.create(tmp_path / "scope", int64)
    scope.add_channel("open", tmp_path / "open")
    assert [(h.producer, h.time) for h in scope.explain("open", 9)] == [("$registrar", 4)]
    assert scope.explain("open", 3) == []


@pytest.mark.drawn("core")
@given(st.data())
@settings(max_examples=15)
def test_explanations_are_those_of_the_definition(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Random scopes, and every hold as brute force over all paths of the graph has it."""
    root = tmp_path_factory.mktemp("scope")
    scope = Scope.create(root / "scope", LOOP)
    names = ["a", "b", "c"]
    pairs = st.tuples(st.integers(0, 3), st.integers(0, 3))
    for name in names:
        channel(root / name, LOOP, "p", "q")
        scope.add_channel(name, root / name)
        for producer in "pq":
            say(root / name, producer, then=data.draw(st.lists(pairs, max_size=2)))
    paths = st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 2)).map(
            lambda by: advance(LOOP, "epoch", by[0]).followed_by(advance(LOOP, "iter", by[1]))
        ),
        max_size=2,
    )
    for number in range(data.draw(st.integers(0, 3))):
        reads = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        writes = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        summaries = {read: {write: data.draw(paths) for write in writes} for read in reads}
        with contextlib.suppress(CycleError, ScopeError):  # not every drawn query may join
            scope.add_query(f"q{number}", reads=reads, writes=writes, summaries=summaries)
    graph = ScopeGraph(ScopeDefinition(scope.id, LOOP, scope.channels, scope.queries))
    ways = closure(graph.graph)
    asked = data.draw(st.sampled_from(names))
    time = data.draw(pairs)
    expected = {
        (name, producer, held, arrives)
        for name in names
        for producer, state in Channel.open(root / name).producers.items()
        for held in state.holds
        for summary in ways.get((graph.output(name), graph.output(asked)), ())
        if (arrives := summary.results_in(held)) is not None and LOOP.less_equal(arrives, time)
    }
    if scope.frontier(asked).closed(time):
        expected = set()
    assert {(h.channel, h.producer, h.time, h.arrives) for h in scope.explain(asked, time)} == expected


def test_reports_over_a_cut_agree_whatever_comes_later(tmp_path: Path) -> None:
    """Three channels that are at different times: the closed rows are the same ones later, and the same times in all."""
    scope = Scope.create(tmp_path / "scope", int64)
    for name in "abc":
        channel(tmp_path / name, int64)
        scope.add_channel(name, tmp_path / name)
    for name, then in (("a", 5), ("b", 3), ("c", 9)):
        say(tmp_path / name, "p", *range(then + 2), then=[then])
    cut = scope.cut()
    assert cut.frontier == Antichain(int64, [3])
    read = {name: sorted(scope.read(name, cut)["time"].to_pylist()) for name in "abc"}
    assert read == {name: [0, 1, 2] for name in "abc"}
    for name in "abc":
        say(tmp_path / name, "p", 20, then=[30])
    assert {name: sorted(scope.read(name, cut)["time"].to_pylist()) for name in "abc"} == read
    later = scope.cut()
    assert all(later.versions[name] > cut.versions[name] for name in "abc")
    assert sorted(scope.read("b", later)["time"].to_pylist()) == [0, 1, 2, 3, 4, 20]


def test_a_channel_that_joined_after_a_cut_is_not_in_it(scope: Scope, tmp_path: Path) -> None:
    cut = scope.cut()
    channel(tmp_path / "more")
    scope.add_channel("more", tmp_path / "more")
    refused("STRANDLINE_SCOPE_CHANNEL_UNKNOWN", lambda: scope.read("more", cut))
