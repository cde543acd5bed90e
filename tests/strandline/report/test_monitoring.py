"""The example of alert rules and of a dashboard: they are well-formed, and name only metrics and labels that there are."""

from __future__ import annotations

import doctest
import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import metric_reference
from helpers import ROOT
from strandline.report.progress import METRICS

FOLDER = ROOT / "examples" / "monitoring"
KNOWN = {each.name: each for each in METRICS}


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of PromQL, with the text that is shown with it."""
    [group] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        yield rule["expr"], " ".join(rule["annotations"].values())
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        assert panel["targets"]
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"], ""


def test_every_metric_and_label_exists() -> None:
    used: set[str] = set()
    for expression, shown in expressions():
        names = re.findall(r"\bstrandline_\w+", expression)
        if expression.startswith("up{"):  # Prometheus's own: whether it reaches a target
            continue
        assert names, expression
        used |= set(names)
        labels = {*re.findall(r"(\w+)=~?\"", expression), *re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", shown)}
        for name in names:
            assert labels <= set(KNOWN[name].labels), (expression, shown)
    # A frontier that is ahead of the clock has no lag while it stands, and a query that crashed or is gone has no frontier.
    alerts = " ".join(expression for expression, _ in expressions())
    for name in ("frontier_lag_seconds", "frontier_unmoved_seconds", "query_failed", "failed_reports_total", "report_level"):
        assert f"strandline_{name}" in used
    assert 'up{job="strandline"}' in alerts  # absent() is silent while any driver reports
    assert yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"][0]["job_name"] == "strandline"
    for rule_test in yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]:
        assert {re.split(r"\{", each["series"])[0] for each in rule_test["input_series"]} <= {*KNOWN, "up"}


def test_every_rule_has_a_test() -> None:
    rules = {rule["alert"] for rule in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]}
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    assert {each["alertname"] for one in tests for each in one["alert_rule_test"]} == rules


def test_panels_do_not_cover_each_other() -> None:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at: dict[str, Any] = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def promtool() -> str | None:
    return os.environ.get("STRANDLINE_PROMTOOL") or shutil.which("promtool")


@pytest.mark.skipif(promtool() is None, reason="there is no promtool; name it in STRANDLINE_PROMTOOL")
@pytest.mark.parametrize("command", [("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")])
def test_promtool_accepts_them(command: tuple[str, ...], tmp_path: Path) -> None:
    tool = promtool()
    assert tool is not None
    done = subprocess.run([tool, *command], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_s_table_and_example_are_true() -> None:
    page = (ROOT / "docs" / "progress.md").read_text()
    assert metric_reference.written(page) == page, "run python tools/metric_reference.py"
    found = doctest.DocTestParser().get_doctest(page, {}, "progress.md", None, 0)
    assert len(found.examples) > 5
    failures = io.StringIO()
    assert doctest.DocTestRunner().run(found, out=failures.write).failed == 0, failures.getvalue()
