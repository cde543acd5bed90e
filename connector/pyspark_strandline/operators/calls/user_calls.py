"""Calls of user code: what a message and an exception say about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from pyspark_strandline.operators import errors
from pyspark_strandline.operators.results.rules import type_name
from strandline.errors import StrandlineError

__all__ = ["name_of", "noted", "python_key"]


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class of a callable object.

    >>> name_of(name_of), name_of(lambda: 1)
    ('name_of', '<lambda>')
    """
    return str(getattr(function, "__name__", type(function).__name__))


@contextmanager
def noted(where: Callable[[], str]) -> Iterator[None]:
    """Add a note to an exception of user code, with the key and the time of the call. From Python 3.11 on a traceback has it.

    >>> with noted(lambda: "In on_rows of Count, at the time 3."):  # doctest: +SKIP
    ...     1 / 0
    Traceback (most recent call last):
    ZeroDivisionError: division by zero
    In on_rows of Count, at the time 3.
    """
    try:
        yield
    except StrandlineError:
        raise  # it says so itself
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(where())
        raise


def python_key(values: Sequence[pa.Array], names: Sequence[str]) -> tuple[Any, ...]:
    """Return a key's values, each the first of an array. Raises :class:`StrandlineError` for one that Python has no value for.

    >>> python_key([pa.array(["a"]), pa.array([1])], ["k", "n"])
    ('a', 1)
    """
    return tuple(_python(value, name) for value, name in zip(values, names, strict=True))


def _python(value: pa.Array, name: str) -> Any:
    try:
        return value[0].as_py()
    except (OverflowError, ValueError) as error:
        raise errors.key_invalid_value(name, type_name(value.type), error) from error
