"""The example of what-if: last week's flights through a changed rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.drawn]


def test_the_rules_differ_where_pandas_says_so(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from replay.run import run

    assert run(spark, 2, tmp_path) == 0
    assert "first at 2013-01-0" in capsys.readouterr().out
    assert "Changed, by airport" in (tmp_path / "whatif.html").read_text(encoding="utf-8")
