"""Deletes old rows of a late table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from strandline.delta.log import DeltaCommit, DeltaLog
from strandline.delta.storage import location_of
from strandline.delta.store_errors import native
from strandline.delta.table import open_delta
from strandline.ingest import errors
from strandline.ingest.late.late_table import is_table
from strandline.ingest.names import late_path_beside
from strandline.ingest.policies.arguments import as_policy_error
from strandline.time.domain import timestamp
from strandline.time.duration import Duration

__all__ = ["purge_late_rows"]


def purge_late_rows(
    path: str,
    older_than: str | timedelta | Duration,
    storage: Mapping[str, str] | None = None,
    *,
    late_path: str | None = None,
    now: datetime | None = None,
) -> int:
    """Delete the rows of a late table that arrived before a moment. This cannot be taken back.

    Their files stay below ``_staged/``, which VACUUM skips (docs/ingest.md). The channel keeps the counts. Rows that were not
    readmitted cannot be readmitted any more. An ingest with ``late_retention`` calls this by itself.

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
    return int(done["num_deleted_rows"] or 0)
