"""Progress reports and backlogs: the twelve statements of Beam's proposal with its numbers, and cases computed by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import ROOT
from strandline.errors import StrandlineError
from strandline.report.progress import (
    METRICS,
    FrontierClock,
    Level,
    ProgressReport,
    State,
    TransformProgress,
    active_elements_fraction_consumed,
    active_output_remaining,
    average_element_processing_time,
    average_output_count_per_element,
    backlog_seconds,
    catch_up_seconds,
    committed_frontier,
    figures,
    frontier_lag,
    intermediate_unprocessed_elements,
    tentative_frontier,
    total_input_elements_remaining,
    total_output_elements_remaining,
)
from strandline.time.antichain import Antichain
from strandline.time.domain import int64, product, timestamp

SCHEMA = json.loads((ROOT / "docs" / "schemas" / "progress-report.schema.json").read_text())
PAIR = product(epoch="int64", iter="int64")


def figure(from_active: int = 20, *, time: bool = True) -> dict[str, TransformProgress]:
    """The seed's figure 1: 50 elements produced, ``from_active`` of them from the two that are active. With times, figure 2."""
    return {
        "read": TransformProgress(output_elements_produced={"out": 4}, total_time_spent=0 if time else None),
        "sdf": TransformProgress(
            inputs={"in": ("read", "out")},
            input_elements_consumed={"in": 2},
            output_elements_produced={"out": 50 - from_active},
            active_input_elements=2,
            active_output_elements_produced={"out": from_active},
            active_output_elements_remaining={"out": 10},
            total_time_spent=19_000 if time else None,
        ),
        "dofn": TransformProgress(
            inputs={"in": ("sdf", "out")},
            input_elements_consumed={"in": 40},
            active_input_elements=1,
            total_time_spent=1_200 if time else None,
        ),
    }


def report(graph: dict[str, TransformProgress], **fields: Any) -> ProgressReport:
    return ProgressReport(
        **{
            "query": "q",
            "run": "r",
            "name": "n",
            "batch": 3,
            "state": State.RUNNING,
            "level": Level.ADVANCED,
            "at": 7,
            "transforms": graph,
            **fields,
        }
    )


def test_1_a_report_has_the_seven_fields_of_each_transform() -> None:
    sdf = replace(figure()["sdf"], frontiers={"out": Antichain(PAIR, [(1, 2), (2, 1)])})
    made = report({"read": figure()["read"], "sdf": sdf})
    value = json.loads(json.dumps(made.to_json()))
    jsonschema.validate(value, SCHEMA)
    assert value["transforms"]["sdf"] == {
        "inputs": {"in": ["read", "out"]},
        "inputElementsConsumedCounts": {"in": 2},
        "outputElementsProducedCounts": {"out": 30},
        "activeInputElementsCount": 2,
        "activeOutputElementsProducedCounts": {"out": 20},
        "activeOutputElementsRemainingCounts": {"out": 10},
        "totalTimeSpent": 19_000,
        "frontiers": {"out": {"domain": "product(epoch int64, iter int64)", "frontier": [[1, 2], [2, 1]]}},
        "workers": 1.0,
        "detail": "",
    }
    assert ProgressReport.from_json(value) == made


@pytest.mark.parametrize("from_active", [0, 10, 20, 50])
def test_2_intermediate_elements_of_figure_1(from_active: int) -> None:
    graph = figure(from_active)
    assert [intermediate_unprocessed_elements(graph, name) for name in graph] == [0, 0, 9]


@pytest.mark.parametrize("from_active", [0, 10, 20, 50])
def test_3_total_input_and_output_remaining_of_figure_1(from_active: int) -> None:
    graph = figure(from_active)
    assert [total_input_elements_remaining(graph, name) for name in graph] == [0, 0, 19]
    assert total_output_elements_remaining(graph, "sdf", "out") == 10


@given(st.integers(0, 50))
def test_4_fraction_of_active_elements_consumed(a: int) -> None:
    fraction = active_elements_fraction_consumed(figure(a)["sdf"])
    assert fraction == pytest.approx(float(Fraction(2 * a, a + 10)))
    assert fraction is not None
    assert (fraction > 1) == (a > 10)


