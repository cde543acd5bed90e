"""The checksum of a commit's statement: it covers the statement's text, and the files and transactions beside it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["CHECKSUM_CHARS", "Checked", "checked", "metadata_entry", "with_checksum"]

CHECKSUM_CHARS = 25
"""By so many characters :func:`with_checksum` makes a text longer."""
_SUM = re.compile(r',"sum":"([0-9a-f]{16})"\}\}\Z')


class Checked(NamedTuple):
    """The checksum that a text states, and the one that it has."""

    stated: str
    found: str


def with_checksum(
    text: str, files: Iterable[tuple[str, int, str | None]] = (), transactions: Mapping[str, int] | None = None
) -> str:
    """Return the ``userMetadata`` of a commit with its checksum as the last field.

    Args:
        text: The text without it, as :meth:`CommitStatement.to_user_metadata` returns it.
        files: Path (decoded), size and statistics of each file that the commit adds, in its order.
        transactions: The commit's Delta transactions.

    >>> with_checksum('{"strandline":{"version":1,"statements":{}}}')
    '{"strandline":{"version":1,"statements":{},"sum":"7ee2d53a63310903"}}'
    """
    return f'{text[:-2]},"sum":"{_sum(text, files, transactions or {})}"}}}}'


def checked(text: str, files: Iterable[tuple[str, int, str | None]], transactions: Mapping[str, int]) -> Checked | None:
    """Return the checksum that a ``userMetadata`` states, and the one that it has; ``None`` if it states none.

    The arguments are those of :func:`with_checksum`.

    >>> text = with_checksum('{"strandline":{"version":1}}')
    >>> [found.stated == found.found for found in (checked(text, (), {}), checked(text.replace(":1", ":2"), (), {})) if found]
    [True, False]
    """
    stated = _SUM.search(text)
    if stated is None:
        return None
    return Checked(stated.group(1), _sum(f"{text[: stated.start()]}}}}}", files, transactions))


def metadata_entry(schema: str, configuration: Mapping[str, str]) -> tuple[str, int, str]:
    """Return what the founding statement's checksum covers beside its text, in the place of a file: columns and properties.

    ``schema`` is Delta's JSON of the columns, in any layout.

    >>> metadata_entry('{"fields": []}', {"a": "b"})
    ('metaData', 0, '{"configuration":{"a":"b"},"schema":{"fields":[]}}')
    """
    body = {"schema": json.loads(schema), "configuration": dict(configuration)}
    return "metaData", 0, json.dumps(body, sort_keys=True, separators=(",", ":"))


def _sum(text: str, files: Iterable[tuple[str, int, str | None]], transactions: Mapping[str, int]) -> str:
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    beside = [[list(file) for file in files], sorted(transactions.items())]
    found.update(json.dumps(beside, separators=(",", ":")).encode())
    return found.hexdigest()[:16]
