"""A storage that fails, and writing that is interrupted: an error with a name, and no row is in the channel twice, or half."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers import make_channel, rows
from strandline.channel import Channel, ProducerError, Progress, StorageError
from strandline.delta.storage import LOG_DIR, LocalStore
from strandline.time.domain import int64


@pytest.fixture
def few_blocks(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 400 kB; skips where none can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)], capture_output=True)
    if made.returncode:
        pytest.skip("this user cannot mount a disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def descriptors(folder: Path) -> list[str]:
    """The files in the folder that this process has open. Files elsewhere may close at any time."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sorted(path for path in found if path.startswith(str(folder)))


def test_a_full_disk_is_named_and_the_rows_come_once_there_is_room(few_blocks: Path) -> None:
    channel = make_channel(few_blocks / "in", producers=("a",))
    with channel.producer("a") as producer:
        before = descriptors(few_blocks)
        (few_blocks / "fill").write_bytes(bytes(os.statvfs(few_blocks).f_bavail * os.statvfs(few_blocks).f_frsize - 4096))
        for _ in range(20):
            producer.send(rows(int64, *((n, n) for n in range(5000))))
            with pytest.raises(StorageError, match=r"STRANDLINE_STORAGE_FAILED.*No space left on device.*Free space"):
                producer.commit()
            with pytest.raises(StorageError, match="STRANDLINE_ROWS_THROWN_AWAY"):
                producer.commit()
            producer.abort()
        assert descriptors(few_blocks) == before
        (few_blocks / "fill").unlink()
        producer.send(rows(int64, (1, 1)))
        producer.commit()
    assert Channel.open(few_blocks / "in").read().column("n").to_pylist() == [1]