@given(st.integers(1, 50))
def test_5_backlog_of_figure_2(a: int) -> None:
    graph = figure(a)
    assert average_element_processing_time(graph["sdf"]) == pytest.approx(19 / (2 + 2 * a / (a + 10)))
    assert average_element_processing_time(graph["dofn"]) == pytest.approx(1.2 / 40)
    assert backlog_seconds(graph) == pytest.approx(95 / (a + 5) + 0.6)


def test_5_backlog_of_figure_2_with_20_and_with_10_from_active() -> None:
    graph = figure(20)
    assert active_elements_fraction_consumed(graph["sdf"]) == pytest.approx(4 / 3)
    assert average_element_processing_time(graph["sdf"]) == pytest.approx(5.7)
    assert backlog_seconds({**graph, "dofn": replace(graph["dofn"], total_time_spent=0)}) == pytest.approx(3.8)
    assert backlog_seconds(graph) == pytest.approx(4.4)
    assert backlog_seconds(figure(10)) == pytest.approx(6.93333, abs=1e-4)


def test_6_a_transform_s_time_is_its_own() -> None:
    # The SDF's 19 s include its output from active elements, and not the 1.2 s of the DoFn after it.
    graph = figure()
    slower = {**graph, "dofn": replace(graph["dofn"], total_time_spent=60_000)}
    assert average_element_processing_time(slower["sdf"]) == average_element_processing_time(graph["sdf"])
    assert backlog_seconds(slower) == pytest.approx(3.8 + 60 / 40 * 20)


def test_7_mean_output_per_element_of_figure_1() -> None:
    assert average_output_count_per_element(figure()["sdf"], "out") == 15


def test_8_a_missing_remaining_count_is_estimated_from_the_average() -> None:
    sdf = replace(figure(20)["sdf"], active_output_elements_remaining={})
    # Two processed elements gave 30, so two active ones are expected to give 30, of which they have given 20.
    assert active_output_remaining(sdf, "out") == 10
    assert backlog_seconds({**figure(20), "sdf": sdf}) == pytest.approx(4.4)
    nothing_yet = replace(sdf, input_elements_consumed={"in": 0}, output_elements_produced={"out": 0})
    assert active_output_remaining(nothing_yet, "out") is None
    assert backlog_seconds({**figure(20), "sdf": nothing_yet}) is None
    assert active_output_remaining(replace(sdf, active_output_elements_produced={"out": 90}), "out") == 0


@pytest.mark.parametrize("transform", ["sdf", "dofn"])
def test_8_a_negative_remaining_count_is_infinite_known_work(transform: str) -> None:
    graph = figure(20)
    graph[transform] = replace(
        graph[transform],
        active_output_elements_remaining={"out": -1},
        frontiers={"out": Antichain(int64, [5])},
    )
    assert backlog_seconds(graph) == math.inf
    assert catch_up_seconds(graph) == math.inf
    assert graph[transform].holds("out") == (5,)  # the frontier is the indicator of progress


def test_9_nothing_reported_at_all_for_a_query_or_for_a_batch_is_said() -> None:
    made = ProgressReport.nothing("q", "the level of this query is none", batch=4)
    value = made.to_json()
    jsonschema.validate(value, SCHEMA)
    assert (value["level"], value["reason"]) == ("none", "the level of this query is none")
    assert ProgressReport.from_json(value) == made
    with pytest.raises(StrandlineError, match="STRANDLINE_REPORT_INVALID"):
        replace(made, reason=None)
    with pytest.raises(StrandlineError, match="STRANDLINE_REPORT_INVALID"):
        replace(made, transforms=figure())


def test_9_a_transform_that_is_not_reported_is_said_and_holds_nothing() -> None:
    graph = figure()
    graph["sdf"] = TransformProgress(inputs=graph["sdf"].inputs, unreported="it runs outside of Spark")
    made = report(graph)
    value = made.to_json()
    jsonschema.validate(value, SCHEMA)
    assert value["transforms"]["sdf"]["unreported"] == "it runs outside of Spark"
    assert value["transforms"]["sdf"]["frontiers"] == {}
    assert made.unreported == ("sdf",)
    assert graph["sdf"].holds("out") == ()  # +infinity
    assert backlog_seconds(graph) is None
    assert total_input_elements_remaining(graph, "dofn") is None
    assert average_element_processing_time(graph["sdf"]) is None
    assert ProgressReport.from_json(value) == made


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=5), st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_10_a_tentative_frontier_is_the_least_of_the_elements_in_flight(
    flight: list[tuple[int, int]], probe: tuple[int, int]
) -> None:
    after = Antichain(PAIR, [(5, 5)])
    tentative = tentative_frontier(after, [Antichain(PAIR, [time]) for time in flight])
    assert tentative.closed(probe) == (after.closed(probe) and not any(PAIR.less_equal(time, probe) for time in flight))


