"""Clones: a producer that holds nothing is given what others of its session hold, and a registrar that follows the producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline.channel import CapabilityError, Channel, CommitStatement, FileWriter, ProducerError, Statement, StatementError
from strandline.channel.statements.statement import REGISTRAR
from strandline.report import verify
from strandline.time.antichain import Antichain
from strandline.time.domain import int64, product

Create = Callable[..., Channel]


def at(*times: Any) -> Antichain:
    return Antichain(int64, times)


def test_a_producer_that_gave_up_its_capabilities_goes_on_where_another_is(create: Create) -> None:
    channel = create()
    channel.append([], statements={"a": at(5), "b": at()}, owner="q")
    reader = Channel.open(channel.path)
    assert reader.frontier == at(5)
    version = channel.append([], statements={"a": at(5), "b": at(6)}, owner="q", donors={"a"})
    commit = channel.log.require(version or 0)
    assert commit.statement is not None
    assert set(commit.statement.statements) == {"a", "b"}  # who gave is stated too, though nothing of it changed
    reader.refresh()
    assert reader.producers["b"].holds == at(6)
    assert reader.frontier == at(5)
    channel.append([], statements={"a": at(9), "b": at()}, owner="q")
    channel.append([], statements={"a": at(10), "b": at(9)}, owner="q", donors={"a"})  # of what it held before
    assert Channel.open(channel.path).frontier == at(9)


def test_nothing_is_given_beyond_what_was_held(create: Create) -> None:
    channel = create()
    channel.append([], statements={"a": at(5), "b": at()}, owner="q")
    for donors in ((), ("a",)):
        with pytest.raises(CapabilityError):
            channel.append([], statements={"a": at(7), "b": at(4)}, owner="q", donors=donors)
    with pytest.raises(CapabilityError):  # it holds something itself: that alone counts
        channel.append([], statements={"a": at(4), "b": at()}, owner="q", donors={"a"})
    assert channel.frontier == at(5)


def test_one_that_is_its_own_donor_may_have_rows_where_the_registrar_is(create: Create, make: Any) -> None:
    channel = create(sealed=False)
    channel.append([], statements={"a": at(), "b": at(40)}, owner="q")
    channel.append([], statements={"c": at(5)}, owner="other")
    channel.delay_registrar(30)

    def bring(time: int, *donors: str) -> int | None:
        with FileWriter(channel.path, channel.schema, "time", int64) as writer:
            writer.write(make.rows([time]))
            files, times = writer.finish()
            return channel.append(files, times=times, statements={"a": at()}, owner="q", donors=donors)

    for time, donors in ((35, ()), (29, ("a",)), (5, ("a", "c"))):  # c is not in the commit, so it gives nothing
        with pytest.raises(CapabilityError, match="STRANDLINE_TIME_NOT_HELD"):
            bring(time, *donors)
    assert bring(30, "a") is not None
    assert Channel.open(channel.path).producers["a"].holds == at()
    assert verify(channel.path).sound


def test_an_append_of_its_own_donor_without_news_is_none(create: Create) -> None:
    channel = create(sealed=False)
    channel.append([], statements={"a": at(), "b": at(40)}, owner="q")
    assert channel.append([], statements={"a": at()}, owner="q", donors={"a"}) is None


def test_a_new_producer_is_given_clones_even_where_the_channel_is_sealed(create: Create) -> None:
    channel = create()
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_UNKNOWN"):
        channel.append([], statements={"a": at(0), "c": at(3)}, owner="q")
    channel.append([], statements={"a": at(0), "c": at(3)}, owner="q", donors={"a"})
    assert Channel.open(channel.path).producers["c"].holds == at(3)


def test_a_reader_refuses_what_nobody_of_the_commit_held(create: Create, make: Any) -> None:
    channel = create()
    channel.append([], statements={"a": at(5), "b": at()}, owner="q")
    said = CommitStatement({"b": Statement(channel.producers["b"].seq + 1, (5,))})
    make.write_commit(channel.path, channel.version + 1, make.info(said.to_user_metadata()))
    with pytest.raises(StatementError, match="STRANDLINE_STATEMENT_REGRESSION.*'b'"):
        channel.refresh()


def test_the_registrar_follows_the_least_of_the_producers(create: Create) -> None:
    channel = create(sealed=False)
    channel.append([], statements={"a": at(5), "b": at(3)}, owner="q", follow=True)
    assert (channel.registrar, channel.frontier) == (at(3), at(3))
    channel.append([], statements={"b": at(9)}, owner="q", follow=True)
    assert Channel.open(channel.path).registrar == at(5)
    channel.append([], statements={"a": at(8)}, owner="q", follow=True, apart={"a"})
    assert channel.registrar == at(9)
    assert channel.frontier == at(8)
    channel.append([], statements={"a": at(), "b": at()}, owner="q", follow=True)
    assert channel.registrar == at(9)  # everybody is done, and others may still come
    assert channel.append([], statements={}, follow=True) is None
    sealed = Channel.create(f"{channel.path} sealed", channel.schema, producers=["a"])
    sealed.append([], statements={"a": at(5)}, follow=True)
    assert sealed.sealed


def test_the_registrar_follows_in_a_partial_order(create: Create) -> None:
    pairs = product(a="int64", b="int64")
    channel = create(pairs, producers=["a", "b"], sealed=False, at=(0, 0))
    holds = {"a": Antichain(pairs, [(1, 5)]), "b": Antichain(pairs, [(3, 2), (0, 9)])}
    channel.append([], statements=holds, owner="q", follow=True)
    assert channel.registrar.to_json() == [[0, 9], [1, 5], [3, 2]]
    assert channel.frontier == channel.registrar


def test_what_the_writers_keep_in_common_is_the_registrars_state(create: Create) -> None:
    channel = create()
    assert channel.append([], statements={}, states={REGISTRAR: {"q": 1}}, transaction=("q", 0)) == 1
    assert channel.append([], statements={}, states={REGISTRAR: {"q": 1}}, transaction=("q", 1)) is None
    state = Channel.open(channel.path).progress.get(REGISTRAR)
    assert state is not None
    assert (state.state, channel.sealed) == ({"q": 1}, True)
