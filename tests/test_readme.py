"""The README's example does what the README says that it does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT


@pytest.mark.spark
def test_the_example_prints_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    code, said = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL).groups()  # type: ignore[union-attr]
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split("\n\n") == said.split("\n\n")


def test_every_link_leads_to_a_file() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
