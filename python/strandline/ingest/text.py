"""Policies as text, ``bounded(60 minutes)``: what SQL and Connect users write into the option, and what reports show."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from strandline.ingest.errors import PolicyError

if TYPE_CHECKING:
    from strandline.ingest.policy import Policy

__all__ = ["parse_policy", "quote", "split", "unquote"]

_MAX_TEXT = 1 << 16
_MAX_DEPTH = 8
_BARE = re.compile(r"[\w.*?/+-]+( [\w.*?/+-]+)*")
_CALL = re.compile(r"\s*([A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?)\s*\((.*)\)\s*", re.DOTALL)


def quote(text: str) -> str:
    """``text`` as an argument: bare when that is clear, else in single quotes, which are doubled inside.

    >>> quote("60 minutes"), quote("s3://lake/o'hare")
    ('60 minutes', "'s3://lake/o''hare'")
    """
    return text if _BARE.fullmatch(text) else "'" + text.replace("'", "''") + "'"


def unquote(text: str) -> str:
    """The value of an argument that :func:`quote` gave."""
    text = text.strip()
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        return text[1:-1].replace("''", "'")
    return text


def split(text: str, separator: str, most: int = -1) -> list[str]:
    """Cut at ``separator`` where it is outside of quotes and parentheses; at most ``most`` cuts.

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
                raise _invalid(text, "closes a parenthesis that it does not open")
        elif letter == separator and not depth and most:
            parts.append(text[start:at])
            start, most = at + 1, most - 1
    if quoted or depth:
        raise _invalid(text, "ends within quotes" if quoted else "lacks a closing parenthesis")
    return [*parts, text[start:]]


def parse_policy(text: str) -> Policy:
    """Read a policy's text. Raises :class:`PolicyError` that says what is wrong, and what there is.

    >>> parse_policy("bounded(1 hour)")
    bounded(1 hour)
    >>> parse_policy("bound(1 hour)")
    Traceback (most recent call last):
    strandline.ingest.errors.PolicyError: [STRANDLINE_POLICY_INVALID] ... Did you mean bounded? ...
    """
    if len(text) > _MAX_TEXT or _depth(text) > _MAX_DEPTH:
        raise _invalid(text[:60] + "…", f"is longer than {_MAX_TEXT} characters or nests deeper than {_MAX_DEPTH}")
    match = _CALL.fullmatch(text)
    if match is None:
        raise _invalid(text, "is not of the form name(arguments)")
    arguments = [part.strip() for part in split(match.group(2), ",")]
    if arguments == [""]:
        arguments = []
    if not all(arguments):
        raise _invalid(text, "has an empty argument")
    return policy_class(match.group(1), text).from_arguments(arguments)


def _depth(text: str) -> int:
    deepest = depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        deepest = max(deepest, depth)
    return deepest


def policy_class(name: str, text: str) -> type[Policy]:
    """The class that a text's name means: one of ours, or ``module:Class`` of a user's."""
    import difflib

    from strandline.ingest import policies
    from strandline.ingest.policy import Policy

    ours = {kind.kind: kind for kind in policies.ALL if kind.kind}
    if name in ours:
        return ours[name]
    if ":" not in name:
        near = difflib.get_close_matches(name, [n for n in ours if n], n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        known = ", ".join(sorted(n for n in ours if n))
        raise PolicyError(
            "STRANDLINE_POLICY_INVALID",
            f"{text!r}: there is no policy {name!r}.",
            f"{hint}There are {known}, and package.module:Class for one of your own.",
        )
    module, _, attribute = name.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise PolicyError(
            "STRANDLINE_POLICY_INVALID",
            f"{text!r}: {name!r} cannot be imported ({error}).",
            "Install its module where the Spark driver runs.",
        ) from None
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise PolicyError(
            "STRANDLINE_POLICY_INVALID", f"{text!r}: {name!r} is no policy.", "Derive it from strandline.ingest.Policy."
        )
    return found


def _invalid(text: str, what: str) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_INVALID",
        f"The policy {text!r} {what}.",
        "Write it like bounded(60 minutes), ordered() or composed(kafka-*: bounded(5 minutes), *: ordered()).",
    )
