"""Progress reports of streaming queries: from the shim's facts and the channels' logs, for people and monitoring systems.

It may import ``strandline`` and the folders above it. Nothing here makes a batch wait.
"""

from pyspark_strandline.report.exporters import SparkMetrics, open_telemetry, prometheus_collector, serve_prometheus
from pyspark_strandline.report.progress_reports import ProgressReports

__all__ = ["ProgressReports", "SparkMetrics", "open_telemetry", "prometheus_collector", "serve_prometheus"]
