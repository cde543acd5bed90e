"""The shim's Scala packages: imports go down only, as ``docs/architecture.md`` lists them; no file and no line is too long."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "jvm-shim" / "src"
PYTHON_SOURCES = "org.apache.spark.sql.execution.datasources.v2.python.strandline"
INTERNALS = "org.apache.spark.sql.execution.streaming.state.strandline"
OWN = "strandline.spark"

FLOORS = [
    [INTERNALS, f"{OWN}.compat", f"{OWN}.checkpoint"],
    [f"{OWN}.errors"],
    [f"{OWN}.time", PYTHON_SOURCES],
    [f"{OWN}.plan", f"{OWN}.state.cache"],
    [f"{OWN}.batch", f"{OWN}.catalog", f"{OWN}.sources", f"{OWN}.state.expiry"],
    [f"{OWN}.tables"],
    [f"{OWN}.scan", f"{OWN}.state"],
    [f"{OWN}.exec", f"{OWN}.progress"],
    [f"{OWN}.exec.best", f"{OWN}.exec.join", f"{OWN}.exec.meet"],
    [f"{OWN}.planner"],
    [OWN],
]
"""A file imports from its own package and from packages of lower floors."""

MOST_FILES = 10
MOST_COLUMNS = 130

_NAME = re.compile(rf"(?<![\w.])(?:_root_\.)?((?:{re.escape(OWN)}|{re.escape(INTERNALS)})(?:\.[a-z]\w*)*)(?=\.[A-Z_{{])")
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|""".*?"""(?!")|"(?:[^"\\\n]|\\.)*"', re.DOTALL)


def package(path: Path) -> str:
    clauses = re.findall(r"^package (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(clauses) == 1, f"{path} has {len(clauses)} package clauses: nested ones would see their parents without an import"
    return str(clauses[0])


def used(path: Path) -> set[str]:
    """Every package of ours that a file names, in an import or in its code; also its own subpackages, which need no import."""
    code, own = _NO_CODE.sub("", path.read_text(encoding="utf-8")), package(path)
    below = [name for names in FLOORS for name in names if name.startswith(f"{own}.")]
    short = {name: re.escape(name[len(own) + 1 :]) for name in below}
    return set(_NAME.findall(code)) | {name for name in below if re.search(rf"(?<![\w.]){short[name]}\.[A-Z]", code)}


def files(part: str) -> list[Path]:
    found = sorted((ROOT / part / "scala").rglob("*.scala"))
    assert found
    return found


def test_imports_go_down_only() -> None:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    for path in files("main"):
        for other in used(path) - {package(path)}:
            assert floor[other] < floor[package(path)], f"{path.name} of {package(path)} uses {other}"


def test_the_pattern_finds_uses() -> None:
    assert sum(len(used(path) - {package(path)}) for path in files("main")) > 100
    text = f"import {OWN}.time.{{A, B}}\nval a = {OWN}.exec.join.C.d // {OWN}.state.D\n"
    assert _NAME.findall(_NO_CODE.sub("", text)) == [f"{OWN}.time", f"{OWN}.exec.join"]


def test_a_file_lies_in_the_folder_of_its_package() -> None:
    for part in ("main", "test"):
        for path in files(part):
            assert path.parent == ROOT / part / "scala" / package(path).replace(".", "/")


def test_no_package_has_more_files_than_one_can_look_over() -> None:
    sizes = Counter(path.parent for path in files("main"))
    assert max(sizes.values()) <= MOST_FILES, sizes.most_common(3)


def test_a_spec_lies_beside_what_it_tests() -> None:
    packages = {package(path) for path in files("main")}
    assert {package(path) for path in files("test")} <= packages


def test_lines_are_as_short_as_in_python() -> None:
    """``make format`` breaks code. It does not break long texts and comments."""
    long = {
        f"{path.name}:{number}"
        for part in ("main", "test")
        for path in files(part)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MOST_COLUMNS
    }
    assert not long
