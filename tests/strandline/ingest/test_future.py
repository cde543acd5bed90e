"""``maxFuture``: a row that is dated too far ahead of the clock is set aside, and moves nothing, under each policy."""

from __future__ import annotations

import logging
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_bench import SCHEMA, Bench
from strandline.errors import IngestError, PolicyError
from strandline.ingest import (
    IngestTask,
    Observation,
    Policy,
    Settings,
    bounded,
    composed,
    heartbeat,
    idle,
    manifest,
    ordered,
    parse_policy,
    punctuated,
    readmit,
    status,
)
from strandline.ingest.bounds.future import FutureRows
from strandline.report import verify
from strandline.time.domain import lex, product, timestamp

UTC = timezone.utc
CLOCK = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK_MS = int(CLOCK.timestamp() * 1000)
FUTURE = "time in the future"
TIMES = pa.schema([("t", pa.timestamp("us", "UTC")), ("p", pa.string()), ("n", pa.int64())])
MARKED = pa.schema([*TIMES, ("m", pa.timestamp("us", "UTC")), ("beat", pa.bool_())])


def at(hours: float) -> datetime:
    return CLOCK + timedelta(hours=hours)


class AtClock(Bench):
    """A bench whose clock shows one time."""

    clock_ms = CLOCK_MS

    def take(self, rows: Any, tasks: int = 2) -> Any:
        start = self.ingest.start(self.clock_ms)
        reports = []
        for task in range(tasks):
            with IngestTask(self.settings.for_tasks(), start, name=f"part-{task}", query=self.query, batch=self.batch) as intake:
                intake.write(self.table(rows[task::tasks]))
                reports.append(intake.finish())
        return reports


class Greatest(Policy):
    """A policy of a user."""

    def promise(self, seen: Observation, state: Any) -> Any:
        return (None if seen.greatest is None else [seen.greatest]), state

    def arguments(self) -> list[str]:
        return []


class Unbound(Greatest):
    """A policy of a user that keeps nothing of the domain."""

    def bind(self, domain: Any) -> None:
        pass


class Counted(Greatest):
    """A policy of a user that asks for counts by time."""

    needs_times = True


POLICIES: list[Any] = [
    ordered(),
    bounded("1 hour"),
    idle(bounded("1 hour"), "10 minutes"),
    composed({"a": ordered(), "*": bounded("2 hours")}),
    punctuated("beat"),
    punctuated("m"),
    heartbeat("beat"),
    heartbeat("beat", bounded("1 hour")),
    Greatest(),
    Unbound(),
    Counted(),
]


@pytest.mark.drawn
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("far", [25, 24 * 365 * 62])
def test_it_moves_nothing(tmp_path: Path, policy: Any, far: int) -> None:
    """What the channel has, and what is promised, is as if the row had not come."""
    rows = [(at(-9), "a", 1, at(-9), True), (at(-8), "b", 1, at(-8), True)]
    beside = AtClock(tmp_path / "beside", policy, MARKED, partitions=["a", "b"])
    bench = AtClock(tmp_path / "with", policy, MARKED, partitions=["a", "b"])
    for one, more in ((beside, ()), (bench, [(at(far), "b", 2, at(far), True)])):
        one.run(*rows)
        one.run((at(-5), "a", 3, at(-5), True), *more)
        one.run((at(-4), "a", 4, at(-4), True), (at(-3), "b", 4, at(-3), True))
    assert (bench.holds(), bench.rows(), bench.frontier()) == (beside.holds(), beside.rows(), beside.frontier())
    assert bench.late("t", "p", "_reason") == [(at(far), "b", FUTURE)]
    assert (status(bench.settings.path).future, status(bench.settings.path).aside) == (1, 1)
    assert re.search(r"1 row set aside \(1 (time|punctuation) in the future\): 1 of b", str(status(bench.settings.path)))


