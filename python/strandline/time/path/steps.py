"""What a Spark query does to times, step by step (docs/protocol.md): each step on a frontier and on a row's time, and its JSON.

The shim has the same steps (``strandline.spark.time``). ``tests/support/path_summaries.py`` is their specification.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strandline.time import errors
from strandline.time.antichain import Antichain
from strandline.time.domain import Lex, Product, Scalar, Time, TimeDomain, leaf_values, parse_domain
from strandline.time.path.entry import Entry

__all__ = [
    "EnterStep",
    "InputStep",
    "LeastStep",
    "ProjectStep",
    "ShiftStep",
    "Step",
    "Steps",
    "TruncateStep",
    "WindowStep",
    "leaf_at",
]

_DEEPEST = 150
"""How deep paths may be inside of paths. Others write logs, too."""


class Step(ABC):
    """A monotone map of times."""

    def target(self, domain: TimeDomain) -> TimeDomain:
        """Return the domain of what the step makes of times of ``domain``. The other methods are for domains that have one.

        Raises:
            SummaryError: ``STRANDLINE_SUMMARY_INVALID``: the step does not fit times of the domain.
        """
        return domain

    def least(self, domain: TimeDomain, time: Time) -> list[Time]:
        """Return the least images of ``time`` and of all times after it."""
        return [self.image(domain, time)]

    def image(self, domain: TimeDomain, time: Time) -> Time | None:
        """Return the image of a row's time; ``None`` if it is outside of the target domain."""
        raise errors.summary_invalid_of_row(domain, self.to_json())

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""


