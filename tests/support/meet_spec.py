"""What meets, as the words say: the specification of ``meet``, over all rows at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from strandline.time.domain import Time, TimeDomain

Row = tuple[Time, Any, int]
"""A time, a key and a number."""


def met(left: Sequence[Row], right: Sequence[Row], domain: TimeDomain, how: str, within: int) -> Counter[tuple[Any, ...]]:
    """The rows of the result, each with how often it comes: time, key and number, and for ``inner`` the partner's number."""
    if within == 0 and how != "left_anti":
        left, right = _least(left, domain), _least(right, domain)

    def partners(row: Row) -> list[Row]:
        time, key, _ = row
        return [r for r in right if key is not None and r[1] == key and (within == 0 or r[0][:within] == time[:within])]

    found: Counter[tuple[Any, ...]] = Counter()
    for row in left:
        time, key, n = row
        if how == "inner":
            found.update((domain.join(time, r[0]), key, n, r[2]) for r in partners(row))
        elif how == "left_semi":
            times = [domain.join(time, r[0]) for r in partners(row)]
            least = [t for t in times if all(domain.less_equal(t, u) for u in times)]
            found.update((t, key, n) for t in least[:1])
        elif not any(domain.less_equal(r[0], time) for r in partners(row)):
            found[(time, key, n)] += 1
    return found


def _least(rows: Sequence[Row], domain: TimeDomain) -> list[Row]:
    """Each distinct row at its least times."""
    return [
        (time, key, n)
        for time, key, n in dict.fromkeys(rows)
        if not any((k, m) == (key, n) and t != time and domain.less_equal(t, time) for t, k, m in rows)
    ]
