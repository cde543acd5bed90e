"""Promises in the late table's column ``_frontier``."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from strandline.time.arrow import arrow_type
from strandline.time.domain import Scalar, TimeDomain

__all__ = ["without_least"]


def without_least(times: pa.Array, domain: TimeDomain) -> pa.Array:
    """Return the times with null in place of a coordinate's least value, at which nothing is promised yet.

    The least timestamp is in the year -290308, of which neither Python nor pandas has a date: a table with it cannot be
    collected. Only signed coordinates have such a value.

    >>> from strandline.time.domain import int64, product
    >>> without_least(pa.array([int64.minimum, 7]), int64).to_pylist()
    [None, 7]
    """
    if not isinstance(domain, Scalar):
        parts = [without_least(child, part) for child, (_, part) in zip(times.flatten(), domain.coordinates, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(arrow_type(domain)))
    if domain.minimum == 0:
        return times
    least = pa.scalar(domain.minimum, pa.int64()).cast(times.type)
    return pc.if_else(pc.equal(times, least), pa.scalar(None, times.type), times)
