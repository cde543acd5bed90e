"""Message times: the number of rows at each time in a set of files.

They are exact while the list is short, and spans otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.channel.statements.commit_statement import MAX_MESSAGE_TIMES
from strandline.channel.statements.statement import Span
from strandline.time.antichain import Antichain
from strandline.time.arrow import leaf_columns, time_column, times_from_leaves, times_of
from strandline.time.domain import Product, Scalar, Time, TimeDomain, leaf_values

__all__ = ["MAX_EXACT", "OrderedTimeCounts", "TimeCounts", "is_plain_product", "message_times"]

MAX_EXACT = 1 << 16
"""The number of distinct times that are counted exactly. A stream of raw timestamps has as many times as rows."""
_ROWS, _HASHES = "rows", "hashes"
_MOST_PENDING = 2 * MAX_EXACT


class TimeCounts:
    """Counts rows by time, in bounded memory. It counts whole columns.

    If there are too many distinct times, neighbours are counted together as a :class:`Span`. The ends of a span are times of
    actual rows, and all its other rows lie in between. So every capability that allowed the rows is ≤ the low end.

    Args:
        domain: The domain of the times.
        field: The name of the time column, for errors.
        most_exact: How many distinct times the result may name exactly.

    >>> from strandline.time.domain import int64
    >>> counts = TimeCounts(int64)
    >>> counts.add(pa.array([7, 5, 7]))
    >>> counts.result()
    ([(5, 1), (7, 2)], [])
    """

    def __init__(self, domain: TimeDomain, field: str = "time", most_exact: int = MAX_EXACT) -> None:
        self._domain = domain
        self._field = field
        self._most_exact = most_exact
        self._names = [str(i) for i in range(len(domain.leaves()))]
        self._parts: list[list[npt.NDArray[Any]]] = []
        self._merged: pa.Table | None = None
        self._pending = 0
        self._most_pending = _MOST_PENDING
        self._spans: list[Span] = []
        self._added = [_ROWS]
        self.hashed = 0
        """The sum of the hashes that were added."""
        self.hashes: list[int] = []
        """After :meth:`result`, and if hashes were added: their sum at each time that was counted exactly, modulo 2^64."""

    def check(self, column: Any) -> None:
        """Raise the :class:`TimeError` that :meth:`add` would raise."""
        time_column(column, self._domain, self._field)

    def add(self, column: Any, hashes: npt.NDArray[np.uint64] | None = None) -> None:
        """Count a column's rows.

        Args:
            column: The times of rows.
            hashes: A hash of each row. Give them for all columns, or for none.

        Raises:
            TimeError: For a null, or a time that is not of the domain.
        """
        array = time_column(column, self._domain, self._field)
        if not len(array):
            return
        leaves = leaf_columns(array)
        if hashes is not None:
            self._added = [_ROWS, _HASHES]
        # Rows that came together often have one time, and they are added in a tenth of the time of grouping them.
        changes = np.zeros(len(array) - 1, dtype=bool)
        for leaf in leaves:
            changes |= leaf[1:] != leaf[:-1]
        bounds = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(array)]])
        starts = bounds[:-1]
        if len(starts) <= len(array) // 2:
            part = [*(leaf[starts] for leaf in leaves), bounds[1:] - starts]
            sums = None if hashes is None else np.add.reduceat(hashes, starts)
        else:
            part, sums = [*leaves, np.ones(len(array), dtype=np.int64)], hashes
        if sums is not None:
            part.append(sums)
            self.hashed += int(sums.sum(dtype=np.uint64))
        self._parts.append(part)
        self._pending += len(part[0])
        if self._pending > self._most_pending:
            self._merge()
            self._most_pending = max(_MOST_PENDING, 2 * self._pending)

    def result(self) -> tuple[list[tuple[Time, int]], list[Span]]:
        """Return the times that were counted exactly, in ``sort_key`` order, and the spans."""
        self._merge(self._most_exact)
        exact: list[tuple[Any, ...]] = []
        if (part := self._merged) is not None:
            times = times_from_leaves([part.column(name).to_pylist() for name in self._names], self._domain)
            exact += zip(times, *(part.column(name).to_pylist() for name in self._added), strict=True)
        key = self._domain.sort_key
        exact.sort(key=lambda entry: key(entry[0]))
        self.hashes = [entry[2] for entry in exact] if _HASHES in self._added else []
        return [(time, rows) for time, rows, *_ in exact], self._few_spans()

    def _few_spans(self) -> list[Span]:
        """Return the spans, of which the counting may have made many. Then neighbours in a chain are one."""
        spans, key = self._spans, self._domain.sort_key
        if len(spans) <= MAX_MESSAGE_TIMES:
            return list(spans)
        width = -(-len(spans) // MAX_MESSAGE_TIMES)
        chains: dict[Any, list[Span]] = {}
        for span in sorted(spans, key=lambda span: key(span.low)):
            chains.setdefault(self._chain_of(span), []).append(span)
        if self._domain.is_total and len(chains) > MAX_MESSAGE_TIMES // 2:  # they would be many: neighbours of all chains are one
            chains = {None: sorted(spans, key=lambda span: key(span.low))}
        groups = [chain[at : at + width] for chain in chains.values() for at in range(0, len(chain), width)]
        return [
            Span(group[0].low, max((span.high for span in group), key=key), sum(span.rows for span in group)) for group in groups
        ]

    def _chain_of(self, span: Span) -> Any:
        """Return what the spans have in common whose times are in one total order with those of a span, and with each other."""
        if self._domain.is_total:
            first, last = next(iter(leaf_values(span.low))), next(iter(leaf_values(span.high)))
            return first if first == last and not isinstance(self._domain, Scalar) else None
        low, high = tuple(leaf_values(span.low)), tuple(leaf_values(span.high))
        along = [i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a != b]
        at = along[0] if along else len(low) - 1
        return at, low[:at], low[at + 1 :]

    def _merge(self, most_exact: int = MAX_EXACT) -> None:
        if self._parts:
            names = [*self._names, *self._added]
            added = pa.table([np.concatenate(columns) for columns in zip(*self._parts, strict=True)], names=names)
            every = added if self._merged is None else pa.concat_tables([self._merged, added])
            if not self._is_increasing(every):
                sums = [f"{name}_sum" for name in self._added]
                every = every.group_by(self._names).aggregate([(name, "sum") for name in self._added])
                every = every.select([*self._names, *sums]).rename_columns(names)
            # In one step: after an interrupt in between, the rows would count twice.
            self._merged, self._parts = every, []
        self._pending = 0 if self._merged is None else self._merged.num_rows
        if self._merged is not None and self._pending > most_exact and (spans := self._as_spans(self._merged)) is not None:
            self._spans, self._merged, self._pending = self._spans + spans, None, 0

    def _is_increasing(self, every: pa.Table) -> bool:
        """Return whether each time is after the one before, by its leaves, as those of a clock are. Then none is there twice."""
        first, *others = (every.column(name).to_numpy() for name in reversed(self._names))
        increasing = first[1:] > first[:-1]
        for leaf in others:
            increasing = (leaf[1:] > leaf[:-1]) | ((leaf[1:] == leaf[:-1]) & increasing)
        return bool(increasing.all())

    def _as_spans(self, counted: pa.Table) -> list[Span] | None:
        """Cut sorted chains of times into spans. Return ``None`` if there are too many chains for a short result."""
        columns = [counted.column(name).to_numpy() for name in self._names]
        order = list(range(len(columns)))
        if not self._domain.is_total:
            if not is_plain_product(self._domain):
                return None
            # Times that agree in all coordinates but one form a chain. The chains follow the coordinate with the most values.
            along = max(order, key=lambda i: len(np.unique(columns[i])))
            order = [*(i for i in order if i != along), along]
        at = np.lexsort([columns[i] for i in reversed(order)])
        columns = [column[at] for column in columns]
        rows = counted.column(_ROWS).to_numpy()[at]
        new_chain = np.zeros(len(rows), dtype=bool)
        if not self._domain.is_total:
            for i in order[:-1]:
                new_chain[1:] |= columns[i][1:] != columns[i][:-1]
        elif len(columns) > 1:  # a span is within one value of the first coordinate, such as an instant, if these are few
            changes = columns[0][1:] != columns[0][:-1]
            if np.count_nonzero(changes) < MAX_MESSAGE_TIMES // 2:
                new_chain[1:] = changes
        chains = np.flatnonzero(new_chain)
        if len(chains) >= MAX_MESSAGE_TIMES:
            return None
        width = -(-len(rows) // MAX_MESSAGE_TIMES)
        starts = np.unique(np.concatenate([np.arange(0, len(rows), width), chains]))
        ends = np.append(starts[1:], len(rows)) - 1
        low = times_from_leaves([column[starts].tolist() for column in columns], self._domain)
        high = times_from_leaves([column[ends].tolist() for column in columns], self._domain)
        return [Span(*span) for span in zip(low, high, np.add.reduceat(rows, starts).tolist(), strict=True)]


class OrderedTimeCounts(TimeCounts):
    """Counts times that come in their order, each once, such as those that a clock gives at one instant.

    Very many are one span. They are not looked at one by one.

    >>> from strandline.time.domain import int64
    >>> counts = OrderedTimeCounts(int64)
    >>> counts.add(pa.array(range(2000)))
    >>> counts.result()
    ([], [Span(low=0, high=1999, rows=2000)])
    """

    _rows, _low, _high = 0, None, None

    def add(self, column: Any, hashes: npt.NDArray[np.uint64] | None = None) -> None:
        """Count a column's rows, as :meth:`TimeCounts.add`."""
        array = time_column(column, self._domain, self._field)
        if not len(array):
            return
        low, self._high = times_of(array.take([0, len(array) - 1]), self._domain)
        self._low = low if self._low is None else self._low
        self._rows += len(array)
        if self._rows <= MAX_MESSAGE_TIMES:
            super().add(column, hashes)
        elif hashes is not None:
            self.hashed += int(hashes.sum(dtype=np.uint64))

    def result(self) -> tuple[list[tuple[Time, int]], list[Span]]:
        """Return the times and the spans, as :meth:`TimeCounts.result`."""
        return super().result() if self._rows <= MAX_MESSAGE_TIMES else ([], [Span(self._low, self._high, self._rows)])


