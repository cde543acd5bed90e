"""What the steps of a path summary make of a time and of a frontier: the specification, from the table in docs/protocol.md.

A row's time goes to its image, when that has a place in the domain. A frontier goes to the least images of the open times.
These are written as boxes: an interval for each leaf. Within a box each leaf is free of the others, and a step is monotone in
it, so a box has one least image. Nothing here is made to be fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product as combinations
from typing import Any, TypeAlias

from strandline.time.antichain import Antichain
from strandline.time.domain import Lex, Product, Scalar, Time, TimeDomain, parse_domain

Step: TypeAlias = dict[str, Any]
Box: TypeAlias = Any
"""Of a scalar domain the least and the greatest of an interval; of a composite one a box for each coordinate."""


def target(step: Step, domain: TimeDomain) -> TimeDomain:
    """The domain of what a step makes of times of ``domain``."""
    if "least" in step:
        [made] = {_after(path, domain) for path in step["least"]}
        return made
    if "enter" in step:
        return parse_domain(step["enter"])
    names = _names(step)
    if names is None:
        return domain
    parts = tuple(part for part in domain.coordinates if part[0] in names)
    return parts[0][1] if "coordinate" in step else type(domain)(parts)  # type: ignore[call-arg]


def _after(steps: Iterable[Step], domain: TimeDomain) -> TimeDomain:
    for step in steps:
        domain = target(step, domain)
    return domain


def images(step: Step, domain: TimeDomain, time: Time) -> list[Time]:
    """What a step makes of one time: of a window's bounds several, none where it has no place in its domain."""
    if "enter" in step:
        values = [*_leaves(time), *[0] * len(target(step, domain).leaves())]
        return [_of_leaves(target(step, domain), iter(values))]
    names = _names(step)
    if names is not None:
        kept = [value for (name, _), value in zip(domain.coordinates, time, strict=True) if name in names]
        return [kept[0]] if "coordinate" in step else [tuple(kept)]
    return list(_moved(step, domain, _path(step), time))


def _leaves(time: Time) -> list[int]:
    return [leaf for part in time for leaf in _leaves(part)] if isinstance(time, tuple) else [time]


def _of_leaves(domain: TimeDomain, leaves: Iterator[int]) -> Time:
    return tuple(_of_leaves(part, leaves) for _, part in domain.coordinates) if domain.coordinates else next(leaves)


def _moved(step: Step, domain: TimeDomain, path: list[str], time: Time) -> Iterator[Time]:
    if isinstance(domain, Scalar):
        for image in _leaf_images(step, domain, time):
            if domain.minimum <= image <= domain.maximum:
                yield image
        return
    i, part = _place(domain, path)
    for image in _moved(step, part, path[1:], time[i]):
        yield (*time[:i], image, *_following(domain, i, time))


def _leaf_images(step: Step, domain: Scalar, time: int) -> Iterable[int]:
    if "shift" in step:
        return [time + step["shift"]]
    if "truncate" in step:
        return [time - (time - step["offset"]) % step["truncate"]]
    if "session" in step:  # one may end at the time, where a row is merged into it, or at any later one
        return range(time + _bound(step), domain.maximum + 1)
    first = time - (time - step["offset"]) % step["slide"]
    starts = range(first, time - step["width"], -step["slide"])
    return [start + _bound(step) for start in starts]


def rows(steps: list[Step], domain: TimeDomain, time: Time) -> Time | None:
    """A row's time after all the steps; ``None`` when it has no place after one of them."""
    for step in steps:
        made = images(step, domain, time)
        if not made:
            return None
        [time] = made
        domain = target(step, domain)
    return time


def results(steps: list[Step], frontier: Antichain) -> Antichain:
    """A frontier after all the steps, taken one after the other."""
    for step in steps:
        domain = frontier.domain
        if "least" in step:
            found = [time for path in step["least"] for time in results(path, frontier)]
        else:
            boxes = [box for element in frontier for box in _from(domain, element)]
            found = [least for box in boxes for least in _least_image(step, domain, box)]
        frontier = Antichain(target(step, domain), found)
    return frontier


# The open times.


def _from(domain: TimeDomain, time: Time) -> list[Box]:
    """The times that are ``time`` or later."""
    if isinstance(domain, Scalar):
        return [(time, domain.maximum)]
    if isinstance(domain, Product):
        return list(combinations(*(_from(part, value) for (_, part), value in zip(domain.parts, time, strict=True))))
    return [_only(domain, time), *_later(domain, time)]


