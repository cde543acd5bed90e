"""Opens a query's checkpoint from Python, and does not wait long, or again, for a store that does not answer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from pyspark_strandline.workers import QUERIES_KEPT, Recent
from pyspark_strandline.write import errors
from strandline.delta.storage import Store, location_of, open_store
from strandline.errors import StrandlineError

__all__ = ["SLOW_SECONDS", "CheckpointKey", "checkpoint_key", "checkpoint_store", "stated_place"]

SLOW_SECONDS = 5.0
"""A store that takes longer to fail is not asked again with the same options."""
_WAITS = {"connect_timeout": "5s", "timeout": "5s", "max_retries": "1", "retry_timeout": "10s"}
"""How long a request to an object store may take. Otherwise deltalake tries for three minutes."""
_PREFIX = re.compile(r"^(aws|azure|google)_")
_FILE_URL = re.compile(r"file:(?://[^/]*)?(/.*)", re.DOTALL)

CheckpointKey = tuple[str, frozenset[tuple[str, str]]]

_silent: Recent[CheckpointKey, str] = Recent(QUERIES_KEPT)
"""Checkpoints whose store did not answer, and the error."""


def checkpoint_key(checkpoint: str, storage: Mapping[str, str] | None) -> CheckpointKey:
    """Return what tells a checkpoint and how it is reached from all others."""
    return checkpoint, frozenset((storage or {}).items())


def stated_place(checkpoint: str | None) -> str:
    """Return where a checkpoint is, as commits state it: an absolute path or a URL. Empty if a log should not show it.

    A URL with a password is not stated, nor a path of which it is not known on which storage it is.

    >>> stated_place("file:/lake/check%20point"), stated_place("s3a://lake/c/"), stated_place("s3://key:secret@lake/c")
    ('/lake/check%20point', 's3a://lake/c', '')
    """
    local = None if checkpoint is None else _FILE_URL.fullmatch(checkpoint)
    if local is not None:
        return local.group(1)
    if checkpoint is None or "://" not in checkpoint:
        return ""
    with suppress(StrandlineError):
        return location_of(checkpoint)
    return ""


@contextmanager
def checkpoint_store(checkpoint: str, storage: Mapping[str, str] | None = None, *, anew: bool = False) -> Iterator[Store]:
    """Open a checkpoint's store for some requests in a ``with`` block.

    A request to an object store takes at most about 10 seconds, unless ``storage`` has other values for ``timeout``,
    ``connect_timeout``, ``max_retries`` or ``retry_timeout``. If the block fails after more than :data:`SLOW_SECONDS`, this
    process does not ask the store again with these options: that would delay every batch.

    Args:
        checkpoint: The path as Spark has it. Hadoop does not decode ``%20`` in it, also not in a ``file:`` URL.
        storage: The options of deltalake.
        anew: Ask a store that did not answer before, too.

    Raises:
        StorageError: ``STRANDLINE_STORAGE_FAILED``, also if the store was given up. A foreign store raises its own errors.
    """
    key = checkpoint_key(checkpoint, storage)
    if not anew and (why := _silent.used(key)) is not None:
        raise errors.storage_failed(checkpoint, why)
    began = time.monotonic()
    try:
        if (local := _FILE_URL.fullmatch(checkpoint)) is not None:
            yield open_store(local.group(1), storage)
        else:
            yield open_store(checkpoint, _bounded(storage or {}) if "://" in checkpoint else storage)
    except Exception as error:
        if time.monotonic() - began > SLOW_SECONDS:
            _silent[key] = type(error).__name__
        raise


def _bounded(storage: Mapping[str, str]) -> dict[str, str]:
    given = {_PREFIX.sub("", name.lower()) for name in storage}
    return {name: value for name, value in _WAITS.items() if name not in given} | dict(storage)
