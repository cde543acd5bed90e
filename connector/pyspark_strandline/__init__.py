"""Strandline for Spark: ``format("strandline")`` and the session set-up it needs.

Spark imports every package named ``pyspark_…`` and registers its ``DefaultSource``, so no call is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark_strandline.workers import end_quietly, keep_imports

if TYPE_CHECKING:
    from pyspark_strandline.data_source import StrandlineDataSource
    from pyspark_strandline.hadoop_storage import storage_options
    from pyspark_strandline.loops.iterate import iterate
    from pyspark_strandline.loops.loop import Loop, read_loop, read_scope
    from pyspark_strandline.loops.vertices import VertexProgram, pregel
    from pyspark_strandline.operators.completion import hold, on_complete
    from pyspark_strandline.operators.meet import meet
    from pyspark_strandline.operators.processor import Processor, process
    from pyspark_strandline.operators.time_functions import advance, enter, project, truncate
    from pyspark_strandline.program.evaluate import evaluate
    from pyspark_strandline.read.overview.schema_tables import show_schema
    from pyspark_strandline.read.several.streams import Streams, read_channels
    from pyspark_strandline.schema import domain_metadata
    from pyspark_strandline.scope_snapshot import Snapshot, snapshot
    from pyspark_strandline.session import configure, shim_jar
    from pyspark_strandline.write.ingest import ingest
    from pyspark_strandline.write.outputs import route, write_outputs
    from pyspark_strandline.write.record.record import record
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
    "evaluate",
    "hold",
    "ingest",
    "iterate",
    "meet",
    "on_complete",
    "pregel",
    "process",
    "project",
    "read_channels",
    "read_loop",
    "read_scope",
    "readmit",
    "record",
    "route",
    "shim_jar",
    "show_schema",
    "snapshot",
    "storage_options",
    "truncate",
    "write_outputs",
]

# Imported on first use: Spark starts a process for each thing that it asks a source or a sink, and most need little of this.
_LATER = {
    "DefaultSource": "pyspark_strandline.data_source",
    "Loop": "pyspark_strandline.loops.loop",
    "Processor": "pyspark_strandline.operators.processor",
    "Snapshot": "pyspark_strandline.scope_snapshot",
    "StrandlineDataSource": "pyspark_strandline.data_source",
    "Streams": "pyspark_strandline.read.several.streams",
    "VertexProgram": "pyspark_strandline.loops.vertices",
    "advance": "pyspark_strandline.operators.time_functions",
    "configure": "pyspark_strandline.session",
    "domain_metadata": "pyspark_strandline.schema",
    "enter": "pyspark_strandline.operators.time_functions",
    "evaluate": "pyspark_strandline.program.evaluate",
    "hold": "pyspark_strandline.operators.completion",
    "ingest": "pyspark_strandline.write.ingest",
    "iterate": "pyspark_strandline.loops.iterate",
    "meet": "pyspark_strandline.operators.meet",
    "on_complete": "pyspark_strandline.operators.completion",
    "pregel": "pyspark_strandline.loops.vertices",
    "process": "pyspark_strandline.operators.processor",
    "project": "pyspark_strandline.operators.time_functions",
    "read_channels": "pyspark_strandline.read.several.streams",
    "read_loop": "pyspark_strandline.loops.loop",
    "read_scope": "pyspark_strandline.loops.loop",
    "readmit": "strandline.ingest",
    "record": "pyspark_strandline.write.record.record",
    "route": "pyspark_strandline.write.outputs",
    "shim_jar": "pyspark_strandline.session",
    "show_schema": "pyspark_strandline.read.overview.schema_tables",
    "snapshot": "pyspark_strandline.scope_snapshot",
    "storage_options": "pyspark_strandline.hadoop_storage",
    "truncate": "pyspark_strandline.operators.time_functions",
    "write_outputs": "pyspark_strandline.write.outputs",
}


def __getattr__(name: str) -> Any:
    """Import a name of ``_LATER`` on first use."""
    if name not in _LATER:
        try:
            return import_module(f"{__name__}.{name}")  # a package or module of ours that nobody has imported yet
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(_LATER[name]), "StrandlineDataSource" if name == "DefaultSource" else name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
