"""Late tables that are copied, moved, shared, deleted or damaged: no row is lost or comes twice, and each stop has a name."""

from __future__ import annotations

import importlib
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest_bench import Bench
from strandline.channel import Channel, ChannelError
from strandline.channel.statements.statement import REGISTRAR
from strandline.delta.table import Table
from strandline.errors import StrandlineError
from strandline.ingest import (
    IngestError,
    accept_replay,
    admin,
    drop_partitions,
    give_up_late_rows,
    manifest,
    ordered,
    publish_late_rows,
    readmit,
    status,
)
from strandline.ingest.late import late_table as late
from strandline.ingest.late.late_table import LateTable, Publication


def copied(late_path: str, how: str, elsewhere: str) -> str:
    """The late table made anew from its own rows, in one way or another; where it is then."""
    table = DeltaTable(late_path)
    rows = pa.table(table.to_pyarrow_table())
    if how == "copied to another path":
        write_deltalake(elsewhere, rows)
        return elsewhere
    if how == "created over":
        DeltaTable.create(late_path, schema=table.schema(), mode="overwrite")
    else:
        shutil.rmtree(late_path)
    write_deltalake(late_path, rows, mode="append")
    return late_path


def killed_before_publishing(bench: Bench, *rows: tuple[Any, ...]) -> None:
    """A batch with late rows, whose process ends when the channel has it and the late table has not."""

    real = LateTable.publish

    def killed(self: LateTable, publication: Publication) -> int | None:
        if not self.published(publication):
            raise KeyboardInterrupt
        return real(self, publication)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LateTable, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            bench.run(*rows)
    bench.batch += 1
    bench.restart()


# ------------------------------------------------------------------------------------------------- what was looked at


@pytest.mark.parametrize("how", ["created over", "made anew", "copied to another path"])
def test_rows_of_a_late_table_that_was_made_anew_are_not_readmitted_twice(tmp_path: Path, how: str) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    path = bench.settings.path
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    assert readmit(path).rows == 1
    place = copied(bench.settings.late_path, how, str(tmp_path / "elsewhere"))
    again = Bench(tmp_path, ordered(), corrections=True, late_path=place)
    again.batch = bench.batch
    assert readmit(path, place).rows == 0
    again.run((2, "a", 2))
    assert readmit(path, place).rows == 1
    assert sorted(row[2] for row in bench.rows()) == [0, 1, 2]


@pytest.mark.parametrize("who", ["the late table", "the channel"])
def test_rows_of_a_late_table_that_was_moved_away_come_in_after_those_of_the_next_one(tmp_path: Path, who: str) -> None:
    bench = Bench(tmp_path / "x", ordered(), corrections=True)
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    batch, first = bench.batch, tmp_path / "first"
    if who == "the late table":
        shutil.move(bench.settings.late_path, first)
        publish_late_rows(bench.settings.path, late_path=str(first))
    else:
        first = Path(bench.settings.late_path)
        (tmp_path / "y").mkdir()
        shutil.move(bench.settings.path, tmp_path / "y")
        bench = Bench(tmp_path / "y", ordered(), corrections=True)
        with pytest.raises(IngestError, match="STRANDLINE_LATE_FILE_MISSING"):
            bench.ingest.start()
        publish_late_rows(bench.settings.path, late_path=str(first))
    bench.restart()
    bench.batch = batch
    bench.run((2, "a", 2))
    bench.run((3, "a", 3))
    path = bench.settings.path
    assert readmit(path).rows == 2
    assert readmit(path, str(first)).rows == 1
    assert readmit(path).rows == readmit(path, str(first)).rows == 0
    assert sorted(row[2] for row in bench.rows()) == [0, 1, 2, 3]


def test_rows_of_a_late_table_whose_older_copy_took_its_place_come_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    path, place = bench.settings.path, bench.settings.late_path
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    shutil.copytree(place, tmp_path / "copy")
    bench.run((2, "a", 2))
    shutil.move(place, tmp_path / "first")
    shutil.move(tmp_path / "copy", place)
    bench.run((3, "a", 3))
    assert bench.late("n") == [(1,), (3,)]
    assert readmit(path).rows == 2
    assert readmit(path, str(tmp_path / "first")).rows == 1
    assert sorted(row[2] for row in bench.rows()) == [0, 1, 2, 3]


