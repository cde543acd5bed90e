"""Moves of times: what users ask for, as steps of path summaries. No Spark here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from pyspark_strandline.operators import errors
from strandline.time.domain import Lex, Product, TimeDomain, int64
from strandline.time.duration import Duration
from strandline.time.path.entry import Entry
from strandline.time.path.steps import EnterStep, ProjectStep, ShiftStep, Steps, TruncateStep, leaf_at

__all__ = [
    "By",
    "advancing",
    "around",
    "distances",
    "entering",
    "leaving",
    "projecting",
    "truncating",
    "with_coordinate",
]

By: TypeAlias = str | int | timedelta
"""A distance: a duration for a timestamp (``"1 day"``, a ``timedelta``), a number for an integer coordinate."""


def advancing(domain: TimeDomain, by: By | Mapping[str, By], coordinate: str | None = None) -> Steps:
    """Advance times, as :func:`strandline.time.path.summary.advance` does. Several coordinates move in the order of the mapping.

    >>> from strandline.time.domain import lex, product, timestamp
    >>> advancing(timestamp, "1 day").to_json()
    [{'shift': 86400000000}]
    >>> advancing(product(epoch="int64", iter="int64"), {"iter": 1, "epoch": 0}).to_json()
    [{'shift': 1, 'coordinate': 'iter'}]
    >>> advancing(timestamp, "-1 day")
    Traceback (most recent call last):
    strandline.errors.DurationError: [STRANDLINE_DELAY_INVALID] The advance is -1 day, which is negative. Give 0 or more.
    """
    if isinstance(by, Mapping):
        if coordinate is not None:
            raise errors.summary_invalid_coordinate(domain, coordinate, by)
        each: list[tuple[str | None, By]] = list(by.items())
    else:
        each = [(coordinate, by)]
    steps = []
    for path, distance in each:
        leaf = leaf_at(domain, path or "")
        what = f"The advance of {path}" if path else "The advance"
        shift = Duration.of(distance, what).within(leaf, what)
        if shift > leaf.maximum - leaf.minimum:
            raise errors.time_overflow(what, shift, leaf, leaf.maximum - leaf.minimum)
        if shift:
            steps.append(ShiftStep(shift, path or ""))
    return Steps(tuple(steps))


def truncating(domain: TimeDomain, unit: By, coordinate: str | None = None, offset: By = 0) -> Steps:
    """Round times down to a multiple of ``unit``, counted from ``offset`` (for timestamps: after 1970-01-01 UTC).

    >>> from strandline.time.domain import product, timestamp
    >>> truncating(timestamp, "1 hour", offset="15 minutes").to_json()
    [{'truncate': 3600000000, 'offset': 900000000}]
    >>> truncating(product(epoch="int64", iter="int64"), 10, "epoch").to_json()
    [{'truncate': 10, 'offset': 0, 'coordinate': 'epoch'}]
    """
    leaf = leaf_at(domain, coordinate or "")
    of = f" of {coordinate}" if coordinate else ""
    size = Duration.of(unit, f"The unit{of}").within(leaf, f"The unit{of}")
    start = Duration.of(offset, f"The offset{of}").within(leaf, f"The offset{of}")
    if size == 0:
        raise errors.summary_invalid_unit(domain, of)
    step = TruncateStep(size, start % size, coordinate or "")
    # To a unit of 1, only the coordinates after this one in a lexicographic time change.
    changes = size > 1 or step.image(domain, domain.maximum) != domain.maximum
    return Steps((step,) if changes else ())


def projecting(domain: TimeDomain, coordinates: str | Sequence[str]) -> Steps:
    """Keep some coordinates of times: any of a product, the first ones of a ``lex`` time. A single one becomes the bare time.

    >>> from strandline.time.domain import product
    >>> d = product(event="timestamp", loop="lex(outer int64, inner int64)", n="int32")
    >>> projecting(d, ["n", "event"]).to_json(), projecting(d, "loop.outer").to_json()
    ([{'coordinates': ['event', 'n']}], [{'coordinate': 'loop'}, {'coordinate': 'outer'}])
    >>> projecting(d, "loop.inner")
    Traceback (most recent call last):
    strandline.errors.SummaryError: [STRANDLINE_SUMMARY_INVALID] A path summary of lex(outer int64, inner int64) ...
    """
    if isinstance(coordinates, str):
        kept = Steps(tuple(ProjectStep((name,), is_bare=True) for name in coordinates.split(".")))
        kept.target(domain)  # raises if they do not fit
        return kept
    target = ProjectStep(tuple(coordinates)).target(domain)
    if target == domain and len(coordinates) > 1:
        return Steps()
    return Steps((ProjectStep(tuple(name for name, _ in target.coordinates), is_bare=len(coordinates) == 1),))


def entering(domain: TimeDomain, inner: TimeDomain) -> Steps:
    """Enter a loop: times get the coordinates of ``inner`` that they lack (:class:`strandline.time.path.entry.Entry`).

    >>> from strandline.time.domain import int64, product
    >>> entering(int64, product(epoch="int64", iter="int64")).to_json(), entering(int64, int64)
    ([{'enter': 'product(epoch int64, iter int64)'}], Steps(steps=()))
    >>> entering(product(a="int64", b="int64"), product(b="int64", c="int64"))
    Traceback (most recent call last):
    strandline.errors.SummaryError: [STRANDLINE_SUMMARY_INVALID] Times of product(a int64, b int64) do not enter product(b ...
    """
    Entry(domain, inner)  # raises if they do not fit
    return Steps(() if domain == inner else (EnterStep(inner),))


def with_coordinate(domain: TimeDomain, coordinate: str, outer: str) -> TimeDomain:
    """Return ``domain`` with one more coordinate, an ``int64``. A scalar domain becomes the coordinate ``outer`` of a product.

    >>> from strandline.time.domain import int64, lex
    >>> str(with_coordinate(int64, "iter", "day")), str(with_coordinate(lex(tick="int64", i="int64"), "j", "time"))
    ('product(day int64, iter int64)', 'lex(tick int64, i int64, j int64)')
    """
    if isinstance(domain, (Product, Lex)):
        return type(domain)((*domain.parts, (coordinate, int64)))
    return Product(((outer, domain), (coordinate, int64)))


def leaving(domain: TimeDomain, outer: TimeDomain) -> Steps:
    """Leave a loop: keep the coordinates of ``outer``, from which times enter ``domain``.

    >>> from strandline.time.domain import int64, product
    >>> leaving(product(epoch="int64", i="int64", j="int64"), product(epoch="int64", i="int64")).to_json()
    [{'coordinates': ['epoch', 'i']}]
    >>> leaving(product(epoch="int64", iter="int64"), int64).to_json()
    [{'coordinate': 'epoch'}]
    """
    Entry(outer, domain)  # raises if they do not fit
    if domain == outer:
        return Steps()
    names = [name for name, _ in domain.coordinates]
    mine = outer.coordinates
    if type(outer) is type(domain) and domain.coordinates[: len(mine)] == mine:
        return projecting(domain, names[: len(mine)])
    first = projecting(domain, names[0])
    return Steps(first.steps + leaving(first.target(domain), outer).steps)


def distances(domain: TimeDomain, by: Mapping[str, By]) -> dict[str, int]:
    """Return by how much each coordinate advances, in its own unit: microseconds for a timestamp. A scalar has an empty name.

    >>> from strandline.time.domain import lex, timestamp
    >>> distances(lex(instant="timestamp", node="int64"), {"instant": "100 milliseconds", "node": 0})
    {'instant': 100000}
    >>> distances(timestamp, {"": "1 second"})
    {'': 1000000}
    """
    steps = advancing(domain, by if domain.coordinates else by.get("", 0)).steps
    return {step.coordinate: step.distance for step in steps if isinstance(step, ShiftStep)}


def around(domain: TimeDomain, outer: TimeDomain, by: Mapping[str, int]) -> Steps:
    """Go around a loop: leave it to the domain of a feedback channel, and advance there by :func:`distances`.

    >>> from strandline.time.domain import int64, product, timestamp
    >>> around(product(epoch="int64", iter="int64"), int64, {"": 2}).to_json()
    [{'coordinate': 'epoch'}, {'shift': 2}]
    >>> around(timestamp, timestamp, {"": 100_000}).to_json()
    [{'shift': 100000}]
    """
    left = leaving(domain, outer)
    return Steps(left.steps + tuple(ShiftStep(distance, path) for path, distance in by.items() if distance))
