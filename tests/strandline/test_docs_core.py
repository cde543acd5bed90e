"""The examples of pages that need no Spark run as they are printed."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("page", "fewest"), [("core.md", 29), ("programs.md", 37)])
def test_the_examples_on_the_page_run(page: str, fewest: int) -> None:
    text = (DOCS / page).read_text(encoding="utf-8").replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, page, str(DOCS / page), 0)
    assert len(examples.examples) >= fewest
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=said.append)
    assert runner.failures == 0, "".join(said)