def test_10_the_commit_may_lower_it_for_timers() -> None:
    tentative = tentative_frontier(Antichain(int64, []), [])
    assert committed_frontier(tentative, [Antichain(int64, [8])]) == Antichain(int64, [8])
    assert committed_frontier(Antichain(int64, [6]), [Antichain(int64, [8])]) == Antichain(int64, [6])


def test_11_a_diamond_and_a_union_by_hand() -> None:
    # read → a, b → both; a doubles, b keeps a half. both has two inputs and one mean time over 30 + 5 elements.
    graph = {
        "read": TransformProgress(output_elements_produced={"out": 40}, total_time_spent=0),
        "a": TransformProgress(
            inputs={"in": ("read", "out")},
            input_elements_consumed={"in": 20},
            output_elements_produced={"out": 40},
            total_time_spent=2000,
        ),
        "b": TransformProgress(
            inputs={"in": ("read", "out")},
            input_elements_consumed={"in": 10},
            output_elements_produced={"out": 5},
            active_input_elements=4,
            active_output_elements_produced={"out": 1},
            active_output_elements_remaining={"out": 1},
            total_time_spent=1200,
        ),
        "both": TransformProgress(
            inputs={"left": ("a", "out"), "right": ("b", "out")},
            input_elements_consumed={"left": 30, "right": 5},
            active_input_elements=2,
            total_time_spent=700,
        ),
    }
    assert intermediate_unprocessed_elements(graph, "a") == 20
    assert intermediate_unprocessed_elements(graph, "b") == 26
    # 40 − 30 of a, 5 + 1 − 5 of b, and two are active: subtracted once.
    assert intermediate_unprocessed_elements(graph, "both") == 9
    assert total_output_elements_remaining(graph, "a", "out") == 40  # 20 · 2
    assert total_output_elements_remaining(graph, "b", "out") == pytest.approx(26 * 7 / 14 + 1)  # (5 + 1 + 1) / (4 + 10) each
    assert total_input_elements_remaining(graph, "both") == pytest.approx(40 + 14 + 9)
    assert average_element_processing_time(graph["both"]) == pytest.approx(0.7 / 35)
    # a: 20 · 0.1. b: fraction 4 · 1/2 = 2, mean 1.2 / 12, (26 + 4 − 2) left. both: (63 + 2 − 0) · 0.02.
    assert backlog_seconds(graph) == pytest.approx(20 * 0.1 + 28 * 0.1 + 65 * 0.02)


def test_11_both_inputs_from_one_parent_and_several_outputs_by_hand() -> None:
    graph = {
        "split": TransformProgress(
            output_elements_produced={"even": 10, "odd": 6},
            active_input_elements=1,
            active_output_elements_produced={"even": 2, "odd": 2},
            active_output_elements_remaining={"even": 8, "odd": 4},
            total_time_spent=1000,
        ),
        "join": TransformProgress(
            inputs={"left": ("split", "even"), "right": ("split", "odd"), "again": ("split", "odd")},
            input_elements_consumed={"left": 5, "right": 8, "again": 7},
            total_time_spent=2000,
        ),
    }
    assert active_elements_fraction_consumed(graph["split"]) == 4 / 16
    assert total_input_elements_remaining(graph, "join") == 8 + 4 + 4 + (12 + 8 + 8 - 20)
    # split: 1 s for a quarter of one element, three quarters left. join: 0.1 s each.
    assert backlog_seconds(graph) == pytest.approx(3.0 + 24 * 0.1)


