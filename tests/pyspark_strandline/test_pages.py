"""Pages for people do what they print, and the notebook of the tutorial is the tutorial."""

from __future__ import annotations

import json
from typing import Any

import pytest

import notebook
from helpers import ROOT
from pages import blocks, run_blocks

pytestmark = [pytest.mark.spark, pytest.mark.drawn]


def test_the_notebook_of_the_tutorial_runs(spark: Any) -> None:
    found = json.loads(notebook.NOTEBOOK.read_text(encoding="utf-8"))
    assert found == notebook.of_page(), "run python tools/notebook.py"
    code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    run_blocks(
        [("".join(cell["source"]), "".join(out for o in cell["outputs"] for out in o["text"])) for cell in code], "tutorial"
    )


def test_the_page_on_lost_checkpoints_runs(spark: Any) -> None:
    run_blocks(blocks(ROOT / "docs" / "lost-checkpoint.md"), "lost")


def test_the_page_on_scheduled_ingests_runs(spark: Any) -> None:
    run_blocks(blocks(ROOT / "docs" / "scheduled.md"), "scheduled")


def test_the_page_on_migration_runs(spark: Any) -> None:
    run_blocks(blocks(ROOT / "docs" / "migration.md"), "migration")


def test_the_page_on_replays_runs(spark: Any) -> None:
    run_blocks(blocks(ROOT / "docs" / "replay.md"), "replay")


def test_the_page_on_joins_across_times_runs(spark: Any) -> None:
    run_blocks(blocks(ROOT / "docs" / "meet.md"), "meet")


def test_the_page_on_recorded_loops_runs(spark: Any) -> None:
    run_blocks(blocks(ROOT / "docs" / "recorded-loops.md"), "recorded loops")


def test_the_page_on_tables_runs(spark: Any) -> None:
    try:
        run_blocks(blocks(ROOT / "docs" / "tables.md"), "tables")
    finally:
        for table in ("readings", "sums"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