def test_too_many_open_files_is_named(tmp_path: Path) -> None:
    producer = make_channel(tmp_path / "in", producers=("a",)).producer("a")
    producer.send(rows(int64, (1, 1)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        with pytest.raises(StorageError, match=r"STRANDLINE_STORAGE_FAILED.*Too many open files.*ulimit"):
            producer.commit()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    producer.abort()
    producer.send(rows(int64, (1, 1)))
    producer.commit()
    assert producer.channel.read().num_rows == 1


READS = """
import os, sys
import pyarrow.parquet
from strandline.channel import Channel
from strandline.delta.storage import LocalStore
from strandline.errors import StorageError
os.setuid(65534)
channel = Channel.open(sys.argv[1])
print(channel.read().num_rows)
try:
    channel.producer("a")
except StorageError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_channel_that_may_only_be_read_is_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # another user may go there
        channel = make_channel(Path(folder, "in"), producers=("a",))
        said = subprocess.run([sys.executable, "-c", READS, channel.path], capture_output=True, text=True, check=True).stdout
    assert said.startswith("0\n[STRANDLINE_STORAGE_FAILED] Cannot write ")
    assert "Permission denied" in said
    assert "Give this user the right to read and write" in said


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT and SIGALRM interrupt; a shell has its background jobs ignore the first."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGALRM)}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("where", ["write_table", "close"])
def test_an_interrupt_while_rows_are_written_does_not_double_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    producer = make_channel(tmp_path / "in", producers=("a",)).producer("a")
    real = getattr(pq.ParquetWriter, where)

    def interrupted(self: pq.ParquetWriter, *arguments: object, **options: object) -> None:
        real(self, *arguments, **options)
        signal.raise_signal(signal.SIGINT)

    producer.send(rows(int64, (1, 1)))
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.commit()
    with pytest.raises(StorageError, match=r"STRANDLINE_ROWS_THROWN_AWAY.*KeyboardInterrupt"):
        producer.commit()
    producer.abort()
    producer.send(rows(int64, (2, 2)))
    producer.commit()
    assert Channel.open(tmp_path / "in").read().column("n").to_pylist() == [2]
    assert len(list((tmp_path / "in").glob("*.parquet"))) == 1


@pytest.mark.drawn
def test_a_timer_that_interrupts_anywhere_in_writing_doubles_nothing(tmp_path: Path, interrupts: None) -> None:
    producer = make_channel(tmp_path / "in", producers=("a",)).producer("a")
    many = rows(int64, *((n, n) for n in range(2000)))
    expected, writing = 0, False

    def ring(number: int, frame: object) -> None:
        if writing:  # a busy machine may deliver it late, when nothing expects it any more
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, ring)
    for at in range(60):
        try:
            writing = True
            signal.setitimer(signal.ITIMER_REAL, 0.0002 * (at + 1))
            producer.send(many)
            writing = False
        except KeyboardInterrupt:
            writing = False
            producer.abort()
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        producer.commit()
        expected += many.num_rows
    channel = Channel.open(tmp_path / "in")
    assert channel.read().num_rows == expected
    for commit in channel.log.tail(0):
        commit.check()


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_error_after_the_commit_has_its_name_removes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))

    def broken(self: object, folder: str) -> None:
        if folder == LOG_DIR:
            raise error

    with pytest.raises((KeyboardInterrupt, ProducerError)) as caught, channel.producer("a") as producer:
        producer.send(rows(int64, (1, 1)))
        producer.delay([2])
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "sync_names", broken)
            producer.commit()  # never told, because it may not survive a loss of power
    if error is OSError:  # a block that is repeated would send the same rows again
        assert "STRANDLINE_COMMIT_WAS_MADE" in str(caught.value)
        assert isinstance(caught.value.__cause__, OSError | StorageError)
    fresh = Channel.open(tmp_path / "in")
    assert fresh.read().column("n").to_pylist() == [1]
    assert fresh.frontier.to_json() == [2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("then", ["commit", "send", "abort", "close"])
def test_a_session_goes_on_after_a_commit_that_ended_by_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], made: bool, then: str
) -> None:
    producer = make_channel(tmp_path / "in", producers=("a",)).producer("a")
    other = Channel.open(tmp_path / "in")

    def broken(_: object, path: str, *rest: object) -> None:
        if path.startswith(LOG_DIR):
            raise error

    producer.send(rows(int64, (1, 1)))
    producer.delay([1])
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "sync_names" if made else "create", broken)
        with pytest.raises((KeyboardInterrupt, StorageError, OSError)):
            producer.commit()
    other.checkpoint()  # another commit or not, what was tried is found
    expected = [1]
    if then == "commit":
        assert producer.commit() is not None
    elif then == "send":
        producer.send(rows(int64, (2, 2)))
        expected = [1, 2]
    elif then == "abort":
        if made:  # its rows cannot be thrown away any more, and must not be sent again
            with pytest.raises(ProducerError, match=r"STRANDLINE_COMMIT_WAS_MADE.*1 row.*in version 2"):
                producer.abort()
        producer.abort()
        assert list(producer.holds) == [1] * made + [0] * (not made)
        expected = [1] * made
    if then != "close":
        producer.send(rows(int64, (3, 3)))
        expected.append(3)
    producer.close()
    fresh = Channel.open(tmp_path / "in")
    assert sorted(fresh.read().column("n").to_pylist()) == expected
    assert len(list((tmp_path / "in").glob("*.parquet"))) == len(fresh.snapshot_files())
    assert fresh.producer("a").holds == producer.holds


def broken_link(*_: object) -> None:
    raise OSError(5, "Input/output error")


def broken_names(_: object, folder: str) -> None:
    if folder == LOG_DIR:
        raise OSError(5, "Input/output error")


def test_a_commit_that_another_session_of_the_owner_made_is_not_taken_for_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_channel(tmp_path / "in", producers=("a",)).producer("a", owner="query")
    first.send(rows(int64, (1, 1)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", broken_link)
        with pytest.raises(StorageError):
            first.commit()
    second = Channel.open(tmp_path / "in").producer("a", owner="query")
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_FENCED"):
        first.commit()
    second.send(rows(int64, (2, 2)))
    second.close()
    assert Channel.open(tmp_path / "in").read().column("n").to_pylist() == [2]


@pytest.mark.parametrize("meanwhile", ["fenced", "cleaned"])
def test_a_commit_that_was_made_is_found_though_others_act_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    producer = channel.producer("a")
    producer.send(rows(int64, (1, 1)))
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "sync_names", broken_names)
        with pytest.raises(OSError, match="Input/output error"):
            producer.commit()
    other = Channel.open(tmp_path / "in")
    if meanwhile == "fenced":
        other.producer("a", take_over=True)
        assert producer.commit() == other.version - 1
        producer.send(rows(int64, (2, 2)))
        with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_FENCED"):
            producer.commit()
    else:
        other.clean_log(timedelta(0))
        assert producer.commit() is not None
        producer.close()
    assert Channel.open(tmp_path / "in").read().column("n").to_pylist() == [1]


def test_a_close_that_failed_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = make_channel(tmp_path / "in", producers=("a",)).producer("a")
    producer.send(rows(int64, (1, 1)))
    for broken in ("link", None):
        with monkeypatch.context() as patch:
            if broken:
                patch.setattr(os, broken, broken_link)
                with pytest.raises(StorageError):
                    producer.close()
            else:
                producer.close()
    assert producer.closed
    fresh = Channel.open(tmp_path / "in")
    assert fresh.read().column("n").to_pylist() == [1]
    fresh.producer("a").close()  # the name is free


@pytest.mark.parametrize("at", ["apply", "accept"])
def test_an_interrupt_while_a_commit_is_noted_doubles_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))

    def append(channel: Channel) -> int | None:
        with channel.file_writer() as writer:
            writer.write(rows(int64, (1, 1)))
            files, times = writer.finish()
        return channel.append(files, statements={"a": [1]}, times=times, transaction=("sink", 1), owner="q")

    real = getattr(Progress, at)

    def interrupted(self: Progress, *arguments: object) -> None:
        real(self, *arguments)
        raise KeyboardInterrupt

    if at == "apply":
        append(Channel.open(tmp_path / "in"))
    with monkeypatch.context() as patch:
        patch.setattr(Progress, at, interrupted)
        with pytest.raises(KeyboardInterrupt):
            channel.refresh() if at == "apply" else append(channel)
    assert channel.committed("sink") == 1
    assert append(channel) is None
    with channel.producer("a", take_over=True) as producer:
        producer.delay([2])
    assert Channel.open(tmp_path / "in").read().column("n").to_pylist() == [1]