def test_12_the_final_answer_has_nothing_active_nothing_remaining_and_no_backlog() -> None:
    graph = figure(20)
    graph["sdf"] = replace(
        graph["sdf"],
        input_elements_consumed={"in": 4},
        output_elements_produced={"out": 60},
        active_input_elements=0,
        active_output_elements_produced={},
        active_output_elements_remaining={},
    )
    graph["dofn"] = replace(graph["dofn"], input_elements_consumed={"in": 60}, active_input_elements=0)
    final = report(graph, state=State.COMMITTED)
    assert backlog_seconds(final.transforms) == 0
    assert [total_input_elements_remaining(graph, name) for name in graph] == [0, 0, 0]
    for unfinished in (figure(20), {"a": TransformProgress(active_output_elements_remaining={"out": 1})}):
        with pytest.raises(StrandlineError, match="STRANDLINE_REPORT_INVALID"):
            report(unfinished, state=State.COMMITTED)


def test_a_mean_without_elements_is_unknown_and_counts_only_where_work_is_left() -> None:
    graph = {
        "read": TransformProgress(output_elements_produced={"out": 0}, total_time_spent=0),
        "idle": TransformProgress(
            inputs={"in": ("read", "out")}, input_elements_consumed={"in": 0}, output_elements_produced={"out": 0}
        ),
    }
    assert average_element_processing_time(graph["idle"]) is None
    assert average_output_count_per_element(graph["idle"], "out") is None
    assert backlog_seconds(graph) == 0
    graph["read"] = replace(graph["read"], output_elements_produced={"out": 5})
    assert backlog_seconds(graph) is None


def test_counts_of_different_instants_give_no_negative_remainder() -> None:
    graph = figure()
    graph["dofn"] = replace(graph["dofn"], input_elements_consumed={"in": 80})
    assert intermediate_unprocessed_elements(graph, "dofn") == 0


def test_workers_side_by_side_catch_up_sooner() -> None:
    graph = figure()
    graph["dofn"] = replace(graph["dofn"], workers=3.0)
    assert backlog_seconds(graph) == pytest.approx(4.4)
    assert catch_up_seconds(graph) == pytest.approx(3.8 + 0.2)


def committed(rows: int, ms: float, batch: int, *, of: str = "stage") -> ProgressReport:
    graph = {
        "source": TransformProgress(output_elements_produced={"rows": rows}, total_time_spent=0),
        of: TransformProgress(
            inputs={"rows": ("source", "rows")},
            input_elements_consumed={"rows": rows},
            output_elements_produced={"out": 1},
            total_time_spent=ms,
            workers=2.0,
        ),
    }
    return report(graph, state=State.COMMITTED, batch=batch, operators={})


def test_the_query_s_backlog_is_what_waits_in_its_logs() -> None:
    both = ProgressReport.together([committed(10, 90.0, 1, of="other plan"), committed(10, 300.0, 2), committed(30, 500.0, 3)])
    assert (both.batch, both.batches, both.transforms["stage"].total_time_spent) == (3, 2, 800.0)
    assert backlog_seconds(both.transforms) == 0
    waiting = both.with_waiting({"source": {"rows": 100}})
    assert waiting.state is State.QUERY
    assert total_input_elements_remaining(waiting.transforms, "stage") == pytest.approx(100)
    assert backlog_seconds(waiting.transforms) == pytest.approx(100 * 0.02)
    assert catch_up_seconds(waiting.transforms) == pytest.approx(100 * 0.01)
    assert backlog_seconds(both.with_waiting({"source": {"rows": -1}}).transforms) == math.inf
    jsonschema.validate(waiting.to_json(), SCHEMA)
    with pytest.raises(StrandlineError, match="STRANDLINE_REPORT_INVALID"):
        both.with_waiting({"stage": {"rows": 1}})


