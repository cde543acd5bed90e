"""What the recorded steps of a query do to a time: the least times of its output that a row at the time can still cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import Lex, Product, Scalar, Time, TimeDomain, parse_domain
from strandline.time.entry import Entry

__all__ = ["least_images"]

_DEEPEST = 50


class _Unknown(Exception):  # noqa: N818 - it ends a walk, and is no error of it
    """The image is not known: others write logs, too, and later releases may have other steps."""


def least_images(
    steps: Sequence[Any], domain: TimeDomain, output: TimeDomain, time: Time, inner: str | None = None
) -> list[Time] | None:
    """Return the least images of a time and all later ones; ``None`` if they are not known. Without any, no row arrives.

    The steps are those of a path summary (docs/protocol.md).

    Args:
        steps: The steps, in order.
        domain: The domain of ``time``.
        output: The domain that the steps must lead to.
        time: The time.
        inner: The domain that the times enter before the first step. If it is not recorded, it is ``domain`` itself, or else
            ``output``, whichever leads to ``output``.

    >>> from strandline.time.domain import int64, product, timestamp
    >>> least_images([], int64, int64, 7), least_images([{"shift": -2}], int64, int64, 7)
    ([7], [5])
    >>> least_images([{"window": "start", "width": 10, "slide": 10, "offset": 0}], timestamp, timestamp, 17)
    [10]
    >>> loop = product(epoch="int64", iter="int64")
    >>> around, out = [{"shift": 1, "coordinate": "iter"}], [{"coordinate": "epoch"}]
    >>> least_images(out, loop, int64, (3, 9)), least_images(around, int64, loop, 3)
    ([3], [(3, 1)])
    >>> print(least_images(out, int64, int64, 3), least_images(out, int64, int64, 3, str(loop)))
    None [3]
    """
    try:
        entered = [domain, output] if inner is None else [parse_domain(inner)]
    except StrandlineError:
        return None
    for begin in entered:
        try:
            reached, images = _walk(steps, begin, [Entry(domain, begin).time(time)])
        except (_Unknown, StrandlineError):
            continue
        if reached == output:
            return list(Antichain(output, images))
    return None


def _walk(steps: Any, domain: TimeDomain, times: list[Time], depth: int = 0) -> tuple[TimeDomain, list[Time]]:
    if not isinstance(steps, Sequence) or isinstance(steps, str) or depth > _DEEPEST:
        raise _Unknown
    for step in steps:
        if not isinstance(step, dict):
            raise _Unknown
        if {"least"} <= set(step) <= {"least", "together"}:
            paths = step["least"]
            if not isinstance(paths, list) or not paths:
                raise _Unknown
            ways = [_walk(path, domain, times, depth + 1) for path in paths]
            if any(reached != ways[0][0] for reached, _ in ways):
                raise _Unknown
            domain, times = ways[0][0], [time for _, found in ways for time in found]
        elif set(step) == {"enter"} and isinstance(step["enter"], str):
            entry = Entry(domain, parse_domain(step["enter"]))
            domain, times = entry.inner, [entry.time(time) for time in times]
        elif set(step) in ({"coordinate"}, {"coordinates"}):
            domain, times = _chosen(step, domain, times)
        else:
            path = _path(step)
            inner = {key: value for key, value in step.items() if key != "coordinate"}
            moved = [_moved(inner, domain, path, time) for time in times]
            times = [time for time in moved if time is not None]
    return domain, times


def _chosen(step: dict[str, Any], domain: TimeDomain, times: list[Time]) -> tuple[TimeDomain, list[Time]]:
    """Go to some coordinates: of a ``lex`` domain to its first ones."""
    names = [step["coordinate"]] if "coordinate" in step else step["coordinates"]
    parts = domain.coordinates
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _Unknown
    kept = [i for i, (name, _) in enumerate(parts) if name in names]
    if not kept or len(kept) < len(set(names)) or (isinstance(domain, Lex) and kept != list(range(len(kept)))):
        raise _Unknown
    if "coordinate" in step:
        return parts[kept[0]][1], [time[kept[0]] for time in times]
    there = tuple(parts[i] for i in kept)
    return (Lex(there) if isinstance(domain, Lex) else Product(there)), [tuple(time[i] for i in kept) for time in times]


def _path(step: dict[str, Any]) -> list[str]:
    name = step.get("coordinate", "")
    if not isinstance(name, str):
        raise _Unknown
    return name.split(".") if name else []


def _moved(step: dict[str, Any], domain: TimeDomain, path: list[str], time: Time) -> Time | None:
    """Return the image of a time, or ``None`` where the least of the later times has no place in the domain either."""
    if isinstance(domain, Scalar):
        if path:
            raise _Unknown
        image, apart = _scalar(step, time)
        if image < domain.minimum:  # the images of later times are so far apart
            image += (domain.minimum - image + apart - 1) // apart * apart
        return image if image <= domain.maximum else None
    at = next((i for i, (name, _) in enumerate(domain.coordinates) if path[:1] == [name]), None)
    if at is None:
        raise _Unknown
    part = _moved(step, domain.coordinates[at][1], path[1:], time[at])
    if not isinstance(domain, Lex):
        return None if part is None else (*time[:at], part, *time[at + 1 :])
    if part is None:
        if at:
            raise _Unknown  # a later time of the coordinates before it may have an image
        return None
    return (*time[:at], part, *(each.minimum for _, each in domain.coordinates[at + 1 :]))


def _scalar(step: dict[str, Any], time: int) -> tuple[int, int]:
    """Return the least image of a scalar time, and how far later images are apart."""
    if step.keys() == {"window", "session"} and step["session"] is True and step["window"] in ("end", "time"):
        return time - (step["window"] == "time"), 1  # a session may end right after a row that is merged into it
    numbers = {key: value for key, value in step.items() if type(value) is int}
    if step.keys() == numbers.keys() == {"shift"}:
        return time + numbers["shift"], 1
    if step.keys() == numbers.keys() == {"truncate", "offset"} and numbers["truncate"] > 0:
        return time - (time - numbers["offset"]) % numbers["truncate"], numbers["truncate"]
    bounds = {"start": 0, "end": numbers.get("width", 0), "time": numbers.get("width", 0) - 1}
    bound = step.get("window")
    if (
        numbers.keys() == {"width", "slide", "offset"}
        and step.keys() == {"window", *numbers}
        and isinstance(bound, str)
        and bound in bounds
        and numbers["slide"] > 0
    ):
        last = time - (time - numbers["offset"]) % numbers["slide"]
        first = last - (numbers["width"] - 1 - (time - last)) // numbers["slide"] * numbers["slide"]
        return first + bounds[bound], numbers["slide"]
    raise _Unknown
