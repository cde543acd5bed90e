"""The ``.crc`` files that Delta Spark writes beside commits: nothing that is not in the log is believed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers import make_channel, rows
from strandline.channel import Channel, ChannelError
from strandline.delta.checks import crc_files
from strandline.delta.storage import LOG_DIR, commit_name
from strandline.report import verify
from strandline.time.antichain import Antichain
from strandline.time.domain import int64


def founding(path: Path, kind: str) -> Any:
    lines = (path / commit_name(0)).read_text().splitlines()
    return next(json.loads(line)[kind] for line in lines if line.startswith(f'{{"{kind}"'))


def write_crc(path: Path, version: int, transactions: dict[str, int] | None = None, **metadata: Any) -> Path:
    """Write what Delta Spark 4.2 writes, as far as deltalake reads it."""
    applied = [{"appId": app, "version": number, "lastUpdated": 1} for app, number in (transactions or {}).items()]
    said: dict[str, Any] = {"tableSizeBytes": 1, "numFiles": 5, "numMetadata": 1, "numProtocol": 1, "setTransactions": applied}
    said |= {"metadata": founding(path, "metaData") | metadata, "protocol": founding(path, "protocol")}
    file = path / LOG_DIR / f"{version:020d}.crc"
    file.write_text(json.dumps(said))
    return file


def sink(channel: Channel, batch: int) -> int | None:
    with channel.file_writer() as writer:
        writer.write(rows(int64, (batch, batch)))
        files = writer.finish()[0]
    holds = {"q": Antichain(int64, [batch])}
    return channel.append(files, statements=holds, times=[(batch, 1)], transaction=("query", batch), owner="q")


def four_batches(path: Path) -> Channel:
    channel = make_channel(path, producers=("q",))
    for batch in range(4):
        sink(channel, batch)
    return channel


def quiet(channel: Channel) -> None:
    channel.append([], statements={"q": channel.producers["q"].holds}, owner="q", always=True)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_batch_of_a_removed_commit_does_not_count_as_made(tmp_path: Path, after: int) -> None:
    """The remedy of earlier releases left the file. Then its version was written again, with other commits before it."""
    path = tmp_path / "in"
    channel = four_batches(path)
    write_crc(path, 4, {"query": 3})
    for version in (3, 4):
        (path / commit_name(version)).unlink()
    channel = Channel.open(path)  # deltalake refuses a file beyond the newest version, but not this one
    assert channel.transaction_version("query") == 1
    for _ in range(2 + after):
        quiet(channel)
    channel = Channel.open(path)
    assert channel.version == 4 + after
    assert channel.transaction_version("query") == 1
    assert [sink(channel, batch) for batch in (2, 3)] == [5 + after, 6 + after]
    assert sorted(Channel.open(path).read()["n"].to_pylist()) == [0, 1, 2, 3]
    found = verify(path).violation
    assert found is not None
    assert (found.version, "query" in found.field) == (4, True)


def one_more_column(path: Path) -> Path:
    schema = json.loads(founding(path, "metaData")["schemaString"])
    schema["fields"].append({"name": "extra", "type": "string", "nullable": True, "metadata": {}})
    return write_crc(path, 3, schemaString=json.dumps(schema))


STALE: dict[str, Callable[[Path], Path]] = {
    "schemaString": one_more_column,
    "id": lambda path: write_crc(path, 3, id="another"),
    "configuration": lambda path: write_crc(path, 4, configuration={"delta.appendOnly": "true"}),
}


@pytest.mark.parametrize("field", STALE)
def test_metadata_that_no_commit_has_is_refused_by_name(tmp_path: Path, field: str) -> None:
    path = tmp_path / "in"
    channel = four_batches(path)
    file = STALE[field](path)
    for use in (lambda: Channel.open(path), channel.checkpoint):
        with pytest.raises(ChannelError, match=rf"STRANDLINE_CRC_STALE.*{file.name}.*metadata\.{field}"):
            use()
    assert verify(path).violation is not None
    file.unlink()  # what the message says
    assert Channel.open(path).schema.names == ["time", "key", "n"]
    assert verify(path).sound


def test_a_true_file_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "in"
    channel = four_batches(path)
    write_crc(path, 4, {"query": 3})
    schema = json.dumps(json.loads(founding(path, "metaData")["schemaString"]), indent=1)  # laid out in another way
    write_crc(path, 3, {"query": 2}, schemaString=schema)
    assert Channel.open(path).transaction_version("query") == 3
    channel.checkpoint()
    quiet(channel)
    write_crc(path, channel.version, {"query": 3})
    for version in range(3):
        (path / commit_name(version)).unlink()
    assert Channel.open(path).transaction_version("query") == 3
    assert Channel.open(path).transaction_version("other") is None


def test_a_damaged_file_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "in"
    four_batches(path)
    for text in ("", "\0" * 99, "[" * 20_000, "[1]", '{"metadata":[]', '{"setTransactions":[5]}'):
        (path / LOG_DIR / f"{4:020d}.crc").write_text(text)
        assert Channel.open(path).transaction_version("query") == 3


def _with(text: str) -> Callable[[Path], None]:
    """Change a file with one more column so that Python's reader of JSON would not read it, and deltalake does."""

    def change(path: Path) -> None:
        file = one_more_column(path)
        file.write_bytes(b"{" + text.encode("utf-8", "surrogateescape") + b", " + file.read_bytes().lstrip()[1:])

    return change


