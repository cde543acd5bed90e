"""Finds out from Spark's offset log whether a batch ends within a source's first snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark_strandline.write.checkpoint_store import checkpoint_store

__all__ = ["ends_in_first_snapshot"]

_LIMIT = 1 << 26


def ends_in_first_snapshot(checkpoint: str | None, batch: int, storage: Mapping[str, str] | None = None) -> bool:
    """Whether a source of the query has not yet delivered all of the table as it was when the query began.

    Delta's source shows this in the end offset of a batch with ``isStartingVersion``, and a channel's source with ``snapshot``.
    Spark writes the offsets of a batch to the checkpoint before the batch runs. If the checkpoint cannot be read from Python, as
    on HDFS, or is not given with the query, the answer is no. An object store that does not answer is asked once.

    >>> ends_in_first_snapshot(None, 0)
    False
    """
    if checkpoint is None:
        return False
    try:
        with checkpoint_store(checkpoint, storage) as store:
            text = store.read(f"offsets/{batch}", _LIMIT)
    except Exception:  # the URL selects the store, and a foreign store raises its own errors
        return False
    # A line for the version, a line of metadata, then a line for each source.
    return text is not None and any(_in_snapshot(line) for line in text.decode("utf-8", "replace").splitlines()[2:])


def _in_snapshot(line: str) -> bool:
    try:
        offset = json.loads(line)
    except ValueError:
        return False
    if not isinstance(offset, dict):
        return False
    if "reservoirId" in offset:
        return offset.get("isStartingVersion") is True
    channels = offset.get("channels")
    positions = channels.values() if isinstance(channels, dict) else [offset]
    return "strandline" in offset and any(isinstance(p, dict) and p.get("snapshot") is not None for p in positions)
