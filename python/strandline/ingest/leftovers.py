"""Files of parked rows that nothing names: those of batches that were killed, and lists that others have replaced."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta

from strandline.channel import Channel
from strandline.ingest.names import PARKED, PARKED_FOLDER
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.state.parked_state import ParkedState

__all__ = ["remove_unnamed_parked"]


def remove_unnamed_parked(
    path: str, storage: Mapping[str, str] | None = None, *, older_than: timedelta = timedelta(days=7)
) -> list[str]:
    """Remove the files below ``_ahead/`` that nothing names: VACUUM skips them.

    A file stays if its rows wait, if the table or a commit of its log has it, or if it is not older than ``older_than``. So the
    ingest may be running: its batches take less time. A log that is restored to an earlier state needs the lists of that state:
    choose ``older_than`` as you do for VACUUM.

    Args:
        path: The channel's path.
        storage: The options of the channel's storage.
        older_than: The least age of a file that is removed, by the storage's clock.

    Returns:
        The paths of the files that were removed, below the channel.

    Raises:
        ValueError: ``older_than`` is less than an hour.
        IngestError: A list of parked rows is missing or damaged, so it is not known what waits. Nothing was removed.

    ``remove_unnamed_parked("/lake/flights")``
    """
    if older_than < timedelta(hours=1):
        raise ValueError(f"older_than is {older_than}, but files of a running batch must stay: give an hour or more")
    channel = Channel.open(path, storage)
    store, until = channel.log.store, time.time() - older_than.total_seconds()
    # What is old and here now was written before any state that is read from here on.
    found = [f"{PARKED_FOLDER}/{name}" for name in store.list(PARKED_FOLDER)]
    old = [file for file in found if (at := store.modified(file)) is not None and at < until]
    if not old:
        return []
    channel.refresh()
    named = {file.path for file in channel.snapshot_files()}
    for version in range(channel.log.earliest(), channel.version + 1):
        named.update(channel.log.require(version).files.paths)
    lists = ParkedLists(channel.path, storage)
    for name, known in channel.producers.items():
        if name.startswith(PARKED):
            waiting = lists.waiting(ParkedState.of(name, known), channel.domain)
            named.update(file.path for parcel in waiting.parcels for file in parcel.files)
            named.update(each.path for each in waiting.lists)
    removed = sorted(file for file in old if file not in named)
    for file in removed:
        store.delete(file)
    return removed
