"""Writes ``docs/errors.md``: every error condition of Python and Scala, with its message and remedy, from the sources.

    python tools/error_reference.py [--check]

``--check`` writes nothing, and exits with 1 when the page differs from the sources.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"
_CONDITION = re.compile(r"STRANDLINE_[A-Z0-9_]+")
_SCALA = re.compile(r'new (Strandline(?:Data)?Exception)\(\s*"(STRANDLINE_\w+)"')
_NOT_RAISED = {"STRANDLINE_EXAMPLE"}
Values = dict[str, str]
"""The texts of names."""

_HEAD = """# Error conditions

Every error that Strandline raises on purpose has the form `[CONDITION] what happened. Remedy.`, as Spark's own errors have.
In Python the error is a `strandline.errors.StrandlineError` with the attributes `condition`, `what` and `remedy`. The shim's
errors are analysis errors of Spark, or runtime errors where the data are wrong, with Spark's `getCondition`. A name in ‹ ›
stands for a value.

`python tools/error_reference.py` writes this page from the sources; a test compares the two.
"""


class Raised(NamedTuple):
    """One place that raises a condition."""

    condition: str
    kind: str
    where: str
    what: str
    remedy: str
    function: str = ""
    """The function that makes it, where there is one."""


def package_errors(path: Path) -> Iterator[Raised]:
    """Yield the errors that the public functions of a package's ``errors.py`` return."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    where = ".".join(path.relative_to(ROOT).parent.parts[1:])
    for name, function in functions.items():
        if not name.startswith("_"):
            for error in _returned(function, _assigned(module, {}), functions, where):
                yield error._replace(function=name)


def _returned(function: ast.FunctionDef, values: Values, functions: dict[str, ast.FunctionDef], where: str) -> Iterator[Raised]:
    """Yield the errors that a function returns, also those of another function: the text that several errors share."""
    own = _assigned(function, values)
    for node in ast.walk(function):
        if not isinstance(node, ast.Return) or not isinstance(node.value, ast.Call) or not node.value.args:
            continue
        name, given = ast.unparse(node.value.func), [_template(argument, own) for argument in node.value.args]
        if inner := functions.get(name):
            parameters = [parameter.arg for parameter in inner.args.args]
            defaults = [_template(default, values) for default in inner.args.defaults]
            named = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))
            yield from _returned(inner, values | named | dict(zip(parameters, given, strict=False)), functions, where)
        elif _CONDITION.fullmatch(given[0]):
            yield Raised(given[0], name, where, *[*given[1:3], "", ""][:2])


def _assigned(body: ast.Module | ast.FunctionDef, values: Values) -> Values:
    """Return the texts of names, with those of constants and of local names."""
    found = dict(values)
    for node in body.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            found[ast.unparse(node.targets[0])] = _template(node.value, found)
    return found


def inline_errors(path: Path) -> Iterator[Raised]:
    """Yield the errors whose texts stand where they are raised."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    where = ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and _CONDITION.fullmatch(first.value):
            texts = [_template(argument) for argument in node.args[1:3]]
            kind = ast.unparse(node.func).split(".")[-1]
            if first.value not in _NOT_RAISED and kind.endswith("Error"):
                yield Raised(first.value, kind, where, *[*texts, "", ""][:2])


def _template(node: ast.expr, values: Values | None = None) -> str:
    """Return the text of an expression, with the names of the values in it, or their texts."""
    if isinstance(node, ast.Name) and values and node.id in values:
        return values[node.id]
    if isinstance(node, ast.Attribute) and node.attr == "what":  # of an error whose remedy alone is replaced
        return "The message of the first entry."
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part, values) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _value(node.value, values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left, values) + _template(node.right, values)
    return _named(node)


def _value(node: ast.expr, values: Values | None) -> str:
    """Return what represents a value within a text: a part that is there if it is known, or else the value's name."""
    if isinstance(node, ast.IfExp) and isinstance(node.body, ast.JoinedStr):
        return _template(node.body, values)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "command":
        return _command(node, values)
    return _template(node, values) if isinstance(node, ast.Name) else _named(node)


