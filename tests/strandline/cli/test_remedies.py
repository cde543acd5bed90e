"""Every remedy works: what ``why`` or an error prints is typed as it stands, and the time is released."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest_bench import SCHEMA, Bench
from page_channels import look
from strandline.channel import CapabilityError, Channel, WriterSession
from strandline.cli.__main__ import main
from strandline.ingest import Ingest, IngestError, Settings, cancel, drop_partitions, idle, manifest, ordered, status
from strandline.report import explain, verify
from strandline.time.arrow import time_field
from strandline.time.domain import int64, product
from typed import typed
from why_channels import make, send, the_culprit


def ran(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.fixture
def sealed(tmp_path: Path) -> Channel:
    """A query's output: sealed, with one producer, which holds 5."""
    made = make(tmp_path / "out", producers=["query-q"])
    send(made, "query-q", [1], [5])
    return made


def test_a_hold_on_a_sealed_channel_stands_until_what_why_prints_is_typed(sealed: Channel) -> None:
    assert ran("hold", sealed.path, 7, "--yes") == 0
    send(Channel.open(sealed.path), "query-q", [6], [20])
    assert list(Channel.open(sealed.path).frontier) == [7]
    culprit = the_culprit(explain(sealed.path, 9))
    assert re.search(r"held by `strandline hold`, by .+@.+, since 2\d{3}-\d\d-\d\dT", culprit.what)
    assert typed(str(explain(sealed.path, 9)), "drop") == 0
    assert list(Channel.open(sealed.path).frontier) == [20]
    assert verify(sealed.path).sound