def is_plain_product(domain: TimeDomain) -> bool:
    """Return whether the order is the product of the orders of all leaves."""
    return isinstance(domain, Scalar) or (isinstance(domain, Product) and all(is_plain_product(part) for _, part in domain.parts))


def message_times(
    times: Iterable[tuple[Time, int]], holds: Antichain, limit: int = MAX_MESSAGE_TIMES, spans: Iterable[Span] = ()
) -> tuple[tuple[tuple[Time, int], ...], tuple[Span, ...]]:
    """Return message times in the form of a statement: unchanged if at most ``limit``, else as about ``limit`` spans.

    Neighbours in ``sort_key`` order under the same capability of ``holds`` share a span. The ``low`` of the span is the meet
    of their low times. So the capability is still ≤ ``low``, and the span does not violate it.

    >>> from strandline.time.domain import int64
    >>> message_times([(1, 5), (2, 5), (3, 1), (9, 1)], Antichain(int64, [0]), limit=2)
    ((), (Span(low=1, high=2, rows=10), Span(low=3, high=9, rows=2)))
    """
    exact, coarse = tuple(times), tuple(spans)
    if len(exact) + len(coarse) <= limit:
        return exact, coarse
    domain, elements = holds.domain, list(holds)
    groups: dict[Time, list[Span]] = {}
    entries = [*(Span(time, time, rows) for time, rows in exact), *coarse]
    for span in sorted(entries, key=lambda span: domain.sort_key(span.low)):
        under = next((e for e in elements if domain.less_equal(e, span.low)), span.low)
        groups.setdefault(under, []).append(span)
    width = -(-len(entries) // max(1, limit - len(groups) + 1))
    result = []
    for group in groups.values():
        for at in range(0, len(group), width):
            low, high, total = group[at]
            for span in group[at + 1 : at + width]:
                low, high, total = domain.meet(low, span.low), domain.join(high, span.high), total + span.rows
            result.append(Span(low, high, total))
    return (), tuple(result)
