"""The ten statements that the seed makes about loops, on the reference model, and what must hold of any run of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triceps import (
    Diverged,
    Entry,
    Link,
    Machine,
    Record,
    Result,
    Stamp,
    chained,
    earliest_instant,
    run,
    verify,
)
from triceps_programs import MS, drive, mixing, records_of, round_trip

L = 100 * MS
seeds = st.integers(0, 1 << 32)


def clock_of(seed: int) -> Any:
    """A receiving clock that stands still now and then."""
    pace = random.Random(seed).choice([300, 2000, 30_000])
    return lambda step: (step // 3) * pace


def at_b(machine: Machine) -> list[tuple[int, str]]:
    return [(stamp.instant // MS, payload[1]) for stamp, payload in machine.taken["B"]]


def two(upcoming: int, lag: int, case: Any = "earliest") -> Machine:
    """A record of 1000 ms is about to come round when the next one, of ``upcoming`` ms, waits before B."""
    machine = Machine([(1000 * MS, (1, "x")), (upcoming * MS, (0, "y"))], round_trip(), [Link(lag, case)])
    drive(machine, "timestamper", "timestamper", "A", "A", "B", "D")
    return machine


# 1 to 3: where a record goes that comes round.


@pytest.mark.parametrize(
    ("lag", "upcoming", "expected"),
    [(100, 1040, 1040), (100, 1200, 1100), (100, 1100, 1100), (1000, 1040, 1040), (1000, 1200, 1200), (1000, 2500, 2000)],
)
def test_restamped_by_the_next_record_or_by_l(lag: int, upcoming: int, expected: int) -> None:
    machine = two(upcoming, lag * MS)
    drive(machine, "B", "D", "B")
    assert at_b(machine) == [(1000, "x"), (expected, "x"), (upcoming, "y")]


def test_a_next_record_behind_does_not_pull_it_back() -> None:
    assert earliest_instant(1000, 100, 900) == 1000


def test_no_record_is_stamped_at_or_before_its_own_cause() -> None:
    """Just before the next record of the same instant there is no stamp of a link: it goes one microsecond on."""
    machine = two(1000, L)
    drive(machine, "B", "B")
    assert [(stamp.instant, name) for stamp, (_, name) in machine.taken["B"]] == [
        (1000 * MS, "x"),
        (1000 * MS, "y"),
        (1000 * MS + 1, "x"),
    ]


def test_without_a_next_record_it_waits_for_the_inputs_frontier() -> None:
    records = [(1000 * MS, (1, "x")), (1150 * MS, (0, "y"))]
    machine = Machine(records, round_trip(), [Link(L, "earliest")])
    drive(machine, "timestamper", "A", "B", "D")
    assert ("step", "B") not in machine.actions()  # an empty queue says nothing
    drive(machine, "timestamper..", "B")
    assert at_b(machine) == [(1000, "x"), (1100, "x")]


def test_the_last_record_needs_no_next_one() -> None:
    machine = Machine([(1000 * MS, (1, "x"))], round_trip(), [Link(L, "earliest")])
    drive(machine, "timestamper", "A", "B", "D", "B")
    assert at_b(machine)[1] == (1100, "x")


@pytest.mark.parametrize("case", ["earliest", "fixed"])
@pytest.mark.parametrize(("upcoming", "may"), [(1099, True), (1100, False), (1101, False)])
def test_b_asks_the_loop_for_records_up_to_l_ago(case: Any, upcoming: int, may: bool) -> None:
    machine = Machine([(1000 * MS, (1, "x")), (upcoming * MS, (0, "y"))], round_trip(), [Link(L, case)])
    drive(machine, "timestamper", "timestamper", "A", "A", "B")
    assert (("step", "B") in machine.actions()) == may


def test_d_asks_its_other_links_up_to_the_record_itself() -> None:
    program = {**round_trip(), "A": lambda r, _: [("B", r.payload), ("C", r.payload)], "C": lambda r, _: [("D", r.payload)]}
    machine = Machine([(1000 * MS, (0, "x"))], program, [Link(L)])
    drive(machine, "timestamper", "A", "C")
    assert ("step", "D") not in machine.actions()  # B, the first of its links, may still send a record of the same stamp
    drive(machine, "B", "D", "D")


def test_more_than_one_record_is_in_the_loop_and_those_go_first() -> None:
    records = [(1000 * MS, (1, "x")), (1010 * MS, (1, "y")), (1020 * MS, (0, "z"))]
    machine = Machine(records, round_trip(), [Link(L, "earliest")])
    drive(machine, *["timestamper"] * 3, "A", "A", "A", "B", "B", "D", "D")
    assert len(machine.link["loop"].waiting) == 2
    drive(machine, "B", "B", "B")
    assert at_b(machine)[2:] == [(1020, "x"), (1020, "y"), (1020, "z")]


@pytest.mark.parametrize(("case", "expected"), [("earliest", False), ("fixed", True)])
def test_in_case_2_a_loop_without_an_end_starves_the_next_record(case: Any, expected: bool) -> None:
    """Each time round it goes just before the next record again. Always T + L lets that record in."""
    machine = Machine([(1000 * MS, (10**6, "x")), (1040 * MS, (0, "y"))], round_trip(), [Link(L, case)])
    drive(machine, "timestamper", "timestamper", "A", "A", "B", "D", *["B", "D"] * 50)
    assert ("y" in [name for _, (_, name) in machine.taken["B"]]) == expected


# 4 and 5: record and replay.


def recorded(seed: int, case: Any = "record", **more: Any) -> tuple[list[Any], Result]:
    records = records_of(seed, 12, 60 * MS)
    link = Link(L, case, clock=clock_of(seed) if case == "record" else None)
    return records, run(records, mixing(), link, seed, **more)


def same(a: Result, b: Result) -> bool:
    return (a.outputs, a.log, a.taken) == (b.outputs, b.log, b.taken)


@given(seeds, st.sampled_from(["record", "earliest"]), seeds, st.sampled_from(["abort", "report", "restamp"]))
def test_a_recorded_run_replays_equally_at_any_schedule(seed: int, case: Any, other: int, mode: Any) -> None:
    records, first = recorded(seed, case)
    again = run(records, mixing(), Link(L, case), other, replay=first.log, on_divergence=mode, kills=0.05)
    assert same(first, again)
    assert not again.divergences


def test_runs_of_cases_1_and_2_differ() -> None:
    """They may; here they do, so that the tests of replay say something."""
    for case in ("record", "earliest"):
        records = records_of(3, 12, 60 * MS)
        links = [Link(L, case, clock=clock_of(3)) for case in [case]]  # type: ignore[arg-type]
        found = {run(records, mixing(), links, seed).outputs for seed in range(12)}
        assert len(found) > 1, case


def changed_program() -> dict[str, Any]:
    """The same program, but D reads its tenth record wrongly."""
    plain = mixing()

    def d(record: Record, state: dict[str, Any]) -> Any:
        state["count"] = state.get("count", 0) + 1
        hops, value = record.payload
        return plain["D"](record._replace(payload=(hops + 1, value)) if state["count"] == 10 else record, state)

    return {**plain, "D": d}


@pytest.mark.parametrize("seed", range(8))
def test_a_changed_program_is_found(seed: int) -> None:
    records, first = recorded(seed)
    program = changed_program()
    with pytest.raises(Diverged) as error:
        run(records, program, Link(L), 5, replay=first.log)
    found = run(records, program, Link(L), 6, replay=first.log, on_divergence="report")
    assert found.divergences[0][:3] == error.value.args[0][:3]
    assert found.log == first.log  # the recorded rows were played to the end
    mended = run(records, program, Link(L), 7, replay=first.log, on_divergence="restamp")
    assert mended.divergences[0][:3] == found.divergences[0][:3]
    at = mended.divergences[0].position
    assert mended.log[:at] == first.log[:at]
    # Case 1 knows no L: what was on its way when the run left the log may be behind B by more, and then goes on at once.
    reached = max(L, mended.log[at].new.instant) if at < len(mended.log) else 0
    late = [e for e in mended.log[at:] if e.new.instant - e.original.instant > L]
    assert all(e.original.instant + L < reached for e in late)
    assert same(mended, run(records, program, Link(L), 8, replay=mended.log))  # what was mended is recorded, too


def replaced(entry: Entry, name: str, stamp: Any) -> Entry:
    return entry._replace(**{name: stamp})


def damages(log: tuple[Entry, ...], draw: random.Random) -> Iterator[tuple[str, list[Entry]]]:
    """One altered field, one line dropped, one doubled, one pair swapped."""
    at = draw.randrange(len(log))
    entry = log[at]
    moved = draw.choice([-1, 1])
    for name in ("first", "original", "new"):
        part = draw.choice(["instant", "node", "n"])
        stamp: Stamp = getattr(entry, name)
        yield name, [*log[:at], replaced(entry, name, stamp._replace(**{part: getattr(stamp, part) + moved})), *log[at + 1 :]]
    hops, value = entry.payload
    yield "payload", [*log[:at], entry._replace(payload=(hops, value + moved)), *log[at + 1 :]]
    yield "dropped", [*log[:at], *log[at + 1 :]]
    yield "doubled", [*log[:at], entry, *log[at:]]
    if at:
        yield "swapped", [*log[: at - 1], entry, log[at - 1], *log[at + 1 :]]


@pytest.mark.parametrize("seed", range(43))
def test_each_damage_is_found_and_named(seed: int) -> None:
    """Of 43 recorded runs, seven damages each: about 300."""
    draw = random.Random(seed)
    records, first = recorded(seed % 10)
    for name, damaged in damages(first.log, draw):
        with pytest.raises(Diverged) as error:
            run(records, mixing(), Link(L), seed, replay=damaged)
        found = error.value.args[0]
        assert found.link == "loop"
        if verify(damaged):
            assert found.kind == "altered"
        else:  # no digest misses the last line
            assert (name, found.kind, found.position) == ("dropped", "extra", len(first.log) - 1)


@pytest.mark.parametrize("seed", range(43))
def test_without_digests_comparing_finds_all_but_some_new_stamps(seed: int) -> None:
    draw = random.Random(seed)
    records, first = recorded(seed % 10)
    for name, damaged in damages(first.log, draw):
        if name != "new":
            with pytest.raises(Diverged):
                run(records, mixing(), Link(L), seed, replay=chained(damaged))


def test_a_new_stamp_that_is_altered_needs_a_digest() -> None:
    """What comes round has the original stamp only. So nothing is there to compare the new one of a last round with."""
    records, first = recorded(1)
    last = first.log[-1]
    later = last._replace(new=last.new._replace(instant=last.new.instant + 1))
    assert verify([*first.log[:-1], later])
    assert run(records, mixing(), Link(L), 0, replay=chained([*first.log[:-1], later])).outputs != first.outputs


@given(seeds, seeds)
def test_case_2_never_lags_by_more_than_l(seed: int, schedule: int) -> None:
    records = records_of(seed, 12, 60 * MS)
    log = run(records, mixing(), Link(L, "earliest"), schedule, kills=0.02).log
    assert all(0 <= entry.new.instant - entry.original.instant <= L for entry in log)
    assert all(entry.new > entry.original for entry in log)


# 6: one result.


@given(seeds, seeds, st.sampled_from([1, 30 * MS, L, 1000 * MS]))
def test_case_3_gives_one_result(seed: int, schedule: int, lag: int) -> None:
    records = records_of(seed, 12, 60 * MS)
    first = run(records, mixing(), Link(lag), 0)
    assert same(first, run(records, mixing(), Link(lag), schedule, kills=0.05))
    assert all(entry.new.instant - entry.original.instant == lag for entry in first.log)


@given(seeds, seeds)
def test_case_3_with_two_loops_gives_one_result(seed: int, schedule: int) -> None:
    records = records_of(seed, 10, 60 * MS)
    for second in (Link(L // 3, name="two"), Link(L // 3, name="two", target="A"), Link(L, name="two", source="B", target="A")):
        links = [Link(L), second]
        program = mixing(("loop", "two") if second.source == "D" else ("loop",))
        assert same(run(records, program, links, 0), run(records, program, links, schedule, kills=0.03))


@given(seeds, seeds)
def test_what_waits_is_bounded_by_what_comes_round_within_l(seed: int, schedule: int) -> None:
    result = run(records_of(seed, 20, 20 * MS), mixing(), Link(L), schedule)
    instants = [entry.original.instant for entry in result.log]
    window = max((sum(begin <= other <= begin + L for other in instants) for begin in instants), default=0)
    assert result.most["loop"] <= window


# 7 to 10: stamps and schedulers.


def test_stamps_have_a_node_and_its_own_counter() -> None:
    records = [(1000 * MS, (1, "x")), (1000 * MS, (2, "y"))]
    links = [Link(L), Link(L, "scheduler", "alarm")]
    machine = Machine(records, round_trip(), links)
    assert machine.ids == {"alarm": 0, "loop": 1, "timestamper": 2}  # schedulers, links, inputs
    result = run(records, round_trip(), links)
    assert [(entry.original, entry.new) for entry in result.log] == [
        (Stamp(1000 * MS, 2, 0), Stamp(1100 * MS, 1, 0)),
        (Stamp(1000 * MS, 2, 1), Stamp(1100 * MS, 1, 1)),
        (Stamp(1100 * MS, 1, 1), Stamp(1200 * MS, 1, 2)),
    ]
    assert {entry.first for entry in result.log} == {Stamp(1000 * MS, 2, 0), Stamp(1000 * MS, 2, 1)}


@given(seeds, seeds)
def test_counters_survive_a_crash(seed: int, schedule: int) -> None:
    result = run(records_of(seed, 12, 60 * MS), mixing(), Link(L, "earliest"), schedule, kills=0.1)
    assert [entry.new.n for entry in result.log] == list(range(len(result.log)))


def with_alarms(*delays: int) -> dict[str, Any]:
    """D asks for an event at B after each delay, for each record that is none."""

    def d(record: Record, _: dict[str, Any]) -> Any:
        if record.payload[0] == "event":
            return [("out", record.payload)]
        return [("alarm", (delay, ("event", delay // MS))) for delay in delays]

    return {**round_trip(), "D": d}


def test_events_are_at_least_l_ahead_and_get_no_further_l() -> None:
    result = run([(1000 * MS, ("record", 0))], with_alarms(250 * MS, 30 * MS, L), Link(L, "scheduler", "alarm"))
    events = [(stamp.instant // MS, payload) for stamp, payload in result.taken["B"][1:]]
    assert events == [(1100, ("event", 30)), (1100, ("event", 100)), (1250, ("event", 250))]
    assert result.rounded == {"alarm": 1}


def test_events_come_before_records_and_what_comes_round_of_the_same_instant() -> None:
    def d(record: Record, _: dict[str, Any]) -> Any:
        kind, _name = record.payload
        return [("alarm", (L, ("event", "e"))), ("loop", ("round", "r"))] if kind == "record" else []

    program = {**round_trip(), "D": d}
    records = [(1000 * MS, ("record", "x")), (1100 * MS, ("outside", "y"))]
    for seed in range(20):
        result = run(records, program, [Link(L), Link(L, "scheduler", "alarm")], seed)
        assert [name for _, (_, name) in result.taken["B"]] == ["x", "e", "r", "y"]


@given(seeds, seeds)
def test_schedulers_give_one_result(seed: int, schedule: int) -> None:
    """The scheduler's clock is driven by D: no record from outside overtakes an event that D may still ask for."""
    draw = random.Random(seed)
    records = [(at, ("record", value)) for at, value in records_of(seed, 10, 60 * MS)]
    program = with_alarms(*(draw.choice([0, 30, 100, 250]) * MS for _ in range(draw.randint(1, 3))))
    link = Link(L, "scheduler", "alarm")
    first = run(records, program, link, 0)
    again = run(records, program, link, schedule, kills=0.05)
    assert same(first, again)
    assert first.rounded == again.rounded