@dataclass(frozen=True)
class Steps:
    """A path summary: steps, which are applied from left to right.

    >>> from strandline.time.domain import product
    >>> steps = Steps.from_json([{"shift": 1, "coordinate": "iter"}, {"coordinate": "iter"}])
    >>> domain = product(epoch="int64", iter="int64")
    >>> steps.results(Antichain(domain, [(7, 2), (8, 0)])), steps.image(domain, (7, 2))
    (Antichain(int64, [1]), 3)
    """

    steps: tuple[Step, ...] = ()

    def target(self, domain: TimeDomain) -> TimeDomain:
        """Return the domain of the column's times, from that of the source's."""
        for step in self.steps:
            domain = step.target(domain)
        return domain

    def results(self, frontier: Antichain) -> Antichain:
        """Return the frontier of the column's times, from that of the source's: the least images of the open times."""
        target = self.target(frontier.domain)
        return Antichain(target, [image for time in frontier for image in self.least(frontier.domain, time)])

    def least(self, domain: TimeDomain, time: Time) -> list[Time]:
        """Return the least images of ``time`` and of all times after it."""
        times = [time]
        for step in self.steps:
            times = [image for each in times for image in step.least(domain, each)]
            domain = step.target(domain)
        return times

    def image(self, domain: TimeDomain, time: Time) -> Time | None:
        """Return the image of a row's time; ``None`` if it leaves its domain on the way."""
        for step in self.steps:
            target, time = step.target(domain), step.image(domain, time)
            if time is None:
                return None
            domain = target
        return time

    def from_input(self, name: str | None) -> Steps:
        """Return the paths that begin at an input of a source of several channels, without that beginning.

        A path that names no input begins at all of them. If no path leads on from the input, the result is the least of no paths.

        Args:
            name: The input. ``None``: the source does not say which inputs its channels are, so every path counts.

        >>> both = Steps.from_json([{"least": [[{"input": "a"}], [{"input": "b"}, {"shift": 2}]]}, {"coordinate": "day"}])
        >>> both.from_input("b").to_json(), both.from_input("c").to_json()
        ([{'shift': 2}, {'coordinate': 'day'}], [{'least': []}])
        >>> both.from_input(None).to_json()
        [{'least': [[{'coordinate': 'day'}], [{'shift': 2}, {'coordinate': 'day'}]]}]
        """
        found = [path for start, path in self._paths() if start is None or name is None or start == name]
        alike = tuple(dict.fromkeys(found))
        return alike[0] if len(alike) == 1 else Steps((LeastStep(alike),))

    def _paths(self) -> list[tuple[str | None, Steps]]:
        """Return each path as its input and the steps from there."""
        match self.steps:
            case InputStep(name), *rest:
                return [(name, Steps(tuple(rest)))]
            case LeastStep(paths), *rest:
                several = [each for path in paths for each in path._paths()]
                if any(start is not None for start, _ in several):
                    return [(start, Steps((*path.steps, *rest))) for start, path in several]
        return [(None, self)]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the JSON list."""
        return [step.to_json() for step in self.steps]

    @classmethod
    def from_json(cls, value: Any, depth: int = _DEEPEST) -> Steps:
        """Read the JSON list. Raises :class:`SummaryError` if a step is unknown or malformed, or the list nests too deep."""
        if not isinstance(value, list) or depth == 0:
            raise errors.summary_invalid_step(value)
        return cls(tuple(_step(each, depth) for each in value))


# Which paths there are


@dataclass(frozen=True)
class InputStep(Step):
    """The first step of a path from one input of a source of several channels. It changes no time."""

    name: str

    def least(self, domain: TimeDomain, time: Time) -> list[Time]:
        return [time]

    def to_json(self) -> dict[str, Any]:
        return {"input": self.name}


@dataclass(frozen=True)
class LeastStep(Step):
    """The least of several paths: a time may come by each of them.

    Attributes:
        paths: The paths.
        together: The summary if all inputs have one frontier, where it is not the least of the same paths.
    """

    paths: tuple[Steps, ...]
    together: Steps | None = None

    def target(self, domain: TimeDomain) -> TimeDomain:
        targets = {path.target(domain) for path in self.paths}
        if len(targets) != 1:
            raise errors.summary_invalid_paths(domain, len(targets))
        return targets.pop()

    def least(self, domain: TimeDomain, time: Time) -> list[Time]:
        return [image for path in self.paths for image in path.least(domain, time)]

    def to_json(self) -> dict[str, Any]:
        together = {} if self.together is None else {"together": self.together.to_json()}
        return {"least": [path.to_json() for path in self.paths], **together}


# Which coordinates a time has


@dataclass(frozen=True)
class ProjectStep(Step):
    """A step to some coordinates, in the domain's order: any of a product, the first ones of a lexicographic time.

    Attributes:
        names: The coordinates.
        is_bare: Whether the image is the bare value of the only one.
    """

    names: tuple[str, ...]
    is_bare: bool = False

    def target(self, domain: TimeDomain) -> TimeDomain:
        if not isinstance(domain, (Product, Lex)):
            raise errors.summary_invalid_bare(domain, self.names)
        have = [name for name, _ in domain.parts]
        wrong = [name for name in self.names if name not in have or self.names.count(name) > 1]
        if wrong or not self.names:
            what = f"cannot keep the coordinates {', '.join(map(repr, wrong))}" if self.names else "keeps no coordinate"
            raise errors.summary_invalid_kept(domain, what, have)
        kept = tuple(part for part in domain.parts if part[0] in self.names)
        if isinstance(domain, Lex) and kept != domain.parts[: len(kept)]:
            raise errors.summary_invalid_order(domain, self.names, have)
        return kept[0][1] if self.is_bare else type(domain)(kept)

    def image(self, domain: TimeDomain, time: Time) -> Time:
        values = tuple(value for (name, _), value in zip(domain.coordinates, time, strict=True) if name in self.names)
        return values[0] if self.is_bare else values

    def to_json(self) -> dict[str, Any]:
        return {"coordinate": self.names[0]} if self.is_bare else {"coordinates": list(self.names)}


@dataclass(frozen=True)
class EnterStep(Step):
    """A step into a loop: a time gets the coordinates of ``inner`` that it does not have (:class:`Entry`)."""

    inner: TimeDomain

    def target(self, domain: TimeDomain) -> TimeDomain:
        return Entry(domain, self.inner).inner

    def image(self, domain: TimeDomain, time: Time) -> Time:
        return Entry(domain, self.inner).time(time)

    def to_json(self) -> dict[str, Any]:
        return {"enter": str(self.inner)}


# What happens to one coordinate


class LeafStep(Step):
    """A step that changes one coordinate: a scalar time itself, or the one at ``coordinate`` (names joined by dots).

    The other coordinates of a product keep their values. In a lexicographic time those after it become minimal, as in a scope's
    clock. If they kept their values, the step would not be monotone.
    """

    coordinate: str

    @abstractmethod
    def of(self, leaf: int) -> tuple[int, int]:
        """Return the least image of a value of the coordinate and of all later ones, and how far later images are apart."""

    def leads_into(self, leaf: Scalar) -> bool:
        """Whether some values of the coordinate may have an image."""
        return True

    def target(self, domain: TimeDomain) -> TimeDomain:
        leaf_at(domain, self.coordinate)
        return domain

    def least(self, domain: TimeDomain, time: Time) -> list[Time]:
        return self._least(domain, self.coordinate.split("."), time)

    def _least(self, domain: TimeDomain, path: list[str], time: Time) -> list[Time]:
        if isinstance(domain, Scalar):
            image, apart = self.of(time)
            if image < domain.minimum:
                image -= (image - domain.minimum) // apart * apart
            return [image] if image <= domain.maximum and self.leads_into(domain) else []
        at = [name for name, _ in domain.coordinates].index(path[0])
        before, part, after = time[:at], domain.coordinates[at][1], time[at + 1 :]
        images = [(*before, image) for image in self._least(part, path[1:], time[at])]
        if isinstance(domain, Lex):
            if not images:  # no time that begins like this one has an image, so the next beginnings decide
                again = self._least(part, path[1:], part.minimum)
                images = [(*later, image) for later in _next_in_order(domain.parts[:at], before) for image in again]
            after = tuple(each.minimum for _, each in domain.parts[at + 1 :])
        return [(*image, *after) for image in images]

    def image(self, domain: TimeDomain, time: Time) -> Time | None:
        leaf = leaf_at(domain, self.coordinate)
        value = dict(zip([".".join(path) for path, _ in domain.leaves()], leaf_values(time), strict=True))[self.coordinate]
        return self.least(domain, time)[0] if leaf.has(self.of(value)[0]) else None

    def _json(self, **own: Any) -> dict[str, Any]:
        return {**own, "coordinate": self.coordinate} if self.coordinate else own


@dataclass(frozen=True)
class ShiftStep(LeafStep):
    """A step to a time that is ``distance`` later, or earlier if it is negative."""

    distance: int
    coordinate: str = ""

    def of(self, leaf: int) -> tuple[int, int]:
        return leaf + self.distance, 1

    def leads_into(self, leaf: Scalar) -> bool:
        return bool(abs(self.distance) <= leaf.maximum - leaf.minimum)

    def to_json(self) -> dict[str, Any]:
        return self._json(shift=self.distance)


@dataclass(frozen=True)
class TruncateStep(LeafStep):
    """A step to the greatest multiple of ``unit``, counted from ``offset``, that is not after the time."""

    unit: int
    offset: int
    coordinate: str = ""

    def of(self, leaf: int) -> tuple[int, int]:
        return leaf - (leaf - self.offset) % self.unit, self.unit

    def to_json(self) -> dict[str, Any]:
        return self._json(truncate=self.unit, offset=self.offset)


@dataclass(frozen=True)
class WindowStep(LeafStep):
    """A step to a bound of the windows that a time is in.

    Attributes:
        bound: ``start``, ``end``, or ``time``, which is the last unit before the end.
        width: The width of a window; 0: a session, which has no known start. A row at exactly its end is merged into it.
        slide: From one start to the next.
        offset: The distance of the first start from 0.
    """

    bound: str
    width: int = 0
    slide: int = 1
    offset: int = 0
    coordinate: str = ""

    image = Step.image  # a row is in several windows

    def of(self, leaf: int) -> tuple[int, int]:
        phase = (leaf - self.offset) % self.slide
        start = leaf - phase - (self.width - 1 - phase) // self.slide * self.slide if self.width else leaf
        return start + {"start": 0, "end": self.width, "time": self.width - 1}[self.bound], self.slide

    def to_json(self) -> dict[str, Any]:
        if not self.width:
            return self._json(window=self.bound, session=True)
        return self._json(window=self.bound, width=self.width, slide=self.slide, offset=self.offset)


def leaf_at(domain: TimeDomain, path: str) -> Scalar:
    """Return the scalar domain at ``path``, which is names joined by dots. A scalar time has no path.

    Raises:
        SummaryError: There is no such coordinate, or it is composite.
    """
    part = domain
    for name in path.split(".") if path else ():
        have = dict(part.coordinates)
        if name not in have:
            remedy = f"Use one of {', '.join(have)}." if have else "Leave the coordinate out: a scalar time has none."
            raise errors.summary_invalid_coordinate(part, name, remedy)
        part = have[name]
    if not isinstance(part, Scalar):
        names = [".".join(leaf) for leaf, _ in part.leaves()]
        prefix = f"{path}." if path else ""
        raise errors.summary_invalid_composite(domain, path, prefix, names)
    return part


def _next(domain: TimeDomain, time: Time) -> list[Time]:
    """Return the least times after ``time``: none after the greatest one, several in a product."""
    if isinstance(domain, Scalar):
        return [time + 1] if time < domain.maximum else []
    if isinstance(domain, Lex):
        return _next_in_order(domain.parts, time)
    parts = enumerate(domain.coordinates)
    return [(*time[:at], later, *time[at + 1 :]) for at, (_, part) in parts for later in _next(part, time[at])]


def _next_in_order(parts: Sequence[tuple[str, TimeDomain]], time: Time) -> list[Time]:
    """Return the least times after ``time`` in the lexicographic order: the last coordinate that can be later is."""
    for at in reversed(range(len(parts))):
        if found := _next(parts[at][1], time[at]):
            return [(*time[:at], later, *(each.minimum for _, each in parts[at + 1 :])) for later in found]
    return []


# JSON


def _step(value: Any, depth: int) -> Step:
    match value:
        case {"input": str(name), **rest} if not rest:
            return InputStep(name)
        case {"coordinate": str(name), **rest} if not rest:
            return ProjectStep((name,), is_bare=True)
        case {"coordinates": [*names], **rest} if not rest and all(isinstance(name, str) for name in names):
            return ProjectStep(tuple(names))
        case {"enter": str(text), **rest} if not rest:
            return EnterStep(parse_domain(text))
        case {"least": [*paths], **rest} if rest.keys() <= {"together"}:
            together = Steps.from_json(rest["together"], depth - 1) if rest else None
            return LeastStep(tuple(Steps.from_json(path, depth - 1) for path in paths), together)
        case {"coordinate": str(at), **own}:
            return _leaf_step(own, at)
    return _leaf_step(value, "")


def _leaf_step(own: Any, at: str) -> LeafStep:
    match own:
        case {"shift": distance, **rest} if not rest and _integers(distance):
            return ShiftStep(distance, at)
        case {"truncate": unit, "offset": offset, **rest} if not rest and _integers(unit, offset) and unit > 0:
            return TruncateStep(unit, offset, at)
        case {"window": "end" | "time" as bound, "session": True, **rest} if not rest:
            return WindowStep(bound, coordinate=at)
        case {"window": "start" | "end" | "time" as bound, "width": width, "slide": slide, "offset": offset, **rest} if (
            not rest and _integers(width, slide, offset) and width > 0 and slide > 0
        ):
            return WindowStep(bound, width, slide, offset, at)
    raise errors.summary_invalid_step({**own, "coordinate": at} if at else own)


def _integers(*values: Any) -> bool:
    return all(type(value) is int for value in values)
