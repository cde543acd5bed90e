"""The pages whose code is run."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from helpers import ROOT

EXAMPLES = str(ROOT / "examples")
if EXAMPLES not in sys.path:
    sys.path.insert(0, EXAMPLES)

PAGES = ROOT / "docs" / "sources"


@pytest.fixture
def run_page(spark: Any) -> Callable[..., tuple[str, str]]:
    """Runs a page's code in the tests' session, some text replaced: what it printed, and what the page says that it prints."""

    def run(name: str, **replace: str) -> tuple[str, str]:
        text = (PAGES / f"{name}.md").read_text()
        found = re.search(r"```python\n(.*?)```\n(?:.*?)```text\n(.*?)```", text, re.DOTALL)
        assert found is not None, f"{name}.md has no code with its output"
        code, said = found.groups()
        for old, new in replace.items():
            assert old in code
            code = code.replace(old, new)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{name}.md", "exec"), {"__name__": name})  # noqa: S102  (the page is ours)
        return printed.getvalue(), said

    return run