def test_a_row_that_only_cancels_is_not_readmitted_when_its_batch_comes_while_readmit_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("gone", pa.bool_())])
    announced = str(tmp_path / "m")
    write_deltalake(announced, pa.table({"t": [1, 50], "p": ["a", "a"], "expected": [2, 1]}))
    bench = Bench(tmp_path, ordered(), schema, corrections=True, partitions=["a"])
    bench.run((10, "a", 0, False))
    bench.run((1, "a", 1, False))
    module = importlib.import_module("strandline.ingest.late.readmit")
    real = module.open_delta

    def meanwhile(*args: Any) -> Any:
        other = Bench(tmp_path, manifest(announced, cancelled="gone"), schema, corrections=True, partitions=["a"])
        other.batch = bench.batch
        other.run((1, "a", 2, True), (1, "a", 3, False))
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "open_delta", meanwhile)
        assert readmit(bench.settings.path).rows == 1
    assert readmit(bench.settings.path).rows == 1
    assert sorted(row[2] for row in bench.rows()) == [0, 1, 3]


# ------------------------------------------------------------------------------------------------- a shared late table


def test_queries_of_one_id_in_two_channels_do_not_share_a_late_table(tmp_path: Path) -> None:
    shared = str(tmp_path / "late")
    first = Bench(tmp_path / "1", ordered(), late_path=shared, corrections=True)
    first.run((10, "a", 0))
    first.run((1, "a", 1))
    second = Bench(tmp_path / "2", ordered(), late_path=shared, corrections=True)
    second.run((10, "a", 100))
    version = second.channel.version
    for _ in range(2):
        with pytest.raises(IngestError, match=r"STRANDLINE_LATE_TABLE_SHARED.*query q .*latePath"):
            second.run((5, "a", 101))
        second.restart()
    assert second.channel.version == version
    assert first.late("n") == [(1,)]
    assert readmit(second.settings.path, shared).rows == 0
    first.run((2, "a", 2))
    assert first.late("n") == [(1,), (2,)]
    assert readmit(first.settings.path, shared).rows == 2
    apart = Bench(tmp_path / "2", ordered(), late_path=str(tmp_path / "apart"), corrections=True)
    apart.batch = second.batch
    apart.run((5, "a", 101))
    assert apart.late("n") == [(101,)]


def test_a_copy_of_a_channel_does_not_share_its_late_table(tmp_path: Path) -> None:
    shared = str(tmp_path / "late")
    first = Bench(tmp_path / "1", ordered(), late_path=shared)
    first.run((10, "a", 0))
    first.run((1, "a", 1))
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    second = Bench(tmp_path / "2", ordered(), late_path=shared)
    second.batch = first.batch
    first.run((2, "a", 2))
    with pytest.raises(IngestError, match="STRANDLINE_LATE_TABLE_SHARED.*a copy of the channel"):
        second.run((3, "a", 3))
    assert status(second.settings.path).aside == 1
    assert first.late("n") == [(1,), (2,)]


def test_of_two_channels_that_begin_to_share_a_late_table_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Bench(tmp_path / name, ordered(), late_path=str(tmp_path / "late")) for name in "12")
    for bench in (first, second):
        bench.run((10, "a", 0))
    reports, real, done = first.take([(1, "a", 1)]), Table.commit, []

    def faster(self: Table, *args: Any, **more: Any) -> bool:
        if self.path.endswith("late") and not done:
            done.append(True)
            second.run((2, "a", 2))
        return real(self, *args, **more)

    monkeypatch.setattr(Table, "commit", faster)
    with pytest.raises(IngestError, match="STRANDLINE_LATE_TABLE_SHARED"):
        first.commit(reports)
    assert status(first.settings.path).aside == 0
    assert first.late("n") == [(2,)]


# ------------------------------------------------------------------------------------------------- files that are gone


