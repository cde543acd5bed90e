"""What is held when every partition of an ingest is silent: as much as was promised, and never less than was held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.time.antichain import Antichain, join_antichains
from strandline.time.domain import Time, TimeDomain

__all__ = ["stand_in"]


def stand_in(
    domain: TimeDomain, promised: Mapping[str, Sequence[Time]], held: Antichain, standing: Sequence[str] = ()
) -> tuple[str, Antichain]:
    """Who of the silent partitions holds the frontier for all of them, and at what.

    ``promised`` is what each has promised, which is not nothing; ``held`` what all partitions of the ingest held together before;
    ``standing`` those that may stand in, if not all. The frontier goes to the greatest promise and no further, and it does not go
    back, although who made a greater promise is done by now, or was given up.

    >>> from strandline.time.domain import int64
    >>> stand_in(int64, {"a": [3], "b": [5]}, Antichain(int64, [4]))
    ('b', Antichain(int64, [5]))
    >>> stand_in(int64, {"a": [3], "b": [5]}, Antichain(int64, [9]), standing=["a"])
    ('a', Antichain(int64, [9]))
    """
    if domain.is_total:
        furthest: Sequence[Time] = [max((next(iter(times)) for times in promised.values()), key=domain.sort_key)]
    else:
        furthest = list(next(iter(promised.values())))
        for times in promised.values():
            furthest = list(join_antichains(domain, furthest, list(times)))
    chosen = max(standing or promised, key=lambda name: ([domain.sort_key(time) for time in promised[name]], name))
    return chosen, join_antichains(domain, held, furthest)
