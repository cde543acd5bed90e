"""The settings of an ingest: where rows go, the roles of their columns, and the policy. Checked before any row is processed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa

from strandline.channel.write.create import channel_schema, nullable_field
from strandline.delta.storage import location_of
from strandline.errors import IngestError
from strandline.ingest import errors
from strandline.ingest.bounds.future import AUTO, FutureBound, future_bound
from strandline.ingest.bounds.set_aside_limit import SetAsideLimit
from strandline.ingest.columns.time_column import check_type, default_domain
from strandline.ingest.names import late_path_beside, only_name, partition_name_problem
from strandline.ingest.policies.arguments import as_policy_error
from strandline.ingest.policies.bounded import find_coordinate
from strandline.ingest.policies.policy import Policy
from strandline.ingest.policy_calls import calling
from strandline.time.arrow import arrow_type, time_field
from strandline.time.domain import Time, TimeDomain, parse_domain, product, timestamp
from strandline.time.duration import Duration

__all__ = ["LATE_COLUMNS", "Settings"]

LATE_COLUMNS = ("_reason", "_partition", "_frontier", "_arrival", "_batch", "_query")
"""The columns that the late table has in addition to the rows' own columns."""


@dataclass(frozen=True)
class Need:
    """What tasks must look at for a policy. See the corresponding properties of :class:`Policy`."""

    mark: str | None
    silent: str | None
    silent_counts: bool
    times: bool


