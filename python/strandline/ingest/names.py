"""The names that an ingest gives to partitions, to its own producers and to the late table."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc

from strandline.channel.statements.statement import name_problem
from strandline.delta.storage import location_of
from strandline.time.text.calendar import DAY, days_of, format_micros

__all__ = [
    "BY_KEYS",
    "CORRECTIONS",
    "NAMES_KEY",
    "OWN_PREFIX",
    "PARKED",
    "PARKED_FOLDER",
    "WHOLE_STREAM",
    "late_path_beside",
    "matched",
    "only_name",
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
"""The key in the registrar's state that says how the channel's partitions are named."""
BY_KEYS = "keys"
"""The value of that key: partitions are named as :func:`partition_names` does."""
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def partition_names(table: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Return each row's partition name, or null where one of the columns is null.

    The values of several columns are joined with ``-``. Two partitions must not share a name. Therefore ``\\`` in a value is
    written ``\\\\``, and ``-`` in any value but the first is written ``\\-``.

    Values have one name exactly if Spark's ``groupBy`` takes them for one key: ``0.0`` and ``-0.0`` are ``0``, and each NaN is
    ``nan``.

    >>> rows = pa.table({"topic": ["a", "a-b"], "part": ["b-c", "c"]})
    >>> print(*partition_names(rows, ["topic", "part"]).to_pylist())
    a-b\\-c a-b-c
    """
    if not columns:
        return pa.array([WHOLE_STREAM] * table.num_rows, pa.string())
    texts = [_text_of(table.column(name)) for name in columns]
    if len(texts) > 1:
        texts = [pc.replace_substring(text, "\\", "\\\\") for text in texts]
        texts = [texts[0], *(pc.replace_substring(text, "-", "\\-") for text in texts[1:])]
    joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, pa.scalar("-"))
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _text_of(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return the values as text."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.add(column, pa.scalar(0, kind)).cast(pa.string())  # -0.0 + 0.0 is 0.0
    texts = column.cast(pa.string())
    if not (pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit != "ns")):
        return texts
    # Arrow writes years of 16 bits: year 67248 as 1712. Years that are not of four digits are written by this project.
    unit = DAY if pa.types.is_date32(kind) else 1_000 if pa.types.is_date64(kind) else _MICROS[kind.unit]
    numbers = (column.cast(pa.int32()) if pa.types.is_date32(kind) else column).cast(pa.int64())
    first, end = days_of(0, 1, 1) * (DAY // unit), days_of(10_000, 1, 1) * (DAY // unit)
    far = pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, end)).fill_null(False)
    if not pc.any(far).as_py():
        return texts
    shown = [format_micros(number * unit) for number in numbers.filter(far).to_pylist()]
    written = pa.array([text.partition("T")[0] for text in shown] if pa.types.is_date(kind) else shown, pa.string())
    return pc.replace_with_mask(texts.combine_chunks(), far.combine_chunks(), written)


def only_name(entry: str) -> str | None:
    """Return the name that an entry stands for, or ``None`` if it is a pattern.

    ``[[]``, ``[*]`` and ``[?]`` are the letters of patterns themselves, as ``glob.escape`` writes them.

    >>> only_name("rack[[]1]"), only_name("rack"), only_name("rack[1]"), only_name("rack*")
    ('rack[1]', 'rack', None, None)
    """
    name, at = "", 0
    while at < len(entry):
        letter = entry[at]
        if letter in "*?":
            return None
        end = entry.find("]", at + 2 + (entry[at + 1 : at + 2] == "!")) if letter == "[" else -1
        if end < 0:
            name, at = name + letter, at + 1
        elif end == at + 2 and entry[at + 1] in "*?[":
            name, at = name + entry[at + 1], at + 3
        else:
            return None
    return name


def matched(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a name. Letters differ in case.

    >>> matched("kafka-*", "kafka-1"), matched("rack[1]", "rack1"), matched("rack[1]", "rack[1]"), matched("rack[[]1]", "rack[1]")
    (True, True, False, True)
    """
    return fnmatchcase(name, pattern)


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