def test_at_the_bound_it_is_in_time(tmp_path: Path) -> None:
    bench = AtClock(tmp_path, ordered(), TIMES)
    bench.run((at(24), "a", 1), (at(24) + timedelta(microseconds=1), "a", 2))
    assert bench.rows() == [(at(24), "a", 1)]
    assert bench.late("n", "_reason") == [(2, FUTURE)]


def test_a_punctuation_in_the_future(tmp_path: Path) -> None:
    bench = AtClock(tmp_path, punctuated("m"), MARKED, partitions=["a"])
    bench.run((at(-2), "a", 1, at(-3), None))
    held = bench.holds()
    bench.run((at(-1), "a", 2, at(30), None), (at(30), "a", 3, at(-1), None), (at(-9), "a", 4, at(30), None))
    assert bench.holds() == held, "neither that of a row in the future, nor that of a late row"
    assert bench.late("n", "_reason") == [(2, "punctuation in the future"), (3, FUTURE), (4, "punctuation in the future")]


def test_it_ends_no_silence(tmp_path: Path) -> None:
    """A partition that delivers nothing but rows in the future is silent: its clock is wrong, and the others go on."""
    bench, hour = AtClock(tmp_path, idle(ordered(), "1 hour"), TIMES, partitions=["a", "b"]), 3_600_000
    bench.run((at(-9), "a", 1), (at(-9), "b", 1), now=1, to_end=True)
    bench.run((at(-8), "a", 2), (at(999), "b", 2), now=1 + hour, to_end=True)
    (b,) = [p for p in status(bench.settings.path).partitions if p.name == "b"]
    assert (b.idle_since, b.last_ms, b.aside, b.future) == (1 + hour, 1, 1, 1)
    assert "1 of its rows was set aside, dated in the future" in b.delivered


def test_it_lets_no_partition_join(tmp_path: Path) -> None:
    bench = AtClock(tmp_path, ordered(), TIMES)
    bench.run((at(-9), "a", 1), (at(999), "b", 1))
    bench.run((at(-8), "a", 1))
    assert set(bench.holds()) == {"a"}
    assert (status(bench.settings.path).aside, status(bench.settings.path).future) == (1, 1)
    bench.run((at(-8), "b", 1))
    assert set(bench.holds()) == {"a", "b"}


def test_a_manifest_is_moved_by_counts(tmp_path: Path) -> None:
    expected = {("a", at(-1)): 1, ("a", at(99)): 1}
    for value, rows in (("auto", 2), ("1 day", 1)):
        policy = manifest(dict(expected))
        bench_path = tmp_path / value
        policy.save(str(bench_path / "manifest"), Settings.of("x", TIMES, time="t", partition="p", policy=ordered()))
        bench = AtClock(bench_path, policy, TIMES, max_future=value)
        bench.run((at(-1), "a", 1), (at(99), "a", 2))
        assert len(bench.rows()) == rows
        assert bench.frontier() == ([] if rows == 2 else [timestamp.time(at(99))]), (
            "an announced time in the future is waited for"
        )


def test_composed_with_a_manifest(tmp_path: Path) -> None:
    policy = manifest({("m", at(99)): 1})
    policy.save(str(tmp_path / "manifest"), Settings.of("x", TIMES, time="t", partition="p", policy=ordered()))
    bench = AtClock(tmp_path, composed({"m": policy, "*": ordered()}), TIMES, partitions=["m", "a"])
    bench.run((at(99), "m", 1), (at(99), "a", 2), (at(1), "a", 3))
    assert [n for _, _, n in bench.rows()] == [3, 1]


STAMP = pa.timestamp("us", "UTC")


