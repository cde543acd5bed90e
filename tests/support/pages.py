"""Runs the code of a page of the documentation, block after block, and compares what it prints with the page."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

__all__ = ["blocks", "run_blocks"]

_CHECKER = doctest.OutputChecker()


def blocks(page: Path) -> list[tuple[str, str]]:
    """The page's blocks of Python, each with the text that the page prints below it."""
    return re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", page.read_text(encoding="utf-8"), re.DOTALL)


def run_blocks(code: list[tuple[str, str]], name: str) -> None:
    """Run blocks in one namespace. ``...`` in the text stands for anything. Raises for another output."""
    names: dict[str, object] = {"__name__": name}
    for block, said in code:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, name, "exec"), names)  # noqa: S102  (the page is ours)
        options, got = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, printed.getvalue()
        assert _CHECKER.check_output(said, got, options), f"{block}\nprinted\n{got}instead of\n{said}"
