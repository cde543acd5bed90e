"""The options of the source and the sinks. Their names are as in Delta. They are checked where they are given."""

from pyspark_strandline.options.json_values import CHANNEL, OutputPlace
from pyspark_strandline.options.read import ONE_CHANNEL, ReadOptions
from pyspark_strandline.options.table import EXTENSION
from pyspark_strandline.options.write import FROM_BEGINNING, IngestOptions, RecordOptions, WriteOptions

__all__ = [
    "CHANNEL",
    "EXTENSION",
    "FROM_BEGINNING",
    "ONE_CHANNEL",
    "IngestOptions",
    "OutputPlace",
    "ReadOptions",
    "RecordOptions",
    "WriteOptions",
]
