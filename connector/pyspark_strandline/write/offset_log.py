"""Reads Spark's offset log, in which Spark writes what a batch reads before the batch runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from pyspark_strandline.write.checkpoint_store import checkpoint_store
from strandline.spark_offsets import offset_lines

__all__ = ["ends_in_first_snapshot", "newest_read_moment_ms", "read_moment_ms"]

_LIMIT = 1 << 26
_NO_OFFSET = "-"
"""What Spark writes for a source that has no offset yet."""
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.5


def _offset_lines(
    checkpoint: str | None, batch: int, storage: Mapping[str, str] | None = None, *, decides: bool = True
) -> list[str] | None:
    """Return the lines of a batch's offsets (:func:`offset_lines`).

    The arguments are those of :func:`ends_in_first_snapshot`. The result is ``None`` where that is, and for another version.

    >>> _offset_lines(None, 0)
    """
    if checkpoint is None:
        return None
    for attempt in range(_ATTEMPTS if decides else 1):
        try:
            time.sleep(attempt * _PAUSE_SECONDS)
            with checkpoint_store(checkpoint, storage, anew=decides) as store:
                text = store.read(f"offsets/{batch}", _LIMIT)
        except Exception:  # the URL selects the store, and a foreign store raises its own errors
            text = None
        if text is not None:
            return offset_lines(text)
    return None


def newest_read_moment_ms(checkpoint: str | None, storage: Mapping[str, str] | None = None) -> int | None:
    """Return :func:`read_moment_ms` for the newest batch. While a batch is planned and runs, that is this batch.

    It is asked once only: without an answer, the clock of the driver is good enough.

    >>> newest_read_moment_ms(None)
    """
    if checkpoint is None:
        return None
    try:
        with checkpoint_store(checkpoint, storage) as store:
            batches = [int(name) for name in store.list("offsets") if name.isascii() and name.isdigit()]
    except Exception:  # the URL selects the store, and a foreign store raises its own errors
        return None
    return read_moment_ms(checkpoint, max(batches), storage, decides=False) if batches else None


def read_moment_ms(
    checkpoint: str | None, batch: int, storage: Mapping[str, str] | None = None, *, decides: bool = True
) -> int | None:
    """Return when Spark determined what a batch reads, in ms since 1970, or ``None`` if that cannot be read.

    Spark decides this once for a batch. An attempt that repeats the batch, maybe days later, reads the same rows.

    >>> read_moment_ms(None, 0)
    """
    lines = _offset_lines(checkpoint, batch, storage, decides=decides)
    metadata = _object(lines[0]) if lines else None
    moment = None if metadata is None else metadata.get("batchTimestampMs")
    return moment if isinstance(moment, int) and not isinstance(moment, bool) and moment > 0 else None


def ends_in_first_snapshot(
    checkpoint: str | None, batch: int, storage: Mapping[str, str] | None = None, *, decides: bool = True
) -> bool | None:
    """Whether a source of the query has not yet delivered all of the table as it was when the query began.

    Delta's source shows this in the end offset of a batch with ``isStartingVersion``, and a channel's source with ``snapshot``.
    Spark writes the offsets of a batch to the checkpoint before the batch runs.

    Args:
        checkpoint: The path of the query's checkpoint, if it is an option of the query.
        batch: The batch's number.
        storage: The options of deltalake.
        decides: Whether the answer decides which rows are late. Then a store that does not answer is asked several times, also
            if it did not answer before.

    Returns:
        ``None`` if it is not known, because Python cannot read the checkpoint, as on HDFS, or its store does not answer.

    >>> ends_in_first_snapshot(None, 0)
    """
    lines = _offset_lines(checkpoint, batch, storage, decides=decides)
    if lines is None or len(lines) < 2:
        return None
    found = [_in_snapshot(line) for line in lines[1:] if line != _NO_OFFSET]
    return True if True in found else None if None in found else False


def _object(line: str) -> Mapping[str, object] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _in_snapshot(line: str) -> bool | None:
    """Whether a source's offset is within its first snapshot; ``None`` if it is a torn one."""
    offset = _object(line)
    if offset is None:
        return None if not line or line.lstrip().startswith("{") else False  # other sources may write any text
    if "reservoirId" in offset:
        return offset.get("isStartingVersion") is True
    channels = offset.get("channels")
    positions = channels.values() if isinstance(channels, dict) else [offset]
    return "strandline" in offset and any(isinstance(p, dict) and p.get("snapshot") is not None for p in positions)
