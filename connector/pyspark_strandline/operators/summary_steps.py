"""Moves of times: steps of path summaries, and the domain of their results. No Spark here: laws and messages only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from strandline.errors import StrandlineError
from strandline.time.domain import Lex, Product, Scalar, Time, TimeDomain, int64
from strandline.time.duration import Duration
from strandline.time.entry import Entry

__all__ = [
    "By",
    "TimeTransform",
    "advancing",
    "around",
    "entering",
    "image",
    "leaving",
    "projecting",
    "steps_from",
    "truncating",
    "with_coordinate",
]

By: TypeAlias = str | int | timedelta
"""A distance: a duration for a timestamp (``"1 day"``, a ``timedelta``), a number for an integer coordinate."""


@dataclass(frozen=True)
class TimeTransform:
    """A change of times: ``steps`` as in docs/protocol.md, applied left to right, and the domain of the results."""

    steps: tuple[dict[str, Any], ...]
    target: TimeDomain


def advancing(domain: TimeDomain, by: By | Mapping[str, By], coordinate: str | None = None) -> TimeTransform:
    """Advance times, as :func:`strandline.time.summary.advance` does. Several coordinates move in the order of the mapping.

    >>> from strandline.time.domain import lex, product, timestamp
    >>> advancing(timestamp, "1 day").steps
    ({'shift': 86400000000},)
    >>> advancing(product(epoch="int64", iter="int64"), {"iter": 1, "epoch": 0}).steps
    ({'shift': 1, 'coordinate': 'iter'},)
    >>> advancing(timestamp, "-1 day")
    Traceback (most recent call last):
    strandline.errors.DurationError: [STRANDLINE_DELAY_INVALID] The advance is -1 day, which is negative. Give 0 or more.
    """
    if isinstance(by, Mapping):
        if coordinate is not None:
            raise _invalid(
                domain, f"has the coordinate {coordinate!r} in addition to those of {dict(by)}", "Name each once, in the mapping."
            )
        each: list[tuple[str | None, By]] = list(by.items())
    else:
        each = [(coordinate, by)]
    steps = []
    for path, distance in each:
        leaf = _leaf(domain, path)
        what = f"The advance of {path}" if path else "The advance"
        shift = Duration.of(distance, what).within(leaf, what)
        if shift > leaf.maximum - leaf.minimum:
            raise StrandlineError(
                "STRANDLINE_TIME_OVERFLOW",
                f"{what} is {shift}, which moves every time of {leaf} beyond the greatest time.",
                f"Advance by at most {leaf.maximum - leaf.minimum}.",
            )
        if shift:
            steps.append({"shift": shift, **_at(path)})
    return TimeTransform(tuple(steps), domain)


def truncating(domain: TimeDomain, unit: By, coordinate: str | None = None, offset: By = 0) -> TimeTransform:
    """Round times down to a multiple of ``unit``, counted from ``offset`` (for timestamps: after 1970-01-01 UTC).

    >>> from strandline.time.domain import product, timestamp
    >>> truncating(timestamp, "1 hour", offset="15 minutes").steps
    ({'truncate': 3600000000, 'offset': 900000000},)
    >>> truncating(product(epoch="int64", iter="int64"), 10, "epoch").steps
    ({'truncate': 10, 'offset': 0, 'coordinate': 'epoch'},)
    """
    leaf = _leaf(domain, coordinate)
    of = f" of {coordinate}" if coordinate else ""
    size = Duration.of(unit, f"The unit{of}").within(leaf, f"The unit{of}")
    start = Duration.of(offset, f"The offset{of}").within(leaf, f"The offset{of}")
    if size == 0:
        raise _invalid(domain, f"truncates{of} to a unit of 0", "Give a unit of more than 0.")
    if size == 1 and not _followed(domain, coordinate):
        return TimeTransform((), domain)
    return TimeTransform(({"truncate": size, "offset": start % size, **_at(coordinate)},), domain)


def projecting(domain: TimeDomain, coordinates: str | Sequence[str]) -> TimeTransform:
    """Keep some coordinates of times: any of a product, the first ones of a ``lex`` time. A single one becomes the bare time.

    >>> from strandline.time.domain import product
    >>> d = product(event="timestamp", loop="lex(outer int64, inner int64)", n="int32")
    >>> str(projecting(d, ["event", "n"]).target), str(projecting(d, "event").target), str(projecting(d, "loop.outer").target)
    ('product(event timestamp, n int32)', 'timestamp', 'int64')
    >>> projecting(d, "loop.inner")
    Traceback (most recent call last):
    strandline.errors.StrandlineError: [STRANDLINE_SUMMARY_INVALID] A path summary of lex(outer int64, inner int64) ...
    """
    if isinstance(coordinates, str):
        steps: list[dict[str, Any]] = []
        target = domain
        for name in coordinates.split("."):
            target = _kept(target, [name]).parts[0][1]
            steps.append({"coordinate": name})
        return TimeTransform(tuple(steps), target)
    names = list(coordinates)
    kept = _kept(domain, names)
    if len(names) == 1:
        return TimeTransform(({"coordinate": names[0]},), kept.parts[0][1])
    if kept == domain:
        return TimeTransform((), domain)
    return TimeTransform(({"coordinates": [name for name, _ in kept.parts]},), kept)


def entering(domain: TimeDomain, inner: TimeDomain) -> TimeTransform:
    """Enter a loop: times get the coordinates of ``inner`` that they lack (:class:`strandline.time.entry.Entry`).

    >>> from strandline.time.domain import int64, product
    >>> entering(int64, product(epoch="int64", iter="int64")).steps
    ({'enter': 'product(epoch int64, iter int64)'},)
    >>> entering(int64, int64).steps
    ()
    >>> entering(product(a="int64", b="int64"), product(b="int64", c="int64"))
    Traceback (most recent call last):
    strandline.errors.SummaryError: [STRANDLINE_SUMMARY_INVALID] Times of product(a int64, b int64) do not enter product(b ...
    """
    Entry(domain, inner)  # raises if they do not fit
    return TimeTransform(() if domain == inner else ({"enter": str(inner)},), inner)


def with_coordinate(domain: TimeDomain, coordinate: str, outer: str) -> TimeDomain:
    """Return ``domain`` with one more coordinate, an ``int64``. A scalar domain becomes the coordinate ``outer`` of a product.

    >>> from strandline.time.domain import int64, lex
    >>> str(with_coordinate(int64, "iter", "day")), str(with_coordinate(lex(tick="int64", i="int64"), "j", "time"))
    ('product(day int64, iter int64)', 'lex(tick int64, i int64, j int64)')
    """
    if isinstance(domain, (Product, Lex)):
        return type(domain)((*domain.parts, (coordinate, int64)))
    return Product(((outer, domain), (coordinate, int64)))


def leaving(domain: TimeDomain, outer: TimeDomain) -> TimeTransform:
    """Leave a loop: keep the coordinates of ``outer``, from which times enter ``domain`` (:class:`strandline.time.entry.Entry`).

    >>> from strandline.time.domain import int64, product
    >>> leaving(product(epoch="int64", i="int64", j="int64"), product(epoch="int64", i="int64")).steps
    ({'coordinates': ['epoch', 'i']},)
    >>> leaving(product(epoch="int64", iter="int64"), int64).steps
    ({'coordinate': 'epoch'},)
    """
    Entry(outer, domain)  # raises if they do not fit
    if domain == outer:
        return TimeTransform((), domain)
    names = [name for name, _ in domain.coordinates]
    mine = outer.coordinates
    if type(outer) is type(domain) and domain.coordinates[: len(mine)] == mine:
        return projecting(domain, names[: len(mine)])
    first = projecting(domain, names[0])
    return TimeTransform((*first.steps, *leaving(first.target, outer).steps), outer)


def around(domain: TimeDomain, outer: TimeDomain, by: Mapping[str, By]) -> TimeTransform:
    """Go around a loop: leave it to the domain of a feedback channel, and advance there. A scalar time is named by an empty name.

    >>> from strandline.time.domain import int64, product
    >>> around(product(epoch="int64", iter="int64"), int64, {"": 2}).steps
    ({'coordinate': 'epoch'}, {'shift': 2})
    """
    left = leaving(domain, outer)
    moved = advancing(outer, by if outer.coordinates else by.get("", 0))
    return TimeTransform((*left.steps, *moved.steps), moved.target)


def steps_from(summary: Sequence[Mapping[str, Any]], name: str | None) -> list[Mapping[str, Any]]:
    """Return the paths of a summary that begin at an input of a source of several channels, as steps without that beginning.

    A path that names no input begins at all of them. If no path leads on from the input, the result is the least of no paths.

    Args:
        summary: The steps, as the shim publishes them (docs/protocol.md).
        name: The input. ``None``: the source does not say which inputs its channels are, so every path counts.

    >>> both = [{"least": [[{"input": "a"}], [{"input": "b"}, {"shift": 2}]]}, {"coordinate": "day"}]
    >>> steps_from(both, "b"), steps_from(both, "c")
    ([{'shift': 2}, {'coordinate': 'day'}], [{'least': []}])
    >>> steps_from(both, None)
    [{'least': [[{'coordinate': 'day'}], [{'shift': 2}, {'coordinate': 'day'}]]}]
    >>> steps_from([{"shift": 2}], "a")
    [{'shift': 2}]
    """
    found = [path for start, path in _paths(list(summary)) if start is None or name is None or start == name]
    alike = [path for at, path in enumerate(found) if path not in found[:at]]
    return alike[0] if len(alike) == 1 else [{"least": alike}]


def _paths(steps: list[Mapping[str, Any]]) -> list[tuple[str | None, list[Mapping[str, Any]]]]:
    """Return each path of a summary: its input, and the steps from there."""
    first = steps[0] if steps else {}
    if "input" in first:
        return [(first["input"], steps[1:])]
    if "least" in first:
        several = [path for each in first["least"] for path in _paths(each)]
        if any(start is not None for start, _ in several):
            return [(start, [*path, *steps[1:]]) for start, path in several]
    return [(None, steps)]


def image(domain: TimeDomain, steps: Sequence[Mapping[str, Any]], time: Time) -> Time | None:
    """Return where steps of :func:`advancing` and :func:`projecting` lead a row's time; ``None`` if it leaves its domain.

    Raises :class:`StrandlineError` if they are not steps of the domain.

    >>> from strandline.time.domain import product
    >>> domain = product(epoch="int64", iter="int64")
    >>> image(domain, [{"shift": 1, "coordinate": "iter"}], (7, 2)), image(domain, [{"coordinate": "epoch"}], (7, 2))
    ((7, 3), 7)
    >>> image(domain, [{"shift": 1, "coordinate": "iter"}], (7, 2**63 - 1)) is None
    True
    """
    for step in steps:
        if "shift" in step:
            _leaf(domain, step.get("coordinate"))
            moved = _shifted(domain, step.get("coordinate", "").split(".") if step.get("coordinate") else [], step["shift"], time)
            if moved is None:
                return None
            time = moved
            continue
        kept = step["coordinates"] if "coordinates" in step else [step["coordinate"]]
        left, names = projecting(domain, kept).target, [name for name, _ in domain.coordinates]
        values = tuple(time[names.index(name)] for name in kept)
        domain = left
        time = values if "coordinates" in step else values[0]
    return time


def _shifted(domain: TimeDomain, path: Sequence[str], by: int, time: Time) -> Time | None:
    if isinstance(domain, Scalar):
        return time + by if time + by <= domain.maximum else None
    names = [name for name, _ in domain.coordinates]
    at = names.index(path[0])
    moved = _shifted(domain.coordinates[at][1], path[1:], by, time[at])
    if moved is None:
        return None
    rest = time[at + 1 :] if isinstance(domain, Product) else tuple(part.minimum for _, part in domain.coordinates[at + 1 :])
    return (*time[:at], moved, *rest)


def _kept(domain: TimeDomain, names: list[str]) -> Product | Lex:
    """Return the named coordinates of ``domain``, in its order."""
    if not isinstance(domain, (Product, Lex)):
        raise _invalid(domain, f"keeps {', '.join(names)}, but a scalar time has no coordinates", "Do not project it.")
    have = [name for name, _ in domain.parts]
    wrong = [name for name in names if name not in have or names.count(name) > 1]
    if wrong or not names:
        what = f"cannot keep the coordinates {', '.join(map(repr, wrong))}" if names else "keeps no coordinate"
        raise _invalid(domain, what, f"Name some of {', '.join(have)}, each once.")
    kept = tuple(part for part in domain.parts if part[0] in names)
    if isinstance(domain, Lex) and kept != domain.parts[: len(kept)]:
        raise _invalid(
            domain,
            f"keeps {', '.join(names)}, which may move back when a coordinate before it advances",
            f"Keep the first coordinates: {', '.join(have[: len(names)])}.",
        )
    return type(domain)(kept)


def _leaf(domain: TimeDomain, path: str | None) -> Scalar:
    """Return the scalar domain at ``path``, which is names joined by dots. A scalar time has no path."""
    part = domain
    for name in path.split(".") if path else ():
        have = dict(part.coordinates)
        if name not in have:
            remedy = f"Use one of {', '.join(have)}." if have else "Leave the coordinate out: a scalar time has none."
            raise _invalid(part, f"names the unknown coordinate {name!r}", remedy)
        part = have[name]
    if not isinstance(part, Scalar):
        names = [".".join(leaf) for leaf, _ in part.leaves()]
        prefix = f"{path}." if path else ""
        raise _invalid(
            domain,
            f"moves the composite coordinate {path}" if path else "names no coordinate to move",
            f"Name one of {', '.join(prefix + name for name in names)}.",
        )
    return part


def _followed(domain: TimeDomain, path: str | None) -> bool:
    """Whether coordinates come after the one at ``path`` in a ``lex`` time. They get their least values when it moves."""
    part = domain
    for name in path.split(".") if path else ():
        if isinstance(part, Lex) and part.parts[-1][0] != name:
            return True
        part = dict(part.coordinates)[name]
    return False


def _at(coordinate: str | None) -> dict[str, str]:
    return {"coordinate": coordinate} if coordinate else {}


def _invalid(domain: TimeDomain, what: str, remedy: str) -> StrandlineError:
    return StrandlineError("STRANDLINE_SUMMARY_INVALID", f"A path summary of {domain} {what}.", remedy)
