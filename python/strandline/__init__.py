"""Strandline's core: times, antichains, capabilities, the progress tracker, scopes and channels. No Spark in it.

What may be imported from here is listed in ``__all__``; channels are imported from ``strandline.channel``.
"""

from typing import TYPE_CHECKING, Any

from strandline.antichain import Antichain
from strandline.capability import Capability, CapabilityError, InputCapability
from strandline.change_batch import ChangeBatch
from strandline.errors import StrandlineError, TimeDomainError, TimeError
from strandline.explanation import Hold, explain
from strandline.graph import CycleError, Graph, GraphError, Location, source, target
from strandline.mutable_antichain import MutableAntichain
from strandline.notificator import Notificator
from strandline.order import Lex, Product, Scalar, Time, TimeDomain, int64, lex, parse_domain, product, timestamp, uint64
from strandline.reachability import Tracker
from strandline.refinement import Refinement
from strandline.summary import PathSummary, Summaries, SummaryError, advance, identity, summary_from_json

if TYPE_CHECKING:
    from strandline.columns import ColumnarAntichain
    from strandline.dataflow import Cluster, DataflowError, Scope, Stream
    from strandline.operate import Operate, SharedProgress
    from strandline.protocol import Batch, View
    from strandline.record import ProgressLog, replay_log
    from strandline.subgraph import Subgraph

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

# Imported when first asked for: they need numpy, Arrow, or are of no use to a worker that only reads times.
_LATER = {
    "ColumnarAntichain": "columns",
    "Cluster": "dataflow",
    "DataflowError": "dataflow",
    "Scope": "dataflow",
    "Stream": "dataflow",
    "Operate": "operate",
    "SharedProgress": "operate",
    "Batch": "protocol",
    "View": "protocol",
    "ProgressLog": "record",
    "replay_log": "record",
    "Subgraph": "subgraph",
}


def __getattr__(name: str) -> Any:
    """The later names of ``__all__``."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
