"""Imports go down only: the floors of both packages, no circles, and a core that stands without Spark, pandas and Delta."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pyspark_strandline
import strandline

FORBIDDEN = {"pyspark", "pandas", "deltalake", "pyspark_strandline"}
CORE = ("strandline.errors", "strandline.time", "strandline.tracker", "strandline.dataflow", "strandline.testing")

FLOORS = [
    ["strandline.errors", "strandline.json_value", "strandline.spark_offsets"],
    ["strandline.shell_words", "strandline.time"],
    ["strandline.tracker", "strandline.delta"],
    ["strandline.channel.batch", "strandline.channel.errors"],
    ["strandline.dataflow", "strandline.testing", "strandline.channel.statements"],
    ["strandline.channel.progress"],
    ["strandline.channel.commit"],
    ["strandline.channel.write"],
    ["strandline.channel"],
    ["strandline.program"],
    ["strandline.replay"],
    ["strandline.loop"],
    ["strandline.scope"],
    ["strandline.ingest.errors"],
    ["strandline.ingest.clocks"],
    ["strandline.ingest.names", "strandline.ingest.columns"],
    ["strandline.ingest.state"],
    ["strandline.ingest.parked"],
    ["strandline.ingest.policies"],
    ["strandline.ingest.bounds"],
    ["strandline.ingest.policy_calls"],
    ["strandline.ingest.settings"],
    ["strandline.ingest.late"],
    ["strandline.ingest.task"],
    ["strandline.ingest.decide"],
    ["strandline.ingest"],
    ["strandline.report.errors"],
    ["strandline.report.soundness", "strandline.report.progress"],
    ["strandline.report"],
    ["strandline"],
    ["strandline.page"],
    ["pyspark_strandline.errors"],
    [
        *("pyspark_strandline.schema", "pyspark_strandline.options", "pyspark_strandline.workers"),
        *("pyspark_strandline.session", "pyspark_strandline.hadoop_storage", "pyspark_strandline.loop_remedies"),
    ],
    ["pyspark_strandline.column_types"],
    ["pyspark_strandline.operators", "pyspark_strandline.resume"],
    ["pyspark_strandline.read", "pyspark_strandline.write"],
    ["pyspark_strandline.loops", "pyspark_strandline.report"],
    ["pyspark_strandline.program"],
    ["pyspark_strandline.replay"],
    ["pyspark_strandline"],
    ["strandline.cli"],
]
"""A module imports from its own entry and from lower floors; the longest name that fits says which entry is its own."""

MOST_MODULES = 10


def modules() -> dict[str, Path]:
    found = {}
    for package in (strandline, pyspark_strandline):
        root = Path(str(package.__file__)).parent
        for path in root.rglob("*.py"):
            parts = [root.name, *path.relative_to(root).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(name: str) -> Iterator[str]:
    """Everything of both packages that a module imports, wherever in its text: in a function, or for type checking only."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def entry(name: str) -> tuple[int, str]:
    """The floor of a module, and the entry that it belongs to."""
    fitting = [(len(e), floor, e) for floor, entries in enumerate(FLOORS) for e in entries if f"{name}.".startswith(f"{e}.")]
    return max(fitting)[1:]


def test_imports_go_down_only() -> None:
    for name in MODULES:
        floor, own = entry(name)
        for other in imported(name):
            if other in MODULES:
                below, theirs = entry(other)
                assert theirs == own or below < floor, f"{name} imports {other}"


def test_there_is_no_circle() -> None:
    graph = {name: {other for other in imported(name) if other in MODULES and other != name} for name in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_folder_has_more_modules_than_one_can_look_over() -> None:
    everywhere = ("__init__.py", "errors.py")
    sizes = Counter(path.parent for path in MODULES.values() if path.name not in everywhere)
    assert max(sizes.values()) <= MOST_MODULES, sizes.most_common(3)


def test_every_folder_says_what_it_may_import() -> None:
    for name, path in MODULES.items():
        if path.name == "__init__.py":
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), name


def test_no_module_of_the_core_names_what_it_must_not_import() -> None:
    core = [name for name in MODULES if name.startswith(CORE)]
    assert len(core) > 20
    for name in core:
        assert not {other.split(".")[0] for other in imported(name)} & FORBIDDEN, name


def test_importing_the_whole_core_loads_none_of_it() -> None:
    core = [name for name in MODULES if name.startswith(CORE)]
    program = (
        "import importlib, sys\n"
        f"for name in {core!r}: importlib.import_module(name)\n"
        "import strandline\n"
        "for name in strandline.__all__: getattr(strandline, name)\n"
        f"print(sorted(set(sys.modules) & {FORBIDDEN!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists_and_has_a_docstring() -> None:
    assert sorted(strandline.__all__) == strandline.__all__
    for name in strandline.__all__:
        value = getattr(strandline, name)
        assert getattr(value, "__doc__", None), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(strandline, "watermark")
