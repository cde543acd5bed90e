"""Which rows go to which channel: all of them to one, or each row to the outputs that it names."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType

from pyspark_strandline.column_types import check_stored_types
from pyspark_strandline.options import OutputPlace, WriteOptions
from pyspark_strandline.schema import channel_schema, time_field_of
from pyspark_strandline.write import errors
from pyspark_strandline.write.channel.channel_output import ChannelOutput
from strandline.time.domain import parse_domain

__all__ = ["NAMES", "Routing"]

NAMES = "_outputs"
"""The column of a query with several outputs that has, for each row, the names of the outputs that it goes to."""


class Routing:
    """The outputs of a query, and for each record batch the rows of each.

    A query with one output has the channel's own columns. With several, each row has the names of its outputs in the column
    :data:`NAMES`, and its columns in a struct. Outputs with the same columns share a struct.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._places: dict[str, OutputPlace] = options.outputs or {}
        if options.outputs is None:
            self.outputs = {"": _only_output(options, schema)}
        else:
            self.outputs = {name: _output(options, schema, name, place) for name, place in options.outputs.items()}

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield each output's name and rows, for outputs that have rows in the batch.

        Raises :class:`StrandlineError` ``STRANDLINE_OUTPUT_UNKNOWN`` if a row names an output that does not exist, or none by a
        null. Its row would be lost.
        """
        if not self._places:
            yield "", batch
            return
        if not batch.num_rows:
            return
        names = batch.column(NAMES)
        flat = pc.list_flatten(names)
        if names.null_count or flat.null_count:
            raise errors.output_unknown("null", self.outputs)
        found = flat.unique().to_pylist()
        # Then every row goes there, and none needs to be copied.
        one = len(found) == 1 and pc.min(pc.list_value_length(names)).as_py() > 0
        for name in found:
            if name not in self._places:
                raise errors.output_unknown(repr(name), self.outputs)
            place = self._places[name]
            taken = batch.column(place.column)
            if not one:
                taken = taken.take(pc.unique(pc.list_parent_indices(names).filter(pc.equal(flat, name))))
            rows = pa.RecordBatch.from_struct_array(taken)
            yield name, rows.select(list(place.fields.values())).rename_columns(list(place.fields))


def _only_output(options: WriteOptions, schema: StructType) -> ChannelOutput:
    """Return the output of a query that has one: it gets all rows and columns."""
    time_column, domain = time_field_of(schema)
    check_stored_types(schema, "The rows to write")
    return ChannelOutput(
        options.path,
        channel_schema(schema, time_column, domain),
        time_column,
        domain,
        options.storage,
        options.producer,
        options.take_over,
        options.merge_schema,
        resume=options.resume is not None,
        accept_replay=options.accept_replay,
    )


def _output(options: WriteOptions, schema: StructType, name: str, place: OutputPlace) -> ChannelOutput:
    """Return one of several outputs: it gets the fields of a struct."""
    if NAMES not in schema.names or place.column not in schema.names:
        raise errors.outputs_invalid_rows(schema.names, NAMES, place.column)
    rows = schema[place.column].dataType
    assert isinstance(rows, StructType)  # noqa: S101 - write_outputs made it
    domain = parse_domain(place.domain)
    absent = [field for field in place.fields.values() if field not in rows.names]
    if absent:
        raise errors.outputs_invalid_fields(name, rows.names, absent)
    taken = [(column, rows[field]) for column, field in place.fields.items()]
    kept = StructType([StructField(column, f.dataType, True, f.metadata) for column, f in taken])
    check_stored_types(kept, f"The rows of output {name}")
    return ChannelOutput(
        place.path,
        channel_schema(kept, place.time, domain),
        place.time,
        domain,
        options.storage,
        options.producer,
        options.take_over,
        options.merge_schema,
        tuple(sorted(options.outputs or ())),
        accept_replay=options.accept_replay,
        restamped=place.restamped,
    )
