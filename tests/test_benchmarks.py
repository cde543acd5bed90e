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


RESULT: dict[str, Any] = {
    "command": "scan.py --rows 7",
    "date": "2026-11-28",
    "commit": "abc1234",
    "machine": "2 cores",
    "name": "scan",
    "load": 0.5,
    "holds": False,
    "missed": ["slow"],
    "measures": [
        {
            "name": "slow",
            "ours": 2.0,
            "others": {"Delta": 1.0, "Spark": 4.0},
            "unit": "s",
            "ratio": 2.0,
            "goal": "ratio <= 1",
            "holds": False,
        },
        {"name": "quick", "ours": 0.5, "others": {}, "unit": "s", "ratio": None, "goal": "none", "holds": True},
    ],
}


@pytest.fixture
def run_all(shared: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    import run_all

    monkeypatch.setattr(run_all, "KEPT", tmp_path)
    return run_all


def test_the_page_has_every_measure_and_says_what_was_missed(run_all: Any) -> None:
    busy = {**RESULT, "command": "sink.py", "load": 3.0, "commit": "def5678+"}
    page = run_all.page([RESULT, busy])
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in page.splitlines() if line.startswith("|")]
    assert rows[0] == ["benchmark", "measure", "unit", "ours", "others", "ratio", "goal", "", "commit"]
    assert rows[2] == [
        *("scan.py --rows 7", "slow", "s", "2", "Delta 1, Spark 4", "2.00", "ratio <= 1", "**missed**", "abc1234, 2026-11-28")
    ]
    assert rows[3] == ["scan.py --rows 7", "quick", "s", "0.5", "", "", "", "", "abc1234, 2026-11-28"]
    assert rows[4][7:] == ["not judged, load 3", "def5678+, 2026-11-28"]
    assert "- Machine: 2 cores." in page
    assert "- Goals that were missed: scan.py --rows 7: slow." in page


def test_each_command_has_its_own_result(run_all: Any) -> None:
    commands = run_all.RUNS + run_all.LONG
    assert len({run_all.place(command) for command in commands}) == len(commands)
    assert {command.split()[0] for command in commands} == {
        path.name for path in (ROOT / "benchmarks").glob("[a-z]*.py") if path.name not in ("run_all.py", "profile_jvm.py")
    }
    for command in run_all.RUNS[:2]:
        run_all.place(command).write_text(json.dumps({**RESULT, "command": command}))
    assert [result["command"] for result in run_all.kept(run_all.RUNS)] == list(run_all.RUNS[:2])


def test_one_way_alone_has_no_ratio(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "ONLY", "ours")
    took = shared.alternately({"ours": lambda _: 2.0, "other": lambda _: 1 / 0}, 2)
    assert took == {"ours": [2.0, 2.0], "other": []}
    alone = shared.Measure.beside("alone", took, "s", at_most=0.5)
    assert (alone.ours, alone.ratio, alone.goal, alone.holds) == (2.0, None, "none", True)


def test_a_profile_counts_each_sample_for_its_innermost_part(shared: Any) -> None:
    import profile_jvm

    stack = ("java.lang.Thread.run", "strandline.spark.batch.FrontierGuard.whenClosed", "org.apache.parquet.Reader.read")
    assert profile_jvm.part_of(stack) == "Parquet"
    assert profile_jvm.part_of(stack[:2]) == "guard"
    assert profile_jvm.part_of(stack[:1]) == "other"
