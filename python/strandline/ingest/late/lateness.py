"""Which rows of a batch are late, and why rows are set aside.

``ingest/task/ingest_task.py`` does with them what ``on_late`` says: it raises, or writes them beside the late table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.time.antichain import Antichain
from strandline.time.arrow import behind, leaf_columns
from strandline.time.domain import Scalar, Time, TimeDomain

__all__ = [
    "BAD_MARK",
    "BAD_PARTITION",
    "FUTURE",
    "FUTURE_MARK",
    "LATE",
    "MOVES_NOTHING",
    "NULL_PARTITION",
    "REASONS",
    "late_rows",
]

REASONS = (
    "",
    "null time",
    "unparsable time",
    "time beyond the domain",
    "null partition",
    "invalid partition name",
    "invalid punctuation",
    "late",
    "epoch number in text",
    "time in the future",
    "punctuation in the future",
)
"""Why a row was set aside: the values of the late table's ``_reason``. Channels keep their places here, so none changes."""
NULL_PARTITION, BAD_PARTITION, BAD_MARK, LATE, FUTURE, FUTURE_MARK = 4, 5, 6, 7, 9, 10
MOVES_NOTHING = frozenset({REASONS[FUTURE], REASONS[FUTURE_MARK]})
"""The reasons of rows that count as if they had not come: neither do they move a promise, nor do they end a silence."""

_Mask: TypeAlias = npt.NDArray[np.bool_]


def late_rows(times: pa.Array, at: npt.NDArray[np.int64], holds: Sequence[tuple[Time, ...]], domain: TimeDomain) -> _Mask:
    """Return, for each row, whether it is late: its partition held nothing that is at or before its time.

    Args:
        times: The rows' times.
        at: The index of each row's partition.
        holds: What each partition held when the batch was planned.
        domain: The domain of the times.

    >>> from strandline.time.domain import int64
    >>> late_rows(pa.array([3, 7, 3]), np.array([0, 0, 1]), [(5,), (1,)], int64).tolist()
    [True, False, False]
    """
    late = np.zeros(len(times), dtype=np.bool_)
    if not holds:
        return late
    if isinstance(domain, Scalar):
        leaf = leaf_columns(times)[0]
        least = np.array([each[0] if each else 0 for each in holds], dtype=leaf.dtype)
        ended = np.array([not each for each in holds], dtype=np.bool_)
        if ended.any():
            late = ended[at]
        return late | (leaf < least[at])
    distinct = list(dict.fromkeys(holds))
    of = np.array([distinct.index(each) for each in holds], dtype=np.int64)[at]
    for i, held in enumerate(distinct):
        mine = of == i
        late |= mine & (behind(times, Antichain(domain, held)) if held else True)
    return late
