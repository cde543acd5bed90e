"""A listener of streaming queries: it passes on which batches Spark says are done."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

__all__ = ["BatchListener"]

_LOG = logging.getLogger("strandline.progress")


class BatchListener(StreamingQueryListener):
    """Calls ``committed`` with the progress of each batch, as an object of Spark's JSON, and ``terminated`` with a query's id.

    An error in one of these is logged. Spark would drop the listener.
    """

    def __init__(self, committed: Callable[[dict[str, Any]], None], terminated: Callable[[str], None]) -> None:
        self._committed, self._terminated = committed, terminated

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do: a query has no report before its first batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress: dict[str, Any] = json.loads(event.progress.json)
        if "addBatch" in progress["durationMs"]:  # or the query has only looked for new data
            self._guarded(lambda: self._committed(progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to do: the newest batch's report stays."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._guarded(lambda: self._terminated(str(event.id)))

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            _LOG.exception("a progress report could not be made")
