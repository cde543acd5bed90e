"""The limit on rows that are set aside (``maxSetAside``): a batch of which more are set aside stops the query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from strandline.ingest import errors

__all__ = ["SetAsideLimit"]

_PERCENT = re.compile(r"\s*(\d{1,3}(?:\.\d{1,9})?)\s*%\s*")
_ROWS = re.compile(r"\s*(\d{1,15})(?:\s*rows?)?\s*")


@dataclass(frozen=True)
class SetAsideLimit:
    """How many rows of a batch may be set aside: a share of its rows, or a number.

    Attributes:
        share: The greatest share of the batch's rows, from 0 to 1.
        rows: The greatest number of rows. One of the two is ``None``.
        text: The limit as it was given.
    """

    share: Fraction | None
    rows: int | None
    text: str

    @classmethod
    def of(cls, value: str | int) -> SetAsideLimit:
        """Read a limit: ``"1%"``, ``"100 rows"`` or a number of rows.

        Raises :class:`IngestError` ``STRANDLINE_OPTION_INVALID`` for anything else.

        >>> limit = SetAsideLimit.of("0.5%")
        >>> limit.allows(1, 200), limit.allows(2, 399)
        (True, False)
        >>> SetAsideLimit.of(3).allows(3, 3), SetAsideLimit.of("0 rows").allows(1, 1000)
        (True, False)
        """
        text = str(value).strip()
        if not isinstance(value, bool):
            percent, rows = _PERCENT.fullmatch(text), _ROWS.fullmatch(text)
            if percent is not None and (share := Fraction(percent[1]) / 100) <= 1:
                return cls(share, None, text)
            if rows is not None:
                return cls(None, int(rows[1]), f"{rows[1]} rows")
        raise errors.option_invalid_max_set_aside(value)

    def allows(self, aside: int, read: int) -> bool:
        """Return whether so many rows of a batch may be set aside.

        Args:
            aside: How many are to be set aside.
            read: How many rows the batch has.
        """
        if self.share is not None:
            return aside <= self.share * read
        return self.rows is None or aside <= self.rows

    def __str__(self) -> str:
        return self.text
