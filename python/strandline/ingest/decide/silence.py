"""What is held when every partition of an ingest is silent: the greatest promise, and never less than was held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.time.antichain import Antichain, join_antichains
from strandline.time.domain import Time, TimeDomain

__all__ = ["stand_in"]


def stand_in(
    domain: TimeDomain, promised: Mapping[str, Sequence[Time]], held: Antichain, candidates: Sequence[str] = ()
) -> tuple[str, Antichain]:
    """Return which silent partition holds the frontier for all of them, and at which times.

    The frontier advances to the greatest promise and no further. It does not go back, even when the partition that made a greater
    promise is complete by now, or was given up.

    Args:
        domain: The domain of the times.
        promised: What each partition has promised, which is never nothing.
        held: What all partitions of the ingest held together before.
        candidates: The partitions that may be chosen, if not all.

    >>> from strandline.time.domain import int64
    >>> stand_in(int64, {"a": [3], "b": [5]}, Antichain(int64, [4]))
    ('b', Antichain(int64, [5]))
    >>> stand_in(int64, {"a": [3], "b": [5]}, Antichain(int64, [9]), candidates=["a"])
    ('a', Antichain(int64, [9]))
    """
    if domain.is_total:
        furthest: Sequence[Time] = [max((next(iter(times)) for times in promised.values()), key=domain.sort_key)]
    else:
        furthest = list(next(iter(promised.values())))
        for times in promised.values():
            furthest = list(join_antichains(domain, furthest, list(times)))
    chosen = max(candidates or promised, key=lambda name: ([domain.sort_key(time) for time in promised[name]], name))
    return chosen, join_antichains(domain, held, furthest)
