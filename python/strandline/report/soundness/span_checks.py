"""The checks of spans: that rows can be divided among them as a statement says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from strandline.channel.statements.commit_statement import CommitStatement
from strandline.channel.statements.statement import Span
from strandline.time.arrow import array_of, between, leaf_columns, time_column
from strandline.time.domain import Time, TimeDomain, leaf_values

__all__ = ["SpanCounts", "SpansFound", "spans_found"]

_MOST_PAIRS = 1 << 30
"""So many pairs of a time and a span are compared in a partial order, which takes some seconds."""

_Leaves: TypeAlias = list[npt.NDArray[np.int64]]


class SpanCounts:
    """Counts rows at and between the times that a statement has, which are in a total order. So their distinct times may be many.

    Args:
        domain: The domain of the times.
        statement: What is stated of the rows.
    """

    def __init__(self, domain: TimeDomain, statement: CommitStatement) -> None:
        self._domain, self._statement = domain, statement
        named = {time for time, _ in statement.times}
        self._ends = sorted({*named, *(end for span in statement.spans for end in (span.low, span.high))}, key=domain.sort_key)
        self._leaves = _leaves_of(domain, self._ends)
        # The rows before the first end, at it, between it and the second one, and so on.
        self._rows = np.zeros(2 * len(self._ends) + 1, dtype=np.int64)

    @classmethod
    def of(cls, domain: TimeDomain, statement: CommitStatement | None) -> SpanCounts | None:
        """Return one for a statement with spans; ``None`` for others, and for times in a partial order."""
        return cls(domain, statement) if statement is not None and statement.spans and domain.is_total else None

    def add(self, column: Any) -> None:
        """Count the rows at the times of a column, which are of the domain."""
        count = len(self._ends)
        leaves = leaf_columns(time_column(column, self._domain))
        both = [np.concatenate([ends, leaf]) for ends, leaf in zip(self._leaves, leaves, strict=True)]
        order = np.lexsort(both[::-1])
        is_new = np.zeros(len(order), dtype=np.int64)
        for leaf in both:
            is_new[1:] |= leaf[order[1:]] != leaf[order[:-1]]
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.cumsum(is_new)
        at = np.searchsorted(places[:count], places[count:], "left") + np.searchsorted(places[:count], places[count:], "right")
        self._rows += np.bincount(at, minlength=len(self._rows))

    def difference(self) -> tuple[str, str, str] | None:
        """Return a field of the statement, what the files have there, and what it states; ``None`` if they are the same.

        Of the spans at a time, that which ends first gets its rows: if the rows can be divided in any way, they can in this one.

        >>> import pyarrow as pa
        >>> from strandline.time.domain import int64
        >>> statement = CommitStatement(0, {}, spans=(Span(0, 9, 2), Span(5, 9, 1)))
        >>> counts = SpanCounts(int64, statement)
        >>> counts.add(pa.array([1, 2, 3]))
        >>> counts.difference()
        ('times', '1 rows at 0 to 5 in its files', 'a time or a span for each of its rows')
        """
        shown, place = self._domain.format, {end: 2 * i + 1 for i, end in enumerate(self._ends)}
        left = self._rows.tolist()
        for time, rows in self._statement.times:
            if left[place[time]] < rows:
                return "times", f"{left[place[time]]} rows at {shown(time)} in its files", f"{rows} rows"
            left[place[time]] -= rows
        waiting = sorted((place[span.low], place[span.high], span.rows) for span in self._statement.spans)[::-1]
        open_spans: list[list[int]] = []
        for at, rows in enumerate(left):
            while waiting and waiting[-1][0] == at:
                heappush(open_spans, [*waiting.pop()[1:]])
            while rows and open_spans:
                taken = min(rows, open_spans[0][1])
                rows -= taken
                open_spans[0][1] -= taken
                if not open_spans[0][1]:
                    heappop(open_spans)
            if rows:
                return "times", f"{rows} rows at {self._shown(at)} in its files", "a time or a span for each of its rows"
            if open_spans and open_spans[0][0] == at:
                lacking = open_spans[0][1]
                return "spans", f"{lacking} rows too few in its files in a span up to {self._shown(at)}", "as many as are stated"
        return None

    def _shown(self, at: int) -> str:
        around = self._ends[max(0, (at - 1) // 2) : at // 2 + 1]
        return " to ".join(map(self._domain.format, around))


class SpansFound(NamedTuple):
    """How rows at times in a partial order fit the spans of a statement.

    Attributes:
        outside: A time that is in none of the spans.
        differing: The first span with other rows than it should have, with the rows that are there and those that are stated.
        unchecked: Why it is not known whether each span has its rows.
    """

    outside: Time | None = None
    differing: tuple[Span, int, int] | None = None
    unchecked: str | None = None


def spans_found(domain: TimeDomain, times: Mapping[Time, int], spans: Iterable[Span], *, bounds: bool = False) -> SpansFound:
    """Compare rows by their times with spans, of which each must have its rows where no time is in two of them.

    With ``bounds``, the times are only some of the rows'.

    >>> from strandline.time.domain import product
    >>> d = product(a="int64", b="int64")
    >>> spans_found(d, {(1, 7): 2}, [Span((1, 0), (1, 9), 1), Span((2, 0), (2, 5), 1)]).differing
    (Span(low=(1, 0), high=(1, 9), rows=1), 2, 1)
    """
    stated: dict[tuple[Time, Time], int] = {}
    for low, high, rows in spans:
        stated[low, high] = stated.get((low, high), 0) + rows
    if len(times) * len(stated) > _MOST_PAIRS:
        return SpansFound(unchecked=f"{len(times)} times with {len(stated)} spans are too many to compare in a partial order")
    column, numbers = array_of(list(times), domain), np.array(list(times.values()), dtype=np.int64)
    covering = np.zeros(len(times), dtype=np.int64)
    differing = None
    for (low, high), rows in stated.items():
        inside = between(column, domain, low, high)
        covering += inside
        if differing is None and (found := int(numbers[inside].sum())) != rows:
            differing = Span(low, high, rows), found, rows
    if not covering.all():
        return SpansFound(outside=list(times)[int(np.argmin(covering))])
    if differing is None:
        return SpansFound()
    if bounds or (covering > 1).any():
        return SpansFound(unchecked="times are in several spans, or too many, so the rows of each span are not known")
    return SpansFound(differing=differing)


def _leaves_of(domain: TimeDomain, times: Iterable[Time]) -> _Leaves:
    """Return the values of each coordinate of times."""
    rows = [tuple(leaf_values(time)) for time in times]
    return [np.array([row[i] for row in rows], dtype=np.int64) for i in range(len(domain.leaves()))]
