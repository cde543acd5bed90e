"""Policies as text, ``bounded(60 minutes)``. SQL and Connect users write this text into the option, and reports show it."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterator
from contextvars import ContextVar

from strandline.errors import PolicyError, StrandlineError
from strandline.ingest.policies import errors
from strandline.ingest.policies.arguments import split
from strandline.ingest.policies.policy import Policy

__all__ = ["parse_policy", "recorded_policy"]

_MAX_TEXT = 1 << 16
_MAX_DEPTH = 8
_CALL = re.compile(r"\s*([A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?)\s*\((.*)\)\s*", re.DOTALL)


def parse_policy(text: str) -> Policy:
    """Parse a policy's text. Raises :class:`PolicyError`, which says what is wrong and which policies exist.

    >>> parse_policy("bounded(1 hour)")
    bounded(1 hour)
    >>> parse_policy("bound(1 hour)")
    Traceback (most recent call last):
    strandline.errors.PolicyError: [STRANDLINE_POLICY_INVALID] ... Did you mean bounded? ...
    """
    if len(text) > _MAX_TEXT or _depth(text) > _MAX_DEPTH:
        raise errors.policy_invalid_size(text, _MAX_TEXT, _MAX_DEPTH)
    match = _CALL.fullmatch(text)
    if match is None:
        raise errors.policy_invalid_form(text)
    arguments = [part.strip() for part in split(match.group(2), ",")]
    if arguments == [""]:
        arguments = []
    if not all(arguments):
        raise errors.policy_invalid_empty_argument(text)
    return _made(match.group(1), arguments, text)


def _made(name: str, arguments: list[str], text: str) -> Policy:
    """Return the policy. What a user's class raises on its own account becomes a :class:`PolicyError`, with its cause."""
    try:
        kind = policy_class(name, text)
    except StrandlineError:
        raise
    except Exception as error:  # the module runs when it is imported
        raise errors.policy_failed_to_make(text, name, error) from error
    try:
        return kind.from_arguments(arguments)
    except StrandlineError as error:
        if isinstance(error, PolicyError) or _imports.get() or name in Policy.kinds():
            raise  # it says what is wrong with the text
        raise errors.policy_failed_to_make(text, name, error) from error
    except Exception as error:
        raise errors.policy_failed_to_make(text, name, error) from error


_imports: ContextVar[bool] = ContextVar("_imports", default=True)


def recorded_policy(text: object) -> Policy | None:
    """Return the policy that a channel's log names, or ``None`` if it is not one of ours, and no class that is loaded.

    Anyone may have written the log. Therefore nothing is imported. Raises :class:`PolicyError` ``STRANDLINE_POLICY_FAILED`` if a
    user's class is loaded and raises an error: without the policy, what it has promised would be judged otherwise.

    >>> recorded_policy("ordered()"), recorded_policy("os:system('ls')")
    (ordered(), None)
    """
    if not isinstance(text, str):
        return None
    token = _imports.set(False)
    try:
        return parse_policy(text)
    except StrandlineError as error:
        if error.condition == "STRANDLINE_POLICY_FAILED":
            raise
        return None
    finally:
        _imports.reset(token)


def _loaded(kind: type[Policy] = Policy) -> Iterator[type[Policy]]:
    for child in kind.__subclasses__():
        yield child
        yield from _loaded(child)


def _depth(text: str) -> int:
    deepest = depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        deepest = max(deepest, depth)
    return deepest


def policy_class(name: str, text: str) -> type[Policy]:
    """Return the class that a text's name means: one of ours, or a user's ``module:Class``."""
    ours = Policy.kinds()
    if name in ours:
        return ours[name]
    if ":" not in name:
        near = difflib.get_close_matches(name, list(ours), n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise errors.policy_invalid_unknown(text, name, hint, sorted(ours))
    if not _imports.get():
        for loaded in _loaded():
            if loaded.name() == name:
                return loaded
        raise errors.policy_invalid_unloaded(text, name)
    module, _, attribute = name.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise errors.policy_invalid_import(text, name, error) from None
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise errors.policy_invalid_class(text, name)
    return found
