"""The names that an ingest gives to partitions, to its own producers and to the late table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from strandline.channel.statements.statement import name_problem
from strandline.delta.storage import location_of

__all__ = [
    "CORRECTIONS",
    "NAMES_KEY",
    "OWN_PREFIX",
    "PARKED",
    "PARKED_FOLDER",
    "WHOLE_STREAM",
    "late_path_beside",
    "partition_name_problem",
    "partition_names",
]

OWN_PREFIX = "strandline:"
"""The prefix of the names of the producers that an ingest has in addition to its partitions."""
CORRECTIONS = f"{OWN_PREFIX}corrections"
"""The producer that holds the right to add corrections."""
PARKED = f"{OWN_PREFIX}parked"
"""The producer that holds the capabilities of parked rows. Its state says where these rows are. A second ingest in the same
channel appends its query to this name."""
PARKED_FOLDER = "_ahead"
"""The folder of parked files, within the channel's own folder. Delta's VACUUM skips names that begin with an underscore."""

WHOLE_STREAM = "stream"
"""The only partition of an ingest that names no partition column."""
NAMES_KEY = "strandline:names"
"""The key in the registrar's state that says how the channel's partitions are named. Channels of earlier releases lack it."""


def partition_names(table: pa.Table, columns: Sequence[str], *, escaped: bool = True) -> pa.Array:
    """Return each row's partition name, or null where one of the columns is null.

    The values of several columns are joined with ``-``. Two partitions must not share a name. Therefore ``\\`` in a value is
    written ``\\\\``, and ``-`` in any value but the first is written ``\\-``. A channel of an earlier release continues without
    this escaping (``escaped`` is false).

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


def partition_name_problem(name: object) -> str | None:
    """Return why no partition can have this name, or ``None`` when a partition can have it.

    >>> partition_name_problem("strandline:parked")
    "begins with 'strandline:', which is reserved for the ingest's own producers"
    """
    problem = name_problem(name)
    if problem is None and str(name).startswith(OWN_PREFIX):
        return f"begins with {OWN_PREFIX!r}, which is reserved for the ingest's own producers"
    return problem


def late_path_beside(path: str) -> str:
    """Return the default path of a channel's late table.

    >>> late_path_beside("/lake/flights/")
    '/lake/flights_late'
    """
    return f"{location_of(path)}_late"
