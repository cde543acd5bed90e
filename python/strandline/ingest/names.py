"""The names of partitions: the value of the partition column, or the values of several, told apart whatever is in them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NAMES_KEY", "WHOLE_STREAM", "partition_names"]

WHOLE_STREAM = "stream"
"""The one partition of an ingest that names no partition column."""
NAMES_KEY = "strandline:names"
"""In the registrar's state: how the channel's partitions are named; not there in channels of earlier releases."""


def partition_names(table: pa.Table, columns: Sequence[str], *, escaped: bool = True) -> pa.Array:
    """Each row's partition, null where one of the columns is.

    The values of several columns are joined with ``-``. So that no two partitions share a name, ``\\`` in a value is written
    ``\\\\``, and ``-`` in any but the first ``\\-``; a channel of an earlier release goes on without (``escaped`` false).

    >>> rows = pa.table({"topic": ["a", "a-b"], "part": ["b-c", "c"]})
    >>> print(*partition_names(rows, ["topic", "part"]).to_pylist())
    a-b\\-c a-b-c
    """
    if not columns:
        return pa.array([WHOLE_STREAM] * table.num_rows, pa.string())
    texts = [table.column(name).cast(pa.string()) for name in columns]
    if len(texts) > 1 and escaped:
        texts = [pc.replace_substring(text, "\\", "\\\\") for text in texts]
        texts = [texts[0], *(pc.replace_substring(text, "-", "\\-") for text in texts[1:])]
    joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, pa.scalar("-"))
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
