"""The page about channels: its example runs and prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "channel.md"


def test_the_example_prints_what_the_page_shows() -> None:
    match = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    ran = subprocess.run([sys.executable, "-c", match.group(1)], capture_output=True, text=True, check=True)
    assert ran.stdout == match.group(2)
