"""Progress reports as in Beam: what each transform has done and still has to do, and what follows. It knows no Spark.

It may import ``strandline.time`` and ``strandline.errors``.
"""

from strandline.report.progress.backlog import (
    active_elements_fraction_consumed,
    active_output_remaining,
    average_element_processing_time,
    average_output_count_per_element,
    backlog_seconds,
    catch_up_seconds,
    intermediate_unprocessed_elements,
    total_input_elements_remaining,
    total_output_elements_remaining,
)
from strandline.report.progress.frontiers import committed_frontier, frontier_lag, tentative_frontier
from strandline.report.progress.metrics import METRICS, FrontierClock, Metric, figures
from strandline.report.progress.progress_report import Level, ProgressReport, State
from strandline.report.progress.transform import TransformProgress

__all__ = [
    "METRICS",
    "FrontierClock",
    "Level",
    "Metric",
    "ProgressReport",
    "State",
    "TransformProgress",
    "active_elements_fraction_consumed",
    "active_output_remaining",
    "average_element_processing_time",
    "average_output_count_per_element",
    "backlog_seconds",
    "catch_up_seconds",
    "committed_frontier",
    "figures",
    "frontier_lag",
    "intermediate_unprocessed_elements",
    "tentative_frontier",
    "total_input_elements_remaining",
    "total_output_elements_remaining",
]
