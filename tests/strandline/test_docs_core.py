"""The examples of ``docs/core.md`` run as they are printed."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "core.md"


def test_the_examples_on_the_page_run() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, "core.md", str(PAGE), 0)
    assert len(examples.examples) >= 29
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=said.append)
    assert runner.failures == 0, "".join(said)
