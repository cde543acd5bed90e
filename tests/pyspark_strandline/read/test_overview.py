"""Looking with SQL: frontiers and holds of all channels of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import make_channel, say

pytestmark = pytest.mark.spark


def test_frontiers_and_holds_in_sql(spark: Any, tmp_path: Path) -> None:
    say(make_channel(tmp_path / "one", producers=("a", "b")), "a", (0, 1), then=[4])
    make_channel(tmp_path / "deep" / "two", producers=("a",))
    spark.sql(f"CREATE TEMPORARY VIEW frontiers USING strandline OPTIONS (path '{tmp_path}', show 'frontiers')")
    found = spark.sql("SELECT channel, timeInt64, closed, error FROM frontiers ORDER BY channel").collect()
    assert [tuple(row) for row in found] == [("deep/two", 0, False, None), ("one", 0, False, None)]
    held = spark.read.format("strandline").option("show", "holds").load(str(tmp_path)).where("channel = 'one'")
    shown = held.select("producer", "time", "holdsFrontierBack", "sinceVersion").orderBy("producer").collect()
    assert [tuple(row) for row in shown] == [("a", "4", False, 1), ("b", "0", True, 0)]
    by_path = spark.sql(f"SELECT count(*) FROM strandline.`{tmp_path}` WITH (show = 'frontiers')").collect()
    assert by_path == [(2,)]
    make_channel(tmp_path / "three", producers=("a",))
    assert spark.sql("SELECT count(*) FROM frontiers").collect() == [(3,)]  # each execution looks anew
    spark.catalog.dropTempView("frontiers")


def test_wrong_use_is_refused(spark: Any, tmp_path: Path) -> None:
    reader = spark.read.format("strandline").option("show", "frontiers")
    with pytest.raises(Exception, match="STRANDLINE_CHANNELS_MISSING"):
        reader.load(str(tmp_path)).collect()
    with pytest.raises(Exception, match="STRANDLINE_OPTION_CONFLICT"):
        reader.option("asOfVersion", "0").load(str(tmp_path)).collect()
