"""What the page says of channels: the same as their logs, whether it looked once or at every commit, and without data files."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import ROOT
from ingest_bench import Bench
from page_channels import LOOP, a_loop, look, make, read_of, send, view
from strandline.channel import Channel, ChannelError
from strandline.delta.storage import LocalStore, commit_name
from strandline.ingest import ordered
from strandline.page import Looker, model
from strandline.page.cursor import Cursor
from strandline.page.lead import Lead
from strandline.report import explain
from strandline.scope import Scope
from strandline.time.arrow import time_field
from strandline.time.domain import int64, lex, product, timestamp

AFTER = 4_000_000_000_000
"""A moment after all commits of the tests, in ms."""


def test_who_holds_back_is_named_first_and_what_is_closed_is_shown(tmp_path: Path) -> None:
    channel = make(tmp_path / "flights", producers=["EWR", "JFK", "LGA"], at=0)
    send(channel, "EWR", [1, 2, 2], [7])
    send(channel, "LGA", [9], [9])
    send(channel, "JFK", [0], [5])
    page = look(channel.path, now_ms=AFTER, stale_after=60)
    [found] = page.channels
    assert (found.label, found.frontier, found.stale, found.furthest) == ("flights", ("5",), True, "9")
    assert found.behind is not None
    assert (found.behind.value, found.behind.unit, found.behind_clock) == (4, "", None)
    assert [(each.name, each.holds, each.holds_back, each.state) for each in found.holdings] == [
        ("JFK", ("5",), True, "open"),
        ("EWR", ("7",), False, "open"),
        ("LGA", ("9",), False, "open"),
    ]
    assert [move.frontier for move in found.moves] == [("5",), ("0",)]
    assert found.stands_since is not None
    assert (found.stands_since.version, found.stands_since.exact) == (3, True)
    assert found.rows is not None
    assert (found.rows.low, found.rows.high, sum(found.rows.buckets), found.rows.closed) == ("0", "9", 5, 5.0)
    [attention] = page.attention
    assert (attention.culprit.name, attention.channels, attention.culprit.holds) == ("JFK", (found.id,), ("5",))
    assert attention.culprit.release.endswith("if it will never go on, end that process, and drop the producer then")
    assert not look(channel.path).channels[0].stale  # it has just moved


@pytest.mark.parametrize(
    ("domain", "at", "held", "other", "frontier", "behind"),
    [
        (int64, 0, 5, 9, ("5",), (4, "", "4")),
        (timestamp, 0, 1_000_000, 91_000_000, ("1970-01-01T00:00:01Z",), (90.0, "s", "1 min 30 s")),
        (LOOP, (0, 0), (0, 3), (2, 0), ("(epoch=0, iter=3)", "(epoch=2, iter=0)"), (2, "epoch", "2 of epoch")),
        (lex(tick="int64", stratum="int64"), (0, 0), (3, 1), (3, 2), ("(tick=3, stratum=1)",), (0, "tick", "0 of tick")),
        (product(at="timestamp", n="int64"), (0, 0), (0, 1), (5_000_000, 0), None, (5.0, "s", "5.0 s")),
    ],
)
def test_each_domain_has_frontiers_as_sets_and_a_lag_in_its_unit(
    domain: Any, at: Any, held: Any, other: Any, frontier: Any, behind: Any, tmp_path: Path
) -> None:
    channel = make(tmp_path / "c", domain, at=at)
    send(channel, "a", [], [held])
    send(channel, "b", [other], [other])
    found = view(channel.path)
    assert found.behind is not None
    assert (found.behind.value, found.behind.unit, found.behind.text) == behind
    assert frontier in (None, found.frontier)
    assert (found.behind_clock is not None) == ("timestamp" in str(domain))


def test_who_has_said_nothing_is_no_distance_behind(tmp_path: Path) -> None:
    found = view(make(tmp_path / "c", producers=["a"], at=int64.minimum).path)
    assert (found.behind, found.furthest, found.lag) == (None, None, found.lag)
    sealed = make(tmp_path / "d", producers=["a"])
    send(sealed, "a", [3], [])
    found = view(sealed.path, now_ms=AFTER)
    assert (found.frontier, found.stale, found.holdings, found.ended, found.asked) == ((), False, (), 1, None)
    assert found.rows is not None
    assert found.rows.closed == len(found.rows.buckets)


MOVES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans(), st.booleans()), max_size=8)


@settings(max_examples=12)
@given(moves=MOVES, window=st.integers(1, 9))
def test_looking_at_every_commit_says_what_one_look_at_the_end_says(
    moves: list[tuple[str, int, bool, bool]], window: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    channel = make(tmp_path_factory.mktemp("page") / "c", producers=["a", "b", "c"])
    often = Looker([channel.path], interval=0.0, window=100, clock_ms=lambda: AFTER)
    often.look()
    for name, by, rows, looks in moves:
        held = min(channel.producers[name].holds, default=None)
        if held is not None:
            send(channel, name, [held] if rows else [], [held + by])
        if looks:
            often.look()
    once = Looker([channel.path], interval=0.0, window=100, clock_ms=lambda: AFTER)
    assert often.look() == once.look()
    # The cursor's lag is what the log says at each version.
    cursor, lead = Cursor(channel, 100), Lead(int64)
    far, expected = None, {}
    for version in range(channel.version + 1):
        commit, progress = channel.log.require(version), channel.progress_at(version)
        numbers = [lead(time) for time in progress.frontier]
        stated = [time for time, _ in commit.statement.times] if commit.statement else []
        held = [time for state in progress.producers.values() for time in state.holds]
        far = max([*stated, *held, *([] if far is None else [far])])
        expected[commit.timestamp_ms] = far - min(numbers)
    told = dict(cursor.lag(None, 0))
    assert all(told[ms] == value for ms, value in expected.items() if ms in told)
    assert list(told.values())[-1] == list(expected.values())[-1]
    # A short window forgets the past, never the present.
    short = Looker([channel.path], interval=0.0, window=window, clock_ms=lambda: AFTER).look().channels[0]
    whole = once.look().channels[0]
    assert (short.frontier, short.version, short.culprits) == (whole.frontier, whole.version, whole.culprits)
    assert [(each.name, each.holds) for each in short.holdings] == [(each.name, each.holds) for each in whole.holdings]


def test_a_look_reads_what_is_new_and_never_a_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = make(tmp_path / "c")
    for n in range(1, 40):
        send(channel, "a", [n], [n])
    before = look(channel.path, now_ms=AFTER)
    for file in Path(channel.path).glob("*.parquet"):
        file.unlink()
    assert look(channel.path, now_ms=AFTER) == before
    cursor = Cursor(channel)
    reads: list[str] = []
    plain = LocalStore.read
    monkeypatch.setattr(LocalStore, "read", lambda self, name, most: reads.append(name) or plain(self, name, most))
    cursor.update()
    assert len(reads) <= 4, reads
    send(Channel.open(channel.path), "b", [], [9])
    reads.clear()
    cursor.update()
    assert cursor.progress.frontier.format() == "{9}"
    assert len(reads) <= 6, reads


def test_what_a_query_has_not_read_is_what_why_says_too(tmp_path: Path) -> None:
    first, last = make(tmp_path / "first", producers=["p"]), make(tmp_path / "last", producers=["query-1"])
    send(first, "p", [0], [2])
    send(last, "query-1", [0], [2], read_of(first))
    for n in range(3, 6):
        send(first, "p", [n, n], [n])
    page = look(first.path, last.path)
    [unread] = page.channels[0].unread
    [behind] = explain(last.path, 3).culprits[0].behind
    assert (unread.commits, unread.rows, unread.exact) == (behind.commits, behind.rows, behind.exact) == (3, 6, False)
    assert unread.at_most
    kinds = {node.id: node.kind for node in page.nodes}
    assert [(kinds[edge.source], kinds[edge.target], edge.frontier) for edge in page.edges] == [
        ("producers", "channel", ("5",)),
        ("query", "channel", ("2",)),
        ("channel", "query", ("5",)),
    ]
    assert page.channels[1].culprits[0].name == "query-1"
    alone = look(last.path)
    assert [node.note for node in alone.nodes if node.label == "first"] == ["not on this page"]
    assert "is not looked at here: name that channel too" in alone.channels[0].why_notes[0]


def test_the_commits_of_a_query_may_be_older_than_the_window(tmp_path: Path) -> None:
    first, last = make(tmp_path / "first", producers=["p"]), make(tmp_path / "last", producers=["query-1", "other"])
    send(last, "query-1", [], [1], read_of(first))
    send(first, "p", [1], [3])
    for n in range(1, 9):
        send(last, "other", [], [n])
    [unread] = look(first.path, last.path, window=3).channels[0].unread
    assert (unread.commits, unread.rows) == (1, 1)


def test_a_scope_has_its_names_and_its_loop(tmp_path: Path) -> None:
    scope = a_loop(tmp_path)
    looker = Looker([scope.path], interval=0.0)
    page = looker.look()
    assert [each.label for each in page.channels] == ["edges", "labels", "result"]
    [spread] = [node for node in page.nodes if node.kind == "query"]
    assert spread.label == "spread"
    labels = {node.id: node.label for node in page.nodes}
    edges = {(labels[edge.source], labels[edge.target]): edge for edge in page.edges}
    assert set(edges) == {
        *(("1 producer", "edges"), ("edges", "spread"), ("labels", "spread"), ("spread", "labels"), ("spread", "result"))
    }
    assert edges["spread", "labels"].frontier == ("(epoch=0, iter=3)", "(epoch=1, iter=1)")
    assert [(each.query, each.commits, each.rows) for each in page.channels[0].unread] == [("spread", 1, 3)]
    scope.add_channel("more", make(tmp_path / "more", LOOP, ["x"], (0, 0)).path)
    assert [each.label for each in looker.look().channels] == ["edges", "labels", "result", "more"]


def test_a_query_that_holds_back_two_channels_is_named_once(tmp_path: Path) -> None:
    a_loop(tmp_path)
    page = look(tmp_path / "components", now_ms=AFTER)
    assert [(each.culprit.name, len(each.channels)) for each in page.attention] == [("query-5b1", 2), ("feed", 1)]


def test_a_recorded_query_without_commits_is_in_the_graph(tmp_path: Path) -> None:
    for name in ("orders", "sums"):
        make(tmp_path / name, producers=["p"])
    scope = Scope.create(tmp_path / "scope", int64)
    for name in ("orders", "sums"):
        scope.add_channel(name, tmp_path / name)
    scope.add_query("daily", reads=["orders"], writes=["sums"])
    page = look(scope.path)
    daily = next(node for node in page.nodes if node.kind == "query")
    assert (daily.label, daily.note) == ("daily", "recorded in the scope")
    assert {(edge.source, edge.target) for edge in page.edges if daily.id in (edge.source, edge.target)} == {
        (page.channels[0].id, daily.id),
        (daily.id, page.channels[1].id),
    }


def test_rows_that_an_ingest_set_aside(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((3, "p0", 0), (2, "p1", 0), now=1000)
    looker = Looker([bench.settings.path], interval=0.0)
    late = looker.look().channels[0].late
    assert late is not None
    assert (late.aside, late.parked, [(table.rows, table.reasons) for table in late.tables]) == (0, 0, [(0, ())])
    bench.run((1, "p0", 0), (9, "p1", 0), (1, None, 0), now=2000)
    [found] = looker.look().channels
    assert found.late is not None
    assert (found.late.aside, found.late.without_partition, found.late.policies) == (2, 1, ("ordered()",))
    [table] = found.late.tables
    assert (table.rows, table.reasons, table.problem) == (2, ("late", "null partition"), None)
    assert [(each.name, each.kind, each.aside) for each in found.holdings[1:]] == [("p0", "partition", 1), ("p1", "partition", 0)]
    assert [each.kind for each in found.culprits] == ["partition"]
    bench.run((1, "p0", 0), now=3000)
    assert looker.look().channels[0].late.tables[0].rows == 3
    shutil.rmtree(bench.settings.late_path)
    Path(bench.settings.late_path).mkdir()
    found = looker.look().channels[0]
    assert found.frontier
    assert found.late is not None
    assert found.late.tables == ()


def test_a_channel_that_cannot_be_read_leaves_the_rest(tmp_path: Path) -> None:
    sound, torn = make(tmp_path / "sound"), make(tmp_path / "torn")
    send(torn, "a", [1], [4])
    looker = Looker([sound.path, torn.path, str(tmp_path / "none")], interval=0.0, clock_ms=lambda: AFTER)
    assert [each.problem and each.problem.condition for each in looker.look().channels] == [None, None, "STRANDLINE_NOT_A_TABLE"]
    send(torn, "b", [2], [6])
    newest = Path(torn.path, commit_name(torn.version))
    whole = newest.read_bytes()
    newest.write_bytes(b"")
    send(sound, "a", [], [3])
    first, second, _ = looker.look().channels
    assert (first.problem, first.holdings[-1].holds) == (None, ("3",))
    assert second.problem is not None
    assert second.problem.condition == "STRANDLINE_COMMIT_TORN"
    assert "Restore the file" in second.problem.remedy
    assert second.version == 1  # what was read before
    newest.write_bytes(whole)
    _, second, _ = looker.look().channels
    assert (second.problem, second.frontier) == (None, ("4",))


def test_rows_without_a_statement_are_an_error_on_the_page_at_every_look(tmp_path: Path) -> None:
    channel = make(tmp_path / "c")
    looker = Looker([channel.path], interval=0.0)
    looker.look()
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    actions = [{"commitInfo": {"timestamp": 0}}, {"add": add}]
    Path(channel.path, commit_name(1)).write_text("".join(json.dumps(action) + "\n" for action in actions))
    for each in (looker, looker, Looker([channel.path], interval=0.0)):
        [found] = each.look().channels
        assert found.problem is not None
        assert (found.problem.condition, found.version) == ("STRANDLINE_STATEMENT_MISSING", 1)


def test_a_channel_that_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    channel = make(tmp_path / "c")
    send(channel, "a", [], [4])
    looker = Looker([channel.path], interval=0.0)
    looker.look()
    shutil.rmtree(channel.path)
    assert looker.look().channels[0].problem is not None
    make(tmp_path / "c", producers=["new"], at=8)
    [found] = looker.look().channels
    assert (found.problem, found.frontier, [each.name for each in found.holdings]) == (None, ("8",), ["new"])


def test_a_path_may_become_a_scope_or_a_channel_later(tmp_path: Path) -> None:
    looker = Looker([str(tmp_path / "components"), str(tmp_path / "c")], interval=0.0)
    assert [each.version for each in looker.look().channels] == [-1, -1]
    a_loop(tmp_path)
    make(tmp_path / "c")
    assert [each.label for each in looker.look().channels] == ["edges", "labels", "result", "c"]
    assert all(each.problem is None for each in looker.look().channels)


def test_a_damaged_scope_keeps_its_channels(tmp_path: Path) -> None:
    scope = a_loop(tmp_path)
    looker = Looker([scope.path], interval=0.0)
    looker.look()
    Path(scope.path, "_strandline_scope", f"{99:020d}.json").write_text("no")
    page = looker.look()
    assert [each.condition for each in page.problems] == ["STRANDLINE_SCOPE_INVALID"]
    assert [each.label for each in page.channels] == ["edges", "labels", "result"]


def test_a_log_that_was_cleaned(tmp_path: Path) -> None:
    channel = make(tmp_path / "c")
    for n in range(1, 12):
        send(channel, "a", [n], [n])
    channel.checkpoint()
    for version in range(6):
        Path(channel.path, commit_name(version)).unlink()
    found = view(channel.path)
    assert (found.frontier, found.problem, found.version) == (("0",), None, channel.version)
    assert found.stands_since is not None
    assert not found.stands_since.exact


def test_commits_with_impossible_moments(tmp_path: Path) -> None:
    channel = make(tmp_path / "c")
    for n, stamp in enumerate(("0", "-5", str(1 << 90), "253402300799999"), 1):
        send(channel, "a", [n], [n])
        file = Path(channel.path, commit_name(channel.version))
        head, _, tail = file.read_text().partition('"timestamp":')
        file.write_text(f'{head}"timestamp":{stamp}{tail.lstrip("0123456789")}')
    found = view(channel.path)
    assert found.problem is None
    assert found.changed_ms == 253402300799999


def test_a_young_page_is_not_made_again(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", producers=["a"])
    looker = Looker([channel.path], interval=3600)
    first = looker.look()
    send(channel, "a", [], [5])
    assert looker.look() is first


def test_the_json_has_the_names_that_the_page_of_docs_explains() -> None:
    docs = (ROOT / "docs" / "page.md").read_text(encoding="utf-8").partition("## As data")[2]
    parts = [part for name in model.__all__ if is_dataclass(part := getattr(model, name))]
    names = {model.json_name(field.name) for part in parts for field in fields(part)} | {"strandlinePage"}
    assert not {name for name in names if f"`{name}`" not in docs}


def test_the_json_is_json(tmp_path: Path) -> None:
    page = look(a_loop(tmp_path).path)
    body = json.loads(json.dumps(page.to_json()))
    assert body["strandlinePage"] == 1
    assert [each["label"] for each in body["channels"]] == ["edges", "labels", "result"]
    assert body["channels"][0]["holdings"][0]["holdsBack"] is True


def test_secrets_in_addresses_are_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match="STRANDLINE_STORAGE_URL_INVALID"):
        look("s3://key:hunter2hunter2@lake/flights?sig=abcd")
    channel = make(tmp_path / "in-topsecret" / "c", producers=["topsecret"])
    page = look(channel.path, tmp_path / "topsecret", storage={"AWS_SECRET_ACCESS_KEY": "topsecret", "AWS_REGION": "x"})
    shown = str([(each.path, each.label, each.problem) for each in page.channels]) + page.title
    assert ("topsecret" in shown, "***" in shown) == (False, True)


def test_columns_are_shown(tmp_path: Path) -> None:
    schema = pa.schema([time_field("t", int64), ("<b>", pa.string())])
    channel = Channel.create(tmp_path / "c", schema, time="t", producers=["a"], at=0)
    assert view(channel.path).columns == (("t", "int64"), ("<b>", "string"))


def test_a_damaged_input_is_a_note_of_the_channel_that_it_holds_back(tmp_path: Path) -> None:
    first, last = make(tmp_path / "first", producers=["p"]), make(tmp_path / "last", producers=["query-1"])
    send(last, "query-1", [], [1], read_of(first, 2))
    for n in range(10):
        send(first, "p", [n + 1], [n + 2])
    looker = Looker([first.path, last.path], interval=0)
    looker.look()
    (tmp_path / "first" / commit_name(5)).write_bytes(b"")
    send(first, "p", [20], [30])
    send(last, "query-1", [], [2], read_of(first, 2))
    found = looker.look().channels[1]
    assert [culprit.name for culprit in found.culprits] == ["query-1"]
    [note] = found.why_notes
    assert note.startswith(f"a part of {first.path} cannot be read: Commit 5 of {first.path} has no action")


def test_names_like_those_of_an_ingest_are_producers_where_there_is_none(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", producers=["strandline:parked", "mine"])
    assert [each.kind for each in look(channel.path).channels[0].holdings] == ["producer", "producer"]
    bench = Bench(tmp_path / "ingest", ordered())
    bench.run((1, "a", 0), (2, "b", 0))
    bench.channel.register(["mine", "strandline:mine"], [3])
    with Channel.open(bench.settings.path).producer("mine") as mine:
        mine.state = {"at": 17}
        mine.commit()
    kinds = {each.name: each.kind for each in look(bench.settings.path).channels[0].holdings}
    assert (kinds["a"], kinds["mine"], kinds["strandline:mine"]) == ("partition", "producer", "producer")


def test_a_frontier_that_stands_for_longer_than_the_window(tmp_path: Path) -> None:
    """A busy channel: one producer is silent, and the others make more commits than are read. Since when it stands is found."""
    channel = make(tmp_path / "c")
    send(channel, "b", [2], [7])
    stood = channel.version
    for n in range(1, 40):
        send(channel, "a", [n + 7], [n + 7])
    channel.refresh()
    holder = min(channel.progress.producers, key=lambda name: min(channel.progress.producers[name].holds))
    assert holder == "b"
    cursor = Cursor(Channel.open(channel.path), window=5)
    since = cursor.stands_since()
    assert since.exact
    assert channel.frontier_at(since.version) == channel.frontier
    assert channel.frontier_at(since.version - 1) != channel.frontier
    assert since.version >= stood
    send(channel, "b", [50], [50])
    cursor.update()
    assert cursor.stands_since().version == Channel.open(channel.path).version


def test_a_page_without_the_channel_upstream_says_that_it_was_not_named(tmp_path: Path) -> None:
    up, out = make(tmp_path / "up", producers=["pump"]), make(tmp_path / "out", producers=["query-1"])
    send(up, "pump", [1], [5])
    send(out, "query-1", [1], [5], read_of(up))
    [alone] = look(out.path).channels
    [culprit] = alone.culprits
    assert culprit.what.startswith(f"its input {up.path} is not looked at here")
    assert culprit.release.startswith(f"name {up.path} too, as a further path")
    assert not any("cannot be opened" in text or "--upstream" in text for text in (culprit.what, culprit.release))
    assert any("name that channel too" in note for note in alone.why_notes)
    assert [each.name for each in look(out.path, up.path).channels[0].culprits] == ["pump"]


def test_a_page_says_that_another_table_is_at_the_path_of_an_input(tmp_path: Path) -> None:
    up, out = make(tmp_path / "up", producers=["pump"]), make(tmp_path / "out", producers=["query-1"])
    send(up, "pump", [1], [5])
    send(out, "query-1", [1], [5], read_of(up))
    shutil.rmtree(up.path)
    make(tmp_path / "up", producers=["pump"])
    [culprit] = look(out.path, up.path).channels[0].culprits
    assert "is another table now" in culprit.what
