"""Forks after a store was used, and panics of deltalake: an error with a name at once, no hang, no ``BaseException``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from object_stores import S3, SECRET
from strandline.channel import Channel
from strandline.delta import store_errors as door
from strandline.delta.store_errors import native
from strandline.errors import StorageError, StrandlineError
from strandline.time.arrow import time_field
from strandline.time.domain import int64

SCHEMA = pa.schema([time_field("time", int64), ("n", pa.int64())])


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as server:
        yield server


def in_fork(act: Callable[[], object]) -> str:
    """What ``act`` ends in, in a fork that may take twenty seconds: a condition, or another error's name, or nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        try:
            act()
            said = ""
        except StrandlineError as error:
            said = error.condition
        except BaseException as error:
            said = repr(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    assert os.waitpid(child, 0)[1] == 0, "the fork hangs"
    return said


def append(channel: Channel, n: int) -> None:
    with channel.file_writer() as writer:
        writer.write(pa.table({"time": [n], "n": [n]}))
        files, times = writer.finish()
    channel.append(files, statements={"a": [n]}, times=times)


@pytest.mark.drawn
def test_a_fork_cannot_use_a_store_that_its_parent_used(s3: S3, tmp_path: Path) -> None:
    path, options = f"s3://{s3.bucket()}/in", s3.options()
    channel = Channel.create(path, SCHEMA, producers=["a"], at=0, storage_options=options)
    append(channel, 1)  # also by the client that writes conditionally, which would wait for ever
    calls: list[Callable[[], object]] = [
        channel.refresh,
        channel.read,
        channel.checkpoint,
        lambda: append(channel, 2),
        lambda: channel.producer("a"),
        lambda: channel._log.store.create("x", b""),
        lambda: Channel.open(path, options),
        lambda: Channel.create(tmp_path / "other", SCHEMA),
    ]
    assert [in_fork(call) for call in calls] == ["STRANDLINE_PROCESS_FORKED"] * len(calls)
    append(channel, 3)
    assert sorted(channel.read().column("n").to_pylist()) == [1, 3]


def test_a_local_channel_that_was_opened_works_in_a_fork(tmp_path: Path) -> None:
    channel = Channel.create(tmp_path / "in", SCHEMA, producers=["a"], at=0)
    assert in_fork(lambda: append(channel, 1)) == ""
    assert in_fork(channel.checkpoint) == "STRANDLINE_PROCESS_FORKED"  # deltalake writes it
    assert in_fork(lambda: Channel.open(tmp_path / "in")) == "STRANDLINE_PROCESS_FORKED"
    channel.refresh()
    assert channel.read().column("n").to_pylist() == [1]


@pytest.mark.drawn
def test_a_fork_made_before_deltalake_was_used_opens_channels(tmp_path: Path) -> None:
    Channel.create(tmp_path / "in", SCHEMA, producers=["a"], at=0)
    program = (
        "import os\nfrom strandline.channel import Channel\n"
        f"child = os.fork()\nChannel.open({str(tmp_path / 'in')!r}).read()\nassert not child or os.waitpid(child, 0)[1] == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_what_somebody_else_used_before_the_fork_has_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Channel.create(tmp_path / "in", SCHEMA, producers=["a"], at=0)
    DeltaTable(str(tmp_path / "in"))
    monkeypatch.setattr(door, "_process", None)
    assert in_fork(lambda: Channel.open(tmp_path / "in")) == "STRANDLINE_PROCESS_FORKED"


@pytest.mark.parametrize("endpoint", ["x", "https://[::1", "é"])
def test_a_panic_of_the_store_has_a_name_and_shows_no_secret(endpoint: str) -> None:
    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ACCESS_KEY_ID": "k", "max_retries": "0"}
    for call in (Channel.open, lambda path, options: Channel.create(path, SCHEMA, storage_options=options)):
        with pytest.raises(StrandlineError) as caught:
            call("s3://bucket/in", options)
        assert SECRET not in str(caught.value)


class PanicException(BaseException):
    """As pyo3 makes one in each of its modules."""


@pytest.mark.parametrize("call", ["get_add_actions", "create_checkpoint", "transaction_version", "metadata", "schema"])
def test_a_panic_within_any_call_has_a_name(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel.create(tmp_path / "in", SCHEMA, producers=["a"], at=0)

    def panics(*_: object, **__: object) -> None:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(DeltaTable, call, panics)
    with pytest.raises(StorageError, match=r"STRANDLINE_DELTALAKE_PANIC.*Option::unwrap"):
        Channel.open(tmp_path / "in")
        channel.snapshot_files()
        channel.committed("x")
        channel.checkpoint()


@pytest.mark.parametrize("where", ["ParquetWriter", "ParquetFile"])
def test_a_panic_while_rows_are_written_or_read_has_a_name(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel.create(tmp_path / "in", SCHEMA, producers=["a"], at=0)
    append(channel, 1)

    def panics(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(pq, where, panics)
    with pytest.raises(StorageError, match=r"STRANDLINE_DELTALAKE_PANIC.*index out of bounds"):
        channel.read() if where == "ParquetFile" else append(channel, 2)


def test_other_errors_pass_the_door() -> None:
    for error in (KeyboardInterrupt, OSError, SystemExit):
        with pytest.raises(error), native("here"):
            raise error


@pytest.mark.parametrize("path", ["s3://[::1/x", "\udc80/x", "s3://\udc80/x"])
def test_a_path_that_cannot_be_read_has_a_name(path: str) -> None:
    with pytest.raises(StrandlineError, match="STRANDLINE_STORAGE_URL_INVALID"):
        Channel.open(path)