def test_a_closed_time_cannot_be_held(sealed: Channel, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("hold", sealed.path, 4, "--yes") == 3
    assert "cannot join at 4, because the frontier is {5}" in capsys.readouterr().err
    with pytest.raises(CapabilityError):
        sealed.hold("me", 4, by="me")
    send(Channel.open(sealed.path), "query-q", [], [])
    assert ran("hold", sealed.path, 9, "--yes") == 3, "everything is closed"


def test_a_hold_in_a_partial_order_needs_one_who_holds_an_earlier_time(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", product(epoch="int64", iter="int64"), at=(0, 0))
    send(channel, "a", [], [(3, 0)])
    send(channel, "b", [], [(1, 5)])
    channel.hold("me", (2, 6), by="me")
    assert list(channel.producers["me"].holds) == [(2, 6)]
    with pytest.raises(CapabilityError):
        channel.hold("you", (2, 4), by="me")


def test_a_session_that_is_open_goes_on_beside_a_hold(tmp_path: Path) -> None:
    """The hold states again what it clones. The session takes this for what it is: nothing new."""
    channel = make(tmp_path / "c", producers=["a"])
    a = channel.producer("a")
    a.delay([3])
    a.commit()
    a.delay([8])
    Channel.open(channel.path).hold("me", 4, by="ann")
    a.commit()
    Channel.open(channel.path).hold("you", 9, by="ann")
    a.close()
    assert list(Channel.open(channel.path).frontier) == [4]
    assert verify(channel.path).sound


def test_one_who_takes_the_name_still_fences_the_session(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", producers=["a"])
    a = channel.producer("a")
    Channel.open(channel.path).hold("me", 4, by="ann")
    Channel.open(channel.path).producer("a", take_over=True)
    a.delay([1])
    with pytest.raises(Exception, match="STRANDLINE_PRODUCER_FENCED"):
        a.commit()


def test_a_batch_of_an_ingest_goes_on_beside_a_hold(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a", "b"])
    bench.run((3, "a", 0), (5, "b", 0))
    reports = bench.take([(7, "a", 1), (8, "b", 1)])
    assert ran("hold", bench.settings.path, 4, "--yes") == 0
    bench.commit(reports)
    assert bench.frontier() == [4]
    assert bench.late() == []
    assert typed(str(explain(bench.settings.path, 5)), "drop") == 0
    assert bench.frontier() == [7]
    assert verify(bench.settings.path).sound


EXPECTED = {("a", 1): 2, ("a", 4): 1, ("b", 2): 3}


def announced(tmp_path: Path, expected: Any = None, wrap: Any = lambda policy: policy) -> Bench:
    policy = wrap(manifest(EXPECTED if expected is None else expected))
    policy.save(
        str(tmp_path / "manifest"), Settings.of(str(tmp_path / "channel"), SCHEMA, policy=policy, time="t", partition="p")
    )
    return Bench(tmp_path, policy)


@pytest.mark.parametrize("wrap", [lambda policy: policy, lambda policy: idle(policy, "1 hour")])
def test_what_why_says_of_rows_that_never_came_releases_the_time(tmp_path: Path, wrap: Any) -> None:
    bench = announced(tmp_path, wrap=wrap)
    bench.run((1, "a", 0), (4, "a", 0), (2, "b", 0), (2, "b", 1), (2, "b", 2))
    assert bench.frontier() == [1]
    answer = str(explain(bench.settings.path, 3))
    assert "announces 1 row that never came, the first of them at 1" in answer
    assert typed(answer, "cancel") == 0
    assert bench.frontier() == []
    version = bench.channel.version
    assert typed(answer, "cancel") == 0, "the number is the total"
    assert bench.channel.version == version
    bench.restart()
    bench.run((1, "a", 9))
    assert bench.late() == [(1, "a", 9)]
    assert verify(bench.settings.path).sound


def test_a_running_ingest_goes_on_after_rows_were_cancelled(tmp_path: Path) -> None:
    bench = announced(tmp_path)
    bench.run((1, "a", 0), (2, "b", 0))
    others, own = bench.take([(2, "b", 1)]), bench.take([(1, "a", 1)])
    cancel(bench.settings.path, {("a", "1"): 1})
    assert bench.holds() == {"a": [4], "b": [2]}
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_OVERTAKEN"):
        bench.commit(own)
    bench.commit(others)
    assert bench.holds() == {"a": [4], "b": [2]}


def test_a_crash_between_manifest_and_channel_heals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = announced(tmp_path)
    bench.run((1, "a", 0), (2, "b", 0))
    with monkeypatch.context() as patched:
        patched.setattr(Channel, "append_decided", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cancel(bench.settings.path, {("a", 1): 1})
    assert bench.frontier() == [1]
    answer = str(explain(bench.settings.path, 1))
    assert "never came" not in answer
    assert typed(answer, "cancel") == 0
    assert bench.frontier() == [2]


def test_writing_the_mapping_again_keeps_what_was_cancelled(tmp_path: Path) -> None:
    bench = announced(tmp_path)
    bench.run((1, "a", 0), (2, "b", 0))
    cancel(bench.settings.path, {("a", 1): 1})
    again = announced(tmp_path)
    again.batch = 1
    again.run((2, "b", 1))
    assert again.holds() == {"a": [4], "b": [2]}


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ({("c", 1): 1}, "judges a partition 'c'. It has: a, b"),
        ({("a", 2): 1}, "announces nothing for 2 of 'a'. It has: 1, 4"),
        ({("a", 1): 2}, "2 rows are announced, 0 are cancelled, and 1 are missing"),
        ({("a", 1): -1}, "is no number of rows"),
    ],
)
def test_what_cannot_be_cancelled_is_refused_by_name(tmp_path: Path, rows: Any, what: str) -> None:
    bench = announced(tmp_path)
    bench.run((1, "a", 0), (2, "b", 0))
    with pytest.raises(IngestError, match=f"STRANDLINE_CANCEL_INVALID.*{what}"):
        cancel(bench.settings.path, rows)
    assert bench.frontier() == [1]


def test_without_a_manifest_nothing_is_cancelled(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((1, "a", 0))
    with pytest.raises(IngestError, match="STRANDLINE_CANCEL_IMPOSSIBLE"):
        cancel(bench.settings.path, {("a", 1): 1})


def test_an_open_channel_of_an_ingest_is_sealed_only_where_no_partition_holds_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((3, "a", 0))
    assert "strandline seal" not in str(explain(bench.settings.path, 3))
    drop_partitions(bench.settings.path, ["a"])
    monkeypatch.setattr("builtins.input", lambda *_: "n")
    assert ran("seal", bench.settings.path) != 0
    assert "a row of a new partition then stops it for good" in "".join(capsys.readouterr())
    assert typed(str(explain(bench.settings.path, 3)), "seal") == 0
    assert bench.channel.sealed


def test_late_rows_come_back_by_a_command(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((3, "a", 0))
    bench.run((1, "a", 1))
    assert ran("publish-late", bench.settings.path, "--yes", "--json") == 0
    assert ran("readmit", bench.settings.path, "--yes") == 0
    assert len(bench.rows()) == 2


def test_late_rows_are_published_by_what_status_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((3, "a", 0))
    monkeypatch.setattr(Ingest, "_publish", lambda *_: None)
    bench.run((1, "a", 1))
    assert typed(str(status(bench.settings.path)), "publish-late") == 0
    assert bench.late() == [(1, "a", 1)]


def test_an_errors_remedy_names_the_channel_and_the_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((3, "a", 0), (5, "it's b", 0), (7, "c", 0))
    assert ran("forget", bench.settings.path, "it's b", "--yes") == 3
    assert typed(capsys.readouterr().err, "drop") == 0
    assert ran("rejoin", bench.settings.path, "a", "--yes") == 3
    assert typed(capsys.readouterr().err, "drop") == 0
    assert bench.frontier() == [7]


def test_parked_rows_of_a_query_that_has_ended_are_released_by_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=5)
    path = bench.settings.path
    bench.owner = WriterSession("q", "another-host", 1, 0.0)
    bench.run((1, "a", 0), (1, "b", 0))
    bench.run((50, "a", 1))
    answer = str(explain(path, 50))
    assert typed(answer, "release-parked") == 3, "nobody here knows whether its query has ended"
    assert typed(capsys.readouterr().err, "release-parked") == 0
    assert status(path).parked_rows == 0
    assert typed(answer, "release-parked") == 0
    assert "no rows were parked" in capsys.readouterr().out
    assert verify(path).sound


def test_parked_rows_whose_file_is_gone_are_given_up_by_what_the_error_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=5)
    bench.run((1, "a", 0), (1, "b", 0))
    joined = {*Path(bench.settings.path, "_ahead").glob("*")}
    bench.run((50, "a", 1))
    [file] = {*Path(bench.settings.path, "_ahead").glob("*")} - joined
    file.unlink()
    assert ran("release-parked", bench.settings.path, "--take-over", "--yes") == 3
    assert typed(capsys.readouterr().err, "release-parked") == 0
    assert status(bench.settings.path).parked_rows == 0
    assert len(bench.rows()) == 2


def test_corrections_end_by_what_why_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((3, "a", 0))
    drop_partitions(bench.settings.path, ["a"])
    bench.channel.seal()
    answer = str(explain(bench.settings.path, (3, 1)))
    assert typed(answer, "end-corrections") == 0
    assert bench.frontier() == []
    assert typed(answer, "end-corrections") == 0
    assert "it accepts no corrections" in capsys.readouterr().out
    assert verify(bench.settings.path).sound


def test_a_hold_is_no_partition_and_the_registrar_does_not_wait_for_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), (7, "b", 0))
    assert ran("hold", bench.settings.path, 6, "--yes") == 0
    bench.run((20, "a", 1), (30, "b", 1))
    found = status(bench.settings.path)
    assert ([each.name for each in found.partitions], list(found.frontier)) == (["a", "b"], [6])
    assert "strandline:operator holds 6, by strandline hold" in found.explain()
    assert typed(found.explain(), "drop") == 0
    assert list(bench.channel.frontier) == [20]


@pytest.mark.parametrize("corrections", [False, True])
def test_a_partition_that_has_the_name_of_a_hold_joins_after_what_the_error_says(
    corrections: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path, ordered(), corrections=corrections)
    bench.run((5, "a", 0))
    assert ran("hold", bench.settings.path, "[6, 0]" if corrections else 6, "--as", "b", "--yes") == 0
    assert "If the ingest gets a partition 'b', it stops" in capsys.readouterr().err
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_IS_HOLD") as caught:
        bench.run((40, "b", 0))
    assert ran("forget", bench.settings.path, "b", "--yes") == 3, "it holds"
    assert typed(caught.value.remedy, "drop") == 0
    assert typed(caught.value.remedy, "forget") == 0
    bench.run((40, "b", 0), (50, "a", 1))
    assert [each.name for each in status(bench.settings.path).partitions] == ["a", "b"]
    assert verify(bench.settings.path).sound


def test_printed_commands_repeat_the_options_of_the_storage_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    channel = make(tmp_path / "c", producers=["a"])
    channel.hold("mine", 0, by="ann")
    options = ["--storage", "durable=false", "--storage", "AWS_SECRET_ACCESS_KEY=hunter2"]
    assert ran("why", channel.path, *options) == 0
    shown = capsys.readouterr().out
    assert f"strandline drop {channel.path} --storage durable=false mine" in shown
    assert "hunter2" not in shown
    assert typed(shown, "drop") == 0
    assert ran("why", channel.path) == 0
    assert "--storage" not in capsys.readouterr().out + str(explain(channel.path, 0))


def test_drop_says_what_is_lost_of_a_hold_and_of_a_producer_that_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = make(tmp_path / "c", producers=["a"])
    channel.hold("mine", 5, by="ann@desk")
    channel.producer("a")
    assert ran("drop", channel.path, "mine", "--yes") == 0
    told = capsys.readouterr().err
    assert "mine holds 5 for ann@desk since 2" in told
    assert "rows" not in told.lower()
    monkeypatch.setattr(WriterSession, "is_dead", lambda self: True)
    assert ran("drop", channel.path, "a", "--yes") == 0
    told = capsys.readouterr().err
    assert re.search("It was open in .*, which is gone", told)
    assert "not committed are lost" in told


def test_forget_says_that_a_sealed_channel_takes_no_partition_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), (5, "b", 0))
    drop_partitions(bench.settings.path, ["b"])
    bench.channel.seal()
    assert ran("forget", bench.settings.path, "b", "--yes") == 0
    told = capsys.readouterr().err
    assert "The channel is sealed: if it delivers again, the ingest stops" in told
    assert "joins as a new one" not in told


