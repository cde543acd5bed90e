"""Calls of a policy, which a user may have written: what it raises is named, and what it returns is checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from strandline.channel.statements.nullable_int64 import Ints
from strandline.errors import IngestError, PolicyError, TimeError
from strandline.ingest import errors
from strandline.ingest.policies.policy import Observation, Policy, promised_at_once
from strandline.time.domain import Scalar, Time, TimeDomain

__all__ = ["calling", "names_of", "promise_of", "promises_of"]

_T = TypeVar("_T")


@contextmanager
def calling(policy: Policy, method: str, partition: str | None = None) -> Iterator[None]:
    """Raise what a user's policy raises in the block as :class:`PolicyError` ``STRANDLINE_POLICY_FAILED``, with its cause.

    What the policies of this project raise names itself already, so it passes.

    >>> class Broken(Policy):
    ...     def promise(self, seen, state): return 1 / 0
    ...     def arguments(self): return []
    >>> with calling(Broken(), "promise", "a"):
    ...     Broken().promise(None, None)
    Traceback (most recent call last):
    strandline.errors.PolicyError: [STRANDLINE_POLICY_FAILED] promise of the policy ...Broken raised ZeroDivisionError for
    partition 'a': division by zero. ...
    """
    try:
        yield
    except (PolicyError, IngestError):
        raise
    except Exception as error:
        owner = _users(policy)
        if owner is None:
            raise
        raise errors.policy_failed(method, owner.name(), error, partition) from error


def promise_of(policy: Policy, seen: Observation, state: Any, domain: TimeDomain) -> tuple[list[Time] | None, Any]:
    """Return what :meth:`Policy.promise` returns, with times of ``domain``.

    Raises :class:`PolicyError` ``STRANDLINE_POLICY_FAILED`` if a user's policy raises an error, or returns anything but lower
    bounds and a state that is a JSON value.
    """
    with calling(policy, "promise", seen.partition):
        result = policy.promise(seen, state)
        if not isinstance(result, tuple) or len(result) != 2:
            raise errors.policy_failed_result(_name(policy), result, seen.partition)
        bounds, now = result
        if bounds is None:
            times = None
        elif isinstance(bounds, (str, bytes, Mapping)) or not isinstance(bounds, Iterable):
            raise errors.policy_failed_bounds(_name(policy), bounds, seen.partition)
        else:
            times = [_time(policy, seen, bound, domain) for bound in bounds]
    if now is not None and _users(policy) is not None:
        try:
            json.dumps(now, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise errors.policy_failed_state(_name(policy), now, seen.partition, error) from error
    return times, now


def _time(policy: Policy, seen: Observation, bound: Any, domain: TimeDomain) -> Time:
    try:
        return domain.time(bound, "a lower bound")
    except TimeError as error:
        kind = "whole numbers" if isinstance(domain, Scalar) else "one for each coordinate"
        if isinstance(domain, Scalar) and domain.name == "timestamp":
            kind = "whole microseconds or datetimes with a zone"
        raise errors.policy_failed_bound(_name(policy), bound, seen.partition, domain, kind) from error


def promises_of(policy: Policy, greatest: Ints, domain: TimeDomain) -> Ints | None:
    """Return what :meth:`Policy.promise_all` returns, if it applies. Raises as :func:`promise_of`."""
    with calling(policy, "promise_all"):
        promised = promised_at_once(policy, greatest)
        if promised is None or _users(policy) is None:
            return promised
        numbers = np.asarray(promised)
        fits = numbers.shape == greatest.shape and numbers.dtype.kind in "iu"
        if not fits or (numbers.size and not (domain.has(int(numbers.min())) and domain.has(int(numbers.max())))):
            raise errors.policy_failed_promise_all(_name(policy), promised, len(greatest), domain)
        return numbers.astype(np.int64)


def names_of(policy: Policy, method: str, names: Iterable[_T] | None) -> list[_T] | None:
    """Return the names that a method returned as a list. Raises :class:`PolicyError` if it returned something else."""
    if names is None or (isinstance(names, Iterable) and not isinstance(names, (str, bytes))):
        return None if names is None else list(names)
    raise errors.policy_failed_names(method, _name(policy), names)


def _name(policy: Policy) -> str:
    """Return the name of a user's policy, or that of this one."""
    return (_users(policy) or policy).name()


def _users(policy: object) -> Policy | None:
    """Return a user's policy: this one, or one that it contains. ``None`` if all of them are of this project."""
    if isinstance(policy, Mapping):
        return next((found for each in policy.values() if (found := _users(each)) is not None), None)
    if not isinstance(policy, Policy):
        return None
    if policy.kind is None:
        return policy
    return next((found for each in vars(policy).values() if (found := _users(each)) is not None), None)
