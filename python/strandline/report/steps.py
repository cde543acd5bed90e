"""What the recorded steps of a query do to a time: the least times of its output that a row at the time can still cause."""

from __future__ import annotations

from contextlib import suppress

from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, parse_domain
from strandline.time.path.entry import Entry
from strandline.time.path.steps import Steps

__all__ = ["least_images"]


def least_images(steps: Steps, domain: TimeDomain, output: TimeDomain, time: Time, inner: str | None = None) -> list[Time] | None:
    """Return the least images of a time and all later ones; ``None`` if they are not known. Without any, no row arrives.

    Args:
        steps: The steps.
        domain: The domain of ``time``.
        output: The domain that the steps must lead to.
        time: The time.
        inner: The domain that the times enter before the first step. If it is not recorded, it is ``domain`` itself, or else
            ``output``, whichever leads to ``output``.

    >>> from strandline.time.domain import int64, product
    >>> loop = product(epoch="int64", iter="int64")
    >>> around, out = (Steps.from_json([step]) for step in ({"shift": 1, "coordinate": "iter"}, {"coordinate": "epoch"}))
    >>> least_images(out, loop, int64, (3, 9)), least_images(around, int64, loop, 3)
    ([3], [(3, 1)])
    >>> print(least_images(out, int64, int64, 3), least_images(out, int64, int64, 3, str(loop)))
    None [3]
    """
    with suppress(StrandlineError):
        for begin in [domain, output] if inner is None else [parse_domain(inner)]:
            with suppress(StrandlineError):
                found = steps.results(Entry(domain, begin).antichain(Antichain(domain, [time])))
                if found.domain == output:
                    return list(found)
    return None
