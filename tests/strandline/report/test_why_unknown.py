"""What is not known is said to be so: no healthy producer is blamed, and none is to be dropped, because a search ended early."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from ingest_bench import Bench
from strandline.channel import Channel, Log, WriterSession
from strandline.channel.statements.inputs import Input
from strandline.cli.__main__ import main
from strandline.delta.storage import commit_name
from strandline.ingest import idle, ordered
from strandline.report import explain
from strandline.report.history import History
from strandline.scope import Scope
from strandline.time.domain import int64
from why_channels import dead, make, read, send, the_culprit

MANY = [f"p{n}" for n in range(100, 140)]
BATCH = "7:9f86d081884c7d65"


def clock(channel: Channel, commits: int) -> None:
    for _ in range(commits):
        send(channel, "clock", [], [channel.version + 2])


def clean(channel: Channel) -> None:
    """Remove what the log has before its newest rows."""
    send(channel, "clock", [channel.version + 1], [channel.version + 2])
    before = channel.log.read(channel.version).timestamp_ms
    while time.time() * 1000 <= before + 1:
        pass
    assert Channel.open(channel.path).clean_log(timedelta(0))


def test_what_a_quiet_query_reads_is_found_although_the_search_for_since_has_ended(tmp_path: Path) -> None:
    up = make(tmp_path / "up", producers=["pump"])
    out = make(tmp_path / "out", producers=["query-1", "query-2", "clock"])
    for name in ("query-1", "query-2"):
        send(out, name, [], [1], [read(up)])
        clock(out, 110)
    for history in (1, 50, 2000):
        answer = explain(out.path, 5, history=history)
        assert the_culprit(answer).name == "pump"
        assert [holder.reads for holder in answer.holders if holder.kind == "query"] == [(up.path,)] * 2


@pytest.mark.drawn("core")
def test_holders_that_fell_silent_at_different_versions_share_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"quiet-{n}" for n in range(3)]
    out = make(tmp_path / "out", producers=[*names, "clock", *(f"p{n}" for n in range(40))])
    out.append([], statements={f"p{n}": [9999] for n in range(40)}, owner=WriterSession.here())
    since = {}
    for name in names:
        clock(out, 270)
        send(out, name, [], [1])
        since[name] = out.version
    clock(out, 270)
    channel, read = Channel.open(out.path), []
    monkeypatch.setattr(channel.log, "read", lambda version: (read.append(version), Log.read(channel.log, version))[1])
    answer = explain(channel, 5, most=len(names) + 1)
    found = {holder.name: holder.since for holder in answer.culprits if holder.name in since}
    assert {name: (each.version, each.exact) for name, each in found.items()} == {name: (at, True) for name, at in since.items()}
    assert len(read) < 200 + len(names) * (100 + 10)  # the newest ones; and of each holder the commits since a copy


@pytest.mark.drawn
def test_commits_before_a_statement_are_not_read_if_its_number_says_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = make(tmp_path / "out", producers=["quiet", "clock", *MANY])
    out.append([], statements={name: [9999] for name in MANY}, owner=WriterSession.here())
    clock(out, 147 - out.version)
    send(out, "quiet", [], [1])
    since = out.version
    clock(out, 430 - out.version)
    channel, read = Channel.open(out.path), []
    monkeypatch.setattr(channel.log, "read", lambda version: (read.append(version), Log.read(channel.log, version))[1])
    found = History(channel).since("quiet")
    assert found is not None
    assert (found.version, found.exact) == (since, True)
    assert not [version for version in read if 100 < version < since]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", [0, 1, 4])
def test_since_when_somebody_holds_is_what_a_whole_replay_says(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    names = [f"p{n}" for n in range(8)]
    out = make(tmp_path / "out", producers=[*names, "clock", *MANY])  # so many that few commits repeat all statements
    out.append([], statements={name: [9999] for name in MANY}, owner=WriterSession.here())
    often = [3.0 ** -rng.randrange(8) for _ in names]
    states: dict[str, list[tuple[int, tuple[object, ...]]]] = {name: [(0, (0,))] for name in names}
    for _ in range(rng.randrange(300, 500)):
        name = rng.choices(names, often)[0]
        before = states[name][-1][1]
        held = rng.choice([before, (before[0] + 1,)])  # a statement may say the same again
        out.append([], statements={name: list(held)}, owner=WriterSession.here("w"), take_over=True, always=True)
        if held != before:
            states[name].append((out.version, held))
    if seed % 2:
        clean(out)
    channel = Channel.open(out.path)
    for look_first in (names, []):
        history = History(channel)
        history.look_for(look_first)
        for name in names:
            found, (version, _) = history.since(name), states[name][-1]
            assert found is not None
            assert found.version == version if found.exact else found.version >= version, name
            assert found.exact or channel.log.earliest(), name


@pytest.mark.drawn
def test_what_a_query_among_many_producers_reads_is_found(tmp_path: Path) -> None:
    """Its statement is not repeated in each commit."""
    up = make(tmp_path / "up", producers=["pump"])
    out = make(tmp_path / "out", producers=["query-1", "clock", *(f"p{n}" for n in range(60))])
    clock(out, 30)
    send(out, "query-1", [], [1], [read(up)])
    clock(out, 260)
    out.append([], statements={f"p{n}": [999] for n in range(60)}, owner=WriterSession.here())
    assert the_culprit(explain(out.path, 5, history=10)).name == "pump"


@pytest.mark.parametrize("name", ["query-1", "hourly"])
def test_a_query_whose_newest_commit_was_cleaned_away_is_not_said_to_read_nothing(name: str, tmp_path: Path) -> None:
    up, out = make(tmp_path / "up", producers=["pump"]), make(tmp_path / "out", producers=[name, "clock"])
    owner = WriterSession.here("1")
    out.append([], statements={name: [1]}, states={name: {"strandline:batch": BATCH}}, owner=owner, reads=(read(up),))
    clock(out, 40)
    assert the_culprit(explain(out.path, 5)).name == "pump"
    clean(out)
    answer = explain(out.path, 5)
    culprit = the_culprit(answer)
    assert (culprit.name, culprit.kind) == (name, "query")
    assert culprit.what.startswith("it is not known which channels it reads, because the log was cleaned up, and begins after")
    assert "drop" not in str(answer)


def test_a_producer_that_may_live_is_not_to_be_dropped(tmp_path: Path) -> None:
    out = make(tmp_path / "out", producers=["a", "gone", "free", "clock"])
    send(out, "a", [], [1])
    send(out, "gone", [], [1], owner=dead())
    clock(out, 40)
    said = {holder.name: holder for holder in explain(out.path, 5).culprits}
    assert "strandline drop" not in said["a"].release  # its process lives
    assert "strandline drop" in said["gone"].release
    assert "strandline drop" in said["free"].release  # it made no statement since the channel was created
    clean(out)
    after = {holder.name: holder for holder in explain(out.path, 5).culprits}
    assert (after["a"].what, after["a"].release) == (said["a"].what, said["a"].release)
    assert [name for name in after if "strandline drop" in after[name].release] == ["free", "gone"]


def test_a_program_s_own_producer_is_described_as_before_after_its_newest_commit_was_cleaned_away(tmp_path: Path) -> None:
    out = make(tmp_path / "out", producers=["closed", "open", "clock"])
    with out.producer("closed") as closed:
        closed.delay([1])
    out.append([], statements={"open": [1]}, states={"open": {"at": 17}}, owner=WriterSession.here("1"))
    clock(out, 40)
    before = {holder.name: (holder.kind, holder.what, holder.release) for holder in explain(out.path, 5).culprits}
    clean(out)
    after = {holder.name: (holder.kind, holder.what, holder.release) for holder in explain(out.path, 5).culprits}
    assert after == before
    assert "open it again, and delay or drop its capability" in after["closed"][2]


def test_a_program_that_took_over_a_query_s_producer_and_closed_it_is_no_query(tmp_path: Path) -> None:
    out = make(tmp_path / "out", producers=["hourly"])
    out.append([], statements={"hourly": [1]}, states={"hourly": {"strandline:batch": BATCH}}, owner=WriterSession.here("1"))
    assert the_culprit(explain(out.path, 5)).kind == "query"
    with Channel.open(out.path).producer("hourly", take_over=True) as mine:
        mine.delay([2])
    culprit = the_culprit(explain(out.path, 5))
    assert (culprit.kind, culprit.what) == ("producer", "no session has it open")


def test_a_scope_speaks_for_the_only_query_beside_an_operator_that_has_ended(tmp_path: Path) -> None:
    make(tmp_path / "orders", producers=["shop"])
    sums = make(tmp_path / "sums", producers=["query-1", "operator"])
    scope = Scope.create(tmp_path / "scope", int64)
    for name in ("orders", "sums"):
        scope.add_channel(name, tmp_path / name)
    scope.add_query("daily", reads=["orders"], writes=["sums"])
    send(sums, "query-1", [], [1])
    culprits = explain(scope, 7, channel="sums").culprits
    assert [culprit.reads for culprit in culprits] == [None, None]  # both write
    sums.append([], statements={"operator": []}, owner=WriterSession.here("operator"))
    assert the_culprit(explain(scope, 7, channel="sums")).name == "shop"


def test_a_scope_does_not_speak_for_an_operator_or_for_one_of_two_queries(tmp_path: Path) -> None:
    orders, sums = make(tmp_path / "orders", producers=["shop"]), make(tmp_path / "sums", producers=["operator"])
    scope = Scope.create(tmp_path / "scope", int64)
    for name in ("orders", "sums"):
        scope.add_channel(name, tmp_path / name)
    scope.add_query("daily", reads=["orders"], writes=["sums"])
    send(orders, "shop", [0], [100])
    culprit = the_culprit(explain(scope, 7, channel="sums"))
    assert (culprit.name, culprit.kind, culprit.reads) == ("operator", "producer", None)
    sums = make(tmp_path / "more", producers=["query-1"])
    scope.add_channel("more", tmp_path / "more")
    for name in ("first", "second"):
        scope.add_query(name, reads=["orders"], writes=["more"])
    send(sums, "query-1", [], [1])
    assert the_culprit(explain(scope, 7, channel="more")).reads is None
    named = make(tmp_path / "named", producers=["third"])
    scope.add_channel("named", tmp_path / "named")
    scope.add_query("third", reads=["orders"], writes=["named"])
    scope.add_query("fourth", reads=["sums"], writes=["named"])
    send(named, "third", [], [1])
    assert the_culprit(explain(scope, 7, channel="named")).reads == (orders.path,)


@pytest.mark.drawn
@pytest.mark.parametrize("damage", [b"", b"\xff\xfe{", b'{"add":{"path":3,"q":{', None])
@pytest.mark.parametrize("commit", [5, 120])
def test_an_input_that_is_damaged_does_not_keep_the_answer_back(damage: bytes | None, commit: int, tmp_path: Path) -> None:
    up, out = make(tmp_path / "up", producers=["pump"]), make(tmp_path / "out", producers=["query-1"])
    send(out, "query-1", [], [1], [Input(up.table_id, 2, 0, up.path, ())])
    for n in range(130):
        send(up, "pump", [n + 1], [n + 2])
    file = tmp_path / "up" / commit_name(commit)
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    answer = explain(out.path, 5)
    assert (the_culprit(answer).name, the_culprit(answer).reads) == ("query-1", (up.path,))
    assert damage is None or any(up.path in note for note in answer.notes)


def test_a_damaged_commit_of_the_channel_itself_is_a_note(tmp_path: Path) -> None:
    out = make(tmp_path / "out", producers=["a", "clock"])
    send(out, "a", [], [1])
    clock(out, 60)
    (tmp_path / "out" / commit_name(20)).write_bytes(b"")
    answer = explain(out.path, 5)
    assert the_culprit(answer).name == "a"
    [note] = answer.notes
    assert note.startswith(f"a part of the log of {out.path} cannot be read: Commit 20 of {out.path} has no action")


def test_a_scope_that_names_a_deleted_channel(tmp_path: Path) -> None:
    orders, sums = make(tmp_path / "orders", producers=["shop"]), make(tmp_path / "sums", producers=["query-1"])
    scope = Scope.create(tmp_path / "scope", int64)
    for name in ("orders", "sums"):
        scope.add_channel(name, tmp_path / name)
    scope.add_query("daily", reads=["orders"], writes=["sums"])
    send(sums, "query-1", [], [1])
    shutil.rmtree(tmp_path / "orders")
    for reads in ([], [Input(orders.table_id, 1, 0, orders.path, ())]):
        answer = explain(sums.path, 3, scopes=[Scope.open(tmp_path / "scope")])
        assert "cannot be opened, so it is not known whether" in the_culprit(answer).what
        assert any("There is no Delta table at" in note for note in answer.notes)
        send(sums, "query-1", [], [2], reads)


@pytest.mark.parametrize("moved", [True, False])
def test_an_input_at_whose_path_is_another_table(moved: bool, tmp_path: Path) -> None:
    """The query may read the one that was moved, so the answer does not begin with a new checkpoint."""
    up, out = make(tmp_path / "up", producers=["pump"]), make(tmp_path / "out", producers=["query-1"])
    send(out, "query-1", [], [1], [read(up)])
    if moved:
        (tmp_path / "up").rename(tmp_path / "other")
    else:
        shutil.rmtree(tmp_path / "up")
    make(tmp_path / "up", producers=["another"])
    culprit = the_culprit(explain(out.path, 5))
    assert culprit.what.startswith(f"at the recorded path of its input, {up.path}, is another table now")
    assert culprit.release.startswith("if that table was moved, name it too (--upstream of why, a further path")
    assert culprit.release.index("If it was deleted") < culprit.release.index("a new checkpointLocation")
    if moved:
        assert the_culprit(explain(out.path, 5, channels=[tmp_path / "other"])).name == "pump"


def test_an_ingest_that_has_stopped_in_a_process_that_lives_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((1, "a", 0), (1, "b", 0))
    bench.run((9, "a", 0), (1, "b", 0))
    bench.channel.seal()
    culprit = the_culprit(explain(bench.settings.path, 5))
    assert (culprit.kind, culprit.name) == ("partition", "b")
    assert f"and last committed at version {bench.channel.version - 1}, " in culprit.what
    assert f"its process {os.getpid()} on " in culprit.what
    assert " runs, and it is not known whether the query runs in it" in culprit.what
    bench.owner = replace(bench.owner, host="elsewhere")
    bench.run((10, "a", 0), (1, "b", 0))
    assert "; it is not known whether it runs" in the_culprit(explain(bench.settings.path, 5)).what
    assert culprit.release.index("see first whether query q runs: if it has stopped, start it again") == 0
    assert culprit.release.index("strandline drop") > culprit.release.index("If it runs")


def test_a_program_of_ones_own_beside_an_ingest_is_no_partition(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((1, "a", 0), (9, "b", 0))
    bench.channel.register(["mine", "strandline:mine"], [3])
    for name in ("mine", "strandline:mine"):
        with Channel.open(bench.settings.path).producer(name) as mine:
            mine.state = {"at": 17}
            mine.commit()
    kinds = {holder.name: holder.kind for holder in explain(bench.settings.path, 5).holders}
    assert kinds == {"a": "partition", "mine": "producer", "strandline:mine": "producer", "$registrar": "registrar"}


def test_the_drop_command_of_a_name_with_control_characters_is_one_that_a_shell_takes(tmp_path: Path) -> None:
    name = "tab\there\nline 'quoted' \\ \x1b[2J é"
    channel = make(tmp_path / "c d", producers=[name])
    command = str(explain(channel, 5)).partition("strandline drop ")[2].partition(".\n")[0]
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True).stdout
    assert said.decode().split("\0")[:-1] == [channel.path, name]


def test_a_name_with_half_a_character_has_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    channel = make(tmp_path / "c", producers=["\ud800x", "b"])
    said = {holder.name: holder.release for holder in explain(channel, 5).culprits}
    assert said["\ud800x"].endswith("drop it in a program: no command line takes its name, which has half a character")
    assert said["b"].endswith(f"strandline drop {channel.path} b")
    for command in (["why", channel.path, "5"], ["why", channel.path, "5", "--json"], ["report", channel.path, "--json"]):
        assert main(command) == 0
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        assert "UnicodeEncodeError" not in told.out


def test_the_drop_command_of_a_path_with_a_leading_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("-dash"), producers=["a"])
    answer = explain("-dash", 5)
    assert the_culprit(answer).release.endswith("strandline drop ./-dash a")


@pytest.mark.parametrize(
    ("form", "found"),
    [("file://{}", True), ("file:{}", True), ("in put", False), ("file:in put", False), ("C:/in", False), ("dbfs:{}", False)],
)
def test_a_recorded_path_in_another_form(form: str, found: bool, tmp_path: Path) -> None:
    up, out = make(tmp_path / "in put", producers=["pump"]), make(tmp_path / "out", producers=["query-1"])
    send(out, "query-1", [], [1], [Input(up.table_id, 1, 0, form.format(up.path.replace(" ", "%20")), ())])
    answer = explain(out.path, 5)
    assert (the_culprit(answer).name == "pump") is found
    why = "it is on another storage" if form.startswith("dbfs") else "its recorded path is relative to an unknown folder"
    assert found or why in answer.notes[0]


@pytest.mark.parametrize("after", [None, timedelta(minutes=1)])
def test_a_policy_that_has_idle_is_not_told_to_take_it(after: timedelta | None, tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered() if after is None else idle(ordered(), after))
    bench.run((1, "a", 0), (1, "b", 0), to_end=True)
    bench.run((9, "a", 0), to_end=True)
    bench.channel.seal()
    release = the_culprit(explain(bench.settings.path, 5)).release
    assert ("or a policy with idle(…)" in release) is (after is None)
    assert ("once it has been silent for so long, the idle(…) of its policy" in release) is (after is not None)
