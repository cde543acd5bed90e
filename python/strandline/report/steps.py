"""What the recorded steps of a query do to a time: the least time of its output that a row at the time can still cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.time.domain import Product, Scalar, Time, TimeDomain

__all__ = ["least_image"]


def least_image(steps: Sequence[Any], domain: TimeDomain, output: TimeDomain, time: Time) -> Time | None:
    """Return the least image of a time and all later ones, or ``None`` if it is not known.

    The steps are those of a path summary (docs/protocol.md). Known are those of scalar times, and choosing or shifting
    coordinates of a product. A caller treats an unknown image as one that may be anything.

    Args:
        steps: The steps, in order.
        domain: The domain of ``time``.
        output: The domain that the steps must lead to.
        time: The time.

    >>> from strandline.time.domain import int64, product, timestamp
    >>> least_image([], int64, int64, 7), least_image([{"shift": -2}], int64, int64, 7)
    (7, 5)
    >>> least_image([{"window": "start", "width": 10, "slide": 10, "offset": 0}], timestamp, timestamp, 17)
    10
    >>> least_image([{"coordinate": "epoch"}], product(epoch="int64", iter="int64"), int64, (3, 9))
    3
    >>> least_image([{"least": []}], int64, int64, 7)
    """
    for step in steps:
        moved = _step(step, domain, time) if isinstance(step, dict) else None
        if moved is None:
            return None
        domain, time = moved
    return time if domain == output else None


def _step(step: dict[str, Any], domain: TimeDomain, time: Time) -> tuple[TimeDomain, Time] | None:
    name, chosen = step.get("coordinate"), step.get("coordinates", [])
    if not isinstance(name, str | None) or not isinstance(chosen, list) or not all(isinstance(each, str) for each in chosen):
        return None  # others write logs, too
    if isinstance(domain, Product):
        parts = dict(zip((n for n, _ in domain.parts), zip((d for _, d in domain.parts), time, strict=True), strict=True))
        if chosen and all(each in parts for each in chosen):
            kept = [(n, d) for n, d in domain.parts if n in chosen]
            return Product(tuple(kept)), tuple(parts[n][1] for n, _ in kept)
        if name not in parts:
            return None
        if set(step) == {"coordinate"}:
            return parts[name]
        inner = {key: value for key, value in step.items() if key != "coordinate"}
        moved = _step(inner, *parts[name])
        if moved is None:
            return None
        return domain, tuple(moved[1] if n == name else t for (n, _), t in zip(domain.parts, time, strict=True))
    if not isinstance(domain, Scalar) or name is not None:
        return None
    image = _scalar(step, time)
    if image is None or image > domain.maximum:
        return None
    return domain, max(image, domain.minimum)


def _scalar(step: dict[str, Any], time: int) -> int | None:
    numbers = {key: value for key, value in step.items() if type(value) is int}
    if set(step) == set(numbers) == {"shift"}:
        return time + numbers["shift"]
    if set(step) == set(numbers) == {"truncate", "offset"} and numbers["truncate"] > 0:
        return time - (time - numbers["offset"]) % numbers["truncate"]
    if set(numbers) == {"width", "slide", "offset"} and "session" not in step and numbers["slide"] > 0:
        last = time - (time - numbers["offset"]) % numbers["slide"]
        first = last - (numbers["width"] - 1 - (time - last)) // numbers["slide"] * numbers["slide"]
        bounds = {"start": 0, "end": numbers["width"], "time": numbers["width"] - 1}
        bound = step.get("window")
        if isinstance(bound, str) and bound in bounds:
            return first + bounds[bound]
    return None
