"""Reading the Delta log: versions, tails and holes; commits that others wrote, well and badly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import make_channel, rows
from strandline.channel import Channel, ChannelError, Commit, CommitStatement, Log, LogError
from strandline.delta import log as log_module
from strandline.delta.storage import LocalStore, ObjectStore
from strandline.time.domain import int64


@pytest.fixture
def log(tmp_path: Path) -> Log:
    (tmp_path / "_delta_log").mkdir()
    return Log(tmp_path)


def commit(*actions: dict[str, Any], version: int = 7) -> Commit:
    return Commit(version, "\n".join(map(json.dumps, actions)).encode())


def test_tail_yields_contiguous_commits_and_then_only_new_ones(log: Log, make: Any) -> None:
    for version in range(3):
        make.write_commit(log.path, version, make.info())
    assert [c.version for c in log.tail(0)] == [0, 1, 2]
    assert list(log.tail(3)) == []
    make.write_commit(log.path, 3, make.info())
    assert [c.version for c in log.tail(3)] == [3]


@pytest.mark.parametrize("newest", [0, 1, 2, 3, 7, 8, 9, 100])
def test_latest_is_found_from_any_existing_version(log: Log, make: Any, newest: int) -> None:
    for version in range(newest + 1):
        make.write_commit(log.path, version, make.info())
    assert {log.latest(start) for start in range(newest + 1)} == {newest}


def test_latest_needs_few_looks(log: Log, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in range(1000):
        make.write_commit(log.path, version, make.info())
    looks = 0
    size = LocalStore.size

    def counted(self: LocalStore, path: str) -> int | None:
        nonlocal looks
        looks += 1
        return size(self, path)

    monkeypatch.setattr(LocalStore, "size", counted)
    assert log.latest(0) == 999
    assert looks <= 25


def test_a_read_of_a_version_that_is_not_there_yet_is_none(log: Log, make: Any) -> None:
    make.write_commit(log.path, 0, make.info())
    assert log.read(1) is None


def test_a_log_cleaned_beyond_the_start_is_told_with_where_it_begins(log: Log, make: Any) -> None:
    for version in (5, 6, 7):
        make.write_commit(log.path, version, make.info())
    Path(log.path, "_delta_log", "_last_checkpoint").write_text('{"version":5,"size":1}')
    with pytest.raises(LogError, match=r"STRANDLINE_LOG_TRUNCATED.*Commit 2 .*begins at 5"):
        list(log.tail(2))
    with pytest.raises(LogError, match=r"STRANDLINE_LOG_TRUNCATED.*Commit 4"):
        log.require(4)
    assert log.latest() == 7


def test_a_hole_in_the_log_is_told(log: Log, make: Any) -> None:
    for version in (0, 1, 3):
        make.write_commit(log.path, version, make.info())
    with pytest.raises(LogError, match=r"STRANDLINE_LOG_TRUNCATED.*Commit 2 .*later commits exist"):
        list(log.tail(0))


def test_a_folder_without_a_commit_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match="STRANDLINE_NOT_A_TABLE"):
        Log(tmp_path).latest()


def test_an_oversized_commit_is_refused_unparsed(log: Log, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make.write_commit(log.path, 0, make.info("x" * 2000))
    monkeypatch.setattr(log_module, "MAX_COMMIT_BYTES", 1000)
    with pytest.raises(LogError, match=r"STRANDLINE_COMMIT_INVALID.*Commit 0 .*larger than 1000"):
        log.read(0)


def test_a_damaged_checkpoint_hint_costs_nothing_but_time(log: Log, make: Any) -> None:
    for version in range(4):
        make.write_commit(log.path, version, make.info())
    for damaged in ("", "{", "[]", '{"version":"x"}', '{"version":99}'):
        Path(log.path, "_delta_log", "_last_checkpoint").write_text(damaged)
        assert log.latest() == 3


def test_local_paths_and_deltalakes_file_system_see_the_same(path: str, create: Callable[..., Channel], make: Any) -> None:
    channel = create()
    with channel.producer("a") as a:
        a.send(make.rows([1, 2]))
    plain, through = Log(path), Log(path)
    through.store = ObjectStore(Path(path).as_uri())
    assert isinstance(plain.store, LocalStore)
    assert through.latest() == plain.latest() == channel.version
    assert [(c.version, c.files, c.statement) for c in through.tail(0)] == [
        (c.version, c.files, c.statement) for c in plain.tail(0)
    ]
    assert sorted(through.store.list("_delta_log")) == sorted(plain.store.list("_delta_log"))
    name = channel.snapshot_files()[0].path
    with through.store.open_input(name) as one, plain.store.open_input(name) as other:
        assert one.read() == other.read()
    assert through.store.read("nothing", 10) is None
    assert through.store.size("nothing") is None
    with pytest.raises(FileNotFoundError):
        through.store.open_input("nothing")
    through.store.delete("nothing")


def test_kinds_of_commits_are_told_apart(make: Any) -> None:
    plain = commit(make.info(), make.add("f"))
    assert [f.path for f in plain.files] == ["f"]
    assert not plain.removes
    assert not plain.rearranges_only
    optimize = commit(make.info(operation="OPTIMIZE"), make.remove("f", changes=False), make.add("g", changes=False))
    assert optimize.rearranges_only
    assert optimize.removes_files
    assert optimize.files == ()
    optimize.check()
    delete = commit(make.info(operation="DELETE"), make.remove("f"))
    assert delete.removed == ("f",)
    assert not delete.rearranges_only


def test_a_plain_append_is_a_violation_that_names_the_commit(make: Any) -> None:
    with pytest.raises(LogError, match=r"STRANDLINE_STATEMENT_MISSING.*Commit 7 \(WRITE\) appends 1 file.*'f'"):
        commit(make.info(), make.add("f")).check()
    commit(make.info(operation="SET TBLPROPERTIES")).check()


def test_deletes_and_updates_stop_the_reader_unless_an_option_says_otherwise(make: Any) -> None:
    delete = commit(make.info(operation="DELETE"), make.remove("f"))
    update = commit(make.info(operation="UPDATE"), make.remove("f"), make.add("g"))
    with pytest.raises(LogError, match=r"STRANDLINE_ROWS_CHANGED.*Commit 7 \(DELETE\) deletes rows.*ignoreDeletes"):
        delete.check()
    with pytest.raises(LogError, match=r"STRANDLINE_ROWS_CHANGED.*Commit 7 \(UPDATE\) rewrites rows.*skipChangeCommits"):
        update.check(ignore_deletes=True)
    delete.check(ignore_deletes=True)
    delete.check(skip_change_commits=True)
    update.check(skip_change_commits=True)


def test_a_file_with_a_deletion_vector_is_refused(make: Any) -> None:
    add = make.add("f")
    add["add"]["deletionVector"] = {"storageType": "u", "cardinality": 1}
    with pytest.raises(LogError, match=r"STRANDLINE_DELETION_VECTORS.*Commit 7 adds 'f'"):
        _ = commit(add).files


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'"add"',
        b"{}",
        b'{"add":1}',
        b'{"add":{}}',
        b'{"add":{"path":"f"}}',
        b'{"add":{"path":"f","size":"1"}}',
        b'{"add":{"path":"","size":1}}',
        b'{"add":{"path":"f","size":1}}x',
        b'{"a":1,"b":2}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_damaged_commits_are_errors_that_name_the_version(data: bytes) -> None:
    with pytest.raises(LogError, match=r"STRANDLINE_COMMIT_INVALID.*Commit 7 "):
        Commit(7, data).check()


@pytest.mark.parametrize("many", [2, 100])
def test_a_file_that_is_added_twice_is_refused(make: Any, many: int) -> None:
    said = CommitStatement({}, times=((1, 2 * many),))
    adds = [make.add(f"{i % (many - 1)}.parquet") for i in range(many)]
    for add in adds:
        add["add"]["stats"] = '{"numRecords":2}'
    with pytest.raises(LogError, match=r"Commit 7 adds the file '0.parquet' more than once"):
        commit(make.info(said.to_user_metadata()), *adds).check()


def test_unknown_actions_and_odd_spacing_are_read() -> None:
    read = Commit(7, b'{ "add" : {"path":"a%20b","size":1,"stats":"no json"} }\r\n\n{"novelty":{}}\n')
    assert [(f.path, f.rows) for f in read.files] == [("a b", -1)]


def test_transactions_and_times_of_a_commit(make: Any) -> None:
    read = commit({"commitInfo": {"timestamp": 42}}, {"txn": {"appId": "q", "version": 3}}, {"txn": {"appId": "r", "version": 0}})
    assert read.transactions == {"q": 3, "r": 0}
    for damaged in ({"appId": "r"}, {"appId": "r", "version": True}, {"version": 3}, {"appId": "r", "version": 1 << 63}):
        with pytest.raises(LogError, match=r"STRANDLINE_COMMIT_INVALID.*txn action"):
            commit({"txn": damaged}).transactions  # noqa: B018
    assert read.timestamp_ms == 42
    assert commit(make.add("f")).timestamp_ms == 0
    assert commit(make.add("f")).operation == ""


def test_a_table_made_anew_is_noticed_also_if_a_producers_state_names_the_former_one(tmp_path: Path) -> None:
    path = tmp_path / "in"
    channel = make_channel(path, producers=("a", "b"))
    with channel.producer("a") as producer:
        producer.send(rows(int64, (1, 1)))
        producer.commit()
    stale, former = Channel.open(path), channel.table_id
    shutil.rmtree(path)
    anew = make_channel(path, producers=("a", "b"))
    with anew.producer("a") as producer:
        producer.state = {"migrated": {"table": former, "version": 3}}
        producer.send(rows(int64, (9, 9)))
        producer.commit()
    anew.refresh()
    assert stale.version == anew.version
    with pytest.raises(LogError, match="STRANDLINE_CHANNEL_REPLACED"):
        stale.refresh()
    assert Channel.open(path).read()["n"].to_pylist() == [9]
