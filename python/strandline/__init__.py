"""Strandline's core: times, antichains, capabilities, the progress tracker, scopes and channels. It does not use Spark.

``__all__`` lists the public names. Import channels from ``strandline.channel``.
"""

from typing import TYPE_CHECKING, Any

from strandline.errors import (
    CapabilityError,
    CycleError,
    DataflowError,
    GraphError,
    StrandlineError,
    SummaryError,
    TimeDomainError,
    TimeError,
)
from strandline.time.antichain import Antichain
from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Lex, Product, Scalar, Time, TimeDomain, int64, lex, parse_domain, product, timestamp, uint64
from strandline.time.mutable_antichain import MutableAntichain
from strandline.time.path.summary import PathSummary, Summaries, advance, identity, summary_from_json
from strandline.tracker.capability import Capability, InputCapability
from strandline.tracker.explanation import Hold, explain
from strandline.tracker.graph import Graph, Location, source, target
from strandline.tracker.notificator import Notificator
from strandline.tracker.reachability import Tracker
from strandline.tracker.refinement import Refinement

if TYPE_CHECKING:
    from strandline.dataflow.builder import Cluster, Scope, Stream
    from strandline.time.columnar_antichain import ColumnarAntichain
    from strandline.tracker.operate import Operate, SharedProgress
    from strandline.tracker.progress_log import ProgressLog, replay_log
    from strandline.tracker.protocol import Batch, View
    from strandline.tracker.subgraph import Subgraph

__version__ = "0.1.0"

__all__ = [
    "Antichain",
    "Batch",
    "Capability",
    "CapabilityError",
    "ChangeBatch",
    "Cluster",
    "ColumnarAntichain",
    "CycleError",
    "DataflowError",
    "Graph",
    "GraphError",
    "Hold",
    "InputCapability",
    "Lex",
    "Location",
    "MutableAntichain",
    "Notificator",
    "Operate",
    "PathSummary",
    "Product",
    "ProgressLog",
    "Refinement",
    "Scalar",
    "Scope",
    "SharedProgress",
    "StrandlineError",
    "Stream",
    "Subgraph",
    "Summaries",
    "SummaryError",
    "Time",
    "TimeDomain",
    "TimeDomainError",
    "TimeError",
    "Tracker",
    "View",
    "advance",
    "explain",
    "identity",
    "int64",
    "lex",
    "parse_domain",
    "product",
    "replay_log",
    "source",
    "summary_from_json",
    "target",
    "timestamp",
    "uint64",
]

# Imported on first use: these names need numpy or Arrow, or a worker that only reads times does not use them.
_LATER = {
    "ColumnarAntichain": "time.columnar_antichain",
    "Cluster": "dataflow.builder",
    "Scope": "dataflow.builder",
    "Stream": "dataflow.builder",
    "Operate": "tracker.operate",
    "SharedProgress": "tracker.operate",
    "Batch": "tracker.protocol",
    "View": "tracker.protocol",
    "ProgressLog": "tracker.progress_log",
    "replay_log": "tracker.progress_log",
    "Subgraph": "tracker.subgraph",
}


def __getattr__(name: str) -> Any:
    """Import a name of ``_LATER`` on first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
