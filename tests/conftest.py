"""What all tests share: one Spark session a module, and directories of a test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support import ROOT

settings.register_profile("strandline", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("strandline")

if "STRANDLINE_DELTA_JARS" not in os.environ:  # set by make; found here when pytest is run by hand
    os.environ["STRANDLINE_DELTA_JARS"] = os.pathsep.join(map(str, sorted((ROOT / ".build" / "jars").glob("delta-*.jar"))))


def spark_builder(scratch: Path, master: str = "local[2]") -> Any:
    """A session builder as the tests use it: two cores, few partitions, no user interface, everything under ``scratch``."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(master)
        .appName("strandline-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.driver.memory", "2g")
        # Delta takes 50 and 200 tasks for what two can do on tables this small.
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")
    )


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session set up by ``pyspark_strandline.configure``, for the tests of one module."""
    from pyspark_strandline import configure

    session = configure(spark_builder(tmp_path_factory.mktemp("spark"))).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()
    type(session).builder._options.clear()  # or the next module would inherit this one's