@dataclass(frozen=True)
class Settings:
    """The requested configuration of an ingest. Build it with :meth:`of`, which checks it against the rows' schema.

    ``domain`` is the domain of the outside times. With ``corrections``, the channel's own domain (:attr:`channel_domain`) has an
    additional coordinate ``correction``.
    """

    path: str
    schema: pa.Schema
    time: str
    partition: tuple[str, ...]
    policy: Policy | None
    domain: TimeDomain
    needs: tuple[tuple[str, Need], ...]
    partitions: tuple[str, ...] | None = None
    on_late: str = "setAside"
    late_path: str = ""
    max_ahead: int | None = None
    future: FutureBound | None = None
    corrections: bool = False
    take_over: bool = False
    from_beginning: str | None = None
    merge_schema: bool = False
    late_columns: tuple[str, ...] = ()
    late_retention: Duration | None = None
    max_set_aside: SetAsideLimit | None = None
    query_name: str = ""
    storage: dict[str, str] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        path: str,
        schema: pa.Schema,
        *,
        time: str,
        policy: Policy,
        partition: str | Sequence[str] = (),
        partitions: Sequence[str] | None = None,
        on_late: str = "setAside",
        late_path: str | None = None,
        max_ahead: str | int | Duration | None = None,
        max_future: str | timedelta | Duration | None = AUTO,
        domain: TimeDomain | str | None = None,
        corrections: bool = False,
        take_over: bool = False,
        from_beginning: str | None = None,
        merge_schema: bool = False,
        late_columns: str | Sequence[str] = (),
        late_retention: str | timedelta | Duration | None = None,
        max_set_aside: str | int | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> Settings:
        """Build the settings, and check everything that can be checked without a row.

        Args:
            path: The channel's path.
            schema: The columns of the rows.
            time: The time column.
            policy: The capability policy.
            partition: The partition columns.
            partitions: The known partitions, and patterns for others. ``None`` lets any partition join. ``glob.escape`` writes a
                name that has letters of patterns.
            on_late: ``"setAside"`` or ``"fail"``.
            late_path: The path of the late table (default: the channel's path with ``_late``).
            max_ahead: How far ahead of the frontier rows may be in the channel.
            max_future: How far ahead of the clock a row may be. A row beyond it is set aside, and moves nothing. ``"auto"`` is
                one day where rows' times are timestamps and move the promise, else none. ``"off"`` and ``None`` are none.
            domain: The domain of the times (default: that of the column).
            corrections: Whether the channel's times get the coordinate ``correction``.
            take_over: Whether to take over other ingests' partitions.
            from_beginning: The sources that a new query reads from their beginning, so that a takeover would read rows again.
            merge_schema: Whether columns that the channel and the late table lack are added to them, and those that the rows lack
                are null there.
            late_columns: The columns that only the late table has.
            late_retention: For how long rows stay in the late table (default: for good).
            max_set_aside: How many rows of a batch may be set aside: ``"1%"`` or ``"100 rows"`` (default: any).
            storage: The options of the storage.

        Raises:
            StrandlineError: An argument is invalid. The error names it.
        """
        columns = (partition,) if isinstance(partition, str) else tuple(partition)
        late_only = (late_columns,) if isinstance(late_columns, str) else tuple(dict.fromkeys(late_columns))
        _check_columns(schema, time, columns, policy)
        _check_late_columns(schema, late_only, [time, *columns, *policy_columns(policy)])
        field = schema.field(time)
        found = default_domain(field) if domain is None else parse_domain(domain) if isinstance(domain, str) else domain
        check_type(field, found)
        with calling(policy, "bind"):
            policy.bind(found)
        _check_partitions(partitions or ())
        if on_late not in ("setAside", "fail"):
            raise errors.option_invalid_on_late(on_late)
        result = cls(
            path=path.rstrip("/") if len(path) > 1 else path,
            schema=pa.schema([pa.field(f.name, f.type) for f in schema]),
            time=time,
            partition=columns,
            policy=policy,
            domain=found,
            needs=tuple(policy_needs(policy)),
            partitions=None if partitions is None else tuple(dict.fromkeys(partitions)),
            on_late=on_late,
            late_path=location_of(late_path or late_path_beside(path)),
            max_ahead=None if max_ahead is None else _distance(max_ahead, found),
            future=future_bound(max_future, found, [part.moved_leaves(found) for _, part in policy.by_pattern()]),
            corrections=corrections,
            take_over=take_over,
            from_beginning=from_beginning,
            merge_schema=merge_schema,
            late_columns=late_only,
            late_retention=_retention(late_retention),
            max_set_aside=None if max_set_aside is None else SetAsideLimit.of(max_set_aside),
            storage=dict(storage) if storage else None,
        )
        channel_schema(result.channel_schema, time, None)  # raises for names and types that Delta cannot have
        return result

    def for_tasks(self) -> Settings:
        """Return these settings without the policy. It may be large, and its class may not be installed where tasks run."""
        return replace(self, policy=None)

    @property
    def named_partitions(self) -> tuple[str, ...]:
        """The partitions that are known in advance: the entries of ``partitions`` that match only one name."""
        return tuple(dict.fromkeys(name for entry in self.partitions or () if (name := only_name(entry)) is not None))

    @property
    def admitted(self) -> tuple[str, ...] | None:
        """The patterns of partitions that may join: ``None`` when any may join, empty when none may join."""
        return None if self.partitions is None else tuple(entry for entry in self.partitions if only_name(entry) is None)

    @cached_property
    def channel_domain(self) -> TimeDomain:
        """The domain of the channel's times."""
        return product(event=self.domain, correction="int64") if self.corrections else self.domain

    def to_channel_time(self, time: Time) -> Time:
        """Convert an outside time to a time of the channel."""
        return (time, 0) if self.corrections else time

    def from_channel_times(self, times: Any) -> tuple[Time, ...]:
        """Return the outside times that these capabilities of the channel allow."""
        return tuple(event for event, correction in times if correction <= 0) if self.corrections else tuple(times)

    def to_channel_times(self, times: pa.Array) -> pa.Array:
        """Convert a column of outside times to times of the channel."""
        if not self.corrections:
            return times
        zeros = pa.array([0] * len(times), pa.int64()) if len(times) else pa.array([], pa.int64())
        return pa.StructArray.from_arrays([times, zeros], fields=list(arrow_type(self.channel_domain)))

    @cached_property
    def channel_schema(self) -> pa.Schema:
        """The channel's columns: the rows' own columns but those of the late table alone; the time's has its domain's type."""
        field = time_field(self.time, self.channel_domain)
        own = [f for f in self.schema if f.name not in self.late_columns]
        return pa.schema([field if f.name == self.time else nullable_field(f) for f in own])

    @cached_property
    def late_schema(self) -> pa.Schema:
        """The late table's columns.

        These are the rows' own columns as they arrived, then the reason, the partition, the frontier that the partition held, the
        arrival time, the batch and the query.
        """
        more = [
            pa.field("_reason", pa.string()),
            pa.field("_partition", pa.string()),
            pa.field("_frontier", pa.list_(pa.field("element", arrow_type(self.domain)))),
            pa.field("_arrival", pa.timestamp("us", "UTC")),
            pa.field("_batch", pa.int64()),
            pa.field("_query", pa.string()),
        ]
        return pa.schema([*map(nullable_field, self.schema), *more])