@pytest.mark.drawn
@pytest.mark.parametrize("order", [lex, product])
@pytest.mark.parametrize(
    ("policies", "value", "aside"),
    [
        ("ordered()", "auto", ["sent", "seen", "both"]),
        ("bounded(0)", "auto", []),
        ("bounded(0)", "1 day", ["sent", "seen", "both"]),
        ("bounded(1 hour, coordinate=sent)", "auto", ["sent", "both"]),
        ("bounded(1 hour, coordinate=seen)", "auto", ["seen", "both"]),
        ("idle(bounded(1 hour, coordinate=seen), 1 hour)", "1 day", ["seen", "both"]),
        ("composed(a: bounded(1 hour, coordinate=seen), b: bounded(1 hour, coordinate=sent))", "auto", ["seen", "both"]),
        ("composed(a: bounded(0), b: bounded(1 hour, coordinate=sent))", "auto", []),
        ("composed(b: bounded(0), a: ordered())", "auto", ["sent", "seen", "both"]),
    ],
)
def test_the_coordinates_that_rows_move_are_compared(
    tmp_path: Path, order: Any, policies: str, value: str, aside: list[str]
) -> None:
    domain = order(epoch="int64", sent="timestamp", seen="timestamp")
    kind = pa.struct([("epoch", pa.int64()), ("sent", STAMP), ("seen", STAMP)])
    schema = pa.schema([("t", kind), ("p", pa.string()), ("far", pa.string())])
    bench = AtClock(tmp_path, parse_policy(policies), schema, domain=domain, max_future=value)
    far = {"": (1, 1), "sent": (99, 1), "seen": (1, 98), "both": (97, 99)}
    bench.run(*(({"epoch": 1, "sent": at(sent), "seen": at(seen)}, "a", name) for name, (sent, seen) in far.items()))
    assert [name for name, _ in bench.late("far", "_reason")] == sorted(aside)
    assert sorted(name for *_, name in bench.rows()) == sorted(set(far) - set(aside))


def test_the_warning_has_the_coordinate_that_is_too_far(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.struct([("sent", STAMP), ("seen", STAMP)])), ("p", pa.string())])
    domain = lex(sent="timestamp", seen="timestamp")
    policy = composed({"a": bounded("1 hour", "seen"), "b": bounded("1 hour", "sent")})
    bench = AtClock(tmp_path, policy, schema, domain=domain)
    found = [r.future for r in bench.take([({"sent": at(99), "seen": at(50)}, "a"), ({"sent": at(1), "seen": at(99)}, "b")])]
    assert [f for f in found if f] == [FutureRows(1, "a", timestamp.time(at(50)), CLOCK_MS)]


@pytest.mark.parametrize(
    ("domain", "value", "expected"),
    [
        ("int64", "auto", None),
        ("int64", None, None),
        ("int64", "off", None),
        ("timestamp", None, None),
        ("timestamp", "off", None),
        ("timestamp", "auto", "1 day"),
        ("timestamp", timedelta(hours=2), "2 hours"),
        ("timestamp", "0 seconds", "0 seconds"),
        ("int64", "1 day", "STRANDLINE_MAX_FUTURE_INVALID.*maxFuture is 1 day, but times are of int64.*Remove maxFuture"),
        ("timestamp", "5", "STRANDLINE_DELAY_INVALID.*maxFuture is 5, a count"),
        ("timestamp", "soon", "STRANDLINE_DELAY_INVALID.*maxFuture is 'soon'"),
        ("timestamp", "-1 day", "STRANDLINE_DELAY_INVALID.*maxFuture is -1 day.*negative"),
    ],
)
def test_what_can_be_given(domain: str, value: Any, expected: str | None) -> None:
    kind = pa.int64() if domain == "int64" else pa.timestamp("us", "UTC")
    schema = pa.schema([("t", kind), ("p", pa.string())])

    def bound() -> Any:
        return Settings.of("x", schema, time="t", partition="p", policy=ordered(), domain=domain, max_future=value).future

    if expected is not None and expected.startswith("STRANDLINE"):
        with pytest.raises((IngestError, PolicyError), match=expected):
            bound()
    else:
        assert (None if (found := bound()) is None else str(found)) == expected


