"""The arguments of a policy's text form: quoted, unquoted, and split."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from strandline.errors import DurationError, PolicyError
from strandline.ingest.policies import errors

__all__ = ["as_policy_error", "quote", "split", "split_named", "unquote"]

_BARE = re.compile(r"[\w.*?/+-]+( [\w.*?/+-]+)*")


def quote(text: str) -> str:
    """Return ``text`` as an argument: bare when that is clear, else in single quotes. Quotes inside are doubled.

    >>> quote("60 minutes"), quote("s3://lake/o'hare")
    ('60 minutes', "'s3://lake/o''hare'")
    """
    return text if _BARE.fullmatch(text) else "'" + text.replace("'", "''") + "'"


def unquote(text: str) -> str:
    """Return the value of an argument that :func:`quote` returned."""
    text = text.strip()
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        return text[1:-1].replace("''", "'")
    return text


def split(text: str, separator: str, most: int = -1) -> list[str]:
    """Split at ``separator`` outside quotes and parentheses, at most ``most`` times.

    >>> split("a, 'b, c', f(d, e)", ",")
    ['a', " 'b, c'", ' f(d, e)']
    """
    parts, depth, quoted, start = [], 0, False, 0
    for at, letter in enumerate(text):
        if letter == "'":
            quoted = not quoted
        elif quoted:
            continue
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth < 0:
                raise errors.policy_invalid_unopened(text)
        elif letter == separator and not depth and most:
            parts.append(text[start:at])
            start, most = at + 1, most - 1
    if quoted or depth:
        raise errors.policy_invalid_quote(text) if quoted else errors.policy_invalid_parenthesis(text)
    return [*parts, text[start:]]


def split_named(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the positional arguments, and the arguments given as ``name=value``."""
    positional: list[str] = []
    named: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name.strip().isidentifier():
            named[name.strip()] = unquote(value)
        else:
            positional.append(unquote(argument))
    return positional, named


@contextmanager
def as_policy_error() -> Iterator[None]:
    """Raise a wrong duration as the :class:`PolicyError` of the policy or option that has it."""
    try:
        yield
    except DurationError as error:
        raise PolicyError(error.condition, error.what, error.remedy) from None
