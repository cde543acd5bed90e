"""``idle(…, counts="wall")``: silence between runs counts, as of the moment at which a batch read its source."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest_bench import SCHEMA, Bench
from strandline.errors import StrandlineError
from strandline.ingest import bounded, composed, idle, manifest, ordered, parse_policy, status
from strandline.report import verify

HOUR = 3_600_000
YEARS = 56 * 365 * 24
WALL = idle(ordered(), "2 hours", counts="wall")
TIMES = pa.schema([("t", pa.timestamp("us", "UTC")), ("p", pa.string()), ("n", pa.int64())])


def at(hour: float) -> dict[str, Any]:
    """A run of its own, which reads everything at this hour."""
    now = int(hour * HOUR) + 1
    return {"now": now, "read_ms": now, "run": f"run at {hour}", "to_end": True}


def hour(value: float) -> int:
    return int(value * HOUR * 1000)


def test_silence_between_runs_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "strandline")
    bench = Bench(tmp_path, WALL)
    bench.run((5, "a", 0), (3, "b", 1), **at(1))
    bench.restart()
    bench.run((6, "a", 2), **at(2))
    assert bench.frontier() == [3]
    assert not caplog.records
    bench.restart()
    bench.run((7, "a", 3), **at(3))
    assert bench.frontier() == [7]
    statement = bench.channel.log.require(bench.channel.version).statement
    assert statement is not None
    assert statement.statements["b"].state["idle"] == {"was": [3], "since": 3 * HOUR + 1, "listened": 0, "silent": 2 * HOUR}
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records] == [
        "idle() guesses that these partitions deliver nothing for now: b (silent for 7200 s)"
    ]
    assert "idle: b" in str(status(bench.settings.path))
    bench.restart()
    bench.run((4, "b", 4), (8, "b", 5), **at(30))  # it comes back: what is behind the others is late, and not lost
    assert bench.late("n") == [(4,)]
    assert [row[2] for row in bench.rows(lambda row: row[2])] == [0, 1, 2, 3, 5]
    assert bench.holds()["b"] == [8]
    assert verify(bench.settings.path).sound


def test_without_it_a_scheduled_query_waits_forever(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(ordered(), "2 hours"))
    bench.run((5, "a", 0), (3, "b", 1), **at(1))
    for run in range(2, 50):
        bench.run((5 + run, "a", 2), **at(run))
    assert bench.frontier() == [3]


@pytest.mark.parametrize("unknown", [{"to_end": False}, {"read_ms": None}], ids=["not to the end", "moment unknown"])
def test_a_run_that_may_have_left_rows_judges_nobody(unknown: dict[str, Any], tmp_path: Path) -> None:
    bench = Bench(tmp_path, WALL)
    bench.run((5, "a", 0), (3, "b", 1), **at(1))
    bench.run((7, "a", 2), **{**at(9), **unknown})
    assert bench.frontier() == [3]
    assert "idle() has no effect" in str(status(bench.settings.path))
    bench.run((7, "a", 2), **at(9.5))
    assert bench.frontier() == [7]
    assert "idle() has no effect" not in str(status(bench.settings.path))


def test_a_repeated_batch_judges_as_of_its_first_attempt(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WALL)
    bench.run((5, "a", 0), (3, "b", 1), **at(1))
    # Planned at 2, and repeated at 50 after a crash. Rows of b that came in between wait for the next batch.
    bench.run((6, "a", 2), **{**at(50), "read_ms": 2 * HOUR})
    assert bench.frontier() == [3]
    bench.run((4, "b", 3), (9, "a", 4), **at(50.1))
    assert not bench.late()


def test_a_named_partition_that_never_delivered_is_given_up_after_the_first_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WALL, partitions=["a", "b"])
    bench.run((5, "a", 0), **at(1))
    bench.run((6, "a", 0), **at(2.5))
    assert len(bench.holds()["b"]) == 1
    bench.run((7, "a", 0), **at(3))
    assert bench.holds()["b"] == []
    assert bench.frontier() == [7]


@pytest.mark.parametrize("back", [idle(ordered(), "2 hours"), WALL], ids=str)
def test_silence_counts_from_a_change_of_the_clock(back: Any, tmp_path: Path) -> None:
    listening = idle(ordered(), "2 hours")
    bench = Bench(tmp_path, WALL if back == listening else listening)
    bench.run((5, "a", 0), (3, "b", 1), **at(YEARS + 1))
    other = Bench(tmp_path, back)
    other.batch = bench.batch
    run = {**at(YEARS + 9), "run": "one"}
    other.run((6, "a", 2), **run)
    assert other.frontier() == [3]
    other.run((7, "a", 3), **{**at(YEARS + 10.5), "run": "one"})
    assert other.frontier() == [3]
    other.run((8, "a", 4), **{**at(YEARS + 11), "run": "one"})
    assert other.frontier() == [8]
    assert verify(other.settings.path).sound


def test_another_query_that_takes_over_counts_from_then(tmp_path: Path) -> None:
    one = Bench(tmp_path, WALL, query="one")
    one.run((5, "a", 0), (3, "b", 1), **at(1))
    two = Bench(tmp_path, WALL, query="two", take_over=True)
    two.run((6, "a", 2), **at(5))
    assert two.frontier() == [3]
    two.run((7, "a", 3), **at(7))
    assert two.frontier() == [7]


def test_when_all_are_silent_the_frontier_holds_at_the_greatest_promise(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WALL)
    bench.run((5, "a", 0), (3, "b", 1), **at(1))
    bench.run(**at(2))
    assert bench.frontier() == [3]
    bench.run(**at(3))
    assert bench.frontier() == [5]
    bench.run(**at(300))
    assert bench.frontier() == [5]


def test_advance_moves_the_frontier_by_the_clock_while_all_are_silent(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle(bounded("1 hour"), "2 hours", counts="wall", all_silent="advance"), TIMES, corrections=True)
    bench.run((hour(10), "a", 0), (hour(9), "b", 1), **at(10))
    bench.run((hour(11), "a", 2), **at(11))
    assert max(bench.frontier()) == (hour(8), 0)
    bench.run((hour(11.5), "a", 2), **at(12))  # b is given up. a delivers, so the clock moves nothing
    assert max(bench.frontier()) == (hour(10.5), 0)
    bench.run(**at(13))
    assert max(bench.frontier()) == (hour(10.5), 0)
    bench.run(**at(14))
    assert max(bench.frontier()) == (hour(12) + 1000, 0)  # later than any promise
    bench.run(**{**at(15), "to_end": False})
    assert max(bench.frontier()) == (hour(12) + 1000, 0)
    bench.run(**at(20))
    assert max(bench.frontier()) == (hour(18) + 1000, 0)
    bench.run((hour(17), "b", 3), (hour(19), "b", 4), **at(21))
    assert bench.late("n") == [(3,)]
    assert sorted(row[2] for row in bench.rows()) == [0, 1, 2, 2, 4]
    assert verify(bench.settings.path).sound


def test_advance_waits_for_a_partition_whose_policy_does_not_say_so(tmp_path: Path) -> None:
    advance = idle(ordered(), "2 hours", counts="wall", all_silent="advance")
    bench = Bench(tmp_path, composed({"a": advance, "b": idle(ordered(), "2 hours", counts="wall")}), TIMES)
    bench.run((hour(1), "a", 0), (hour(2), "b", 1), **at(2))
    bench.run(**at(20))
    assert bench.frontier() == [hour(2)]


def test_an_announcement_that_the_clock_has_passed_is_given_up(tmp_path: Path) -> None:
    table = pa.table({"p": ["a", "b"], "t": pa.array([hour(1), hour(2)], pa.timestamp("us", "UTC")), "expected": [1, 1]})
    write_deltalake(str(tmp_path / "m"), table)
    policy = idle(manifest(str(tmp_path / "m")), "2 hours", counts="wall", all_silent="advance")
    bench = Bench(tmp_path, policy, TIMES)
    bench.run((hour(1), "a", 0), **at(2))
    bench.run(**at(3))
    assert bench.frontier() == [hour(2)]
    bench.run(**at(20))
    assert bench.frontier() == []


@pytest.mark.parametrize(
    "text",
    [
        "idle(ordered(), 5 minutes, counts=sun)",
        "idle(ordered(), 5 minutes, all_silent=advance)",
        "idle(ordered(), 5 minutes, counts=wall, all_silent=never)",
    ],
)
def test_wrong_arguments_are_refused(text: str) -> None:
    with pytest.raises(StrandlineError, match="STRANDLINE_POLICY_INVALID"):
        parse_policy(text)


def test_advance_needs_timestamps(tmp_path: Path) -> None:
    with pytest.raises(StrandlineError, match=r"moves the frontier by the wall clock, but the times are of int64"):
        Bench(tmp_path, idle(ordered(), "5 minutes", counts="wall", all_silent="advance"), SCHEMA)


def test_the_text_says_it(tmp_path: Path) -> None:
    for policy in (WALL, idle(bounded("1 hour"), "1 day", counts="wall", all_silent="advance")):
        assert parse_policy(str(policy)) == policy
    inner = idle(composed({"a": ordered(), "*": bounded(5)}), "1 hour", counts="wall")
    assert str(inner.for_partition("z")) == "idle(bounded(5), 1 hour, counts=wall)"
