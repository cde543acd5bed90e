"""Batch reads of the frontiers and holds of all channels at or below a path."""

from pyspark_strandline.read.overview.reader import OverviewReader, schema_of

__all__ = ["OverviewReader", "schema_of"]