def _check_columns(schema: pa.Schema, time: str, partition: Sequence[str], policy: Policy) -> None:
    """Raise unless the rows have each column that plays a role once, of a type that can play it, and none of the late table's."""
    named = {"time": [time], "partition": list(partition)}
    named["policy"] = policy_columns(policy)
    for what, names in named.items():
        for name in names:
            if schema.names.count(name) != 1:
                raise _unknown(schema, what, name)
    for name in partition:
        kind = schema.field(name).type
        if not _has_name(kind):
            raise errors.partition_column_invalid(name, kind)
    taken = sorted(name for name in schema.names if name.lower() in LATE_COLUMNS)  # Delta has no two that differ in case
    if taken:
        raise errors.column_reserved(taken)


def policy_columns(policy: Policy) -> list[str]:
    """Return the columns that a policy looks at."""
    return [c for _, need in policy_needs(policy) for c in (need.mark, need.silent) if c]


def _check_late_columns(schema: pa.Schema, late_only: Sequence[str], taken: Sequence[str]) -> None:
    """Raise unless the rows have each column that only the late table is to have, and it plays no other role."""
    for name in late_only:
        if name in taken:
            raise errors.late_column_invalid(name, "is the time, a partition column, or a column of the policy")
        if schema.names.count(name) != 1:
            raise errors.late_column_invalid(name, f"is no column of the rows; they have {', '.join(schema.names)}")


def _retention(value: str | timedelta | Duration | None) -> Duration | None:
    """Return for how long late rows stay. Raises :class:`PolicyError` if this is no duration of time."""
    if value is None:
        return None
    with as_policy_error():
        found = Duration.of(value, "lateRetention")
        found.within(timestamp, "lateRetention")
    return found


def _check_partitions(partitions: Sequence[str]) -> None:
    """Raise if an entry of ``partitions`` is a name that no partition can have."""
    for name in partitions:
        problem = partition_name_problem((only_name(name) or name) if isinstance(name, str) else name)
        if problem is not None:
            raise errors.partition_name_invalid(name, problem)


def _distance(max_ahead: str | int | Duration, domain: TimeDomain) -> int:
    """Return ``max_ahead`` in units of the first coordinate. Raises :class:`PolicyError` if it is not of such units."""
    with as_policy_error():
        return Duration.of(max_ahead, "maxAhead").within(find_coordinate(domain, None, "maxAhead")[1], "maxAhead")


def _unknown(schema: pa.Schema, what: str, name: str) -> IngestError:
    """Return the error for an argument that names a column which the rows do not have once."""
    count, (first, *path) = schema.names.count(name), name.split(".")
    if not count and path and schema.names.count(first) == 1 and pa.types.is_struct(kind := schema.field(first).type):
        inner, at = first, kind
        for i, part in enumerate(path):
            fields = [field.name for field in at] if pa.types.is_struct(at) else []
            if fields.count(part) != 1:
                return errors.column_unknown_field(what, name, inner, fields)
            inner, at = ".".join([first, *path[: i + 1]]), at.field(part).type
        own = _quoted(path[-1] if path[-1] not in schema.names else "_".join([first, *path]))
        field = ".".join(map(_quoted, [first, *path]))
        given = own.strip("`")
        then = {"time": f'time="{given}"', "partition": f'partition="{given}"'}.get(what, f"the column {given} in the policy")
        return errors.column_unknown_struct(what, name, first, field, own, then)
    return errors.column_unknown(what, name, count, schema.names)


def _quoted(name: str) -> str:
    """Return a name as SQL takes it."""
    return name if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"


def _has_name(kind: pa.DataType) -> bool:
    """Return whether values of a type can be names of partitions."""
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind):
        return False
    try:
        pa.array([], kind).cast(pa.string())
    except pa.ArrowNotImplementedError:
        return False
    return True


def policy_needs(policy: Policy) -> list[tuple[str, Need]]:
    """Return what tasks must look at, by partition pattern. The first pattern that matches decides."""
    return [(pattern, Need(p.mark_column, p.silent_column, p.silent_counts, p.needs_times)) for pattern, p in policy.by_pattern()]
