"""What a query has committed, recorded in its checkpoint: an output that is restored to an earlier state is found out by it."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from pyspark_strandline.workers import QUERIES_KEPT, Recent
from pyspark_strandline.write import errors
from pyspark_strandline.write.checkpoint_store import SLOW_SECONDS, CheckpointKey, checkpoint_key, checkpoint_store
from strandline.channel import Channel
from strandline.delta.storage import LocalStore, Store
from strandline.errors import StrandlineError

__all__ = ["CommitRecord", "Committed", "record_of"]

_FILE = "strandline/commits"
_LIMIT = 1 << 26
_LARGEST = 1 << 22
"""A larger record has fewer batches of each output, because it is written after each batch."""
_MOST = 100
"""A checkpoint keeps as many batches by default (``spark.sql.streaming.minBatchesToRetain``), so a query can repeat them."""
_MOST_CHARS = 200

_log = logging.getLogger(__name__)


class Committed(NamedTuple):
    """A batch that a query has committed to a channel.

    Attributes:
        batch: The batch's id.
        version: The newest version of the channel then.
        frontier: The channel's frontier there, as text for people.
    """

    batch: int
    version: int
    frontier: str


class CommitRecord:
    """The newest batches that a query has committed to each of its outputs.

    A batch without rows and without a move of the frontier makes no commit. So the channel alone does not show whether it has all
    batches of a query. The record does: it is written after the commits of a batch. If it cannot be written, or a crash came
    before, it knows less, and refuses less. It never refuses a channel that has every commit.

    A checkpoint that Python cannot reach, as on HDFS, has no record. For a store that does not answer, it waits once
    (:func:`checkpoint_store`).
    """

    def __init__(self, query: str, checkpoint: str | None, storage: Mapping[str, str] | None = None) -> None:
        self._query = query
        self._outputs: dict[str, list[Committed]] = {}
        self._store: Store | None = None
        if checkpoint is None:
            self._give_up("checkpointLocation is not an option of the query")
            return
        try:
            with checkpoint_store(checkpoint, storage) as self._store:
                self._outputs = _read(self._store, query)
        except Exception as error:  # the address selects the store, and a foreign store raises its own errors
            self._give_up(type(error).__name__)

    def refresh(self) -> None:
        """Read the record anew: another worker may have committed the batch before."""
        if self._store is None:
            return
        try:
            self._outputs = _read(self._store, self._query)
        except Exception as error:
            self._give_up(type(error).__name__)

    def check(
        self, output: str, batch: int, channel: Channel | None, path: str, may_repeat: Callable[[int], bool] = lambda _: True
    ) -> None:
        """Raise unless a channel has the newest batch before this one that the query has committed to it.

        Args:
            output: The name of the output.
            batch: The id of the batch that is to be committed.
            channel: The channel; ``None`` if there is none.
            path: Its path.
            may_repeat: Whether nothing else has what the query wrote after a batch, so that it may write all of that again.

        Raises:
            StrandlineError: ``STRANDLINE_OUTPUT_BEHIND``, or ``STRANDLINE_OUTPUT_MISSING`` if there is no channel.
        """
        newest = next((each for each in reversed(self._outputs.get(output, ())) if each.batch < batch), None)
        if newest is None:
            return
        if channel is None:
            raise errors.output_missing_committed(newest.batch, path, newest.frontier)
        if channel.committed(self._query) >= newest.batch:
            return
        has = channel.transaction_version(self._query)  # another process may have committed since the channel was read
        if has is not None and has >= newest.batch:
            return
        again = has is not None and not output and may_repeat(has) and self._can_repeat_after(has)
        now = channel.frontier.format()[:_MOST_CHARS]
        raise errors.output_behind(
            newest.batch, path, newest.version, newest.frontier, channel.version, now, has, may_repeat=again
        )

    def _can_repeat_after(self, batch: int) -> bool:
        """Whether Spark would go on after this batch. If the checkpoint does not have the batch, Spark begins anew."""
        if self._store is None:
            return False
        try:
            return all(self._store.size(f"{folder}/{batch}") is not None for folder in ("commits", "offsets"))
        except StrandlineError:
            return False

    def add(self, output: str, batch: int, channel: Channel) -> None:
        """Note what the channel has after a batch. :meth:`save` makes it last."""
        entries = [each for each in self._outputs.get(output, ()) if each.batch < batch]  # later ones were before a restore
        if channel.committed(self._query) >= batch:  # otherwise nothing changed, so there was no commit
            entries.append(Committed(batch, channel.version, channel.frontier.format()[:_MOST_CHARS]))
        self._outputs[output] = entries[-_MOST:]

    def save(self) -> None:
        """Write the record into the checkpoint. If that fails, the batch is committed all the same."""
        if self._store is None:
            return
        began = time.monotonic()
        try:
            _replace(self._store, self._text())
        except Exception as error:
            if time.monotonic() - began > SLOW_SECONDS:
                self._give_up(type(error).__name__)
            else:
                _log.warning("The record of query %s was not written, and is tried again: %s", self._query, type(error).__name__)

    def _text(self) -> bytes:
        most = _MOST
        while True:
            body = {"strandline": 1, "query": self._query, "outputs": self._outputs}
            text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")
            if len(text) <= _LARGEST or most == 1:
                return text
            most //= 2
            self._outputs = {name: entries[-most:] for name, entries in self._outputs.items()}

    def _give_up(self, why: str) -> None:
        self._store = None  # do not wait for an unreachable store in every batch
        _log.warning(
            "Python cannot use the checkpoint of query %s, so an output that is restored to an earlier state is not noticed: %s",
            self._query,
            why,
        )


_records: Recent[tuple[str, CheckpointKey | None], CommitRecord] = Recent(QUERIES_KEPT)


def record_of(query: str, checkpoint: str | None, storage: Mapping[str, str] | None = None) -> CommitRecord:
    """Return the record of a query as it is now."""
    key = query, None if checkpoint is None else checkpoint_key(checkpoint, storage)
    found = _records.used(key)
    if found is None:
        found = _records[key] = CommitRecord(query, checkpoint, storage)
    else:
        found.refresh()
    return found


def _read(store: Store, query: str) -> dict[str, list[Committed]]:
    """Return what a checkpoint's record says. A damaged one says nothing, because it was never needed to continue."""
    try:
        body = json.loads(store.read(_FILE, _LIMIT) or b"{}")
        if body.get("query") != query:
            return {}
        return {
            str(name): [Committed(int(batch), int(version), str(frontier)) for batch, version, frontier in entries]
            for name, entries in body["outputs"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _replace(store: Store, data: bytes) -> None:
    """Write the record, all of it or nothing. It need not survive a loss of power: an older one is right too."""
    if not isinstance(store, LocalStore):
        # deltalake's streams refuse Arrow's buffers. From a larger buffer of its own, Arrow writes bytes.
        with store.open_output(_FILE) as file, pa.BufferedOutputStream(file, len(data) + 1) as buffered:
            buffered.write(data)
        return
    path = Path(store.location) / _FILE
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    path.parent.mkdir(exist_ok=True)  # if there is no checkpoint at this path, it is one of another file system
    try:
        draft.write_bytes(data)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