def test_dates_and_texts_are_compared_too(tmp_path: Path) -> None:
    for kind, near, far in ((pa.date32(), at(-48).date(), at(99).date()), (pa.string(), "2025-12-30", "2088-01-24T00:15:42Z")):
        schema = pa.schema([("t", kind), ("p", pa.string())])
        bench = AtClock(tmp_path / str(kind), ordered(), schema, domain="timestamp")
        bench.run((near, "a"), (far, "a"))
        assert bench.late("t", "_reason") == [(far, FUTURE)]


def test_a_changed_bound_applies_at_once(tmp_path: Path) -> None:
    bench = AtClock(tmp_path, ordered(), TIMES)
    bench.run((at(30), "a", 1))
    wider = AtClock(tmp_path, ordered(), TIMES, max_future="2 days")
    wider.batch = 1
    wider.run((at(30), "a", 2))
    assert [n for *_, n in wider.rows()] == [2]


def test_on_late_fail_names_the_clock(tmp_path: Path) -> None:
    bench = AtClock(tmp_path, ordered(), TIMES, on_late="fail")
    with pytest.raises(
        IngestError, match=r"STRANDLINE_ROW_IN_FUTURE.*more than 1 day ahead of the clock, which showed 2026-01-01"
    ):
        bench.take([(at(99), "a", 1)])


def test_readmit_leaves_them_unless_they_are_repaired(tmp_path: Path) -> None:
    bench = AtClock(tmp_path, ordered(), TIMES, corrections=True)
    bench.run((at(-5), "a", 1), (at(99), "a", 2))
    assert readmit(bench.settings.path).rows == 0

    def repaired(rows: pa.Table) -> pa.Table:
        return rows.set_column(0, "t", pa.array([at(-6)] * rows.num_rows, TIMES.field("t").type))

    assert readmit(bench.settings.path, where=repaired).rows == 1
    assert len(bench.rows(key=repr)) == 2


def test_rows_that_a_call_without_where_has_left_come_to_a_later_call_with_it(tmp_path: Path) -> None:
    """Each row once, whichever calls come first."""
    bench = AtClock(tmp_path, ordered(), TIMES, corrections=True)
    bench.run((at(-1), "a", 0))
    bench.run((at(-5), "a", 1), (at(99), "a", 2))
    path, received = bench.settings.path, []
    assert readmit(path).rows == 1
    assert readmit(path).rows == 0

    def repaired(rows: pa.Table) -> pa.Table:
        received.append(sorted(rows["n"].to_pylist()))
        return rows.set_column(0, "t", pa.array([at(-6)] * rows.num_rows, TIMES.field("t").type))

    assert readmit(path, where=repaired).rows == 1
    assert readmit(path, where=repaired).rows == 0
    bench.run((at(-5), "a", 3), (at(98), "a", 4))
    assert readmit(path, where=repaired).rows == 2
    assert (readmit(path).rows, readmit(path, where=repaired).rows) == (0, 0)
    assert received == [[2], [], [3, 4], []]
    assert sorted(n for *_, n in bench.rows(key=repr)) == [0, 1, 2, 3, 4]
    assert verify(path).sound


def test_heartbeats_are_never_readmitted(tmp_path: Path) -> None:
    schema = pa.schema([*TIMES, ("beat", pa.bool_())])
    bench = AtClock(tmp_path, heartbeat("beat", bounded("1 hour")), schema, corrections=True)
    bench.run((at(-1), "a", 0, False), (at(99), "a", 1, True), (at(99), "a", 2, False), (None, "a", 3, True))

    def repaired(rows: pa.Table) -> pa.Table:
        return rows.set_column(0, "t", pa.array([at(-6)] * rows.num_rows, TIMES.field("t").type))

    assert readmit(bench.settings.path, where=repaired).rows == 1


def test_one_warning_a_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = AtClock(tmp_path, ordered(), TIMES)
    with caplog.at_level(logging.WARNING):
        bench.run(*((at(-1), "a", n) for n in range(9)), (at(99), "b", 1), (at(98), "c", 1))
        (record,) = caplog.records
        text = record.getMessage()
        assert "2 of 11 rows are dated more than 1 day ahead of the clock, which showed 2026-01-01T00:00:00Z" in text
        assert "By partition: b (1), c (1). The greatest time is 2026-01-05T03:00:00Z, of partition b." in text
        assert "the driver" not in text
        caplog.clear()
        bench.run(*((at(99), "a", n) for n in range(9)))
        assert "most rows of the batch: check first that the clock of the driver's machine is right" in caplog.text


