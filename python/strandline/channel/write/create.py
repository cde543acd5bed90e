"""The table of a new channel: its schema, its properties, and the founding statement in its first commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import CommitFailedError

from strandline.channel import errors
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.channel.statements.statement import REGISTRAR, Statement, name_problem
from strandline.delta import table as delta_table
from strandline.delta.store_errors import native
from strandline.delta.table import CHECKPOINT_INTERVAL, check_properties, is_text, stored_schema
from strandline.time.arrow import TIME_KEY, arrow_type, find_time_field, time_field
from strandline.time.domain import Time, TimeDomain

__all__ = [
    "add_columns",
    "channel_schema",
    "check_column_names",
    "check_new_path",
    "checked_fields",
    "checked_names",
    "founding_statement",
    "new_columns",
    "nullable_field",
    "table_properties",
]


def table_properties(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the Delta table properties of a channel, with ``more`` added to them.

    Raises :class:`ChannelError` ``STRANDLINE_TABLE_PROPERTY_INVALID``.
    """
    check_properties({} if more is None else more)
    return {
        # Delta would remove old commits even if no newer one repeats their statements. Channel.clean_log makes sure first.
        "delta.enableExpiredLogCleanup": "false",
        "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
        "delta.enableDeletionVectors": "false",
        **(more or {}),
    }


def founding_statement(names: Iterable[str], least: Time, *, sealed: bool, id: str | None = None) -> CommitStatement:  # noqa: A002
    """Return the first statement of a channel, with all capabilities at ``least``.

    It has the registrar's right to add producers, unless ``sealed``, and the first producers.
    """
    statements = {REGISTRAR: Statement(0, () if sealed else (least,))}
    return CommitStatement(statements | {name: Statement(0, (least,)) for name in names}, id=id)


def checked_names(names: Iterable[str]) -> list[str]:
    """Return the names in order and once each. Raises :class:`ProducerError` for a name that no producer can have."""
    several = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
    for name in several:
        problem = name_problem(name)
        if problem:
            raise errors.producer_name_invalid(name, problem)
    return list(dict.fromkeys(several))


def channel_schema(schema: pa.Schema, time: str | None, domain: TimeDomain | None) -> tuple[pa.Schema, TimeDomain]:
    """Return the schema in the form of a channel, and the time domain.

    Only the time column is tagged, every column is nullable, and Delta allows every column's name.
    """
    if not isinstance(schema, pa.Schema):
        schema = pa.schema(checked_fields("a new channel", schema))
    if time is None:
        marked = [field.name for field in schema if TIME_KEY in (field.metadata or {})]
        time = marked[0] if len(marked) == 1 and (domain is None or "time" not in schema.names) else "time"
    if not is_text(time):
        raise errors.column_name_invalid_text(ascii(time)[:200])
    if domain is not None and not isinstance(domain, TimeDomain):
        raise errors.time_domain_invalid(domain)
    if domain is not None and schema.get_field_index(time) >= 0:
        if schema.field(time).type != arrow_type(domain):
            raise errors.time_domain_mismatch(time, schema.field(time).type, domain, arrow_type(domain))
        schema = schema.set(schema.get_field_index(time), time_field(time, domain))
    name, found = find_time_field(schema, time)
    unsigned = sorted({str(leaf) for _, leaf in found.leaves() if str(leaf).startswith("uint")})
    if unsigned:
        raise errors.time_domain_unstorable(found, unsigned[0])
    check_column_names(schema.names)
    fields = []
    for column in schema:
        if any("\0" in name for name in _names(column.type)):
            raise errors.column_name_invalid_zero(column.name)
        _refuse_twice(column.type)
        _refuse_type(column, schema)
        metadata = {k: v for k, v in (column.metadata or {}).items() if k != TIME_KEY or column.name == name}
        fields.append(nullable_field(column).with_metadata(metadata or None))
    return pa.schema(fields), found


