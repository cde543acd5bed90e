"""Deletes old rows of a late table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from strandline.channel import Channel
from strandline.delta.log import DeltaCommit, DeltaLog
from strandline.delta.storage import location_of, open_store
from strandline.delta.store_errors import native
from strandline.delta.table import Table, open_delta
from strandline.ingest import errors
from strandline.ingest.late.late_table import STAGED, is_published, is_table, pending
from strandline.ingest.names import late_path_beside
from strandline.ingest.policies.arguments import as_policy_error
from strandline.time.domain import timestamp
from strandline.time.duration import Duration

__all__ = ["purge_late_rows"]

_KEPT = timedelta(days=7)
"""For how long files stay after their rows, as with VACUUM: for readers of an older version."""


def purge_late_rows(
    path: str,
    older_than: str | timedelta | Duration,
    storage: Mapping[str, str] | None = None,
    *,
    late_path: str | None = None,
    now: datetime | None = None,
) -> int:
    """Delete the rows of a late table that arrived before a moment. This cannot be taken back.

    Files below ``_staged/``, which VACUUM skips, are removed a week after their rows, unless a batch is still to publish them.
    The channel keeps the counts. Rows that were not readmitted cannot be readmitted any more. An ingest with ``late_retention``
    calls this by itself.

    Args:
        path: The channel's path.
        older_than: For how long rows stay, such as ``"30 days"``. It counts from ``_arrival``, when a task took the row in.
        storage: The options of the channel's storage.
        late_path: The late table's path (default: the channel's path with ``_late``).
        now: The moment from which it counts back (default: the present one).

    Returns:
        The number of rows that were deleted.

    Raises:
        ChannelError: ``STRANDLINE_NOT_A_TABLE`` if there is no late table at that path.
        PolicyError: ``STRANDLINE_DELAY_INVALID`` if ``older_than`` is no duration of time.

    ``purge_late_rows("/lake/flights", "30 days")``
    """
    with as_policy_error():
        age = timedelta(microseconds=Duration.of(older_than, "older_than").within(timestamp, "older_than"))
    where = location_of(late_path or late_path_beside(path))
    if not is_table(where, storage):
        raise errors.not_a_table_late(where)
    before = (now or datetime.now(timezone.utc)) - age
    moment = before.astimezone(timezone.utc).isoformat()
    log: DeltaLog[DeltaCommit] = DeltaLog(where, storage)
    with native(where, storage), log.store.errors("delete"):
        table = open_delta(log, storage)
        done = table.delete(f"_arrival < arrow_cast('{moment}', 'Timestamp(Microsecond, Some(\"UTC\"))')")
    _free(Channel.open(path, storage), where, before - _KEPT)
    return int(done["num_deleted_rows"] or 0)


def _free(channel: Channel, where: str, before: datetime) -> None:
    """Remove the files below ``_staged/`` that are older than a moment and that neither the table has nor a batch will publish.

    All their rows had arrived when they were written, so all are older than they are kept.
    """
    store = open_store(where, channel.storage_options)
    staged = [f"{STAGED}/{name}" for name in store.list(STAGED)]
    old = [file for file in staged if (at := store.modified(file)) is not None and at < before.timestamp()]
    if old:
        named = {file.path for file in Table(where, channel.storage_options).files()}
        for at_path, each in pending(channel):
            if at_path == where and not is_published(where, each, channel.storage_options):
                named |= {file.path for file in each.files}
        for file in sorted({*old} - named):
            store.delete(file)
