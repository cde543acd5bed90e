"""One Spark session for all sources, and the pages whose code is run."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers import ROOT, spark_session

EXAMPLES = str(ROOT / "examples")
if EXAMPLES not in sys.path:
    sys.path.insert(0, EXAMPLES)

PAGES = ROOT / "docs" / "sources"


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


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
