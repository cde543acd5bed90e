"""What the benchmarks share: the last line speaks for all measures, goals are against the better other, and runs take turns."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from helpers import ROOT


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import _alternating

    monkeypatch.setattr(_alternating, "LOAD", 0.5)
    return _alternating


def test_the_last_line_holds_only_if_every_measure_holds(shared: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kept = shared.Measure.alone("kept", 1.0, "s", at_most=1)
    missed = shared.Measure.alone("missed", 1.1, "s", at_most=1)
    without = shared.Measure.alone("without a goal", 7.0, "s")
    shared.summary("all", [kept, missed, without])
    *printed, last = capsys.readouterr().out.splitlines()
    line = json.loads(last)
    assert [each.partition("; ")[2] for each in printed] == ["goal <= 1 s: holds", "goal <= 1 s: MISSED", "no goal"]
    assert (line["name"], line["holds"], line["missed"]) == ("all", False, ["missed"])
    assert [measure["name"] for measure in line["measures"]] == ["kept", "missed", "without a goal"]
    shared.summary("some", [kept, without])
    assert json.loads(capsys.readouterr().out)["holds"]


def test_no_goal_holds_beside_other_work(
    shared: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "LOAD", 3.21)
    shared.summary("all", [shared.Measure.alone("kept", 1.0, "s", at_most=1), shared.Measure.alone("without a goal", 7.0, "s")])
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.endswith("goal <= 1 s: not judged, the load was 3.2")
    assert second.endswith("no goal")
    line = json.loads(last)
    assert (line["load"], line["holds"], line["missed"]) == (3.21, False, [])


def test_a_goal_is_against_the_better_other(shared: Any) -> None:
    times = {"ours": [2.0, 9.0, 1.0], "slow": [8.0], "fast": [4.0]}
    least = shared.Measure.beside("times", times, "s", at_most=0.4)
    assert (least.ours, least.others, least.ratio, least.holds) == (2.0, {"slow": 8.0, "fast": 4.0}, 0.5, False)
    rates = {"ours": [9.0], "slow": [4.0], "fast": [10.0]}
    most = shared.Measure.beside("rates", rates, "rows/s", at_least=0.9)
    assert (most.ratio, most.goal, most.holds) == (0.9, "ratio >= 0.9", True)


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c"]])
def test_each_goes_first_and_after_each_other_as_often(shared: Any, names: list[str]) -> None:
    orders = [shared.order(names, turn) for turn in range(2 * len(names))]
    assert set(Counter(order[0] for order in orders).values()) == {2}
    assert len(set(Counter(pair for order in orders for pair in pairwise(order)).values())) == 1


def test_runs_warm_up_and_are_told_their_turn(shared: Any) -> None:
    turns: dict[str, list[int]] = {"ours": [], "other": []}

    def run(which: str) -> Any:
        return lambda turn: turns[which].append(turn) or float(turn)

    assert shared.alternately({which: run(which) for which in turns}, 3) == {"ours": [1, 2, 3], "other": [1, 2, 3]}
    assert turns == {"ours": [0, 1, 2, 3], "other": [0, 1, 2, 3]}


def test_delta_is_tuned_while_it_is_tuned_only(shared: Any) -> None:
    class Session:
        def __init__(self) -> None:
            self.settings: dict[str, str] = {}
            self.conf = self
            self.get, self.set, self.unset = self.settings.get, self.settings.__setitem__, self.settings.__delitem__

    spark = Session()
    runs = shared.deltas(spark, lambda way, turn: (way, turn, dict(spark.settings)))
    assert [run(3) for run in runs.values()] == [("delta", 3, {}), ("tuned", 3, shared.TUNED)]
    assert spark.settings == {}
