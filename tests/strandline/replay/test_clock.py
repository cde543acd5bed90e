"""A clock that never ties: times of recorded rows, over crashes, clocks that are set back, and several processes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.replay import CLOCK, Timestamper, add_node, nodes
from strandline.time.arrow import time_field, times_of
from strandline.time.domain import int64

SCHEMA = pa.schema([time_field("time", CLOCK), ("what", pa.string())])


def rows(*what: str) -> pa.Table:
    return pa.table({"what": list(what)})


def written(channel: Channel) -> list[tuple[tuple[int, int, int], str]]:
    table = channel.read()
    return list(zip(times_of(table.column("time"), CLOCK), table.column("what").to_pylist(), strict=True))


def clock(*instants: int) -> Callable[[], int]:
    return iter(instants).__next__


def test_at_one_instant_events_are_before_records(tmp_path: Path) -> None:
    channel = Channel.create(str(tmp_path / "c"), SCHEMA)
    add_node(channel, "timers", scheduler=True)
    with Timestamper(channel, "orders", clock=lambda: 7) as orders, Timestamper(channel, "timers", clock=lambda: 7) as timers:
        orders.send(rows("record"))
        timers.send(rows("event"))
    assert [what for _, what in sorted(written(channel))] == ["event", "record"]


def test_ids_follow_the_order_in_which_nodes_join(tmp_path: Path) -> None:
    channel = Channel.create(str(tmp_path / "c"), SCHEMA)
    for name, scheduler in (("b", False), ("late", True), ("a", False), ("early", True)):
        add_node(channel, name, scheduler=scheduler)
    assert list(nodes(channel)) == ["late", "early", "b", "a"]
    assert add_node(Channel.open(channel.path), "a") == 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_no_two_rows_have_one_time_and_times_follow_the_order(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    draw = random.Random(seed)
    channel = Channel.create(str(tmp_path_factory.mktemp("c") / "c"), SCHEMA)
    names = ["a", "b", "c"][: draw.randint(1, 3)]
    sent: dict[str, list[str]] = {name: [] for name in names}

    def tick() -> int:
        return draw.choice([5, 6, 7, 7, 8, 3])  # it goes back too

    sessions: dict[str, Timestamper] = {}
    waiting: dict[str, list[str]] = {name: [] for name in names}
    for _ in range(draw.randint(5, 30)):
        name = draw.choice(names)
        if name not in sessions:
            sessions[name] = Timestamper(channel, name, clock=tick, take_over=True)
        action = draw.choice(["send", "send", "commit", "abort", "crash"])
        if action == "send":
            more = [f"{name}{draw.random()}" for _ in range(draw.randint(0, 3))]
            sessions[name].send(rows(*more))
            waiting[name] += more
        elif action == "commit":
            sessions[name].commit()
            sent[name] += waiting[name]
            waiting[name] = []
        else:
            waiting[name] = []
            sessions[name].abort() if action == "abort" else sessions.pop(name)
    for name, session in sessions.items():
        session.close()
        sent[name] += waiting[name]
    found = written(channel)
    assert len({time for time, _ in found}) == len(found)
    ids = nodes(channel)
    for name in sent:
        if name in ids:
            own = sorted((time, what) for time, what in found if time[1] == ids[name])
            assert [what for _, what in own] == sent[name]
            assert [time[2] for time, _ in own] == list(range(len(own)))  # no number is missing


def test_silence_is_promised(tmp_path: Path) -> None:
    channel = Channel.create(str(tmp_path / "c"), SCHEMA)
    with Timestamper(channel, "orders", clock=clock(50, 60)) as orders:
        channel.seal()
        orders.commit()
        assert list(channel.frontier) == [(50, 0, 0)]
        orders.drop()
        orders.commit()
        assert not list(channel.frontier)


def test_a_node_that_joins_late_is_not_before_what_is_closed(tmp_path: Path) -> None:
    channel = Channel.create(str(tmp_path / "c"), SCHEMA)
    add_node(channel, "first")
    channel.delay_registrar((100, 5, 0))
    with Timestamper(channel, "second", clock=lambda: 100) as second:
        second.send(rows("x"))
    assert written(channel) == [((101, 1, 0), "x")]


_JOINS = """
import sys
from strandline.channel import Channel
from strandline.replay import add_node
print(add_node(Channel.open(sys.argv[1]), sys.argv[2]))
"""


def test_processes_that_join_at_once_get_different_ids(tmp_path: Path) -> None:
    channel = Channel.create(str(tmp_path / "c"), SCHEMA)
    command = [sys.executable, "-c", _JOINS, channel.path]
    joined = [subprocess.Popen([*command, f"n{i}"], stdout=subprocess.PIPE, env=dict(os.environ)) for i in range(4)]
    assert sorted(int(each.communicate(timeout=60)[0]) for each in joined) == [0, 1, 2, 3]


@pytest.mark.parametrize("instant", [1.5, "7", None, True, 2**63])
def test_a_clock_that_returns_no_instant_is_refused(tmp_path: Path, instant: object) -> None:
    channel = Channel.create(str(tmp_path / "c"), SCHEMA)
    orders = Timestamper(channel, "orders", clock=lambda: instant)  # type: ignore[arg-type, return-value]
    with pytest.raises(StrandlineError, match="STRANDLINE_INSTANT_INVALID"):
        orders.send(rows("x"))
    assert orders.count == 0


def test_what_is_refused(tmp_path: Path) -> None:
    other = Channel.create(str(tmp_path / "o"), pa.schema([time_field("time", int64), ("what", pa.string())]))
    with pytest.raises(StrandlineError, match="STRANDLINE_CLOCK_DOMAIN"):
        Timestamper(other, "orders")
    channel = Channel.create(str(tmp_path / "c"), SCHEMA)
    channel.register(["plain"])
    with pytest.raises(StrandlineError, match="STRANDLINE_NODE_UNKNOWN"):
        Timestamper(channel, "plain")
    orders = Timestamper(channel, "orders", clock=lambda: 1)
    with pytest.raises(StrandlineError, match="STRANDLINE_COLUMNS_STAMPED"):
        orders.send(pa.table({"time": [1], "what": ["x"]}))
    orders.close()
    with pytest.raises(StrandlineError, match="STRANDLINE_NODE_KIND"):
        add_node(channel, "orders", scheduler=True)
    channel.seal()
    with pytest.raises(StrandlineError, match="STRANDLINE_CHANNEL_SEALED"):
        Timestamper(channel, "late")
    assert not written(channel)