def test_why_of_a_channel_with_corrections_names_who_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = manifest({("a", 2): 1, ("b", 2): 1})
    policy.save(f"{tmp_path}/m", Settings.of(str(tmp_path / "channel"), SCHEMA, time="t", partition="p", policy=policy))
    bench = Bench(tmp_path, policy, corrections=True)
    bench.run((2, "a", 0))
    assert ran("why", bench.settings.path) == 0
    shown = capsys.readouterr().out
    assert "waits for partition b" in shown
    assert typed(shown, "cancel") == 0
    assert not explain(bench.settings.path, ((2, 0))).open
    [view] = look(bench.settings.path).channels
    assert [each.name for each in view.culprits] == ["strandline:corrections"]  # nobody else is left


def test_a_growing_manifest_may_still_announce_rows_and_its_own_channel_says_who(tmp_path: Path) -> None:
    columns = pa.schema([time_field("t", int64), ("p", pa.string()), ("expected", pa.int64())])
    announcing = Channel.create(tmp_path / "m", columns, producers=["w"], at=0)
    with announcing.producer("w") as w:
        w.send(pa.table({"t": [1, 2], "p": ["a", "a"], "expected": [1, 1]}, schema=columns))
        w.delay([1])
    bench = Bench(tmp_path, manifest(str(tmp_path / "m")))
    bench.run((1, "a", 0), (2, "a", 1))
    [culprit] = [each for each in explain(bench.settings.path, 1).culprits if each.kind == "partition"]
    assert culprit.what.startswith("its manifest, a channel, may still announce rows at 1 and later")
    assert f"strandline why {tmp_path / 'm'}" in culprit.release
    assert "cancel" not in culprit.release


