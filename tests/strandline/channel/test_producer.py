"""Producers' sessions: what may be sent, what is told, who is fenced, and what a crash leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from strandline.channel import CapabilityError, Channel, ChannelError, ProducerError, WriterSession
from strandline.errors import TimeError
from strandline.time.antichain import Antichain
from strandline.time.domain import int64, product

Create = Callable[..., Channel]
PAIR = product(epoch="int64", iter="int64")


def at(*times: Any) -> Antichain:
    return Antichain(int64, times)


def data_files(path: str) -> list[str]:
    return sorted(name.name for name in Path(path).glob("*.parquet"))


def test_rows_and_capabilities_become_known_together(create: Create, make: Any) -> None:
    channel = create(producers=["a"])
    reader = Channel.open(channel.path)
    a = channel.producer("a")
    a.send(make.rows([0, 1, 2]))
    a.delay(3)
    reader.refresh()
    assert (reader.frontier, reader.read().num_rows) == (at(0), 0)
    version = a.commit()
    (commit,) = reader.refresh()
    assert commit.version == version
    assert commit.statement is not None
    assert commit.statement.times == ((0, 1), (1, 1), (2, 1))
    assert (reader.frontier, reader.read().num_rows) == (at(3), 3)


def test_nothing_to_say_is_no_commit(create: Create) -> None:
    a = create().producer("a")
    before = a.channel.version
    assert a.commit() is None
    a.delay(0)
    assert a.commit() is None
    assert a.channel.version == before


def test_a_row_that_no_capability_allows_is_refused_at_the_door(create: Create, make: Any) -> None:
    a = create(at=5).producer("a")
    with pytest.raises(
        CapabilityError, match=r"STRANDLINE_TIME_NOT_HELD.*'a' cannot send a row at time = 4, because it holds \{5\}"
    ):
        a.send(make.rows([5, 4, 3]))
    assert a.commit() is None
    assert data_files(a.channel.path) == []
    a.drop()
    with pytest.raises(CapabilityError, match=r"TIME_NOT_HELD.*it holds nothing: it was dropped, or .*another name"):
        a.send(make.rows([9]))


def test_partially_ordered_capabilities_allow_what_is_in_advance_of_one_of_them(create: Create, make: Any) -> None:
    a = create(PAIR, producers=["a"], at=(0, 0)).producer("a")
    a.delay([(2, 0), (0, 3)])
    a.send(make.rows([(2, 0), (0, 3), (1, 3), (5, 5)], PAIR))
    for late in ((1, 2), (0, 0), (1, 0)):
        with pytest.raises(CapabilityError, match="STRANDLINE_TIME_NOT_HELD"):
            a.send(make.rows([(5, 5), late], PAIR))
    a.commit()
    assert a.channel.frontier == Antichain(PAIR, [(2, 0), (0, 3)])


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (
            pa.table({"time": pa.array([1, None], pa.int64()), "n": [1, 2]}),
            TimeError,
            "STRANDLINE_TIME_INVALID.*time is null in row 1",
        ),
        (pa.table({"time": [1]}), ChannelError, r"STRANDLINE_SCHEMA_MISMATCH.*lack the columns \['n'\]"),
        (
            pa.table({"time": [1], "n": [1], "x": [1]}),
            ChannelError,
            r"STRANDLINE_SCHEMA_MISMATCH.*have the additional columns \['x'\]",
        ),
        (
            pa.table({"time": [1], "m": [1]}),
            ChannelError,
            r"STRANDLINE_SCHEMA_MISMATCH.*lack the columns \['n'\] and have the additional columns \['m'\]",
        ),
        (pa.table({"time": [1], "n": ["one"]}), ChannelError, r"STRANDLINE_SCHEMA_MISMATCH.*'n' has the type string"),
        (pa.table({"time": [1], "n": [1.5]}), ChannelError, r"STRANDLINE_SCHEMA_MISMATCH.*'n' has the type double"),
        (pa.table({"time": [1.0], "n": [1]}), None, ""),
        (pa.table({"n": pa.array([1], pa.int8()), "time": pa.array([1], pa.int32())}), None, ""),
        (pa.table([[1], [1], [1]], names=["time", "n", "n"]), ChannelError, "STRANDLINE_SCHEMA_MISMATCH.*twice"),
        ({"time": [1], "n": [1]}, ChannelError, "STRANDLINE_SCHEMA_MISMATCH.*the type dict"),
    ],
)
def test_rows_of_another_schema_are_refused_and_nothing_is_written(
    create: Create, rows: Any, error: type[Exception] | None, message: str
) -> None:
    a = create().producer("a")
    if error is None:
        a.send(rows)
        return
    with pytest.raises(error, match=message):
        a.send(rows)
    assert a.commit() is None
    assert data_files(a.channel.path) == []


def test_record_batches_and_empty_tables_are_rows_too(create: Create, make: Any) -> None:
    a = create().producer("a")
    a.send(make.rows([1, 2]).to_batches()[0])
    a.send(make.rows([]))
    a.commit()
    assert a.channel.read().num_rows == 2
    a.send(make.rows([]))
    assert a.commit() is None


def test_capabilities_are_minted_only_from_held_ones_and_move_forward_only(create: Create) -> None:
    a = create(at=5).producer("a")
    (first,) = a.capabilities
    second = a.hold(9)
    third = first.clone()
    first.delay(7)
    assert a.holds == at(5)
    third.drop()
    third.drop()
    assert third.dropped
    assert a.holds == at(7)
    with pytest.raises(CapabilityError, match=r"STRANDLINE_CAPABILITY_BACKWARDS.*'a' holds 7 and cannot move to 6"):
        first.delay(6)
    with pytest.raises(CapabilityError, match=r"STRANDLINE_TIME_NOT_HELD.*create a capability at 6, because it holds \{7\}"):
        a.hold(6)
    with pytest.raises(CapabilityError, match=r"STRANDLINE_CAPABILITY_BACKWARDS.*holds \{7\} and cannot move to 3"):
        a.delay([9, 3])
    assert a.holds == at(7)
    assert second.time == 9
    for act in (third.clone, lambda: third.delay(9)):
        with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_DROPPED"):
            act()
    a.drop()
    assert (a.holds, a.capabilities, first.dropped) == (at(), (), True)
    with pytest.raises(TimeError, match="STRANDLINE_TIME_INVALID"):
        a.delay("soon")


def test_a_second_opener_is_told_and_a_take_over_fences_the_first(create: Create, make: Any) -> None:
    channel = create()
    first = channel.producer("a")
    first.send(make.rows([1]))
    other = Channel.open(channel.path)
    with pytest.raises(ProducerError, match=rf"STRANDLINE_PRODUCER_LIVE.*'a'.*process {os.getpid()} .*take_over"):
        other.producer("a")
    second = other.producer("a", take_over=True)
    second.send(make.rows([2]))
    second.delay(2)
    second.commit()
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_FENCED.*'a'.*taken over"):
        first.commit()
    assert first.closed
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_CLOSED"):
        first.send(make.rows([3]))
    channel.refresh()
    assert channel.read().column("time").to_pylist() == [2]
    assert len(data_files(channel.path)) == 1  # what the fenced session had written is removed


def test_the_first_is_fenced_even_when_the_second_has_closed_again(create: Create) -> None:
    channel = create()
    first = channel.producer("a")
    Channel.open(channel.path).producer("a", take_over=True).close()
    first.delay(5)
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_FENCED.*a session that has ended since"):
        first.commit()
    assert Channel.open(channel.path).producers["a"].holds == at(0)


def test_a_closed_producer_opens_again_with_what_it_held(create: Create, make: Any) -> None:
    channel = create()
    with channel.producer("a") as a:
        a.delay(4)
        a.send(make.rows([4]))
    assert not channel.producers["a"].live
    assert channel.read().num_rows == 1
    again = Channel.open(channel.path).producer("a")
    assert again.holds == at(4)
    again.close()
    again.close()
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_CLOSED.*'a' is closed"):
        again.commit()


def test_a_block_that_raises_commits_nothing_more_and_gives_the_name_free(create: Create, make: Any) -> None:
    channel = create()

    def block() -> None:
        with channel.producer("a") as a:
            a.send(make.rows([1]))
            a.delay(9)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert (channel.read().num_rows, channel.producers["a"].holds, channel.producers["a"].live) == (0, at(0), False)
    assert data_files(channel.path) == []


def test_abort_goes_back_to_the_last_commit(create: Create, make: Any) -> None:
    a = create().producer("a")
    a.delay(3)
    a.commit()
    a.send(make.rows([5]))
    a.delay(9)
    a.abort()
    assert (a.holds, a.commit()) == (at(3), None)
    assert data_files(a.channel.path) == []


def test_sessions_of_one_owner_may_open_again_at_any_time_and_fence_each_other(create: Create) -> None:
    channel = create()
    first = channel.producer("a", owner="query 7")
    second = Channel.open(channel.path).producer("a", owner="query 7")
    second.delay(3)
    second.commit()
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_FENCED"):
        first.commit()
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_LIVE.*session query 7"):
        channel.producer("a", owner="query 8")


def test_unknown_producers_join_open_channels_at_the_registrars_capability(create: Create) -> None:
    channel = create(producers=[], at=6)
    assert channel.producer("new").holds == at(6)
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_NAME_INVALID"):
        channel.producer("$registrar")


KILLED = """
import os, sys
import pyarrow as pa
from strandline.channel import Channel
a = Channel.open(sys.argv[1]).producer("a")
a.send(pa.table({"time": [0, 1], "n": [1, 2]}))
a.delay(2)
a.commit()
a.send(pa.table({"time": [2], "n": [3]}))
a.delay(5)
print("ready", flush=True)
os.read(0, 1)
"""


@pytest.mark.drawn
def test_after_kill_9_a_restart_just_works_from_the_last_commit(create: Create, make: Any) -> None:
    channel = create()
    process = subprocess.Popen([sys.executable, "-c", KILLED, channel.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    with pytest.raises(ProducerError, match=rf"STRANDLINE_PRODUCER_LIVE.*process {process.pid} "):
        Channel.open(channel.path).producer("a")
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    a = Channel.open(channel.path).producer("a")  # no take_over
    assert a.holds == at(2)
    a.send(make.rows([2]))
    a.commit()
    assert sorted(a.channel.read().column("time").to_pylist()) == [0, 1, 2]


def test_only_a_process_that_certainly_is_gone_counts_as_dead() -> None:
    here = WriterSession.here()
    assert not here.is_dead()
    assert not WriterSession("x", "some-other-host", 999_999_999, 0.0).is_dead()
    assert WriterSession("x", here.host, 999_999_999, 0.0).is_dead()
    assert WriterSession("x", here.host, here.pid, here.start - 3600).is_dead()  # the id was used again
    elsewhere = replace(here, pid=999_999_999, namespace="pid:[1]")  # a container that has the host's name
    assert not elsewhere.is_dead()
    assert replace(elsewhere, boot="before").is_dead()  # the host was started anew since
    assert not replace(here, boot="a file of the container").is_dead()
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    start = psutil.Process(child.pid).create_time()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert WriterSession("x", here.host, child.pid, start).is_dead()
    child.wait()


def test_many_message_times_become_spans_that_the_channel_can_read(create: Create, make: Any) -> None:
    channel = create(producers=["a"])
    with channel.producer("a") as a:
        a.send(make.rows(range(5000)))
        version = a.commit()
    said = channel.log.require(version or 0).statement
    assert said is not None
    assert said.times == ()
    assert len(said.spans) <= 1024
    assert sum(span.rows for span in said.spans) == 5000


def test_a_state_that_is_changed_in_place_is_the_sessions_own_until_it_commits(create: Create, make: Any) -> None:
    channel = create(producers=["a", "b", "c"])
    a, b = channel.producer("a"), channel.producer("b")
    a.state = {"offset": 1}
    a.commit()
    a.state["offset"] = 2
    channel.producers["a"].state["offset"] = 3
    b.send(make.rows([1]))
    b.commit()  # its commit repeats what a has stated
    assert Channel.open(channel.path).producers["a"].state == {"offset": 1}
    assert a.commit() is not None
    given = {"n": {"deep": [1]}}
    channel.append([], statements={"c": [0]}, states={"c": given}, owner="q")
    given["n"]["deep"].append(2)
    b.delay(1)
    b.commit()
    fresh = Channel.open(channel.path)
    assert (fresh.producers["a"].state, fresh.producers["c"].state) == ({"offset": 2}, {"n": {"deep": [1]}})


def test_rows_that_are_thrown_away_take_the_state_with_them(create: Create, make: Any) -> None:
    channel = create()
    with pytest.raises(ZeroDivisionError), channel.producer("a") as producer:
        producer.send(make.rows([1]))
        producer.state = {"read up to": 1}
        producer.commit()
        producer.send(make.rows([2]))
        producer.state["read up to"] = 2
        raise ZeroDivisionError
    assert Channel.open(channel.path).producers["a"].state == {"read up to": 1}
    with channel.producer("a") as producer:
        producer.send(make.rows([2]))
        producer.state["read up to"] = 2
        producer.abort()
        assert producer.state == {"read up to": 1}


def test_a_deep_state_is_copied(create: Create) -> None:
    channel = create()
    deep: list[Any] = []
    for _ in range(450):
        deep = [deep]
    with channel.producer("a") as producer:
        producer.state = deep
    assert Channel.open(channel.path).producers["a"].state is not None
