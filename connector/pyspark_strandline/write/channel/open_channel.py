"""The channels that queries of this process write, open for longer than a batch."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pyspark_strandline.workers import QUERIES_KEPT, Recent
from strandline.channel import Channel
from strandline.channel.progress.query_producer_state import producer_of
from strandline.time.domain import TimeDomain

__all__ = ["OpenChannel"]


class OpenChannel:
    """A channel that queries write, and what is known of these queries.

    Spark creates a new writer for every batch, in a process that it keeps. Only these objects outlive a batch.

    Attributes:
        channel: The channel.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._producers: Recent[str, str] = Recent(QUERIES_KEPT)
        self._begun: Recent[str, bool] = Recent(QUERIES_KEPT)

    @classmethod
    def find(cls, path: str, storage: Mapping[str, str] | None) -> OpenChannel | None:
        """Return the channel that is at a path now; ``None`` if there is none."""
        found = _open.used(key := _key(path, storage))
        if found is None or found.channel.was_replaced():
            _open.pop(key, None)
            if not Channel.exists(path, storage):
                return None
            found = _open[key] = cls(Channel.open(path, storage))
        return found

    @classmethod
    def create(
        cls, path: str, storage: Mapping[str, str] | None, schema: pa.Schema, time: str, domain: TimeDomain, producer: str
    ) -> OpenChannel:
        """Return a new channel of one producer. So no other can join, and the channel is sealed."""
        made = Channel.create(
            path, schema, time=time, domain=domain, producers=[producer], storage_options=storage, exist_ok=True
        )
        found = _open[_key(path, storage)] = cls(made)
        return found

    def producer(self, query: str) -> str:
        """Return the name under which a query writes that was given none."""
        name = self._producers.used(query)
        if name is None:
            name = producer_of(self.channel.progress.producers, query)
            if self.channel.progress.get(name) is not None:
                self._producers[query] = name
        return name

    def has_batch_of(self, query: str) -> bool:
        """Return whether the channel has a batch of a query."""
        if self._begun.used(query) is None and self.channel.transaction_version(query) is not None:
            self._begun[query] = True
        return query in self._begun


def _key(path: str, storage: Mapping[str, str] | None) -> tuple[str, frozenset[tuple[str, str]]]:
    return path, frozenset((storage or {}).items())


_open: Recent[tuple[str, frozenset[tuple[str, str]]], OpenChannel] = Recent(QUERIES_KEPT)
"""By path and storage options: a query that starts again with other keys must not write with those of the query before."""
