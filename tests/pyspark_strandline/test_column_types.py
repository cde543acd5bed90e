"""Types that a channel does not keep are refused at the call, with the column's path and a remedy that works as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from by_batch import feed, put
from pyspark_strandline import Processor, VertexProgram, hold, ingest, on_complete, pregel, process, route, write_outputs
from pyspark_strandline.column_types import check_exchanged_types, check_stored_types
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.ingest import ordered

pytestmark = pytest.mark.spark

REFUSED = {
    "collate('A', 'UNICODE_CI')": "c of type string collate UNICODE_CI",
    "array(map('k', collate('A', 'UTF8_LCASE')))": "c.element.value of type string collate UTF8_LCASE",
    "named_struct('a b', named_struct('k', array(collate('A', 'DE'))))": "c.a b.k.element of type string collate de",
    "NULL": "c of type void",
    "array()": "c.element of type void",
    "map()": "c.key of type void",
    "map('a', NULL)": "c.value of type void",
    "named_struct('a', NULL)": "c.a of type void",
    "struct()": "c of type struct<>",
    "INTERVAL '1 02:03:04.5' DAY TO SECOND": "c of type interval day to second",
    "array(INTERVAL '1-2' YEAR TO MONTH)": "c.element of type interval year to month",
    "make_interval(1, 2, 3, 4, 5, 6, 7.5)": "c of type interval",
    "TIME '23:59:59.999999'": r"c of type time\(6\)",
    "named_struct('v', parse_json('{}'))": "c.v of type variant",
    "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')": "c of type geometry",
    "map('a', TIMESTAMP_NTZ '2026-03-29 02:30:00')": "c.value of type timestamp_ntz",
}
KEPT = [
    *("true", "CAST(-128 AS TINYINT)", "-0.0D", "CAST(1 AS DECIMAL(38, 38))", "X'00ff'", "DATE '0001-01-01'"),
    *(
        "TIMESTAMP '1582-10-10 00:00:00'",
        "TIMESTAMP_NTZ '2026-03-29 02:30:00'",
        "CAST('ab' AS CHAR(5))",
        "CAST('ab' AS VARCHAR(5))",
    ),
    *("array(1, NULL)", "map('a', 1, 'b', NULL)", "struct(1 AS a, struct('x' AS b) AS c)", "array(map('k', struct(1.5D AS d)))"),
]


def said(error: BaseException) -> str:
    assert "STRANDLINE_COLUMN_TYPE_UNSUPPORTED" in str(error)
    return str(error)


@pytest.mark.drawn
def test_each_type_is_kept_or_refused_with_its_path_and_the_remedy_works_as_printed(spark: Any) -> None:
    for made in KEPT:
        check_stored_types(spark.sql(f"SELECT {made} AS c").schema, "The rows")
    for made, says in REFUSED.items():
        df = spark.sql(f"SELECT {made} AS c")
        with pytest.raises(StrandlineError, match=f"have {says}") as refused:
            check_stored_types(df.schema, "The rows")
        remedy = re.search(r"(df\.withColumn\(.*\))\.", said(refused.value))
        assert (remedy is None) == (made == "struct()"), str(refused.value)
        if remedy is not None:
            fixed = eval(remedy.group(1), {"df": df, "F": F})  # noqa: S307
            check_stored_types(fixed.schema, "The rows")
            assert len(fixed.collect()) == 1


@pytest.fixture
def rows(spark: Any, tmp_path: Path) -> Any:
    channel = feed(tmp_path / "in")
    put(channel, 1, 2, then=None)
    return spark.readStream.format("strandline").load(str(tmp_path / "in"))


@pytest.mark.drawn
def test_the_sinks_refuse_before_anything_is_written(spark: Any, tmp_path: Path, rows: Any) -> None:
    source = tmp_path / "source"
    spark.sql("SELECT TIMESTAMP '2026-01-01' AS t, array() AS c").selectExpr("t").write.parquet(str(source))
    plain = spark.readStream.schema("t timestamp").parquet(str(source)).selectExpr("t", "array() AS c")
    odd = rows.withColumn("c", F.expr("named_struct('k', collate(key, 'UTF8_LCASE'))"))
    with pytest.raises(StrandlineError, match=r"have c.element of type void"):
        ingest(plain, str(tmp_path / "out"), time="t", policy=ordered())
    with pytest.raises(StrandlineError, match=r"rows of output a have c.k of type string collate"):
        write_outputs({"a": (odd, tmp_path / "out")})
    with pytest.raises(StrandlineError, match=r"rows of output k have c.k of type string collate"):
        route(odd, "key", {"k": tmp_path / "out"})
    writer = odd.writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException, match=r"have c.k of type string collate"):
        writer.start(str(tmp_path / "out")).awaitTermination()
    assert not (tmp_path / "out").exists()
    fixed = odd.withColumn("c", F.expr("CAST(`c` AS STRUCT<`k`: STRING>)"))
    writer = fixed.writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "checkpoint2"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert Channel.open(tmp_path / "out").read()["c"].to_pylist() == [{"k": "k"}] * 2


class Held(Processor):
    schema = "n bigint"
    state_schema = "it interval year to month"

    def on_rows(self, time: Any, rows: Any) -> None:
        pass


class Told(VertexProgram):
    state_schema = "n bigint"
    message_schema = "it interval day to second"
    schema = "n bigint"

    def compute(self, inputs: Any, messages: Any) -> None:
        pass

    def result(self) -> None:
        return None


def test_what_arrow_lacks_is_refused_before_a_function_of_it(spark: Any, tmp_path: Path, rows: Any) -> None:
    odd = rows.withColumn("c", F.expr("array(INTERVAL '1-2' YEAR TO MONTH)"))
    same = lambda time, table: table  # noqa: E731
    with pytest.raises(StrandlineError, match=r"rows for the function have c.element of type interval year to month"):
        on_complete(odd, same, "n bigint")
    with pytest.raises(StrandlineError, match=r"results have it of type interval year to month"):
        on_complete(rows, same, "it interval year to month")
    with pytest.raises(StrandlineError, match=r"states have it of type interval year to month"):
        process(rows, Held(), key="key")
    with pytest.raises(StrandlineError, match=r"messages have it of type interval day to second"):
        pregel(
            spark, {"in": tmp_path / "in"}, Told(), lambda s: s["in"].select("time", F.col("n").alias("vertex")), tmp_path / "g"
        )
    check_exchanged_types(
        spark.sql("SELECT collate('A', 'UNICODE_CI') AS c, array() AS a, TIME '01:02:03' AS t").schema, "The rows"
    )


def test_a_hold_keeps_values_of_every_type(spark: Any, tmp_path: Path, rows: Any) -> None:
    """They stay in Spark's state. Only a channel and functions of Python do not have each type."""
    columns = [F.expr(made).alias(f"c{i}") for i, made in enumerate([*REFUSED, *KEPT])]
    held = hold(rows.select("*", *columns)).select(F.to_json(F.struct("time", "c0", "c1", "c12")).alias("j"))
    found: list[str] = []
    writer = held.writeStream.option("checkpointLocation", str(tmp_path / "held"))
    writer.foreachBatch(lambda df, _: found.extend(r.j for r in df.collect())).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert len(found) == 2
    assert '"c0":"A","c1":[{"k":"A"}]' in found[0]