@pytest.mark.parametrize(
    "change",
    [
        _with(f'"unknown": {"9" * 5000}'),
        _with('"unknown": "\udcff"'),
        _with(f'"unknown": {"[" * 3000}{"]" * 3000}'),
        _with(f'"unknown": {"[" * 200_000}{"]" * 200_000}'),
    ],
    ids=["a long number", "a text that is none", "nested", "nested very deep"],
)
def test_a_file_that_only_deltalake_could_read_is_compared_too(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "in"
    four_batches(path)
    change(path)
    with pytest.raises(ChannelError, match="STRANDLINE_CRC_STALE"):
        Channel.open(path)


def test_metadata_as_a_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in"
    four_batches(path)
    file = one_more_column(path)
    said = json.loads(file.read_text())
    file.write_text(json.dumps(said | {"metadata": list(said["metadata"].values())}))
    with pytest.raises(ChannelError, match="STRANDLINE_CRC_STALE.*metadata.schemaString"):
        Channel.open(path)


def test_a_file_that_no_engine_writes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "in"
    four_batches(path)
    with open(write_crc(path, 4), "ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(ChannelError, match="STRANDLINE_CRC_STALE.*has 1099511627776 bytes"):
        Channel.open(path)


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("protocol", "minReaderVersion", "1"),
        ("protocol", "readerFeatures", 5),
        ("protocol", "writerFeatures", [1, "a", None]),
        ("metadata", "configuration", [1, 2]),
        ("metadata", "partitionColumns", 5),
        ("metadata", "schemaString", 5),
        ("metadata", "id", ["x"]),
    ],
)
def test_values_of_other_types_are_named_or_believed_by_nobody(tmp_path: Path, part: str, field: str, value: Any) -> None:
    path = tmp_path / "in"
    four_batches(path)
    for version in (3, 4):
        file = write_crc(path, version)
        said = json.loads(file.read_text())
        said[part][field] = value
        file.write_text(json.dumps(said))
    with suppress(ChannelError):
        assert Channel.open(path).schema.names == ["time", "key", "n"]
    found = verify(path).violation
    assert found is not None
    assert field in str(found) or "CRC_STALE" in str(found)


@pytest.mark.parametrize("parts", [True, False])
def test_a_file_of_commits_that_a_checkpoint_stands_for_is_compared_with_the_checkpoint(tmp_path: Path, parts: bool) -> None:
    """Delta cleans commits before a checkpoint in several parts, and leaves the ``.crc`` files."""
    path = tmp_path / "in"
    channel = four_batches(path)
    write_crc(path, 3, {"query": 2})
    version = channel.checkpoint()
    log = path / LOG_DIR
    if parts:
        (log / "_last_checkpoint").unlink()
        (log / f"{version:020d}.checkpoint.parquet").rename(log / f"{version:020d}.checkpoint.0000000001.0000000001.parquet")
    for before in range(version):
        (path / commit_name(before)).unlink()
    opened = Channel.open(path)
    assert (opened.version, opened.transaction_version("query")) == (version, 3)


def test_a_pipe_in_place_of_the_hint_to_the_newest_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in"
    four_batches(path)
    (path / LOG_DIR / "_last_checkpoint").unlink(missing_ok=True)
    os.mkfifo(path / LOG_DIR / "_last_checkpoint")
    with pytest.raises(ChannelError, match="STRANDLINE_NOT_A_FILE"):
        Channel.open(path)


def test_a_log_that_is_cleaned_while_a_file_is_compared_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in"
    channel = four_batches(path)
    write_crc(path, channel.version, {"query": 3})
    read, cleaned = crc_files.facts_at, []

    def cleans(log: Any, version: int, names: Any) -> Any:
        if not cleaned:
            cleaned.append(True)
            assert channel.clean_log(timedelta(0))
        return read(log, version, names)

    monkeypatch.setattr(crc_files, "facts_at", cleans)
    assert Channel.open(path).transaction_version("query") == 3
    assert cleaned