def grown(tmp_path: Path, holds: list[int], b: int = 2) -> Bench:
    """An ingest whose manifest is a channel: of two rows at 1 of a one came, and the manifest's producer has gone on.

    One row of b came at 2. It was announced for the time ``b``.
    """
    columns = pa.schema([time_field("t", int64), ("p", pa.string()), ("expected", pa.int64())])
    announcing = Channel.create(tmp_path / "m", columns, producers=["w"], at=0)
    with announcing.producer("w") as w:
        w.send(pa.table({"t": [1, 2, b], "p": ["a", "a", "b"], "expected": [2, 1, 1]}, schema=columns))
        w.delay(holds)
    announcing.seal()
    bench = Bench(tmp_path, manifest(str(tmp_path / "m")), partitions=["a", "b"])
    bench.run((1, "a", 0), (2, "a", 1), (2, "b", 2))
    return bench


def test_rows_of_a_growing_manifest_are_cancelled_where_nobody_can_write_to_it_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = grown(tmp_path, [9])
    assert bench.frontier() == [1]
    answer = str(explain(bench.settings.path, 1))
    assert f"strandline cancel {bench.settings.path} a 1 1" in answer
    assert typed(answer, "cancel") == 0
    assert bench.frontier() == [9]
    version = bench.channel.version
    assert typed(answer, "cancel") == 0, "the number is the total"
    assert "nothing changed" in capsys.readouterr().out
    assert bench.channel.version == version
    assert ran("cancel", bench.settings.path, "a", 1, 2, "--yes") == 3
    bench.restart()
    bench.run((1, "a", 9), (9, "b", 3))
    assert bench.late() == [(1, "a", 9)]
    assert verify(bench.settings.path).sound


def test_what_is_cancelled_of_a_growing_manifest_stays_so_when_the_partition_rejoins(tmp_path: Path) -> None:
    bench = grown(tmp_path, [9], b=1)
    cancel(bench.settings.path, {("a", 2): 0, ("a", 1): 1})
    assert bench.holds() == {"a": [9], "b": [1]}
    assert ran("rejoin", bench.settings.path, "a", "--yes") == 0
    bench.restart()
    bench.run((2, "b", 3))
    assert bench.holds() == {"a": [9], "b": [1]}, "a joins at 1, and waits for nothing that was cancelled"
    assert bench.channel.producers["a"].state["generation"] == 2
    assert verify(bench.settings.path).sound


def test_cancelling_that_releases_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = grown(tmp_path, [0])
    assert ran("cancel", bench.settings.path, "a", 1, 1, "--yes") == 0
    assert "no time was released" in capsys.readouterr().out
    assert ran("cancel", bench.settings.path, "--yes") == 0
    assert "nothing changed" in capsys.readouterr().out
    with pytest.raises(IngestError, match="STRANDLINE_CANCEL_INVALID"):
        cancel(bench.settings.path, {("z", 1): 1})