def test_it_is_one_clock_for_all_tasks_and_attempts(tmp_path: Path) -> None:
    bench = AtClock(tmp_path, ordered(), TIMES)
    reports = bench.take([(at(n), "a", n) for n in range(20, 40)], tasks=3)
    found = FutureRows.together([r.future for r in reports if r.future])
    assert found == FutureRows(15, "a", timestamp.time(at(39)), CLOCK_MS)


def test_far_times_have_no_overflow(tmp_path: Path) -> None:
    far = pa.scalar((1 << 63) - 1, pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"t": pa.array([far]), "p": ["a"], "n": [1]}, schema=TIMES)
    bench = AtClock(tmp_path, ordered(), TIMES)
    task = IngestTask(bench.settings.for_tasks(), bench.ingest.start(CLOCK_MS))
    task.write(rows)
    assert task.finish().aside == {("a", FUTURE): 1}


_row = st.tuples(st.integers(-40, 40), st.sampled_from("abc"), st.integers(0, 3))


@pytest.mark.drawn
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.lists(_row, max_size=6), min_size=1, max_size=4),
    st.sampled_from(["ordered()", "bounded(3 hours)"]),
    st.booleans(),
)
def test_an_ingest_with_them_is_one_without(batches: list[list[Any]], policy: str, sealed: bool) -> None:
    """The specification: rows beyond the bound are taken out of the stream before it begins."""

    with TemporaryDirectory() as folder:
        partitions = list("abc") if sealed else None
        bench = AtClock(Path(folder) / "with", parse_policy(policy), TIMES, partitions=partitions)
        beside = AtClock(Path(folder) / "without", parse_policy(policy), TIMES, partitions=partitions, max_future="off")
        for rows in batches:
            bench.run(*((at(h), p, n) for h, p, n in rows))
            beside.run(*((at(h), p, n) for h, p, n in rows if h <= 24))
        assert (bench.holds(), bench.rows(), bench.frontier()) == (beside.holds(), beside.rows(), beside.frontier())
        late = bench.late("t", "p", "n", "_reason")
        assert [each for each in late if each[3] != FUTURE] == beside.late("t", "p", "n", "_reason")
        assert len([1 for *_, reason in late if reason == FUTURE]) == sum(h > 24 for rows in batches for h, _, _ in rows)
        assert status(bench.settings.path).future == len([1 for *_, reason in late if reason == FUTURE])


def test_very_many_partitions_are_decided_in_columns(tmp_path: Path) -> None:
    names = [f"p{i}" for i in range(400)]
    bench = AtClock(tmp_path, bounded("1 hour"), TIMES, partitions=names)
    bench.run(*((at(-5), name, 1) for name in names))
    bench.run(*((at(-4 if i % 2 else 99), name, 2) for i, name in enumerate(names)), *((at(99), name, 3) for name in names))
    memory = {name: state.state for name, state in bench.channel.producers.items()}
    assert {memory["p0"]["future"], memory["p1"]["future"]} == {2, 1}
    assert {memory["p0"]["aside"], memory["p1"]["aside"]} == {2, 1}
    assert bench.holds()["p1"] == [timestamp.time(at(-5))]
    assert bench.holds()["p0"] == [timestamp.time(at(-6))]


def test_integer_times_are_not_compared(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), SCHEMA)
    bench.run((10**17, "a", 1))
    assert bench.late() == []


def test_a_clock_that_is_not_given_is_now(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), TIMES)
    now = datetime.now(UTC)
    bench.run((now, "a", 1), (now + timedelta(hours=25), "a", 2))
    assert bench.late("n", "_reason") == [(2, FUTURE)]
