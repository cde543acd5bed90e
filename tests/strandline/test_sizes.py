"""No file and no function is longer than one can look over, and signatures say what is persisted."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pyspark_strandline
import strandline

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 600, 60
SOURCES = sorted(
    path for package in (strandline, pyspark_strandline) for path in Path(str(package.__file__)).parent.rglob("*.py")
)


def test_files_are_short() -> None:
    assert len(SOURCES) > 300
    assert not {path.name: n for path in SOURCES if (n := path.read_text(encoding="utf-8").count("\n")) > MOST_LINES}


def test_functions_are_short() -> None:
    """A docstring does not count."""
    long = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = node.body[0]
                is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                doc = (first.end_lineno or 0) - first.lineno + 1 if is_text else 0
                lines = (node.end_lineno or 0) - node.lineno + 1 - doc
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long[f"{path.name}:{node.name}"] = lines
    assert not long


@pytest.mark.parametrize("folder", ["channel", "ingest", "write", "resume"])
def test_signatures_say_what_is_persisted(folder: str) -> None:
    """A value of a log or a state has a type, or is JSON that nobody here interprets."""
    roots = [Path(str(package.__file__)).parent / folder for package in (strandline, pyspark_strandline)]
    found = [
        f"{path.name}:{node.name}"
        for root in roots
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for hint in (node.returns, *(a.annotation for a in (*node.args.args, *node.args.kwonlyargs)))
        if hint is not None and "dict[str, Any]" in ast.unparse(hint)
    ]
    assert not found
