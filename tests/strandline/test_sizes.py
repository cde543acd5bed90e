"""No file and no function is longer than one can look over."""

from __future__ import annotations

import ast
from pathlib import Path

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
