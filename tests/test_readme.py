"""The README's examples do what the README says that they do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forked_runners import forking_python
from helpers import ROOT


@pytest.mark.drawn("processes")
@pytest.mark.spark
def test_the_examples_print_what_they_say(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(examples) == 2
    (tmp_path / "example.py").write_text("".join(code for code, _ in examples))
    said = "".join(said for _, said in examples)
    environment = {**os.environ, "PYSPARK_PYTHON": forking_python()}
    command = [sys.executable, "example.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=550, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split("\n\n") == said.split("\n\n")


def test_every_link_leads_to_a_file() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