VALID = report(figure()).to_json()


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("strandlineProgress",), 2),
        (("state",), "gone"),
        (("level",), "much"),
        (("batch",), "3"),
        (("query",), None),
        (("transforms",), []),
        (("transforms", "sdf"), 3),
        (("transforms", "sdf", "inputs"), {"in": ["nobody", "out"]}),
        (("transforms", "sdf", "inputs"), {"in": ["read", "else"]}),
        (("transforms", "sdf", "inputs"), {"in": "read"}),
        (("transforms", "read", "inputs"), {"in": ["dofn", "out"]}),
        (("transforms", "sdf", "inputElementsConsumedCounts"), {"in": -1}),
        (("transforms", "sdf", "inputElementsConsumedCounts"), {"other": 1}),
        (("transforms", "sdf", "activeInputElementsCount"), True),
        (("transforms", "sdf", "activeOutputElementsRemainingCounts"), {"out": 1.5}),
        (("transforms", "sdf", "totalTimeSpent"), -1),
        (("transforms", "sdf", "totalTimeSpent"), "1"),
        (("transforms", "sdf", "workers"), 0),
        (("transforms", "sdf", "frontiers"), {"out": [3]}),
        (("transforms", "sdf", "unreported"), 3),
    ],
)
def test_a_report_that_cannot_be_is_refused(where: tuple[str, ...], value: Any) -> None:
    damaged = json.loads(json.dumps(VALID))
    at = damaged
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    with pytest.raises(StrandlineError, match="STRANDLINE_REPORT_INVALID"):
        ProgressReport.from_json(damaged)


def test_transforms_in_a_cycle_are_refused() -> None:
    def each(parent: str) -> TransformProgress:
        return TransformProgress(inputs={"in": (parent, "out")}, output_elements_produced={"out": 0})

    with pytest.raises(StrandlineError, match="cycle"):
        report({"a": each("b"), "b": each("a")})


@given(st.data())
def test_remaining_counts_are_those_of_the_formulae_on_random_graphs(data: st.DataObject) -> None:
    """Compares with the seed's formulae, written down as recursion without any sharing."""
    count = st.integers(0, 6)
    graph: dict[str, TransformProgress] = {}
    for at in range(data.draw(st.integers(1, 5))):
        parents = data.draw(st.lists(st.sampled_from(sorted(graph)), max_size=3)) if graph else []
        graph[f"t{at}"] = TransformProgress(
            inputs={f"i{n}": (parent, "out") for n, parent in enumerate(parents)},
            input_elements_consumed={f"i{n}": data.draw(st.integers(1, 6)) for n in range(len(parents))},
            output_elements_produced={"out": data.draw(st.integers(20, 30))},
            active_input_elements=data.draw(st.integers(1, 2)),
            active_output_elements_produced={"out": data.draw(count)},
            active_output_elements_remaining={"out": data.draw(count)},
            total_time_spent=data.draw(st.integers(0, 5000)),
        )

    def out_so_far(t: TransformProgress) -> int:
        return t.output_elements_produced["out"] + t.active_output_elements_produced["out"]

    def incoming(name: str) -> Fraction:
        t = graph[name]
        consumed, parents = sum(t.input_elements_consumed.values()), [parent for parent, _ in t.inputs.values()]
        between = sum(out_so_far(graph[parent]) for parent in parents) - consumed - t.active_input_elements
        return sum((outgoing(parent) for parent in parents), Fraction(max(0, between)))

    def outgoing(name: str) -> Fraction:
        t = graph[name]
        remaining = t.active_output_elements_remaining["out"]
        elements = t.active_input_elements + sum(t.input_elements_consumed.values())
        return incoming(name) * Fraction(out_so_far(t) + remaining, elements) + remaining

    for name in graph:
        assert total_input_elements_remaining(graph, name) == pytest.approx(float(incoming(name)))
        assert total_output_elements_remaining(graph, name, "out") == pytest.approx(float(outgoing(name)))


def test_the_lag_of_a_frontier() -> None:
    nested = product(at=product(hour=timestamp, day="int64"), iter="int64")
    assert frontier_lag(Antichain(nested, [((70_000_000, 1), 0), ((40_000_000, 9), 5)]), now=100, moved=0) == 60
    assert frontier_lag(Antichain(timestamp, [170_000_000]), now=100, moved=0) == 0
    assert frontier_lag(Antichain(timestamp, []), now=100, moved=0) == 0
    assert frontier_lag(Antichain(PAIR, [(1, 1)]), now=100, moved=30) == 70
    assert frontier_lag(Antichain.least(timestamp), now=100, moved=30) == 70  # the least time of all is no date


