"""``write_outputs`` and ``route``: one query that writes several channels."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Mapping
from dataclasses import asdict
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructType

from pyspark_strandline.column_types import check_stored_types
from pyspark_strandline.options import OutputPlace, WriteOptions
from pyspark_strandline.schema import quoted, schema_above, time_field_of
from pyspark_strandline.write import errors
from pyspark_strandline.write.routing import NAMES
from strandline.channel.write.create import check_column_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from strandline.time.domain import TimeDomain

__all__ = ["OUTPUT_METADATA", "route", "route_restamped", "write_outputs", "write_outputs_restamped"]

OUTPUT_METADATA = "strandline.output"
"""The metadata key of a struct column with rows: for each output that takes rows from it, its time column's name, as JSON."""


def write_outputs(
    outputs: Mapping[str, tuple[DataFrame, str | os.PathLike[str]]],
    *,
    producer: str | None = None,
    take_over: bool = False,
    storage: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """Write several streams into several channels, by one query.

    Each channel gets one commit a batch, exactly once, with its own rows, its own time domain and its own output frontier.
    Streams of one source share the source: its rows are at one position for all channels.

    Args:
        outputs: By name, a stream and the path of its channel. A channel that does not exist is created.
        producer: The name of the query's producer in each channel (default: ``query-`` and the query's id).
        take_over: Whether to fence another session of the producer.
        storage: Options of the object store, as delta-rs names them, or as ``storage_options`` returns them.

    Returns:
        A writer with format and options set. Give it a checkpoint and start it.

    Raises:
        StrandlineError: A DataFrame is not a stream or has no single time column; two outputs have one path; a column has a name
            that Delta does not allow.

    ``write_outputs({"hours": (hours, "/lake/hours"), "days": (days, "/lake/days")})
    .option("checkpointLocation", "/lake/checkpoints/delays").start()``
    """
    return write_outputs_restamped(outputs, producer=producer, take_over=take_over, storage=storage)


def write_outputs_restamped(
    outputs: Mapping[str, tuple[DataFrame, str | os.PathLike[str]]],
    *,
    restamped: Container[str] = (),
    producer: str | None = None,
    take_over: bool = False,
    storage: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """Do the same, where some outputs are looping links that give their rows new times."""
    _check_any(outputs)
    outputs = dict(sorted(outputs.items()))  # Spark finds the operators' states in a checkpoint by their order in the plan
    columns = {name: f"_rows_{i}" for i, name in enumerate(outputs)}
    times = {name: _time_of(name, frame) for name, (frame, _) in outputs.items()}
    for name, (frame, _) in outputs.items():
        check_column_names(frame.columns)
        check_stored_types(frame.schema, f"The rows of output {name}")
    kinds = {name: StructType(_untagged(frame.schema)) for name, (frame, _) in outputs.items()}
    branches = []
    for name, (frame, _) in outputs.items():
        rows = [
            _rows(frame, {name: times[name][0]}, column) if other == name else F.lit(None).cast(kinds[other]).alias(column)
            for other, column in columns.items()
        ]
        branches.append(frame.select(F.array(F.lit(name)).alias(NAMES), *rows))
    united: DataFrame = reduce(lambda left, right: left.union(right), branches)
    places = {
        name: _place(path, columns[name], {column: column for column in frame.columns}, *times[name], name in restamped)
        for name, (frame, path) in outputs.items()
    }
    return _writer(united, places, producer, take_over, storage)


def route(
    df: DataFrame,
    by: str,
    channels: Mapping[str, str | os.PathLike[str] | tuple[str | os.PathLike[str], Mapping[str, str]]],
    *,
    producer: str | None = None,
    take_over: bool = False,
    storage: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """Write the rows of one stream into several channels, each row into those that it names. The plan is evaluated once.

    Args:
        df: The stream.
        by: The column with the names: a string, or an array of strings. A row with an empty array goes nowhere. A null or an
            unknown name fails the batch (``STRANDLINE_OUTPUT_UNKNOWN``). The column itself is not written.
        channels: By name, the path of the channel. A channel that does not exist is created. With a path and a mapping, the
            channel gets only some columns: the mapping has, for each of the channel's columns, the column of ``df``. So
            channels may have different time columns.
        producer: As for :func:`write_outputs`.
        take_over: As for :func:`write_outputs`.
        storage: As for :func:`write_outputs`.

    Returns:
        A writer with format and options set. Give it a checkpoint and start it.

    Raises:
        StrandlineError: ``df`` is not a stream, has no single time column, or has no such column ``by``; two channels have one
            path.

    ``route(readings, "kind", {"water": "/lake/water", "wind": "/lake/wind"})
    .option("checkpointLocation", "/lake/checkpoints/readings").start()``
    """
    return route_restamped(df, by, channels, producer=producer, take_over=take_over, storage=storage)


def route_restamped(
    df: DataFrame,
    by: str,
    channels: Mapping[str, str | os.PathLike[str] | tuple[str | os.PathLike[str], Mapping[str, str]]],
    *,
    restamped: Container[str] = (),
    producer: str | None = None,
    take_over: bool = False,
    storage: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """Do the same, where some channels are looping links that give their rows new times."""
    _check_any(channels)
    if by not in df.columns:
        raise errors.outputs_invalid_column(df.columns, by)
    kind, named = df.schema[by].dataType, F.col(quoted(by))
    if kind == StringType():
        names = F.array(named)
    elif isinstance(kind, ArrayType) and kind.elementType == StringType():
        names = named
    else:
        raise errors.outputs_invalid_type(by, kind)
    rest = df.drop(by)
    targets: dict[str, tuple[str | os.PathLike[str], Mapping[str, str]]] = {
        name: (target, dict(zip(rest.columns, rest.columns, strict=True))) if isinstance(target, (str, os.PathLike)) else target
        for name, target in channels.items()
    }
    times, places = {}, {}
    for name, (path, fields) in targets.items():
        _check_fields(name, fields, rest.columns)
        check_column_names(fields)
        check_stored_types(StructType([rest.schema[each] for each in fields.values()]), f"The rows of output {name}")
        field, domain = _time_of(name, rest.select(*(F.col(quoted(each)) for each in fields.values())))
        time = next(column for column, each in fields.items() if each == field)
        times[name] = field
        places[name] = _place(path, "_rows_0", fields, time, domain, name in restamped)
    return _writer(df.select(names.alias(NAMES), _rows(rest, times, "_rows_0")), places, producer, take_over, storage)


def _writer(
    frame: DataFrame,
    places: Mapping[str, OutputPlace],
    producer: str | None,
    take_over: bool,
    storage: Mapping[str, str] | None,
) -> DataStreamWriter:
    options = {"outputs": json.dumps({name: asdict(place) for name, place in places.items()})}
    if producer is not None:
        options["producer"] = producer
    if take_over:
        options["takeOver"] = "true"
    options |= {f"storage.{name.removeprefix('storage.')}": value for name, value in (storage or {}).items()}
    WriteOptions.parse(options)  # raises here: the caller's line is in the trace
    return frame.writeStream.format("strandline").options(**options)


def _check_any(outputs: Mapping[str, object]) -> None:
    if not outputs or not all(isinstance(name, str) and name for name in outputs):
        raise errors.outputs_invalid_names(outputs)


def _time_of(name: str, frame: DataFrame) -> tuple[str, TimeDomain]:
    """Return the time column of an output, and its domain."""
    if not frame.isStreaming:
        raise errors.not_a_stream_output(name)
    return time_field_of(schema_above(frame))


def _rows(frame: DataFrame, times: Mapping[str, str], column: str) -> Column:
    """Return the struct with all columns of the frame. The metadata has the time of each output."""
    metadata = {OUTPUT_METADATA: json.dumps(dict(times))}
    return F.struct(*(F.col(quoted(each)) for each in frame.columns)).alias(column, metadata=metadata)


def _place(
    path: str | os.PathLike[str], column: str, fields: Mapping[str, str], time: str, domain: TimeDomain, restamped: bool
) -> OutputPlace:
    return OutputPlace(os.fspath(path), column, dict(fields), time, str(domain), restamped)


def _check_fields(name: str, fields: Mapping[str, str], columns: list[str]) -> None:
    unknown = [each for each in fields.values() if each not in columns]
    if unknown or not fields:
        raise errors.outputs_invalid_columns(name, fields.values(), columns)


def _untagged(schema: StructType) -> list[Any]:
    return [type(each)(each.name, each.dataType, True) for each in schema.fields]