def _command(node: ast.Call, values: Values | None) -> str:
    """Return the command line that ``strandline.shell_words.command`` makes, with the names of the values in it."""
    options = [word for keyword in node.keywords for word in getattr(keyword.value, "elts", [])]
    name, path, *words = (_template(word, values) for word in [*node.args[:2], *options, *node.args[2:]])
    return " ".join(["strandline", name, path, *words])


def _named(node: ast.expr) -> str:
    """Return the name that represents a value."""
    return f"‹{_name(node).strip('_') or 'value'}›"


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        if not node.args:
            return _name(node.func.value) if isinstance(node.func, ast.Attribute) else _name(node.func)
        inner = _name(node.args[0])
        return f"number of {inner}" if _name(node.func) == "len" else inner
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    for part in ("value", "elt", "body", "left", "operand"):  # of a subscript, a comprehension, a choice, a sum
        if isinstance(inside := getattr(node, part, None), ast.expr):
            return _name(inside)
    return "value"


def scala_errors(path: Path) -> Iterator[Raised]:
    """Yield the conditions that a Scala file raises."""
    text = path.read_text(encoding="utf-8")
    for found in _SCALA.finditer(text):
        arguments = _arguments(text, found.start() + len("new ") + len(found.group(1)))
        what, remedy = (_scala_template(argument) for argument in arguments[2:4])
        yield Raised(found.group(2), found.group(1), f"the shim, {path.name}", what, remedy)


def _arguments(text: str, opening: int) -> list[str]:
    """Return the arguments of a call whose parenthesis opens at ``opening``."""
    depth, quoted, start, parts, at = 0, False, opening + 1, [], opening
    while at < len(text):
        letter = text[at]
        if letter == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted and letter in "([{":
            depth += 1
        elif not quoted and letter in ")]}":
            depth -= 1
            if not depth:
                return [*parts, text[start:at]]
        elif not quoted and letter == "," and depth == 1:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    raise ValueError(f"a call that does not end: {text[opening : opening + 80]}")


def _scala_template(expression: str) -> str:
    pieces = re.findall(r's?"((?:[^"\\]|\\.)*)"|([A-Za-z][\w.]*)', expression)
    if not any(literal for literal, _ in pieces):
        return f"‹{expression.strip().split('.')[-1]}›"
    text = "".join(literal for literal, _ in pieces)
    text = re.sub(r"\$\{([^{}]*)\}", lambda m: f"‹{re.findall(r'[A-Za-z]+', m.group(1))[-1]}›", text)
    return re.sub(r"\$(\w+)", r"‹\1›", text)


def page() -> str:
    """Return the page's text."""
    raised: dict[str, list[Raised]] = {}
    for package in ("python/strandline", "connector/pyspark_strandline"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for error in package_errors(path) if path.name == "errors.py" else inline_errors(path):
                raised.setdefault(error.condition, []).append(error)
    for path in sorted((ROOT / "jvm-shim/src/main").rglob("*.scala")):
        for error in scala_errors(path):
            raised.setdefault(error.condition, []).append(error)
    parts = [_HEAD]
    for condition in sorted(raised):
        parts.append(f"\n## {condition}\n\n")
        shown: dict[tuple[str, str], list[Raised]] = {}
        for error in raised[condition]:
            shown.setdefault((error.what, error.remedy), []).append(error)
        for (what, remedy), places in shown.items():
            kinds = ", ".join(f"`{kind}`" for kind in sorted({error.kind for error in places}))
            text = " ".join(f"{what} *{remedy.strip()}*".split()) if remedy.strip() else " ".join(what.split())
            where = ", ".join(sorted({error.where for error in places}))
            parts.append(f"- {text} ({kinds} of {where})\n")
    return "".join(parts)


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    text = page()
    if parser.parse_args().check:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.name} is not what the sources say: run python tools/error_reference.py", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
