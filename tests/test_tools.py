"""What a fresh machine lacks is said in one line, before anything is made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT

SCRIPT = ROOT / "tools" / "check_tools.sh"


def check(tmp_path: Path, present: dict[str, str], python: str = "python3") -> tuple[int, str]:
    """Run the check where only the given programs exist: their shell scripts by name."""
    for tool in ("sh", "sed", "head", "cat"):
        os.symlink(shutil.which(tool) or tool, tmp_path / tool)
    for name, body in present.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    done = subprocess.run(["sh", str(SCRIPT), python], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


JAVA_17 = "echo 'openjdk version \"17.0.9\"' >&2"
JAVA_11 = "echo 'openjdk version \"11.0.2\"' >&2"
PYTHON = f'exec {sys.executable} "$@"'


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        ({}, "install Python 3.10"),
        ({"python3": "exit 1"}, "install Python 3.10"),
        ({"python3": PYTHON}, "install a JDK 17"),
        ({"python3": PYTHON, "java": JAVA_11}, "install a JDK 17"),
        ({"python3": PYTHON, "java": JAVA_17}, "not only a runtime"),
        ({"python3": PYTHON, "java": JAVA_17, "javac": ""}, "install Maven"),
    ],
    ids=["no python", "old python", "no java", "old java", "no compiler", "no maven or sbt"],
)
def test_one_line_says_what_to_install(tmp_path: Path, present: dict[str, str], missing: str) -> None:
    status, said = check(tmp_path, present)
    assert status == 1
    assert said.startswith("error: ")
    assert missing in said
    assert said.count("\n") == 1


def test_a_complete_machine_passes_in_silence(tmp_path: Path) -> None:
    tools = {"python3": PYTHON, "java": JAVA_17, "javac": "", "mvn": ""}
    assert check(tmp_path, tools) == (0, "")