def new_columns(path: str, have: pa.Schema, wanted: Iterable[pa.Field]) -> list[pa.Field]:
    """Return those of the wanted columns that a channel does not have, in the form of a channel.

    Raises :class:`ChannelError` for a column that cannot be added.
    """
    time, _ = find_time_field(have)
    folded = {name.lower(): name for name in have.names}
    new: dict[str, pa.Field] = {}
    for field in wanted:
        problem, known = None, folded.get(field.name.lower())
        if known is None:
            if TIME_KEY in (field.metadata or {}):
                problem = f"The channel {path} has the time column {time!r}, and {field.name!r} would be another one."
            elif not field.nullable:
                problem = f"The new column {field.name!r} of {path} is not nullable, but rows that are there lack it."
            new[field.name] = field
            folded[field.name.lower()] = field.name
        else:
            there = new[known] if known in new else have.field(known)
            if known != field.name or stored_schema(pa.schema([field])).field(0).type != there.type:
                problem = f"The columns have {field.name!r} ({field.type}), but {path} has {known!r} ({there.type})."
        if problem is not None:
            raise errors.schema_mismatch_of_new(problem)
    schema, _ = channel_schema(pa.schema([*have, *new.values()]), time, None)
    return [schema.field(name) for name in new]


def add_columns(snapshot: Snapshot, columns: pa.Schema | Iterable[pa.Field]) -> int | None:
    """Implement :meth:`Channel.add_columns`."""
    table, store = snapshot.table, snapshot.log.store
    fields = checked_fields(table.path, columns)
    while True:
        with store.turn(snapshot.update):
            snapshot.update()
            new = new_columns(table.path, table.schema, fields)
            if not new:
                store.settle()
                snapshot.survives(snapshot.version)
                return None
            try:
                version = delta_table.add_columns(snapshot.log, new, table.storage_options)
            except CommitFailedError:
                continue  # another commit came first, so look again whether the columns are there
            snapshot.update()
            return version


def checked_fields(path: str, columns: Iterable[pa.Field]) -> list[pa.Field]:
    """Return the columns as a list. Raises :class:`ChannelError` if they are no fields of Arrow."""
    fields = list(columns) if isinstance(columns, Iterable) else [columns]
    wrong = [field for field in fields if not isinstance(field, pa.Field)]
    if wrong:
        raise errors.schema_mismatch_of_fields(path, columns, wrong[0])
    return fields


def check_column_names(names: Iterable[str]) -> None:
    """Raise :class:`ChannelError` ``STRANDLINE_COLUMN_NAME_INVALID`` for names that the columns of a Delta table cannot have.

    >>> check_column_names(["a", "b.c", "B.c"])
    Traceback (most recent call last):
    strandline.errors.ChannelError: [STRANDLINE_COLUMN_NAME_INVALID] ... differs from that of 'b.c' only in case. ...
    """
    known: dict[str, str] = {}
    for name in names:
        bad = sorted(set(" ,;{}()\n\t=\0") & set(name))
        if bad or not name:
            raise errors.column_name_invalid_characters(name, bad)
        other = known.setdefault(name.lower(), name)
        if other is not name:
            raise errors.column_name_invalid_twice(name, other)


def _refuse_type(column: pa.Field, schema: pa.Schema) -> None:
    """Raise :class:`ChannelError` for a type with which deltalake would make a table that cannot be written or opened."""
    has_local = any(_is_local(kind) and not in_map for other in schema for _, kind, in_map in _parts(other.name, other.type))
    for path, kind, in_map in _parts(column.name, column.type):
        remedy = "Cast the column to a type that Delta has."
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            problem, remedy = "Delta stores microseconds, not nanoseconds", "Cast the column to timestamp('us', tz='UTC')."
        elif in_map and _is_local(kind) and not has_local:
            # deltalake does not look into maps for types that need the table feature timestampNtz. Then it cannot open its own
            # table.
            problem = "deltalake cannot store a timestamp without time zone inside a map"
            remedy = "Give the timestamp the time zone UTC."
        elif pa.types.is_struct(kind) and not kind.num_fields:
            problem, remedy = "Parquet cannot store a struct without fields", "Leave it out, or give it a field."
        else:
            problem = _refused_by_delta(kind) or ""
            if problem and any(_refused_by_delta(part) for _, part, _ in list(_parts("", kind))[1:]):
                continue  # a part of it is the cause, and comes later
        if problem:
            raise errors.column_type_unsupported(kind, path, problem, remedy)


