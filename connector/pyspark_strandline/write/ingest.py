"""``ingest(df, path, …)`` turns any external stream into a channel, in one call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from pyspark_strandline.options import IngestOptions
from pyspark_strandline.write import errors
from pyspark_strandline.write.ingest_sink import settings_of
from strandline.ingest import Policy, parse_policy
from strandline.ingest.bounds.future import AUTO, OFF
from strandline.ingest.policies.arguments import as_policy_error
from strandline.time.domain import TimeDomain
from strandline.time.duration import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["ingest", "with_heartbeat"]


def ingest(
    df: DataFrame,
    path: str,
    *,
    time: str,
    policy: Policy | str,
    partition: str | Sequence[str] = (),
    partitions: Sequence[str] | None = None,
    on_late: str = "setAside",
    late_path: str | None = None,
    late_columns: str | Sequence[str] = (),
    late_retention: str | timedelta | None = None,
    max_ahead: str | int | timedelta | None = None,
    max_future: str | timedelta | None = "auto",
    max_set_aside: str | int | None = None,
    domain: TimeDomain | str | None = None,
    corrections: bool = False,
    take_over: bool | Literal["fromBeginning"] = False,
    heartbeat: bool = False,
    merge_schema: bool = False,
    storage: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """Turn a streaming DataFrame into a channel.

    Each value of ``partition`` is a producer. Its capability moves by ``policy`` with the commit of its rows. Rows behind their
    partition's promise, and rows without a valid time, go to the Delta table ``late_path``, or fail the batch with
    ``on_late="fail"``.

    Args:
        df: The streaming DataFrame.
        path: The path of the channel.
        time: The time column.
        policy: The capability policy.
        partition: The columns of the partition. The values of several columns are joined with ``-``, and escaped so that no two
            partitions share a name. Without a column the stream is one partition.
        partitions: The existing partitions. Any other partition is refused by name, unless it fits a pattern in the list
            (``kafka-*``). ``None`` lets any partition join at the position of the slowest known one.
        on_late: ``"setAside"`` or ``"fail"``, see above.
        late_path: The Delta table for the rows that are set aside (default: ``path`` + ``_late``).
        late_columns: Columns that only the late table has, and the channel has not, such as Kafka's ``key``, ``value`` and
            ``offset``: what came, as it came.
        late_retention: For how long rows stay in the late table (default: for good), such as ``"30 days"``. Older ones are
            deleted about once an hour, also those that were not readmitted.
        max_ahead: Rows that are farther ahead of the frontier stay out of the channel until the frontier comes near.
        max_future: Rows that are dated farther ahead of the clock than this are set aside, and move no promise. ``"auto"`` is
            ``"1 day"`` for timestamps, unless the policy is a manifest; a stream of bookings or forecasts needs more. ``"off"``
            or ``None`` lets a row have any time.
        max_set_aside: How many rows of a batch may be set aside: ``"1%"`` of its rows, or ``"100 rows"``. A batch of which more
            are stops the query with ``STRANDLINE_SET_ASIDE_LIMIT``, and nothing of it is written (default: any number).
        domain: The domain of the times (default: that of the column).
        corrections: Whether the times become ``product(event, correction)``, which :func:`readmit` needs.
        take_over: Whether to take over partitions that another query's ingest holds; its next batch fails. A source that a new
            checkpoint reads from its beginning, such as files, is refused then (``STRANDLINE_TAKE_OVER_READS_AGAIN``), because
            each row that the other query has taken in would come twice. ``"fromBeginning"`` takes over nevertheless: it says that
            the source does not have these rows any more.
        heartbeat: Whether the ingest makes batches also while the source has nothing new, so that ``idle`` can give up partitions
            when all of them are silent. It unites the stream with Spark's source ``rate``, of which no row is written. A query
            that has a checkpoint keeps what it was started with.
        merge_schema: Whether columns that the channel and the late table lack are added to them, and columns that the rows lack
            are null there.
        storage: Options of the object store, as delta-rs names them, or as ``storage_options`` returns them.

    Returns:
        A writer with format and options set. Give it a checkpoint and start it.

    Raises:
        StrandlineError: For an invalid argument, which the error names.

    ``ingest(flights, "/lake/flights", time="hour", partition="airport", policy=bounded("60 minutes"))
    .option("checkpointLocation", "/lake/checkpoints/flights").start()``
    """
    if not df.isStreaming:
        raise errors.not_a_stream()
    policy = parse_policy(policy) if isinstance(policy, str) else policy
    df = with_heartbeat(df) if heartbeat else df
    options = {"path": path, "policy": "given", "time": time, "onLate": on_late}
    if partition:
        options["partition"] = partition if isinstance(partition, str) else json.dumps(list(partition))
    if partitions is not None:
        options["partitions"] = json.dumps(list(partitions))
    if late_path is not None:
        options["latePath"] = late_path
    if late_columns:
        options["lateColumns"] = json.dumps([late_columns] if isinstance(late_columns, str) else list(late_columns))
    if late_retention is not None:
        with as_policy_error():
            options["lateRetention"] = str(Duration.of(late_retention, "late_retention"))
    if max_set_aside is not None:
        options["maxSetAside"] = str(max_set_aside)
    options |= _bounds(max_ahead, max_future)
    if domain is not None:
        options["domain"] = str(domain)
    if take_over:
        options["takeOver"] = take_over if isinstance(take_over, str) else "true"
    if anew := _from_beginning(df):
        options["readsFromBeginning"] = ", ".join(anew)
    flags = {"corrections": corrections, "mergeSchema": merge_schema, "readsToEnd": _reads_to_end(df)}
    options |= {name: "true" for name, is_set in flags.items() if is_set}
    options |= {f"storage.{name.removeprefix('storage.')}": value for name, value in (storage or {}).items()}
    settings = settings_of(IngestOptions.parse(options), df.schema, policy)  # raises here: the caller's line is in the trace
    policy.save(f"{settings.path}_manifest", settings)
    options["policy"] = str(policy)
    return df.writeStream.format("strandline").options(**options)


def _bounds(max_ahead: str | int | timedelta | None, max_future: str | timedelta | None) -> dict[str, str]:
    """Return the options for how far ahead of the frontier, and of the clock, a row may be."""
    options = {}
    with as_policy_error():
        if max_ahead is not None:
            options["maxAhead"] = str(Duration.of(max_ahead, "max_ahead"))
        if max_future is None or max_future == OFF:
            options["maxFuture"] = OFF
        elif max_future != AUTO:
            options["maxFuture"] = str(Duration.of(max_future, "max_future"))
    return options


def with_heartbeat(df: DataFrame) -> DataFrame:
    """Unite a stream with a clock that makes batches and has no rows."""
    from pyspark.sql import functions as F

    clock = df.sparkSession.readStream.format("rate").option("numPartitions", 1).load().where(F.lit(False))
    return df.union(clock.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in df.schema)))


_FILES = ("csv", "json", "orc", "parquet", "text", "xml", "avro", "binaryfile")
_BEGINS_LATER = {
    **dict.fromkeys(_FILES, "(?!)"),  # a stream of files has no such option
    "delta": "starting(version|timestamp) *(->|=) *(?!(0|snapshot|earliest)[,)}])[^ ,)}]",
    "strandline": "starting(version|timestamp|frontier) *(->|=) *(?!(0|snapshot|earliest)[,)}])[^ ,)}]",
}
"""Sources that a new checkpoint reads from the beginning, and their options that let them begin later. Kafka's begin at the end
unless they are told; offsets for each of its partitions are what a user has stated, also -2 for a topic that was made anew."""


def _from_beginning(df: DataFrame) -> list[str]:
    """Return the names of the sources that are read from their beginning with a new checkpoint, as far as the plan shows it."""
    plan = getattr(df, "_jdf", None)
    return [] if plan is None else sorted(set(_anew(plan.queryExecution().analyzed())))


def _anew(plan: Any) -> Iterator[str]:
    kind, children = plan.getClass().getSimpleName(), plan.children()
    source = options = ""
    if kind == "StreamingRelation":
        source, options = plan.dataSource().className(), plan.dataSource().options().toString()
    elif kind == "StreamingRelationV2":
        source, options = plan.sourceName(), plan.extraOptions().asCaseSensitiveMap().toString()
    begins_later = _BEGINS_LATER.get(source.lower())
    if begins_later is not None and not re.search(rf"\b{begins_later}", options, re.IGNORECASE):
        yield source
    if source.lower() == "kafka" and re.search(r"\bstartingOffsets *(->|=) *earliest\b", options, re.IGNORECASE):
        yield source
    for i in range(children.size()):
        yield from _anew(children.apply(i))


_LIMITS = re.compile(r"(max(files|bytes|offsets|rows|records|events)per(trigger|batch)|minoffsetspertrigger)", re.IGNORECASE)
_UNLIMITED = {"FileStreamSource", "kafka", "rate", "socket", "csv", "json", "orc", "parquet", "text", "xml", "avro"}
_STATELESS_NODES = {"Project", "Filter", "Union", "SubqueryAlias", "EventTimeWatermark", "Generate", "View", "ResolvedHint"} | {
    "Repartition", "RepartitionByExpression", "TypedFilter", "MapElements", "MapPartitions", "SerializeFromObject",
    "DeserializeToObject", "MapInArrow", "PythonMapInArrow", "MapInPandas", "Sample", "UnresolvedHint",
}  # fmt: skip


def _reads_to_end(df: DataFrame) -> bool:
    """Whether each batch reads all available rows of its sources, and delivers all of them.

    The first needs known sources, without an option that limits a batch. The second needs operators that do not keep rows of
    the stream for a later batch. Aggregations and joins of two streams do keep rows, and they do not show a partition whose rows
    they keep. Both are necessary to distinguish the silence of a partition from rows that wait
    (:class:`~strandline.ingest.policies.idle.Idle`).
    """
    plan = getattr(df, "_jdf", None)
    if plan is None:
        return False  # Spark Connect does not show the plan
    return _delivers_all(plan.queryExecution().analyzed())


def _delivers_all(plan: Any) -> bool:
    if not plan.isStreaming():
        return True
    kind, children = plan.getClass().getSimpleName(), plan.children()
    if kind == "StreamingRelation":
        return _is_unlimited(plan.dataSource().className(), plan.dataSource().options().toString())
    if kind == "StreamingRelationV2":
        return _is_unlimited(plan.sourceName(), plan.extraOptions().asCaseSensitiveMap().toString())
    inputs = [children.apply(i) for i in range(children.size())]
    # A join with a table joins each batch by itself. Two streams wait for each other.
    passes = kind in _STATELESS_NODES or (kind == "Join" and sum(1 for child in inputs if child.isStreaming()) == 1)
    return passes and bool(inputs) and all(_delivers_all(child) for child in inputs)


def _is_unlimited(source: str, options: str) -> bool:
    return source in _UNLIMITED and not _LIMITS.search(options)
