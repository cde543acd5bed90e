"""What a fresh machine lacks is said in one line, before anything is made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import build_shim
import error_reference
import mutations
import option_reference
from helpers import ROOT

NO_CONDITIONS = {"STRANDLINE_DELTA_JARS", "STRANDLINE_EXAMPLE"}
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


def test_a_jar_of_other_sources_is_not_taken_for_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars, source = tmp_path / "jars", tmp_path / "jvm-shim" / "src" / "main" / "A.scala"
    for folder in (jars, source.parent):
        folder.mkdir(parents=True)
    source.write_text("object A")
    for name in ("build.sbt", "pyproject.toml"):
        (tmp_path / name).write_text('version = "1"\n')
    for name, value in {"ROOT": tmp_path, "JARS": jars}.items():
        monkeypatch.setattr(build_shim, name, value)
    assert not build_shim.is_fresh()
    jar = jars / "strandline-spark-4.2_2.13-1.jar"
    (jars / "strandline-spark-4.3_2.13-1.jar").write_bytes(b"another line's")
    jar.write_bytes(b"classes of A")
    assert not build_shim.is_fresh()  # nobody knows what it was made from
    build_shim.stamp_file("4.2.0").write_text(build_shim.stamp() or "")
    assert not build_shim.is_fresh("4.3.0")
    assert build_shim.is_fresh()
    build_shim.check()
    for path in (jar, source, tmp_path / "build.sbt"):
        before = path.read_bytes()
        path.write_bytes(b"another")
        shutil.copystat(source, path)
        assert not build_shim.is_fresh(), path
        with pytest.raises(SystemExit, match="make setup"):
            build_shim.check()
        path.write_bytes(before)
    assert build_shim.is_fresh()
    (jars / "strandline-spark-4.2_2.13-2.jar").write_bytes(b"")
    assert not build_shim.is_fresh()


def test_the_page_of_error_conditions_is_what_the_sources_say() -> None:
    assert error_reference.PAGE.read_text(encoding="utf-8") == error_reference.page(), "run python tools/error_reference.py"


def test_the_page_of_options_is_what_their_tables_say() -> None:
    assert option_reference.PAGE.read_text(encoding="utf-8") == option_reference.page(), "run python tools/option_reference.py"


def test_every_condition_in_the_sources_is_on_the_page_of_error_conditions() -> None:
    page = error_reference.page()
    for package in ("python/strandline", "connector/pyspark_strandline", "jvm-shim/src/main"):
        for path in (ROOT / package).rglob("*.*"):
            if path.suffix in (".py", ".scala") and path.name != "simulation.py":  # its violations are its own
                for condition in set(re.findall(r'"(STRANDLINE_[A-Z_]+)"', path.read_text(encoding="utf-8"))) - NO_CONDITIONS:
                    assert f"## {condition}\n" in page, f"{condition} of {path.name}"


def test_the_texts_of_errors_stand_in_the_errors_modules() -> None:
    for path in (
        path for package in ("python/strandline", "connector/pyspark_strandline") for path in (ROOT / package).rglob("*.py")
    ):
        if path.name != "errors.py":
            assert not list(error_reference.inline_errors(path)), f"{path}: move the text into the package's errors.py"


def test_the_names_of_errors_begin_with_their_conditions() -> None:
    modules = [
        path for package in ("python/strandline", "connector/pyspark_strandline") for path in (ROOT / package).rglob("errors.py")
    ]
    found = [error for path in modules for error in error_reference.package_errors(path)]
    assert len(found) > 150
    for error in found:
        assert error.function.startswith(error.condition.removeprefix("STRANDLINE_").lower()), error.function


def test_the_page_has_the_remedies_that_a_sink_and_an_ingest_give_instead() -> None:
    section = error_reference.page().split("## STRANDLINE_PRODUCER_LIVE\n")[1].split("\n## ")[0]
    first = r"- The message of the first entry\. "
    assert re.search(first + r"\*Stop the query that runs there.*set the option takeOver at the sink", section)
    assert re.search(first + r"\*Stop the query there.*start the ingest with the checkpoint", section)


@pytest.mark.drawn("core")
def test_pytest_takes_the_commands_that_look_for_a_mutant() -> None:
    mutant = next(mutations.python_mutants("core", ROOT / "python" / "strandline" / "time" / "path" / "summary.py"))
    commands = {name: command for name, command in mutations.commands(mutant, 8, []) if name in ("doctests", "near")}
    for command in commands.values():
        done = subprocess.run([*command, "--collect-only"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert commands.keys() == {"doctests", "near"}