def _refused_by_delta(kind: pa.DataType) -> str | None:
    """Return why deltalake makes no table with a type, or none that it can open; ``None`` if it does."""
    try:
        with native("a schema", threads=False):
            pa.schema(Schema.from_arrow(pa.schema([pa.field("it", kind)])).to_arrow())
    except Exception as error:  # deltalake raises a bare Exception here
        return str(error).splitlines()[0].removeprefix("External error: Schema error: ")
    return None


def _is_local(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is None


def _parts(path: str, kind: pa.DataType, in_map: bool = False) -> Iterator[tuple[str, pa.DataType, bool]]:
    """Yield a type and all types nested in it, each with its path, and with whether it lies inside a map."""
    yield path, kind, in_map
    if pa.types.is_map(kind):
        yield from _parts(f"{path}.key", kind.key_type, True)
        yield from _parts(f"{path}.value", kind.item_type, True)
    else:
        for i in range(kind.num_fields):
            name = kind.field(i).name if pa.types.is_struct(kind) else "element"
            yield from _parts(f"{path}.{name}", kind.field(i).type, in_map)


def _names(kind: pa.DataType) -> Iterator[str]:
    """Yield the names of all fields nested in a type."""
    for i in range(kind.num_fields):
        yield kind.field(i).name
        yield from _names(kind.field(i).type)


def nullable_field(column: pa.Field) -> pa.Field:
    """Return a column as a channel has it: everything in it may be null, but for the keys of maps.

    Spark's native readers trust ``NOT NULL``, and silently give wrong rows if the data have nulls. Spark's own columns say it in
    one batch and not in the next: a union without rows of one side is planned without that side.

    >>> str(nullable_field(pa.field("s", pa.struct([pa.field("x", pa.int64(), nullable=False)]), nullable=False)))
    'pyarrow.Field<s: struct<x: int64>>'
    >>> str(nullable_field(pa.field("l", pa.list_(pa.field("element", pa.int64(), nullable=False)))))
    'pyarrow.Field<l: list<element: int64>>'
    """
    return pa.field(column.name, _nullable(column.type), nullable=True, metadata=column.metadata)


def _nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([nullable_field(part) for part in kind])
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(_nullable(kind.key_type))
        return pa.map_(key, nullable_field(kind.item_field), keys_sorted=kind.keys_sorted)
    if pa.types.is_large_list(kind):
        return pa.large_list(nullable_field(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(nullable_field(kind.value_field), kind.list_size)
    return pa.list_(nullable_field(kind.value_field)) if pa.types.is_list(kind) else kind


def _refuse_twice(kind: pa.DataType) -> None:
    """Refuse names of a struct's fields that differ in their case only, however deep."""
    if not pa.types.is_nested(kind):
        return
    known: dict[str, str] = {}
    for field in (kind.field(i) for i in range(kind.num_fields)):
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise errors.column_name_invalid_case(field.name, other)
        _refuse_twice(field.type)


def check_new_path(path: str) -> None:
    """Refuse the path of a new channel that deltalake would not find again: it decodes ``%20`` also in the names of folders.

    >>> check_new_path("/lake/100% of it")
    >>> check_new_path("/lake/a%20b")
    Traceback (most recent call last):
    strandline.errors.ChannelError: [STRANDLINE_STORAGE_URL_INVALID] The path '/lake/a%20b' has '%20' in it, ...
    """
    if "://" not in path and (found := re.search("%[0-9A-Fa-f]{2}", path)):
        raise errors.storage_url_invalid(path, found[0])
