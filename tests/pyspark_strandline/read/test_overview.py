"""Looking with SQL: frontiers and holds of all channels of a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers import make_channel, say
from pyspark_strandline import show_schema
from strandline.errors import StrandlineError

pytestmark = pytest.mark.spark


def test_frontiers_and_holds_in_sql(spark: Any, tmp_path: Path) -> None:
    say(make_channel(tmp_path / "one", producers=("a", "b")), "a", (0, 1), then=[4])
    make_channel(tmp_path / "deep" / "two", producers=("a",))
    spark.sql(f"CREATE TEMPORARY VIEW frontiers USING strandline OPTIONS (path '{tmp_path}', show 'frontiers')")
    found = spark.sql("SELECT channel, timeInt64, closed, error FROM frontiers ORDER BY channel").collect()
    assert [tuple(row) for row in found] == [("deep/two", 0, False, None), ("one", 0, False, None)]
    held = spark.read.format("strandline").option("show", "holds").load(str(tmp_path)).where("channel = 'one'")
    shown = held.select("producer", "time", "holdsFrontierBack", "sinceVersion").orderBy("producer").collect()
    assert [tuple(row) for row in shown] == [("a", "4", False, 2), ("b", "0", True, 0)]
    by_path = spark.sql(f"SELECT count(*) FROM strandline.`{tmp_path}` WITH (show = 'frontiers')").collect()
    assert by_path == [(2,)]
    make_channel(tmp_path / "three", producers=("a",))
    assert spark.sql("SELECT count(*) FROM frontiers").collect() == [(3,)]  # each execution looks anew
    spark.catalog.dropTempView("frontiers")


@pytest.mark.drawn
def test_the_channels_of_a_schema(spark: Any, tmp_path: Path) -> None:
    spark.sql("CREATE DATABASE lake")
    for name in ("one", "gone dir"):
        make_channel(tmp_path / name, producers=("a",))
        spark.sql(f"CREATE TABLE lake.{name[:4]} USING strandline LOCATION '{tmp_path / name}'")
    spark.sql(f"CREATE TABLE lake.other USING parquet LOCATION '{tmp_path}/other' AS SELECT 1 AS n")
    spark.sql("CREATE VIEW lake.looked AS SELECT * FROM lake.other")
    shutil.rmtree(tmp_path / "gone dir")
    try:
        show_schema(spark, "spark_catalog.lake").createOrReplaceTempView("frontiers")
        found = spark.sql("SELECT channel, path, time, error LIKE '%STRANDLINE_NOT_A_TABLE%' FROM frontiers ORDER BY channel")
        gone, one = [tuple(row) for row in found.collect()]
        assert gone == ("gone", str(tmp_path / "gone dir"), None, True)
        assert one == ("one", str(tmp_path / "one"), "0", None)
        held = show_schema(spark, "lake", "holds").where("error IS NULL").select("producer", "setAside").collect()
        assert [tuple(row) for row in held] == [("a", None)]
        with pytest.raises(StrandlineError, match="STRANDLINE_CHANNELS_MISSING"):
            show_schema(spark, "default")
        with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_INVALID"):
            show_schema(spark, "lake", "rows")
    finally:
        spark.catalog.dropTempView("frontiers")
        spark.sql("DROP DATABASE lake CASCADE")


def test_wrong_use_is_refused(spark: Any, tmp_path: Path) -> None:
    reader = spark.read.format("strandline").option("show", "frontiers")
    with pytest.raises(Exception, match="STRANDLINE_CHANNELS_MISSING"):
        reader.load(str(tmp_path)).collect()
    channels = json.dumps({"a": make_channel(tmp_path / "a", producers=("a",)).path})
    with pytest.raises(Exception, match="STRANDLINE_OPTION_UNKNOWN.*channels is an option of"):
        spark.read.format("strandline").option("channels", channels).load().collect()
    with pytest.raises(Exception, match="STRANDLINE_OPTION_CONFLICT"):
        reader.option("asOfVersion", "0").load(str(tmp_path)).collect()
