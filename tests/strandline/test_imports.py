"""The core stands by itself: importing all of it loads no Spark, pandas or Delta, and its modules import in one direction."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import strandline

FORBIDDEN = {"pyspark", "pandas", "deltalake", "pyspark_strandline"}
PACKAGE = Path(strandline.__file__).parent
CORE = sorted(path for path in PACKAGE.glob("*.py") if path.stem != "__main__")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_no_module_of_the_core_names_what_it_must_not_import() -> None:
    assert len(CORE) > 20
    for path in CORE:
        roots = {name.split(".")[0] for name in imported(path)}
        assert not roots & FORBIDDEN, path.name


def test_importing_the_whole_core_loads_none_of_it() -> None:
    modules = [f"strandline.{path.stem}" for path in CORE if path.stem != "__init__"]
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "import strandline\n"
        "for name in strandline.__all__: getattr(strandline, name)\n"
        f"print(sorted(set(sys.modules) & {FORBIDDEN!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_core_does_not_import_the_channel_and_the_tracker_nothing_above_it() -> None:
    for path in CORE:
        assert not any(name.startswith("strandline.channel") for name in imported(path)), path.name
    layers = [
        "order",
        "antichain",
        "mutable_antichain",
        "summary",
        "graph",
        "reachability",
        "subgraph",
        "fabric",
        "operators",
        "dataflow",
    ]
    for lower, upper in [(low, up) for i, low in enumerate(layers) for up in layers[i + 1 :]]:
        assert f"strandline.{upper}" not in imported(PACKAGE / f"{lower}.py"), (lower, upper)


def test_every_public_name_exists_and_has_a_docstring() -> None:
    assert sorted(strandline.__all__) == strandline.__all__
    for name in strandline.__all__:
        value = getattr(strandline, name)
        assert getattr(value, "__doc__", None), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(strandline, "watermark")