def test_giving_up_late_rows_forgets_no_batch_that_was_named_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, ordered())
    path = bench.settings.path
    bench.run((10, "a", 0))
    killed_before_publishing(bench, (1, "a", 1))
    files = {file: file.read_bytes() for file in Path(bench.settings.late_path, "_staged").iterdir()}
    for file in files:
        file.unlink()
    real = admin._forget

    def meanwhile(*args: Any, **more: Any) -> int | None:
        """Somebody puts the files back, and the query's next batch is killed."""
        monkeypatch.undo()
        for file, data in files.items():
            file.write_bytes(data)
        bench.ingest.start()
        killed_before_publishing(bench, (2, "a", 2))
        return real(*args, **more)

    monkeypatch.setattr(admin, "_forget", meanwhile)
    assert give_up_late_rows(path, "q") is None
    assert bench.late("n") == [(1,), (2,)]
    assert status(path).unpublished == ()


@pytest.mark.parametrize("call", ["publish", "give up", "the query"])
def test_rows_whose_files_are_there_are_published_though_the_tables_log_is_gone(tmp_path: Path, call: str) -> None:
    bench = Bench(tmp_path, ordered())
    path = bench.settings.path
    bench.run((10, "a", 0))
    killed_before_publishing(bench, (1, "a", 1))
    shutil.rmtree(Path(bench.settings.late_path, "_delta_log"))
    if call == "publish":
        assert publish_late_rows(path) == 1
    elif call == "give up":
        assert give_up_late_rows(path, "q") is None
    bench.run((2, "a", 2))
    assert bench.late("n") == [(1,), (2,)]


@pytest.mark.parametrize("call", ["publish", "give up"])
def test_late_rows_are_published_in_a_late_table_that_was_moved(tmp_path: Path, call: str) -> None:
    bench = Bench(tmp_path, ordered(), late_path=str(tmp_path / "first"), corrections=True)
    path, moved = bench.settings.path, str(tmp_path / "moved")
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    killed_before_publishing(bench, (2, "a", 2))
    shutil.move(tmp_path / "first", moved)
    again = Bench(tmp_path, ordered(), late_path=moved, corrections=True)
    again.batch = bench.batch
    with pytest.raises(IngestError, match=rf"STRANDLINE_LATE_FILE_MISSING.*strandline publish-late {path}"):
        again.run((3, "a", 3))
    with pytest.raises(IngestError, match="STRANDLINE_LATE_FILE_MISSING"):
        publish_late_rows(path)
    if call == "publish":
        assert publish_late_rows(path, late_path=moved) == 1
    else:
        give_up_late_rows(path, "q", late_path=moved)
    assert status(path).unpublished == ()
    again.restart()
    again.run((3, "a", 3))
    assert again.late("n") == [(1,), (2,), (3,)]
    assert readmit(path, moved).rows == 3


def test_a_moved_late_table_that_has_the_rows_needs_no_staged_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), late_path=str(tmp_path / "first"))
    path, moved = bench.settings.path, str(tmp_path / "moved")
    bench.run((10, "a", 0))
    bench.run((1, "a", 1), (2, "a", 2))
    DeltaTable(bench.settings.late_path).optimize.compact()
    shutil.rmtree(tmp_path / "first" / "_staged")
    shutil.move(tmp_path / "first", moved)
    assert publish_late_rows(path, late_path=moved) == 0
    again = Bench(tmp_path, ordered(), late_path=moved)
    again.batch = bench.batch
    again.run((3, "a", 3))
    assert again.late("n") == [(1,), (2,), (3,)]


