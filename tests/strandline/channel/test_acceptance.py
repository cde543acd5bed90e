"""What readers refuse is not written: every commit is read by the readers' code before it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import make_channel, rows
from strandline.channel import Channel, ChannelError, ProducerError
from strandline.channel.statements import commit_statement
from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.inputs import Input
from strandline.channel.statements.statement import Span
from strandline.delta import log
from strandline.delta.data_file import DataFile
from strandline.time.domain import int64, product

NAN = float("nan")
Times = Sequence[tuple[Any, Any]]


def written(channel: Channel) -> tuple[DataFile, Times]:
    writer = channel.file_writer()
    writer.write(rows(int64, (0, 1)))
    (file,), times = writer.finish()
    return file, times


def read_by_others(path: Path) -> int:
    """Return the rows that a reader gets who reads everything, and checks it."""
    channel = Channel.open(path)
    for commit in channel.log.tail(0):
        commit.check()
    return channel.read().num_rows


REFUSED: dict[str, Callable[[Channel, DataFile, Times], Any]] = {
    "a file twice": lambda c, f, t: c.append([f, f], statements={"a": [1]}, times=[(0, 2)]),
    "a negative size": lambda c, f, t: c.append([replace(f, size=-1)], statements={"a": [1]}, times=t),
    "a size that is true": lambda c, f, t: c.append([replace(f, size=True)], statements={"a": [1]}, times=t),
    "a size of 64 bits": lambda c, f, t: c.append([replace(f, size=1 << 63)], statements={"a": [1]}, times=t),
    "a number as statistics": lambda c, f, t: c.append([replace(f, stats=5)], statements={"a": [1]}, times=t),  # type: ignore[arg-type]
    "a size of numpy": lambda c, f, t: c.append([replace(f, size=np.int64(9))], statements={"a": [1]}, times=t),
    "a path outside": lambda c, f, t: c.append([replace(f, path="../x.parquet")], statements={"a": [1]}, times=t),
    "a path with a scheme": lambda c, f, t: c.append([replace(f, path="a:b")], statements={"a": [1]}, times=t),
    "half of a character": lambda c, f, t: c.append([replace(f, path="\ud800.parquet")], statements={"a": [1]}, times=t),
    "other rows in stats": lambda c, f, t: c.append([replace(f, stats='{"numRecords":7}')], statements={"a": [1]}, times=t),
    "unknown rows": lambda c, f, t: c.append([replace(f, rows=-1)], statements={"a": [1]}, times=[(0, 5)]),
    "deep stats": lambda c, f, t: c.append([replace(f, stats="[" * 30_000 + "]" * 30_000)], statements={"a": [1]}, times=t),
    "a long owner": lambda c, f, t: c.append([f], statements={"a": [1]}, times=t, owner="o" * 513),
    "an owner that is no text": lambda c, f, t: c.append([f], statements={"a": [1]}, times=t, owner=5),  # type: ignore[arg-type]
    "negative rows": lambda c, f, t: c.append([f], statements={"a": [1]}, times=[(0, 2), (1, -1)]),
    "rows with a point": lambda c, f, t: c.append([f], statements={"a": [1]}, times=[(0, 1.0)]),  # type: ignore[list-item]
    "rows that are no number": lambda c, f, t: c.append([f], statements={"a": [1]}, times=[(0, None)]),  # type: ignore[list-item]
    "a time that is true": lambda c, f, t: c.append([f], statements={"a": [1]}, times=[(True, 1)]),
    "a span of true": lambda c, f, t: c.append([f], statements={"a": [1]}, spans=[Span(True, 1, 1)]),
    "a negative place": lambda c, f, t: c.append([], statements={"a": [1]}, reads=[Input("t", -1, 0)]),
    "a place with a point": lambda c, f, t: c.append([], statements={"a": [1]}, reads=[Input("t", 1.0, 0)]),  # type: ignore[arg-type]
    "a beginning nowhere": lambda c, f, t: c.append([], statements={"a": [1]}, reads=[Input("t", 1, 0, began=Beginning())]),
    "a negative beginning": lambda c, f, t: c.append([], statements={"a": [1]}, reads=[Input("t", 1, 0, began=Beginning(-1))]),
    "no number in a summary": lambda c, f, t: c.append(
        [], statements={"a": [1]}, reads=[Input("t", 0, 0, None, (float("nan"),))]
    ),
    "a great transaction": lambda c, f, t: c.append([f], statements={"a": [1]}, times=t, transaction=("q", 1 << 63)),
    "a transaction that is true": lambda c, f, t: c.append([f], statements={"a": [1]}, times=t, transaction=("q", True)),
    "a transaction of text": lambda c, f, t: c.append([f], statements={"a": [1]}, times=t, transaction=("q", "x")),  # type: ignore[arg-type]
    "half of an application": lambda c, f, t: c.append([f], statements={"a": [1]}, times=t, transaction=("\ud800", 1)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_readers_refuse_is_not_written_and_the_channel_goes_on(tmp_path: Path, what: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    file, times = written(channel)
    with pytest.raises(ChannelError, match="STRANDLINE_COMMIT_REFUSED"):
        REFUSED[what](channel, file, times)
    assert (channel.version, read_by_others(tmp_path / "in")) == (0, 0)
    assert channel.append([file], statements={"a": [1]}, times=times) == 1
    assert read_by_others(tmp_path / "in") == 1


_Any = st.sampled_from([0, 1, -1, True, None, 1.0, "x", "\ud800", "a/../b", 1 << 70, NAN, [], {}, "q" * 600, "part.parquet"])


@pytest.mark.drawn
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_whatever_is_passed_a_writer_fails_or_readers_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("any") / "in"
    channel = make_channel(path, producers=("a",))
    channel.append([], statements={"a": [0]}, always=True)
    sound = {"path": "part.parquet", "size": 9, "rows": 1, "stats": '{"numRecords":1}', "time": 0, "count": 1, "owner": "q"}
    sound |= {
        "application": "q",
        "number": 1,
        "table": "t",
        "commit": 1,
        "file": 0,
        "place": None,
        "first": 0,
        "removed": None,
        "lossy": False,
    }
    odd = data.draw(st.dictionaries(st.sampled_from(sorted(sound)), _Any, min_size=1, max_size=2))
    each: dict[str, Any] = sound | odd
    began = Beginning(each["first"], None, each["removed"], each["lossy"])
    try:
        channel.append(
            [DataFile(each["path"], each["size"], each["rows"], each["stats"])],
            statements={"a": [1]},
            times=[(each["time"], each["count"])],
            transaction=(each["application"], each["number"]),
            owner=each["owner"],
            take_over=True,
            reads=[Input(each["table"], each["commit"], each["file"], each["place"], began=began)],
        )
    except Exception:
        assert Channel.open(path).version == 1
    read = Channel.open(path)
    for commit in read.log.tail(0):
        commit.check()
    assert read.append([], statements={"a": [2]}, always=True, take_over=True) == read.version


def test_a_query_of_1000_inputs_writes_what_can_be_read(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    inputs = [Input(f"table-{i}", i, 0, f"/lake/{i}", ()) for i in range(1000)]
    channel.append([], statements={"a": [1]}, reads=inputs)
    assert list(Channel.open(tmp_path / "in").log.require(1).statement.reads) == inputs  # type: ignore[union-attr]


def test_capabilities_beyond_the_readers_bound_are_refused_and_fewer_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_statement, "_MAX_HOLDS", 100)
    channel = make_channel(tmp_path / "in", producers=("a",), domain=product(epoch="int64", iter="int64"))
    with channel.producer("a") as producer:
        producer.delay([(i, 100 - i) for i in range(101)])
        with pytest.raises(ChannelError, match=r"STRANDLINE_COMMIT_REFUSED.*101 capabilities, but at most 100"):
            producer.commit()
        producer.delay([(i, 101 - i) for i in range(100)])
        producer.commit()
    assert len(Channel.open(tmp_path / "in").frontier) == 100


def test_the_bound_of_a_statement_includes_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    producer = channel.producer("a")
    producer.state = "x" * 100
    version = producer.commit()
    assert version is not None
    length = len(channel.log.require(version).info["userMetadata"])
    monkeypatch.setattr(commit_statement, "MAX_STATEMENT_CHARS", length + 10)
    outcomes = set()
    for more in range(0, 40, 4):
        producer.state = "y" * (100 + more)
        with suppress(ChannelError):
            producer.commit()
        outcomes.add(Channel.open(tmp_path / "in").producers["a"].state == producer.state)
    assert outcomes == {True, False}
    with pytest.raises(ChannelError, match="STRANDLINE_STATEMENT_TOO_LARGE"):
        producer.commit()
    producer.state = None
    producer.close()


def test_a_commit_file_beyond_the_readers_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    monkeypatch.setattr(log, "MAX_COMMIT_BYTES", 20_000)
    stats = '{"numRecords":1,"minValues":{"n":"%s"}}' % ("x" * 300)
    files = [DataFile(f"part-{i}.parquet", 9, 1, stats) for i in range(100)]
    with pytest.raises(ChannelError, match=r"STRANDLINE_COMMIT_REFUSED.*larger than 20000 bytes.*commit less at a time"):
        channel.append(files, statements={"a": [1]}, times=[(0, 100)])
    assert channel.append(files[:10], statements={"a": [1]}, times=[(0, 10)]) == 1


def test_a_founding_statement_that_readers_refuse_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_statement, "MAX_STATEMENT_CHARS", 1000)
    with pytest.raises((ChannelError, ProducerError), match="STRANDLINE_STATEMENT_TOO_LARGE"):
        make_channel(tmp_path / "in", producers=tuple(f"producer-{i}" for i in range(60)))
    assert not Channel.exists(tmp_path / "in")
