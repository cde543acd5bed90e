"""Parked files when they join the channel: they must be what the log states, and get Delta's statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.channel import DataFile
from strandline.delta.file_stats import stats_text
from strandline.delta.storage import open_store
from strandline.errors import IngestError, TimeError
from strandline.ingest.parked import errors
from strandline.ingest.parked.parcel import Parked
from strandline.time.arrow import between, find_time_field
from strandline.time.domain import Time, TimeDomain

__all__ = ["with_stats"]


def with_stats(path: str, schema: pa.Schema, storage: Mapping[str, str] | None, parcels: Iterable[Parked]) -> list[DataFile]:
    """Return the parcels' files with Delta's statistics, which were not kept while the files were parked.

    Raises:
        IngestError: ``STRANDLINE_PARKED_FILE_MISSING`` for a file that is gone, ``STRANDLINE_PARKED_FILE_DIFFERS`` for a file
            that does not have the rows that are stated.
    """
    store = open_store(path, storage)
    time, domain = find_time_field(schema)
    files = []
    for parcel in parcels:
        for file in parcel.files:
            try:
                size = store.size(file.path)
                with store.open_input(file.path) as source:
                    metadata = pq.read_metadata(source)
                    same = size == file.size and metadata.num_rows == file.rows and _has_columns(metadata, schema, time)
                    if same and not _is_between(metadata, time, domain, parcel):
                        times = pq.read_table(source, columns=[time], partitioning=None).column(time)
                        same = bool(between(times, domain, parcel.least, parcel.greatest).all())
            except (pa.ArrowException, TimeError) as error:  # a time may be null
                raise _differs(path, file, parcel, domain) from error
            except FileNotFoundError as error:
                raise errors.parked_file_missing(file.path, file.rows, path) from error
            if not same:
                raise _differs(path, file, parcel, domain)
            columns = metadata.schema.to_arrow_schema()  # some of the channel may have come later
            stats = stats_text(metadata, columns, partial(store.open_input, file.path))
            files.append(DataFile(file.path, file.size, file.rows, stats))
    return files


def _is_between(metadata: pq.FileMetaData, time: str, domain: TimeDomain, parcel: Parked) -> bool:
    """Whether the file's footer shows that all times are between those of the parcel.

    The footer bounds each coordinate. The time of the least coordinates is before all rows, in every domain. In a ``lex`` domain
    it may also be before ``least``, although no row is. Then the footer does not say.
    """
    columns = [i for i in range(metadata.num_columns) if f"{metadata.schema.column(i).path}.".startswith(f"{time}.")]
    least, greatest = [], []
    for column in columns:
        stats = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
        if any(each is None or not each.has_min_max or each.null_count for each in stats):
            return False
        least.append(min(each.min_raw for each in stats))  # the integer: a datetime has no years beyond 9999
        greatest.append(max(each.max_raw for each in stats))
    low, high = (_time_of(iter(leaves), domain) for leaves in (least, greatest))
    return domain.less_equal(parcel.least, low) and domain.less_equal(high, parcel.greatest)


def _time_of(leaves: Iterator[int], domain: TimeDomain) -> Time:
    """Return the time with these coordinates, from left to right."""
    parts = domain.coordinates
    return tuple(_time_of(leaves, part) for _, part in parts) if parts else next(leaves)


def _has_columns(metadata: pq.FileMetaData, schema: pa.Schema, time: str) -> bool:
    """Whether a file has the time column, and no column that the channel does not have in this form.

    It may lack a column that the channel got later.
    """
    empty = pa.BufferOutputStream()
    pq.ParquetWriter(empty, schema.remove_metadata(), store_schema=False).close()
    expected = _columns(pq.read_metadata(pa.BufferReader(empty.getvalue())))
    found = _columns(metadata)
    whole = {path for path in expected if f"{path}.".startswith(f"{time}.")}
    return whole <= found.keys() and found.items() <= expected.items()


def _columns(metadata: pq.FileMetaData) -> dict[str, tuple[str, str, int, int]]:
    """Return the form of each Parquet column by its path."""
    columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    return {c.path: (c.physical_type, str(c.logical_type), c.max_definition_level, c.max_repetition_level) for c in columns}


def _differs(path: str, file: DataFile, parcel: Parked, domain: TimeDomain) -> IngestError:
    return errors.parked_file_differs(file.path, path, file.rows, domain.format(parcel.least), domain.format(parcel.greatest))
