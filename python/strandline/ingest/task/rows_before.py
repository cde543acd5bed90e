"""Counts the rows that a channel already has, for a policy that has not observed them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from strandline.channel import Channel
from strandline.ingest.names import PARKED, partition_names
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.settings import Settings
from strandline.ingest.state.parked_state import ParkedState
from strandline.ingest.task.partition_stats import PartitionStats
from strandline.time.arrow import time_column
from strandline.time.domain import Time

__all__ = ["rows_in_channel"]


def rows_in_channel(channel: Channel, settings: Settings) -> Mapping[str, Mapping[Time, int]]:
    """Return how many rows of each partition arrived in time, by outside time: the channel's rows and the parked rows."""
    rows = channel.read(columns=[settings.time, *settings.partition])
    lists = ParkedLists(channel.path, channel.storage_options)
    files = [
        file
        for name, state in channel.producers.items()
        if name.startswith(PARKED)
        for parcel in lists.waiting(ParkedState.of(name, state), channel.domain).parcels
        for file in parcel.files
    ]
    if files:
        rows = pa.concat_tables([rows, channel.read_files(files).select(rows.column_names)])
    times = rows.column(settings.time)
    if settings.corrections:  # corrections are late rows that were readmitted later
        rows = rows.filter(pc.equal(pc.struct_field(times, 1), 0))
        times = pc.struct_field(rows.column(settings.time), 0)
    stats = PartitionStats(settings.domain, by_time=True)
    names = partition_names(rows, settings.partition)
    stats.add(names, time_column(times, settings.domain, settings.time))
    return stats.counts()
