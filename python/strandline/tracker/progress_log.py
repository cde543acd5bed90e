"""The record of a tracker: every change of a pointstamp's count, as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, TimeDomain
from strandline.tracker.graph import Graph, Location
from strandline.tracker.reachability import Tracker

__all__ = ["ProgressLog", "replay_log"]

_CHUNK = 8192


class ProgressLog:
    """Records every ``(location, time, ±count)`` that a :class:`Tracker` receives, by atomic batch.

    Columns: ``batch`` (int64, from 1), ``node`` (int32), ``port`` (int32), ``is_source`` (bool), ``time`` (the domain's type,
    with the domain in the metadata), ``count`` (int64, the change).

    Args:
        domain: The domain of the times.
        write: Receives record batches of some thousand rows, and the rest on :meth:`flush`. Without it the rows are kept for
            :meth:`table`.

    >>> from strandline.time.domain import uint64
    >>> graph = Graph(uint64)
    >>> _ = graph.add_node(0, 1)
    >>> log = ProgressLog(uint64)
    >>> tracker = Tracker(graph, log)
    >>> tracker.update_source(0, 0, 5, 1)
    >>> tracker.propagate_all()
    >>> log.table().to_pylist()
    [{'batch': 1, 'node': 0, 'port': 0, 'is_source': True, 'time': 5, 'count': 1}]
    """

    def __init__(self, domain: TimeDomain, write: Callable[[pa.RecordBatch], None] | None = None) -> None:
        self.domain = domain
        self.schema = pa.schema(
            [
                pa.field("batch", pa.int64()),
                pa.field("node", pa.int32()),
                pa.field("port", pa.int32()),
                pa.field("is_source", pa.bool_()),
                time_field("time", domain),
                pa.field("count", pa.int64()),
            ]
        )
        self._batches: list[pa.RecordBatch] = []
        self._write = self._batches.append if write is None else write
        self._rows: list[tuple[int, Location, Time, int]] = []
        self._batch = 0

    def begin(self) -> None:
        """Begin the next atomic batch (the tracker calls this).

        If there are many earlier rows, this first writes them. The write happens between batches, so that the tracker has not
        changed yet if the write fails.
        """
        if len(self._rows) >= _CHUNK:
            self.flush()
        self._batch += 1

    def append(self, location: Location, updates: Iterable[tuple[Time, int]]) -> None:
        """Record changes at one location (the tracker calls this)."""
        self._rows += [(self._batch, location, time, count) for time, count in updates]

    def flush(self) -> None:
        """Write the buffered rows. If the write fails, they stay buffered."""
        if not self._rows:
            return
        numbers, locations, times, counts = zip(*self._rows, strict=True)
        arrays = [
            pa.array(numbers, pa.int64()),
            pa.array([location.node for location in locations], pa.int32()),
            pa.array([location.port for location in locations], pa.int32()),
            pa.array([location.is_source for location in locations], pa.bool_()),
            array_of(times, self.domain),
            pa.array(counts, pa.int64()),
        ]
        self._write(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        self._rows = []

    def table(self) -> pa.Table:
        """Return the recorded rows that were not written elsewhere."""
        self.flush()
        return pa.Table.from_batches(self._batches, self.schema)


def replay_log(log: pa.Table, graph: Graph, until: int | None = None) -> Tracker:
    """Recreate the tracker of a log in its past state after a batch (default: after all batches).

    Args:
        log: The log, as :meth:`ProgressLog.table` returns it.
        graph: The graph of the tracker.
        until: The last batch to apply.

    >>> from strandline.time.domain import uint64
    >>> from strandline.tracker.graph import source
    >>> graph = Graph(uint64)
    >>> _ = graph.add_node(0, 1)
    >>> log = ProgressLog(uint64)
    >>> tracker = Tracker(graph, log)
    >>> for time in (5, 7):
    ...     tracker.update_source(0, 0, time, 1)
    ...     tracker.propagate_all()
    ...     tracker.update_source(0, 0, time, -1)
    >>> replay_log(log.table(), graph, until=1).frontier(source(0, 0))
    Antichain(uint64, [5])
    """
    tracker = Tracker(graph)
    now = None
    for row in log.to_pylist():
        if until is not None and row["batch"] > until:
            break
        if now is not None and row["batch"] != now:
            tracker.propagate_all()
        now = row["batch"]
        location = Location(row["node"], row["is_source"], row["port"])
        tracker.update(location, graph.domain.time(row["time"]), row["count"])
    tracker.propagate_all()
    return tracker
