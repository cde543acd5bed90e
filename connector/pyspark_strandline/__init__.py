"""Strandline for Spark: ``format("strandline")`` and the session set-up it needs.

Spark imports every package named ``pyspark_…`` and registers its ``DefaultSource``, so no call is needed.
"""

from pyspark_strandline.data_source import StrandlineDataSource
from pyspark_strandline.hadoop_storage import storage_options
from pyspark_strandline.loops.iterate import iterate
from pyspark_strandline.loops.loop import Loop, read_loop, read_scope
from pyspark_strandline.loops.vertices import VertexProgram, pregel
from pyspark_strandline.operators.completion import hold, on_complete
from pyspark_strandline.operators.processor import Processor, process
from pyspark_strandline.operators.time_functions import advance, enter, project, truncate
from pyspark_strandline.read.several.streams import Streams, read_channels
from pyspark_strandline.schema import domain_metadata
from pyspark_strandline.scope_snapshot import Snapshot, snapshot
from pyspark_strandline.session import configure, shim_jar
from pyspark_strandline.workers import end_quietly, keep_imports
from pyspark_strandline.write.ingest import ingest
from pyspark_strandline.write.outputs import route, write_outputs
from strandline.ingest import readmit

DefaultSource = StrandlineDataSource

keep_imports()
end_quietly()

__all__ = [
    "DefaultSource",
    "Loop",
    "Processor",
    "Snapshot",
    "StrandlineDataSource",
    "Streams",
    "VertexProgram",
    "advance",
    "configure",
    "domain_metadata",
    "enter",
    "hold",
    "ingest",
    "iterate",
    "on_complete",
    "pregel",
    "process",
    "project",
    "read_channels",
    "read_loop",
    "read_scope",
    "readmit",
    "route",
    "shim_jar",
    "snapshot",
    "storage_options",
    "truncate",
    "write_outputs",
]
