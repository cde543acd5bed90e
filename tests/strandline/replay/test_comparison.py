"""``compare``: two channels are equal if they have the same rows at each closed time; otherwise it says where they part."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli_schemas import check
from helpers import make_channel, rows
from strandline.channel import Channel
from strandline.cli.app import app
from strandline.errors import StrandlineError
from strandline.replay import ChangedRow, assert_same, compare
from strandline.time.arrow import time_field
from strandline.time.domain import Time, TimeDomain, int64, product

EPOCHS = product(epoch="int64", iter="int64")


def recorded(path: Path, domain: TimeDomain, commits: list[list[tuple[Time, int]]], then: list[Time]) -> Channel:
    """A channel of these commits, whose producer holds ``then`` in the end."""
    channel = make_channel(path, domain, producers=("p",))
    with channel.producer("p") as producer:
        for entries in commits:
            producer.send(rows(domain, *entries))
            producer.commit()
        producer.delay(then)
    return Channel.open(path)


ENTRIES = st.lists(st.tuples(st.tuples(st.integers(0, 2), st.integers(0, 2)), st.integers(0, 2)), max_size=8)
HOLDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=2)


@given(ENTRIES, ENTRIES, HOLDS, HOLDS, st.data())
def test_it_says_what_a_model_says(
    tmp_path_factory: pytest.TempPathFactory,
    a: list[tuple[Time, int]],
    b: list[tuple[Time, int]],
    holds_a: list[Time],
    holds_b: list[Time],
    data: st.DataObject,
) -> None:
    """The rows of each are divided into commits anew. The model counts the rows of each closed time."""

    def made(name: str, entries: list[tuple[Time, int]], then: list[Time]) -> Channel:
        cut = data.draw(st.integers(0, len(entries)))
        mixed = data.draw(st.permutations(entries))
        commits = [part for part in (mixed[:cut], mixed[cut:]) if part]
        return recorded(tmp_path_factory.mktemp("compare") / name, EPOCHS, commits, then)

    if data.draw(st.booleans()):
        b = a + b[:1]
    left, right = made("a", a, holds_a), made("b", b, holds_b)
    counts: list[dict[Time, Counter[int]]] = [{}, {}]
    for entries, of in ((a, counts[0]), (b, counts[1])):
        for time, n in entries:
            if not left.frontier.less_equal(time) and not right.frontier.less_equal(time):
                of.setdefault(time, Counter())[n] += 1
    wanted = sorted(time for time in counts[0].keys() | counts[1].keys() if counts[0].get(time) != counts[1].get(time))
    found = compare(left, right, most=99)
    assert [time for time, _, _ in found.parted] == wanted
    assert (found.equal, found.first) == (not wanted, next(iter(wanted), None))
    assert (found.rows_a, found.rows_b) == tuple(sum(c.total() for c in each.values()) for each in counts)
    for difference in found.differences:
        in_a, in_b = (each.get(difference.time, Counter()) for each in counts)
        changed_a, changed_b = (Counter(row[side]["n"] for row in map(vars, difference.changed)) for side in ("a", "b"))
        assert Counter(difference.only_a.column("n").to_pylist()) + changed_a == in_a - in_b
        assert Counter(difference.only_b.column("n").to_pylist()) + changed_b == in_b - in_a


def channel_of(path: Path, table: pa.Table) -> Channel:
    schema = pa.schema([time_field("t", int64), *(field for field in table.schema if field.name != "t")])
    with Channel.create(path, schema, producers=["p"], at=0).producer("p") as producer:
        producer.send(table)
        producer.delay([])
    return Channel.open(path)


def table(**columns: Any) -> pa.Table:
    return pa.table({"t": [1] * len(next(iter(columns.values()))), **columns})


def test_rows_that_changed_are_paired_by_a_key_that_is_found(tmp_path: Path) -> None:
    a = channel_of(tmp_path / "a", table(flight=["x", "y", "z"], day=[1, 1, 2], delay=[5, 6, 7]))
    b = channel_of(tmp_path / "b", table(flight=["x", "y", "z", "new"], day=[1, 1, 2, 2], delay=[5, 60, 70, 8]))
    (difference,) = compare(a, b).differences
    assert difference.key == ("flight",)
    assert difference.changed == (
        ChangedRow({"flight": "y"}, {"delay": 6}, {"delay": 60}),
        ChangedRow({"flight": "z"}, {"delay": 7}, {"delay": 70}),
    )
    assert (difference.only_a.num_rows, difference.only_b.to_pylist()) == (0, [{"flight": "new", "day": 2, "delay": 8}])
    assert (difference.rows_a, difference.rows_b) == (3, 4)


def test_a_key_may_have_two_columns(tmp_path: Path) -> None:
    a = channel_of(tmp_path / "a", table(flight=["x", "x", "y", "y"], day=[1, 2, 1, 2], delay=[1, 1, 1, 1]))
    b = channel_of(tmp_path / "b", table(flight=["x", "x", "y", "y"], day=[1, 2, 1, 2], delay=[2, 2, 2, 2]))
    (found,) = compare(a, b).differences
    (given_key,) = compare(a, b, key=["day", "flight"]).differences
    assert (found.key, len(found.changed), found.only_a.num_rows) == (("flight", "day"), 4, 0)
    assert (given_key.key, len(given_key.changed)) == (("day", "flight"), 4)
    (none,) = compare(a, b, key=["flight"]).differences
    assert (none.changed, none.only_a.num_rows, none.only_b.num_rows) == ((), 4, 4)  # it does not tell them apart


def test_values_count_and_not_their_form(tmp_path: Path) -> None:
    nan, other_nan = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    a = channel_of(tmp_path / "a", table(n=pa.array([1, 2], pa.int32()), x=[0.0, nan], tags=[["u", "v"], None]))
    more = pa.array([None, None], pa.string())
    b = channel_of(tmp_path / "b", table(more=more, tags=[["u", "v"], None], x=[-0.0, other_nan], n=pa.array([1, 2], pa.int64())))
    assert compare(a, b).equal
    assert not compare(a, channel_of(tmp_path / "c", table(n=[1, 2], x=[0.0, nan], tags=[["v", "u"], None]))).equal


def test_a_channel_may_have_only_times(tmp_path: Path) -> None:
    a, b = (channel_of(tmp_path / name, pa.table({"t": times})) for name, times in (("a", [1, 1, 2]), ("b", [1, 2, 2])))
    assert compare(a, a).equal
    found = compare(a, b)
    assert found.parted == ((1, 2, 1), (2, 1, 2))
    assert [(each.only_a.num_rows, each.only_b.num_rows) for each in found.differences] == [(1, 0), (0, 1)]


def test_only_some_columns_may_be_compared(tmp_path: Path) -> None:
    a = channel_of(tmp_path / "a", table(k=["x", "y"], run=[1, 1]))
    b = channel_of(tmp_path / "b", table(k=["y", "x"], run=[2, 2]))
    assert not compare(a, b).equal
    assert compare(a, b, columns=["k"]).equal
    for names in ({"columns": ["k", "lost"]}, {"key": ["lost"]}):
        with pytest.raises(StrandlineError, match="STRANDLINE_COLUMN_UNKNOWN.*'lost'"):
            compare(a, b, **names)


def test_an_end_that_a_channel_has_not_closed_is_refused(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", int64, [[(1, 1), (5, 5)]], [6])
    b = recorded(tmp_path / "b", int64, [[(1, 1)]], [4])
    assert compare(a, b).equal  # 5 is open in b
    assert compare(a, b, until="4").times == 1
    with pytest.raises(StrandlineError, match=r"STRANDLINE_COMPARE_OPEN.*/b has not closed .*its frontier is \{4\}"):
        compare(a, b, until=5)
    with pytest.raises(StrandlineError, match="STRANDLINE_COMPARE_DOMAINS"):
        compare(a, recorded(tmp_path / "c", EPOCHS, [], [(0, 0)]))


def test_an_assertion_says_where_they_part(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", int64, [[(n, n) for n in range(9)]], [])
    b = recorded(tmp_path / "b", int64, [[(n, n if n < 7 else -n) for n in range(9)]], [])
    assert_same(a, a)
    assert_same(a, b, until=7)
    with pytest.raises(AssertionError, match="They differ at 2 of these times, first at 7") as caught:
        assert_same(a, b)
    assert "7: 1 rows in a, 1 in b" in str(caught.value)
    assert "changed: {'key': 'k'}: {'n': 7} -> {'n': -7}" in str(caught.value)


def test_the_command_prints_text_or_json(tmp_path: Path) -> None:
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    a = channel_of(tmp_path / "a", table(k=["x"], at=[when], d=[Decimal("1.5")], raw=[b"\xff"], x=[0.5]))
    b = channel_of(tmp_path / "b", table(k=["x"], at=[when], d=[Decimal("2.5")], raw=[b"\xff"], x=[float("nan")]))
    same = CliRunner().invoke(app, ["compare", a.path, a.path])
    assert (same.exit_code, "They are equal." in same.stdout) == (0, True)
    told = CliRunner().invoke(app, ["compare", a.path, b.path, "--key", "k", "--json"])
    assert told.exit_code == 1
    found = json.loads(told.stdout)
    check("compare", found)
    assert (found["equal"], found["first"]) == (False, "1")
    assert found["differences"][0]["changed"] == [{"key": {"k": "x"}, "a": {"d": "1.5", "x": 0.5}, "b": {"d": "2.5", "x": "nan"}}]
    refused = CliRunner().invoke(app, ["compare", a.path, b.path, "--until", "1", "--column", "lost"])
    assert refused.exit_code != 0


PROGRAM = """
import resource, sys
from strandline.replay import compare
compare(sys.argv[1], sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def large(path: Path, files: int) -> Path:
    """A channel of 100 000 rows a file."""
    channel = make_channel(path, producers=("p",))
    with channel.producer("p") as producer:
        for file in range(files):
            at = np.arange(100_000)
            producer.send(pa.table({"time": file + at // 10_000, "key": pa.array(at.astype(str)), "n": at}))
            producer.commit()
    return path


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    """In MB at most, of a process that compares a channel with itself."""
    few, many = (
        int(subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True).stdout)
        for path in (large(tmp_path / "few", 2), large(tmp_path / "many", 20))
    )
    assert many < few + 40, (few, many)


def test_a_replay_without_spark_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\nfrom strandline.cli.__main__ import main\n"
        "sys.exit(main(['replay', 'rule.py', '--into', 'x', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stderr)["error"]["condition"] == "STRANDLINE_PACKAGE_MISSING"
    assert "strandline[cli,spark]" in done.stderr


def test_times_before_a_frontier_are_left_out(tmp_path: Path) -> None:
    recorded(tmp_path / "a", EPOCHS, [[((0, 0), 1), ((1, 0), 2), ((0, 1), 3)]], [])
    recorded(tmp_path / "b", EPOCHS, [[((0, 0), 9), ((1, 0), 2), ((0, 1), 4)]], [])
    assert compare(tmp_path / "a", tmp_path / "b", since="[1, 0]").equal
    found = compare(tmp_path / "a", tmp_path / "b", since=[(1, 0), (0, 1)])
    assert (found.times, found.parted) == (2, (((0, 1), 1, 1),))
    assert "from {(epoch=0, iter=1), (epoch=1, iter=0)} on" in found.to_text()
    assert found.to_json()["timesParted"] == 1
