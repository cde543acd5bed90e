"""Which batch of a query it was: by this a repeated batch is told from another one of the same number."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from strandline.channel.batch.batch_digest import BatchDigest
from strandline.json_value import JsonObject

__all__ = ["BatchIdentity"]

_NUMBER_AND_READ = re.compile("([0-9]{1,19}):([0-9a-f]{16})")


@dataclass(frozen=True)
class BatchIdentity:
    """The number of a batch, what it had read, and what it wrote. A repeated batch has the same three.

    Attributes:
        number: The batch's number in its query.
        read: A digest of the query's id, the number, and how far the batch had read its inputs.
        wrote: A digest of the rows that it wrote; ``None`` for a batch that wrote none because the output had them.

    >>> batch = BatchIdentity.of("5b1", 4, [("7c1f", 3, 0)])
    >>> batch.read == BatchIdentity.of("5b1", 4, [("7c1f", 3, 0)]).read, batch.read == BatchIdentity.of("5b1", 4, []).read
    (True, False)
    """

    number: int
    read: str
    wrote: BatchDigest | None = None

    @classmethod
    def of(
        cls, query: str, number: int, positions: Iterable[tuple[str, int, int]], wrote: BatchDigest | None = None
    ) -> BatchIdentity:
        """Return the identity of a batch.

        Args:
            query: The query's id.
            number: The batch's number.
            positions: For each source of the query the id of the input's table, the commit and the file before which it stands.
                Two sources may read one table, so the order of the positions in a table counts.
            wrote: What the batch wrote.
        """
        by_table: dict[str, list[tuple[int, int]]] = {}
        for table, commit, file in positions:
            by_table.setdefault(table, []).append((commit, file))
        text = json.dumps([query, number, by_table], sort_keys=True).encode("utf-8", "backslashreplace")
        return cls(number, hashlib.sha256(text).hexdigest()[:16], wrote)

    @classmethod
    def from_json(cls, batch: Any, wrote: Any) -> BatchIdentity | None:
        """Read the two JSON values of a state: see :meth:`batch_to_json` and :meth:`wrote_to_json`.

        Returns:
            ``None`` if the first one is of no batch of a query.

        Raises:
            ValueError: The second one is damaged.

        >>> BatchIdentity.from_json("4:9f86d081884c7d65", None)
        BatchIdentity(number=4, read='9f86d081884c7d65', wrote=None)
        >>> BatchIdentity.from_json(41, None)
        """
        match = _NUMBER_AND_READ.fullmatch(batch) if isinstance(batch, str) else None
        if match is None:
            return None
        number = int(match[1])
        if wrote is None:
            return cls(number, match[2])
        digest = BatchDigest.from_json(wrote)
        if wrote.get("batch") != number:
            raise ValueError(f"{str(wrote)[:80]} is not of batch {number}")
        return cls(number, match[2], digest)

    def batch_to_json(self) -> str:
        """Return the number and the digest of what was read, as one JSON value."""
        return f"{self.number}:{self.read}"

    def wrote_to_json(self) -> JsonObject | None:
        """Return the digest of what the batch wrote, without its times and what holds for stored rows only, as a JSON object."""
        return None if self.wrote is None else {"batch": self.number, **replace(self.wrote, times=(), exact=None).to_json()}
