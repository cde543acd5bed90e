"""The conformance program: all of the recorded traces are equal, and every kind of damage to a trace is found."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from strandline.testing.conformance import main, replay

GOLDEN = Path(__file__).parents[2] / "golden"
TRACES = sorted(GOLDEN.glob("*.jsonl.gz"))


@pytest.mark.drawn
@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_every_field_of_every_step_equals_what_timely_answered(trace: Path) -> None:
    report = replay(trace)
    assert report.difference is None
    assert report.cases == {"in-order.jsonl.gz": 120, "reordered.jsonl.gz": 80}[trace.name]
    assert report.comparisons > 10 * report.steps > 0


def first_case() -> dict[str, Any]:
    with gzip.open(GOLDEN / "in-order.jsonl.gz", "rt") as lines:
        return json.loads(next(iter(lines)))


def write(path: Path, *cases: Any) -> str:
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return str(path)


def damage(case: dict[str, Any], field: str) -> None:
    """Change one answer as little as possible, in the first step where there is one."""
    if field == "scope_summary":
        case[field][0].append([0, [[0, 0, 0]]])
        return
    step = next(step for step in case["steps"] if step[field.split(":")[0]])
    match field:
        case "pushed":
            step[field][-1][2] += 1
        case "pushed:missing":
            step["pushed"].pop()
        case "pushed:extra":
            step["pushed"].append([["target", 6, 0], [9, 9, 9], 1])
        case "pushed:order":
            step["pushed"][0], step["pushed"][1] = step["pushed"][1], step["pushed"][0]
        case "outputs":
            next(changes for changes in step[field] if changes)[0][1] -= 1
        case "is_global":
            step[field][-1] = not step[field][-1]
        case "is_global:type":
            step["is_global"][0] = int(step["is_global"][0])
        case "tracking_anything":
            step[field] = not step[field]
        case "input_frontiers":
            step[field]["target/5/2"] = [[0, 0, 1]]
        case "input_frontiers:name":
            step["input_frontiers"]["target/5/3"] = step["input_frontiers"].pop("target/5/2")
        case "updates":
            step[field][0][2] += 1


FIELDS = ["scope_summary", "pushed", "pushed:missing", "pushed:extra", "pushed:order", "outputs", "is_global", "is_global:type"]
FIELDS += ["tracking_anything", "input_frontiers", "input_frontiers:name", "updates"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_answer_is_shown_and_exits_with_1(field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = first_case()
    if field == "updates":  # the third step's deltas: one more message than timely was told of shows in what it held
        case["steps"] = case["steps"][:3]
        case["steps"][0]["updates"][0][2] -= 1
    else:
        damage(case, field)
    assert main([write(tmp_path / "damaged.jsonl", first_case(), case)]) == 1
    out = capsys.readouterr().out
    assert "case 2" in out
    assert "expected" in out
    assert "got" in out
    assert "DIFFERS" in out
    assert field == "updates" or field.split(":")[0] in out


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\n\n",
        b"not json\n",
        b"[]\n",
        b"{}\n",
        b"\x1f\x8bnot gzip",
        b"\xff\xfe\n",
        json.dumps({**first_case(), "more": 1}).encode(),
        json.dumps({**first_case(), "edges": [[0, 99, 1, 0]]}).encode(),
        json.dumps({**first_case(), "steps": [{"updates": []}]}).encode(),
    ],
)
def test_a_file_that_is_no_trace_exits_with_2(damaged: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(damaged)
    assert main([str(path)]) == 2
    assert "[STRANDLINE_TRACE_UNREADABLE]" in capsys.readouterr().err


@pytest.mark.drawn("core")
def test_a_truncated_gzip_file_exits_with_2(tmp_path: Path) -> None:
    whole = TRACES[0].read_bytes()
    for kept in (len(whole) // 2, len(whole) - 4):
        path = tmp_path / f"{kept}.gz"
        path.write_bytes(whole[:kept])
        assert main([str(path)]) == 2
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    path = tmp_path / "flipped.gz"
    path.write_bytes(bytes(flipped))
    assert main([str(path)]) != 0


def test_it_runs_as_a_program_and_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "one.jsonl", first_case())
    done = subprocess.run([sys.executable, "-m", "strandline.conformance", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("total: 1 cases, 41 steps, ")
    missing = subprocess.run(
        [sys.executable, "-m", "strandline.conformance", str(tmp_path / "no")], capture_output=True, check=False
    )
    assert missing.returncode == 2