def test_a_late_table_that_is_deleted_while_a_batch_runs_loses_no_row(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    path = bench.settings.path
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    assert readmit(path).rows == 1
    reports = bench.take([(2, "a", 2), (11, "a", 3)])
    shutil.rmtree(bench.settings.late_path)
    with pytest.raises(IngestError, match=r"STRANDLINE_LATE_FILE_MISSING.*Start the query again"):
        bench.commit(reports)
    bench.restart()
    bench.run((2, "a", 2), (11, "a", 3))
    assert bench.late("n") == [(2,)]
    assert readmit(path).rows == 1


def test_a_late_file_that_goes_when_its_batch_is_committed_is_not_named_by_the_late_table(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    path = bench.settings.path
    bench.run((10, "a", 0))
    reports, real = bench.take([(2, "a", 2), (3, "a", 3)]), late.LateTable.publish

    def gone(self: LateTable, publication: Publication) -> int | None:
        Path(bench.settings.late_path, publication.files[0].path).unlink(missing_ok=True)
        return real(self, publication)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LateTable, "publish", gone)
        with pytest.raises(IngestError, match="STRANDLINE_LATE_FILE_MISSING"):
            bench.commit(reports)
    assert bench.late("n") == []
    bench.restart()
    give_up_late_rows(path, "q")
    assert len(bench.late("n")) == 1
    bench.batch += 1
    bench.run((4, "a", 4))
    assert len(bench.late("n")) == 2


def test_readmit_says_which_file_of_the_late_table_is_gone_and_what_to_do(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    bench.run((2, "a", 2))
    next(Path(bench.settings.late_path, "_staged").iterdir()).unlink()
    with pytest.raises(IngestError, match=r"STRANDLINE_LATE_FILE_MISSING.*_staged/.*repair\(\)"):
        readmit(bench.settings.path)
    DeltaTable(bench.settings.late_path).repair()
    assert readmit(bench.settings.path).rows == 1


@pytest.mark.parametrize("how", ["a link", "another size"])
def test_readmit_reads_no_late_file_but_the_one_that_the_log_names(tmp_path: Path, how: str) -> None:
    bench = Bench(tmp_path / "lake", ordered(), corrections=True)
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    path = bench.settings.path
    [file] = Path(bench.settings.late_path).rglob("*.parquet")
    moved = tmp_path / "elsewhere.parquet"
    file.rename(moved)
    if how == "a link":
        file.symlink_to(moved)
    else:
        file.write_bytes(moved.read_bytes()[:-20])
    with pytest.raises(ChannelError, match="STRANDLINE_PATH_OUTSIDE_TABLE" if how == "a link" else "STRANDLINE_FILE_DAMAGED"):
        readmit(path)
    file.unlink()
    moved.rename(file)
    assert readmit(path).rows == 1


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_late_table_may_go_when_all_its_rows_were_readmitted(tmp_path: Path, elsewhere: bool) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    path = bench.settings.path
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    assert readmit(path).rows == 1
    shutil.rmtree(bench.settings.late_path)
    assert status(path).unpublished == ()
    assert publish_late_rows(path) == 0
    late_path = str(tmp_path / "new") if elsewhere else bench.settings.late_path
    again = Bench(tmp_path, ordered(), corrections=True, late_path=late_path)
    again.batch = bench.batch
    again.run((2, "a", 2))
    assert again.late("n") == [(2,)]


def test_a_late_file_that_is_gone_is_not_said_to_be_unpublished(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    shutil.rmtree(bench.settings.late_path)
    bench.restart()
    with pytest.raises(IngestError, match=r"STRANDLINE_LATE_FILE_MISSING.*no late table there has these rows") as raised:
        bench.ingest.start()
    assert "not published yet" not in str(raised.value)


# ------------------------------------------------------------------------------------------------- errors have names


def test_readmit_names_the_columns_that_a_table_lacks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    path = bench.settings.path
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    write_deltalake(str(tmp_path / "other"), pa.table({"t": [1]}))
    for other in (str(tmp_path / "other"), path):
        with pytest.raises(IngestError, match="STRANDLINE_SCHEMA_MISMATCH.*_query"):
            readmit(path, other)
    with pytest.raises(IngestError, match="STRANDLINE_SCHEMA_MISMATCH.*where.*n, p"):
        readmit(path, where=lambda rows: rows.select(["t"]))
    with pytest.raises(IngestError, match="STRANDLINE_SCHEMA_MISMATCH.*'n'.*where.*string"):
        readmit(path, where=lambda rows: rows.set_column(2, "n", pa.array(["many"])))
    assert readmit(path).rows == 1


@pytest.mark.parametrize("call", [accept_replay, give_up_late_rows])
def test_what_is_no_query_is_not_taken_for_one(tmp_path: Path, call: Callable[[str, str], Any]) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((10, "a", 0))
    for name in ("strandline:names", "nobody"):
        with pytest.raises(IngestError, match=rf"STRANDLINE_QUERY_UNKNOWN.*{name}.*Queries that have: q"):
            call(bench.settings.path, name)


def test_a_damaged_late_table_stops_its_own_query_only(tmp_path: Path) -> None:
    first = Bench(tmp_path, ordered(), query="1", late_path=str(tmp_path / "1"))
    first.run((10, "a", 0))
    killed_before_publishing(first, (1, "a", 1))
    second = Bench(tmp_path, ordered(), query="2", late_path=str(tmp_path / "2"))
    second.run((10, "b", 0))
    killed_before_publishing(second, (1, "b", 2))
    path = first.settings.path
    newest = max((tmp_path / "1" / "_delta_log").glob("*.json"))
    newest.write_text("garbage\n")
    found = status(path)
    assert [query for query, _, _ in found.unpublished] == ["2"]
    assert [place for place, _ in found.unreadable] == [str(tmp_path / "1")]
    assert f"{tmp_path}/1 cannot be read" in str(found)
    assert give_up_late_rows(path, "2") is None
    assert second.late("n") == [(2,)]
    killed_before_publishing(second, (2, "b", 3))
    with pytest.raises(Exception, match="STRANDLINE_"):
        publish_late_rows(path)
    assert second.late("n") == [(2,), (3,)]
    with pytest.raises(Exception, match="STRANDLINE_"):
        give_up_late_rows(path, "1")


# ------------------------------------------------------------------------------------------------- where ranges begin


@pytest.mark.parametrize("order", [("channel_late", "first"), ("first", "channel_late")])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_batch_that_is_published_in_a_table_made_anew_begins_a_range(
    tmp_path: Path, order: tuple[str, str], goes_on: bool
) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    path, staged = bench.settings.path, Path(bench.settings.late_path, "_staged")
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    before = set(staged.iterdir())
    killed_before_publishing(bench, (2, "a", 2))
    (pending,) = set(staged.iterdir()) - before
    shutil.move(bench.settings.late_path, tmp_path / "first")
    staged.mkdir(parents=True)
    shutil.copy(tmp_path / "first" / "_staged" / pending.name, pending)  # put back from a copy
    bench.run(*[(3, "a", 3)] * goes_on)
    assert sum(readmit(path, str(tmp_path / name)).rows for name in order) == 2 + goes_on
    assert [readmit(path, str(tmp_path / name)).rows for name in order] == [0, 0]
    assert sorted(row[2] for row in bench.rows()) == [0, 1, 2, 3][: 3 + goes_on]


@pytest.mark.parametrize("staged", [True, False])
def test_rows_of_a_table_written_anew_without_its_transactions_are_not_published_again(tmp_path: Path, staged: bool) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    late_path = Path(bench.settings.late_path)
    bench.run((10, "a", 0))
    bench.run((1, "a", 1))
    rows = pa.table(DeltaTable(late_path).to_pyarrow_table())
    shutil.rmtree(late_path / "_delta_log" if staged else late_path)
    write_deltalake(late_path, rows)
    bench.restart()
    assert status(bench.settings.path).unpublished == ()
    bench.run((2, "a", 2))
    assert bench.late("n") == [(1,), (2,)]
    assert readmit(bench.settings.path).rows == 2


def test_a_place_where_no_late_table_is_does_not_give_up_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((10, "a", 0))
    killed_before_publishing(bench, (1, "a", 1))
    with pytest.raises(ChannelError, match="STRANDLINE_NOT_A_TABLE"):
        give_up_late_rows(bench.settings.path, "q", late_path=str(tmp_path / "typo"))
    other = Bench(tmp_path / "other", ordered())
    other.run((10, "a", 0))
    assert give_up_late_rows(bench.settings.path, "q", late_path=other.settings.late_path) is None
    assert bench.late("n") == [(1,)]


def test_rows_of_another_channels_query_are_not_taken_for_those_that_wait(tmp_path: Path) -> None:
    other = Bench(tmp_path / "other", ordered())
    other.run((10, "a", 0))
    other.run((1, "a", 9))
    bench = Bench(tmp_path, ordered())
    bench.run((10, "a", 0))
    killed_before_publishing(bench, (1, "a", 1))
    publish_late_rows(bench.settings.path, late_path=other.settings.late_path)
    assert bench.late("n") == [(1,)]
    assert other.late("n") == [(9,)]


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """A late table's address on an S3 endpoint, the options with an operator's credentials for it, and the requests that came."""
    came: list[str] = []

    class Records(BaseHTTPRequestHandler):
        def __getattr__(self, name: str) -> Callable[[], None]:
            """What answers a request, of any method."""
            if not name.startswith("do_"):
                raise AttributeError(name)
            came.append(f"{self.command} {self.path}")
            return partial(self.send_error, 404)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Records) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        keys = {"AWS_ACCESS_KEY_ID": "operator", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        yield "s3://elsewhere/late", {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", **keys}, came
        server.shutdown()


def test_a_late_table_on_another_storage_is_opened_only_by_who_names_it(
    tmp_path: Path, elsewhere: tuple[str, dict[str, str], list[str]]
) -> None:
    address, storage, came = elsewhere
    bench = Bench(tmp_path, ordered())
    path = bench.settings.path
    bench.run((9, "a", 0))
    killed_before_publishing(bench, (1, "a", 1))
    channel = Channel.open(path)
    state = channel.progress.get(REGISTRAR).state
    channel.append([], statements={}, states={REGISTRAR: {**state, "q": {**state["q"], "late": address}}})
    assert f"the late table {address} cannot be read: [STRANDLINE_LATE_TABLE_ELSEWHERE]" in str(status(path, storage))
    for call in (publish_late_rows, partial(give_up_late_rows, query="q")):
        with pytest.raises(IngestError, match="STRANDLINE_LATE_TABLE_ELSEWHERE"):
            call(path, storage=storage)
    again = Bench(tmp_path, ordered(), storage=storage)
    again.batch = bench.batch
    with pytest.raises(IngestError, match="STRANDLINE_LATE_TABLE_ELSEWHERE"):
        again.run((10, "a", 2))
    assert drop_partitions(path, ["a"], storage) == Channel.open(path).version
    assert came == []
    with pytest.raises(StrandlineError):
        publish_late_rows(path, storage, late_path=address)
    assert came
    assert publish_late_rows(path, storage, late_path=bench.settings.late_path) == 1


def test_only_staged_files_are_published(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    path = bench.settings.path
    bench.run((9, "a", 0))
    bench.run((1, "a", 1))
    channel = Channel.open(path)
    state = channel.progress.get(REGISTRAR).state
    pending = {**state["q"]["pending"], "batch": 7, "files": [["part-1.parquet", 1, 1]]}
    channel.append([], statements={}, states={REGISTRAR: {**state, "q": {**state["q"], "pending": pending}}})
    assert "STRANDLINE_PATH_OUTSIDE_TABLE" in str(status(path))
    with pytest.raises(ChannelError, match=r"STRANDLINE_PATH_OUTSIDE_TABLE.*_staged"):
        publish_late_rows(path)


@pytest.mark.drawn
@pytest.mark.parametrize("rewritten", [False, True])
def test_readmit_opens_only_files_that_may_have_new_rows(
    rewritten: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a table that was compacted between calls, and that another channel's ingest shares."""
    shared = str(tmp_path / "shared")
    bench = Bench(tmp_path / "a", ordered(), corrections=True, late_path=shared)
    other = Bench(tmp_path / "b", ordered(), corrections=True, late_path=shared, query="other")
    for one in (bench, other):
        one.run((10, "a", 0))
    module = importlib.import_module("strandline.ingest.late.readmit")
    opened: list[str] = []
    real = module.open_parquet
    monkeypatch.setattr(module, "open_parquet", lambda store, name, size: (opened.append(name), real(store, name, size))[1])
    for n in range(1, 9):
        bench.run((10 + n, "a", n), (1, "a", 100 + n))
        other.run((10 + n, "a", n), (1, "a", 200 + n))
        if rewritten and n % 3 == 0:
            DeltaTable(shared).optimize.compact()
        opened.clear()
        assert readmit(bench.settings.path, shared).rows == 1
        assert readmit(other.settings.path, shared).rows == 1
        assert len(opened) <= 4, opened  # two calls, and two new files
    opened.clear()
    assert readmit(bench.settings.path, shared).rows == 0
    assert opened == []
    assert sorted(n for _, _, n in bench.rows() if n > 100) == [100 + n for n in range(1, 9)]
    assert sorted(n for _, _, n in other.rows() if n > 100) == [200 + n for n in range(1, 9)]
