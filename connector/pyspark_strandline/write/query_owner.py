"""The session in whose name a query writes."""

from __future__ import annotations

from functools import lru_cache

import psutil

from strandline.channel import WriterSession

__all__ = ["query_owner"]


@lru_cache(maxsize=64)
def query_owner(query_id: str) -> WriterSession:
    """Return the query as the producer's session.

    The session lives as long as its Spark driver, not as long as the Python worker that commits for it.
    """
    for process in psutil.Process().parents():
        if process.name().startswith("java"):
            return WriterSession.of(process, query_id)
    return WriterSession.here(query_id)
