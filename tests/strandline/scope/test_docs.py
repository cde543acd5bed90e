"""The page about scopes: its example runs and prints what the page says, and its calls exist."""

from __future__ import annotations

import re
import subprocess
import sys

from helpers import ROOT
from strandline.scope import Scope

PAGE = (ROOT / "docs" / "scopes.md").read_text()


def test_the_example_prints_what_the_page_shows() -> None:
    match = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    ran = subprocess.run([sys.executable, "-c", match.group(1)], capture_output=True, text=True, check=True)
    assert ran.stdout == match.group(2)


def test_the_table_names_every_call() -> None:
    named = set(re.findall(r"`(?:Scope\.)?(\w+)\(", PAGE))
    calls = {name for name, value in vars(Scope).items() if not name.startswith("_") and callable(getattr(Scope, name))}
    assert calls <= named
