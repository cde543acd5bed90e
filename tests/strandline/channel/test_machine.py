"""Producers against a plain model: whatever is done in whatever order, the channel says what the model says."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strandline.channel import CapabilityError, Channel, Producer, ProducerError
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field, times_of
from strandline.time.domain import product

PAIR = product(epoch="int64", iter="int64")
SCHEMA = pa.schema([time_field("time", PAIR), ("n", pa.int64())])
TIMES = st.tuples(st.integers(0, 3), st.integers(0, 3))
NAMES = ("a", "b", "c")


def rows(times: list[tuple[int, int]]) -> pa.Table:
    return pa.Table.from_arrays([array_of(times, PAIR), pa.array([0] * len(times), pa.int64())], schema=SCHEMA)


class ChannelMachine(RuleBasedStateMachine):
    """The model: per producer what it holds locally and as stated, rows pending and committed; a registrar; who is open."""

    @initialize()
    def create(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.path = f"{self.folder}/channel"
        Channel.create(self.path, SCHEMA, producers=["a"], sealed=False, at=(0, 0))
        self.channels = [Channel.open(self.path), Channel.open(self.path)]
        self.sessions: dict[str, Producer] = {}
        self.held: dict[str, list[tuple[int, int]]] = {}
        self.stated = {"a": {(0, 0)}}
        self.registrar: set[tuple[int, int]] = {(0, 0)}
        self.pending: dict[str, list[tuple[int, int]]] = {}
        self.committed: Counter[tuple[int, int]] = Counter()
        self.frontiers = [Antichain(PAIR, [(0, 0)])]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def antichain(self, times: Any) -> Antichain:
        return Antichain(PAIR, times)

    @rule(name=st.sampled_from(NAMES), at=st.integers(0, 1))
    def open(self, name: str, at: int) -> None:
        if name in self.sessions:
            with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_LIVE"):
                self.channels[at].producer(name)
            return
        if name not in self.stated and not self.registrar:
            with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_UNKNOWN"):
                self.channels[at].producer(name)
            return
        self.sessions[name] = self.channels[at].producer(name)
        self.stated.setdefault(name, set(self.registrar))
        self.held[name] = list(self.stated[name])
        self.pending[name] = []

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), at=st.integers(0, 1))
    def take_over(self, data: st.DataObject, at: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.sessions)))
        first = self.sessions[name]
        self.sessions[name] = self.channels[at].producer(name, take_over=True)
        with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_FENCED"):
            first.commit()
        assert first.closed
        self.held[name], self.pending[name] = list(self.stated[name]), []

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), times=st.lists(TIMES, min_size=1, max_size=3))
    def send(self, data: st.DataObject, times: list[tuple[int, int]]) -> None:
        name = data.draw(st.sampled_from(sorted(self.sessions)))
        if all(self.antichain(self.held[name]).less_equal(t) for t in times):
            self.sessions[name].send(rows(times))
            self.pending[name] += times
        else:
            with pytest.raises(CapabilityError, match="STRANDLINE_TIME_NOT_HELD"):
                self.sessions[name].send(rows(times))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), times=st.lists(TIMES, max_size=2))
    def delay(self, data: st.DataObject, times: list[tuple[int, int]]) -> None:
        name = data.draw(st.sampled_from(sorted(self.sessions)))
        if all(self.antichain(self.held[name]).less_equal(t) for t in times):
            self.sessions[name].delay(times)
            self.held[name] = list(self.antichain(times))
        else:
            with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_BACKWARDS"):
                self.sessions[name].delay(times)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), time=TIMES)
    def one_capability(self, data: st.DataObject, time: tuple[int, int]) -> None:
        name = data.draw(st.sampled_from(sorted(self.sessions)))
        session, held = self.sessions[name], self.held[name]
        what = data.draw(st.sampled_from(["hold", "delay", "clone", "drop"]))
        if what == "hold":
            if self.antichain(held).less_equal(time):
                session.hold(time)
                held.append(time)
            else:
                with pytest.raises(CapabilityError, match="STRANDLINE_TIME_NOT_HELD"):
                    session.hold(time)
            return
        if not session.capabilities:
            return
        capability = data.draw(st.sampled_from(session.capabilities))
        if what == "clone":
            capability.clone()
            held.append(capability.time)
        elif what == "drop":
            held.remove(capability.time)
            capability.drop()
        elif PAIR.less_equal(capability.time, time):
            held.remove(capability.time)
            held.append(time)
            capability.delay(time)
        else:
            with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_BACKWARDS"):
                capability.delay(time)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.sessions)))
        version = self.sessions[name].commit()
        news = bool(self.pending[name]) or self.antichain(self.held[name]) != self.antichain(self.stated[name])
        assert (version is not None) == news
        self.committed.update(self.pending[name])
        self.stated[name], self.pending[name] = set(self.antichain(self.held[name])), []

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), clean=st.booleans())
    def leave(self, data: st.DataObject, clean: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.sessions)))
        session = self.sessions.pop(name)
        if clean:
            session.close()
            self.committed.update(self.pending[name])
            self.stated[name] = set(self.antichain(self.held[name]))
        else:
            with pytest.raises(KeyError), session:
                raise KeyError("the block failed")
        assert session.closed

    @rule(time=TIMES, at=st.integers(0, 1))
    def move_registrar(self, time: tuple[int, int], at: int) -> None:
        if not self.registrar:
            with pytest.raises(ProducerError, match="STRANDLINE_CHANNEL_SEALED"):
                self.channels[at].delay_registrar([time])
        elif self.antichain(self.registrar).less_equal(time):
            self.channels[at].delay_registrar([time])
            self.registrar = {time}
        else:
            with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_BACKWARDS"):
                self.channels[at].delay_registrar([time])

    @rule(chance=st.integers(0, 5))
    def seal(self, chance: int) -> None:
        if chance == 0:
            self.channels[0].seal()
            self.registrar = set()

    @invariant()
    def the_channel_says_what_the_model_says(self) -> None:
        if not hasattr(self, "path"):
            return
        for channel in self.channels:
            channel.refresh()
        expected = self.antichain([*self.registrar, *(t for held in self.stated.values() for t in held)])
        assert all(channel.frontier == expected for channel in self.channels)
        assert self.frontiers[-1].dominates(expected)  # it never moves back
        self.frontiers.append(expected)
        for name, session in self.sessions.items():
            assert session.holds == self.antichain(self.held[name])

        if len(self.frontiers) % 10 == 0:
            fresh = Channel.open(self.path)
            assert fresh.progress == self.channels[0].progress
            assert Counter(times_of(fresh.read().column("time"), PAIR)) == self.committed


TestChannelMachine = ChannelMachine.TestCase
TestChannelMachine.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
