"""The Spark session of commands that need one. Spark is imported only here, when such a command runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import typer

from strandline.cli.replay import errors

__all__ = ["spark_session"]

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def spark_session(command: str, conf: Sequence[str]) -> Iterator[Any]:
    """Start a session with Strandline, or take the one that runs in this process.

    Args:
        command: What errors call the command.
        conf: Settings, each as ``KEY=VALUE``.

    Raises:
        StrandlineError: ``STRANDLINE_PACKAGE_MISSING`` if Spark is not installed.
    """
    if find_spec("pyspark") is None:
        raise errors.package_missing(command, "cli,spark")
    from pyspark.sql import SparkSession

    from pyspark_strandline import configure

    settings = dict(_SETTINGS)
    for each in conf:
        key, equals, value = each.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{each!r} is not of the form KEY=VALUE", param_hint="--conf")
        settings[key] = value
    if (running := SparkSession.getActiveSession()) is not None:
        yield running
        return
    builder = SparkSession.builder.appName(command)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = configure(builder).getOrCreate()
    try:
        spark.sparkContext.setLogLevel("OFF")  # what fails is told by this command
        yield spark
    finally:
        spark.stop()