def _later(domain: TimeDomain, time: Time) -> list[Box]:
    """The times that are later than ``time``."""
    if isinstance(domain, Scalar):
        return [(time + 1, domain.maximum)] if time < domain.maximum else []
    found: list[Box] = []
    for i, (_, part) in enumerate(domain.coordinates):
        before = [_only(d, v) for (_, d), v in zip(domain.coordinates[:i], time[:i], strict=True)]
        others: list[list[Box]] = [[box] for box in before]
        if isinstance(domain, Product):  # this coordinate is later, and the others are as they are or later
            others = [_from(d, v) for (_, d), v in zip(domain.coordinates[:i], time[:i], strict=True)]
            after = [_from(d, v) for (_, d), v in zip(domain.coordinates[i + 1 :], time[i + 1 :], strict=True)]
        else:  # the first one that differs is later, and those after it are free
            after = [[_all(d)] for _, d in domain.coordinates[i + 1 :]]
        found += combinations(*others, _later(part, time[i]), *after)
    return found


def _only(domain: TimeDomain, time: Time) -> Box:
    if isinstance(domain, Scalar):
        return (time, time)
    return tuple(_only(part, value) for (_, part), value in zip(domain.coordinates, time, strict=True))


def _all(domain: TimeDomain) -> Box:
    return (domain.minimum, domain.maximum) if isinstance(domain, Scalar) else tuple(_all(part) for _, part in domain.coordinates)


def _corner(domain: TimeDomain, box: Box) -> Time:
    """The least time of a box."""
    if isinstance(domain, Scalar):
        return box[0]
    return tuple(_corner(part, inner) for (_, part), inner in zip(domain.coordinates, box, strict=True))


# The least image of a box.


def _least_image(step: Step, domain: TimeDomain, box: Box) -> list[Time]:
    if "enter" in step or _names(step) is not None:
        return images(step, domain, _corner(domain, box))
    return _least_moved(step, domain, _path(step), box)


def _least_moved(step: Step, domain: TimeDomain, path: list[str], box: Box) -> list[Time]:
    if isinstance(domain, Scalar):
        return _least_leaf(step, domain, *box)
    i, part = _place(domain, path)
    corner = _corner(domain, box)
    return [(*corner[:i], image, *_following(domain, i, corner)) for image in _least_moved(step, part, path[1:], box[i])]


def _least_leaf(step: Step, domain: Scalar, low: int, high: int) -> list[int]:
    """The least image in the domain of what lies in [low, high]."""
    least, greatest = domain.minimum, domain.maximum
    if "shift" in step:
        by = step["shift"]
        first = max(low, least - by)
        return [first + by] if first <= high and first + by <= greatest else []
    if "truncate" in step:  # a multiple m is the image of m, ..., m + unit - 1
        multiple = _up(max(low - step["truncate"] + 1, least), step["truncate"], step["offset"])
        return [multiple] if multiple <= high else []
    if "session" in step:
        end = max(low, least - _bound(step))
        return [end + _bound(step)] if end + _bound(step) <= greatest else []
    # The window that begins at s holds a time of [low, high] when s <= high and s + width > low.
    bound = _bound(step)
    start = _up(max(low - step["width"] + 1, least - bound), step["slide"], step["offset"])
    return [start + bound] if start <= high and start + bound <= greatest else []


def _up(value: int, unit: int, offset: int) -> int:
    """The least multiple of ``unit``, counted from ``offset``, that is not below ``value``."""
    return value + (offset - value) % unit


# Reading a step.


def _names(step: Step) -> list[str] | None:
    """The coordinates that a step goes to, if it does."""
    if "coordinates" in step:
        return step["coordinates"]  # type: ignore[no-any-return]
    return [step["coordinate"]] if set(step) == {"coordinate"} else None


def _path(step: Step) -> list[str]:
    return step["coordinate"].split(".") if "coordinate" in step else []


def _place(domain: TimeDomain, path: list[str]) -> tuple[int, TimeDomain]:
    i = [name for name, _ in domain.coordinates].index(path[0])
    return i, domain.coordinates[i][1]


def _following(domain: TimeDomain, i: int, time: Time) -> tuple[Time, ...]:
    """The coordinates after the one that is moved: of a lexicographic time they become the least there are."""
    return tuple(part.minimum for _, part in domain.coordinates[i + 1 :]) if isinstance(domain, Lex) else time[i + 1 :]


def _bound(step: Step) -> int:
    """How far a window's bound is from its start; of a session's, from its end."""
    width = 0 if "session" in step else step["width"]
    return {"start": 0, "end": width, "time": width - 1}[step["window"]]
