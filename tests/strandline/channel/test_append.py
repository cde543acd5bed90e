"""Appending on behalf of many producers, as sinks do: one commit, once, and only what the producers may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import helpers
from strandline.channel import CapabilityError, Channel, ChannelError, ProducerError, Span
from strandline.errors import TimeDomainError
from strandline.time.antichain import Antichain
from strandline.time.domain import int64, timestamp

Create = Callable[..., Channel]


def at(*times: Any) -> Antichain:
    return Antichain(int64, times)


def written(channel: Channel, rows: Any) -> tuple[Any, Any]:
    with channel.file_writer() as writer:
        writer.write(rows)
        return writer.finish()


def test_files_statements_and_transaction_are_one_commit(create: Create, make: Any) -> None:
    channel = create()
    files, times = written(channel, make.rows([1, 1, 2]))
    version = channel.append(files, statements={"a": at(3), "b": at(5)}, times=times, transaction=("query", 0), owner="query")
    assert version == 1
    commit = channel.log.require(1)
    assert commit.files == tuple(files)
    assert commit.transactions == {"query": 0}
    assert commit.statement is not None
    assert commit.statement.times == ((1, 2), (2, 1))
    assert channel.frontier == at(3)
    assert channel.transaction_version("query") == 0


@pytest.mark.parametrize("name", ["a b.parquet", "k=1/a%20b.parquet", "é.parquet", "%70.parquet", "a+b#c?d&e.parquet"])
def test_files_of_any_name_are_the_same_in_a_commit_and_in_a_version(create: Create, make: Any, name: str) -> None:
    channel = create()
    (file,), times = written(channel, make.rows([1, 1]))
    new = Path(channel.path, name)
    new.parent.mkdir(exist_ok=True)
    Path(channel.path, file.path).rename(new)
    named = replace(file, path=name)
    channel.append([named], statements={"a": at(3), "b": at(5)}, times=times)
    for checkpoint in (False, True):
        if checkpoint:
            channel.checkpoint()
        channel = Channel.open(channel.path)
        assert channel.log.require(1).files[0].path == name
        assert [found.path for found in channel.snapshot_files()] == [name]
        assert channel.read().num_rows == channel.read_files([named]).num_rows == 2


def test_a_replayed_transaction_writes_nothing_also_after_a_restart_or_a_checkpoint(create: Create, make: Any) -> None:
    channel = create()
    files, times = written(channel, make.rows([1]))
    assert channel.append(files, statements={"a": at(1)}, times=times, transaction=("q", 0), owner="q") == 1
    assert channel.append([], statements={"a": at(2)}, transaction=("q", 1), owner="q") == 2
    version = channel.checkpoint()
    for again in (channel, Channel.open(channel.path)):
        for batch in (0, 1):
            assert again.append(files, statements={"a": at(9)}, times=times, transaction=("q", batch), owner="q") is None
    fresh = Channel.open(channel.path)
    assert fresh.version == version
    assert fresh.append([], statements={"a": at(9)}, transaction=("q", 2), owner="q") == version + 1
    assert fresh.append([], statements={"b": at(10)}, transaction=("other", 0), owner="other") == version + 2
    assert channel.transaction_version("q") == 2
    assert channel.transaction_version("nobody") is None


def test_no_file_and_the_same_capabilities_is_no_commit(create: Create) -> None:
    channel = create()
    assert channel.append([], statements={"a": at(0)}, transaction=("q", 0), owner="q") is None
    assert channel.append([], statements={}, transaction=("q", 1), owner="q") is None
    assert channel.append([], statements={"a": at(1)}, transaction=("q", 2), owner="q") == 1
    assert channel.append([], statements={"a": at(1)}, transaction=("q", 3), owner="q") is None


def test_rows_without_a_move_still_carry_a_statement(create: Create, make: Any) -> None:
    channel = create()
    for batch in range(3):
        files, times = written(channel, make.rows([0]))
        channel.append(files, statements={"a": at(0)}, times=times, transaction=("q", batch), owner="q")
    assert len(channel.log.read(3).statement.statements) == 1  # type: ignore[union-attr]
    Channel.open(channel.path)
    for commit in channel.log.tail(0):
        commit.check()


def test_rows_must_be_in_advance_of_what_their_producers_held(create: Create, make: Any) -> None:
    channel = create()
    channel.append([], statements={"a": at(5)}, owner="q")
    files, times = written(channel, make.rows([4, 6]))
    with pytest.raises(CapabilityError, match=r"STRANDLINE_TIME_NOT_HELD.*Rows at 4 .*'a' held \{5\}"):
        channel.append(files, statements={"a": at(9)}, times=times, owner="q")
    assert channel.append(files, statements={"a": at(9), "b": at(9)}, times=times, owner="q") == 2  # b held 0
    with pytest.raises(CapabilityError, match=r"STRANDLINE_TIME_NOT_HELD.*no producer held"):
        channel.append(files, statements={}, times=times)


def test_capabilities_do_not_move_back(create: Create) -> None:
    channel = create()
    channel.append([], statements={"a": at(5)}, owner="q")
    with pytest.raises(CapabilityError, match=r"STRANDLINE_CAPABILITY_BACKWARDS.*'a' holds \{5\} and cannot move to 4"):
        channel.append([], statements={"a": at(4)}, owner="q")
    channel.append([], statements={"a": at()}, owner="q")
    with pytest.raises(CapabilityError, match=r"STRANDLINE_CAPABILITY_BACKWARDS.*holds \{\}"):
        channel.append([], statements={"a": at(9)}, owner="q")


def test_message_times_account_for_every_row(create: Create, make: Any) -> None:
    channel = create()
    files, times = written(channel, make.rows([1, 2]))
    with pytest.raises(ChannelError, match=r"STRANDLINE_TIMES_INCOMPLETE.*2 rows, but their message times count 1 rows"):
        channel.append(files, statements={"a": at(0)}, times=times[:1])


def test_unknown_producers_join_open_channels_and_no_sealed_one(create: Create) -> None:
    channel = create(producers=["a"], sealed=False, at=3)
    with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_BACKWARDS"):
        channel.append([], statements={"new": at(2)}, owner="q")
    channel.append([], statements={"new": at(7)}, owner="q")
    assert channel.producers["new"].holds == at(7)
    channel.append([], statements={"still": at(3)}, owner="q")  # at the registrar's own time: joining is news
    assert "still" in channel.producers
    channel.seal()
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_UNKNOWN.*'late'.*a, new, still"):
        channel.append([], statements={"late": at(9)}, owner="q")


def test_another_owner_is_told_and_may_take_over(create: Create) -> None:
    channel = create()
    session = channel.producer("a")
    other = Channel.open(channel.path)
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_LIVE"):
        other.append([], statements={"a": at(1)}, owner="q")
    other.append([], statements={"a": at(1)}, owner="q", take_over=True)
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_FENCED"):
        session.commit()
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_LIVE.*session q\)"):
        channel.producer("a")
    Channel.open(channel.path).append([], statements={"a": at(2)}, owner="q")  # the same query, restarted
    assert other.append([], statements={"a": at(3)}, owner="q") is not None


def test_nobody_speaks_for_the_registrar(create: Create) -> None:
    channel = create(producers=[], at=3)
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_NAME_INVALID.*'\$registrar' begins with '\$'"):
        channel.append([], statements={"$registrar": at(9)}, owner="q")
    assert channel.registrar == at(3)


def test_statements_of_another_domain_are_refused(create: Create) -> None:
    with pytest.raises(TimeDomainError, match=r"STRANDLINE_TIME_DOMAIN_MISMATCH.*producer 'a' are times of timestamp.*int64"):
        create().append([], statements={"a": Antichain(timestamp, [1])})


def test_thousands_of_producers_move_in_one_commit(create: Create) -> None:
    names = [f"p{i}" for i in range(2000)]
    channel = create(producers=names, at=0)
    channel.append([], statements={name: at(i + 1) for i, name in enumerate(names)}, owner="q")
    assert channel.frontier == at(1)
    channel.append([], statements={name: at(9999) for name in names}, owner="q")
    assert Channel.open(channel.path).frontier == at(9999)
    moved = channel.append([], statements={name: at(9999 + (name == "p7")) for name in names}, owner="q")
    assert list(channel.log.require(moved or 0).statement.statements) == ["p7"]  # type: ignore[union-attr]


def test_producers_keep_a_state_of_their_own_atomically_with_their_rows(create: Create, make: Any) -> None:
    channel = create()
    channel.append([], statements={"a": at(1), "b": at(0)}, states={"a": {"offset": 7}}, transaction=("q", 0), owner="q")
    assert channel.append([], statements={"a": at(1)}, states={"a": {"offset": 7}}, owner="q") is None
    assert channel.append([], statements={"a": at(1)}, states={"a": {"offset": 8}}, owner="q") is not None
    channel.append([], statements={"a": at(2)}, owner="q")  # says nothing of it: it stays
    fresh = Channel.open(channel.path)
    assert fresh.producers["a"].state == {"offset": 8}
    assert fresh.producers["b"].state is None
    assert fresh.progress_at(1).producers["a"].state == {"offset": 7}
    with fresh.producer("a", owner="q") as a:
        assert a.state == {"offset": 8}
        a.state = {"offset": 9}
        assert a.commit() is not None
        assert a.commit() is None
    assert Channel.open(channel.path).producers["a"].state == {"offset": 9}


def test_spans_are_message_times_too(create: Create, make: Any) -> None:
    channel = create()
    channel.append([], statements={"a": at(2)}, owner="q")
    files, times = written(channel, make.rows([3, 4, 5]))
    with pytest.raises(CapabilityError, match=r"STRANDLINE_TIME_NOT_HELD.*Rows at 1 "):
        channel.append(files, statements={"a": at(9)}, spans=[Span(1, 5, 3)], owner="q")
    channel.append(files, statements={"a": at(9)}, times=times[:1], spans=[Span(4, 5, 2)], owner="q")
    said = channel.log.require(channel.version).statement
    assert said is not None
    assert (said.times, said.spans) == (((3, 1),), (Span(4, 5, 2),))


@pytest.mark.parametrize("version", [-1, -(1 << 62)])
def test_a_transaction_has_no_negative_version(tmp_path: Path, version: int) -> None:
    """It would be taken for a replay: -1 says that there was none."""
    channel = helpers.make_channel(tmp_path / "in", producers=("a",))
    with pytest.raises(ChannelError, match="STRANDLINE_COMMIT_REFUSED.*not a transaction"):
        channel.append([], statements={"a": [1]}, transaction=("q", version))
    assert channel.append([], statements={"a": [1]}, transaction=("q", 0)) == 1
