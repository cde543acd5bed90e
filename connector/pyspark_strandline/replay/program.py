"""What a program is, as far as it shows: so that a replay of one program does not go on with another."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["program_digest"]

_IDS = re.compile(r"#\d+L?|@[0-9a-f]+|plan_id=\d+")
_MOST_DEPTH = 4


def program_digest(program: Callable[..., Any], frames: Iterable[DataFrame]) -> str:
    """Return a digest of a function and of the streams that it has made.

    It has the file of the function, or its text; the values that it was made with, where these are plain; and the plans without
    their sources, whose limits may change. A change in another file, in data or in an object of a library is not in it.

    >>> def made_with(n):
    ...     return lambda: n
    >>> program_digest(made_with(1), []) == program_digest(made_with(1), [])
    True
    >>> program_digest(made_with(1), []) == program_digest(made_with(2), [])
    False
    """
    parts = [_source(program), _values(program, _MOST_DEPTH)]
    for frame in frames:
        plan = getattr(frame, "_jdf", None)  # Spark Connect does not show it
        lines = "" if plan is None else plan.queryExecution().analyzed().toString()
        parts.append(_IDS.sub("", "\n".join(line for line in lines.splitlines() if "StreamingRelation" not in line)))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _source(program: Any) -> str:
    function = inspect.unwrap(getattr(program, "func", program))  # of a partial
    try:
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        if module is not None and getattr(module, "__file__", None):
            return inspect.getsource(module)
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return "" if code is None else repr((code.co_code, code.co_names))


def _values(value: Any, depth: int) -> str:
    """Return the plain values in a function or an object, as text. The same values have the same text in every process."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    if depth == 0:
        return ""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_values(each, depth - 1)}" for key, each in sorted(value.items(), key=repr)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_values(each, depth - 1) for each in value) + "]"
    if hasattr(value, "func") and hasattr(value, "keywords"):  # a partial
        return "".join(_values(each, depth - 1) for each in (value.func, value.args, value.keywords))
    code = getattr(value, "__code__", None)
    if code is not None:
        cells = [_of_cell(cell, depth - 1) for cell in value.__closure__ or ()]
        plain = [each for each in code.co_consts if each is None or isinstance(each, (bool, int, float, str, bytes))]
        return f"{value.__qualname__}{plain}{cells}{_values(value.__defaults__, depth - 1)}"
    own = getattr(value, "__self__", None)
    if own is not None and hasattr(own, "__dict__"):  # a method
        return f"{type(own).__qualname__}{_values(vars(own), depth - 1)}"
    return type(value).__qualname__


def _of_cell(cell: Any, depth: int) -> str:
    try:
        return _values(cell.cell_contents, depth)
    except ValueError:  # it is empty
        return ""
