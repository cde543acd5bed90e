"""What a move makes of a time, step by step, as its words say: the specification of the functions that move times."""

from __future__ import annotations

from strandline.time.domain import Lex, Time, TimeDomain, parse_domain
from strandline.time.path import summary
from strandline.time.path.steps import Steps


def moved(time: Time, domain: TimeDomain, move: Steps) -> Time:
    """The definition of a move, step by step; to advance is the core's."""
    for step in move.to_json():
        path = step.get("coordinate")
        if "shift" in step:
            time = summary.advance(domain, path, step["shift"]).results_in(time)
        elif "truncate" in step:
            time = _down(time, domain, path.split(".") if path else [], step["truncate"], step["offset"])
        elif "enter" in step:
            inner = parse_domain(step["enter"])
            time, domain = _entered(time, domain, inner), inner
        else:
            names = [path] if path else step["coordinates"]
            kept = [(part, value) for part, value in zip(domain.coordinates, time, strict=True) if part[0] in names]
            domain = kept[0][0][1] if path else type(domain)(tuple(part for part, _ in kept))  # type: ignore[call-arg]
            time = kept[0][1] if path else tuple(value for _, value in kept)
    return time


def _entered(time: Time, outer: TimeDomain, inner: TimeDomain) -> Time:
    if outer == inner:
        return time
    [(_, first), *others] = inner.coordinates
    if outer.coordinates and outer.coordinates == inner.coordinates[: len(outer.coordinates)]:
        return (*time, *map(_zero, inner.coordinates[len(time) :]))
    return (_entered(time, outer, first), *map(_zero, others))


def _zero(coordinate: tuple[str, TimeDomain]) -> Time:
    return tuple(map(_zero, coordinate[1].coordinates)) or 0


def _down(time: Time, domain: TimeDomain, path: list[str], unit: int, offset: int) -> Time:
    if not path:
        return time - (time - offset) % unit
    place = [name for name, _ in domain.coordinates].index(path[0])
    after = time[place + 1 :]
    if isinstance(domain, Lex):
        after = tuple(part.minimum for _, part in domain.coordinates[place + 1 :])
    return (*time[:place], _down(time[place], domain.coordinates[place][1], path[1:], unit, offset), *after)