def test_figures_leave_out_what_is_not_known() -> None:
    done = committed(10, 300.0, 2)
    sink = replace(done.transforms["stage"], frontiers={"out": Antichain(int64, [4])})
    done = replace(done, transforms={**done.transforms, "stage": sink}, at=95_000, set_aside={"late": 3}, only_aside=2)
    states = {"query_running": 1.0, "query_failed": 0.0, "failed_reports_total": 0.0}
    given = figures(done, done.with_waiting({}), now=100.0, moved={"out": 88.0}, more=states)
    found = {(each.name, each.part): each.value for each in given}
    assert {name for name, _ in found} == {each.name for each in METRICS}
    assert {name for name, part in found if part} == {each.name for each in METRICS if each.part}
    assert found["strandline_rows_set_aside_total", "late"] == 3
    assert found["strandline_partitions_only_set_aside", None] == 2
    assert found["strandline_frontier_lag_seconds", None] == 12
    assert found["strandline_report_age_seconds", None] == 5
    assert found["strandline_transform_seconds", "stage"] == 0.3
    behind = done.with_waiting({"source": {"rows": 20}})
    found = {each.name: each.value for each in figures(done, behind, now=100.0, moved={"out": 88.0})}
    assert found["strandline_waiting_rows"] == 20
    assert found["strandline_backlog_seconds"] == pytest.approx(0.6)
    unknown = replace(done, transforms={**done.transforms, "stage": replace(sink, total_time_spent=None)})
    behind = unknown.with_waiting({"source": {"rows": 20}})
    names = {each.name for each in figures(unknown, behind, now=100.0, moved={"out": 88.0})}
    assert names.isdisjoint({"strandline_backlog_seconds", "strandline_catch_up_seconds"})


def test_rows_that_nobody_has_counted_are_left_out() -> None:
    done = committed(10, 300.0, 2)
    unreadable = replace(done.transforms["source"], unreported="its log cannot be read")
    some = replace(done, state=State.QUERY, transforms={**done.transforms, "source": unreadable})
    for of_query in (done, some):
        names = {each.name for each in figures(done, of_query, now=100.0, moved={})}
        assert "strandline_waiting_rows" not in names
        assert "strandline_batch" in names


def test_of_several_outputs_the_one_that_stands_is_seen() -> None:
    def report(one: int, two: int) -> ProgressReport:
        done = committed(10, 300.0, 2)
        frontiers = {"one": Antichain(timestamp, [one]), "two": Antichain(timestamp, [two])}
        return replace(done, transforms={**done.transforms, "stage": replace(done.transforms["stage"], frontiers=frontiers)})

    clock = FrontierClock()
    clock.begin("q", "two", Antichain(timestamp, [5_000_000_000_000]), 10.0)  # ahead of the clock; its log says when it moved
    for now in (100.0, 200.0, 300.0):
        newest = report(int(now) * 1_000_000, 5_000_000_000_000)
        moved = clock.moved(newest, now)
    assert moved == {"one": 300.0, "two": 10.0}
    found = {each.name: each.value for each in figures(newest, newest, now=300.0, moved=moved)}
    assert found["strandline_frontier_lag_seconds"] == 0
    assert found["strandline_frontier_unmoved_seconds"] == 290
    # A clock that was set back makes nothing negative.
    found = {each.name: each.value for each in figures(newest, newest, now=300.0, moved={"one": 300.5, "two": 301.0})}
    assert found["strandline_frontier_unmoved_seconds"] == 0


def test_the_lag_is_that_of_the_last_outputs_or_else_of_the_sources() -> None:
    done = committed(10, 300.0, 2)
    source = replace(done.transforms["source"], frontiers={"rows": Antichain(timestamp, [90_000_000])})

    def lag(*last: Antichain) -> float:
        sink = replace(done.transforms["stage"], frontiers={f"out {n}": each for n, each in enumerate(last)})
        made = replace(done, transforms={"source": source, "stage": sink})
        return next(
            each.value for each in figures(made, made, now=100.0, moved={}) if each.name == "strandline_frontier_lag_seconds"
        )

    assert lag() == 10
    assert lag(Antichain(timestamp, [70_000_000]), Antichain(timestamp, [95_000_000])) == 30
    assert lag(Antichain(timestamp, [])) == 0
