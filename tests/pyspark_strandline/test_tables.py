"""Channels as tables of Spark's catalog, and by their path in SQL."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from helpers import contents, make_channel, say
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64

pytestmark = pytest.mark.spark


@pytest.fixture(params=["DeltaCatalog", "Spark's own"])
def session(spark: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A session with either catalog, with one table: a channel that has two hours."""
    other = spark.newSession()
    if request.param == "Spark's own":
        other.conf.unset("spark.sql.catalog.spark_catalog")
    spark._jvm.SparkSession.setActiveSession(other._jsparkSession)
    channel = make_channel(tmp_path / "readings", producers=("a",))
    say(channel, "a", (0, 1), (0, 2), then=[1])
    request.node.first = channel.version
    say(channel, "a", (1, 5), then=[2])
    other.sql(f"CREATE TABLE readings USING strandline LOCATION '{tmp_path}/readings'")
    yield other
    for table in other.catalog.listTables():
        if not table.isTemporary:
            other.sql(f"DROP {table.tableType if table.tableType == 'VIEW' else 'TABLE'} {table.name}")
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


@pytest.mark.drawn
def test_a_table_is_read_by_its_name_or_its_path(session: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    assert [tuple(row) for row in session.sql("SELECT time, sum(n) FROM readings GROUP BY time ORDER BY time").collect()] == [
        (0, 3),
        (1, 5),
    ]
    assert session.table("readings").where("readings.n > 1").count() == 2
    assert session.table("default.readings").schema["time"].metadata["strandline.time"] == "int64"
    by_path = f"strandline.`{tmp_path}/readings`"
    assert session.sql(f"SELECT * FROM {by_path} a JOIN readings b ON a.n = b.n").count() == 3
    assert session.sql(f"SELECT * FROM readings VERSION AS OF {request.node.first}").count() == 2
    (progress,) = session.sql("SELECT * FROM readings WITH (show = 'progress') WHERE producer = 'a'").collect()
    assert "2" in str(progress)
    session.sql("CREATE VIEW big AS SELECT n FROM readings WHERE n > 1")
    assert sorted(row.n for row in session.table("big").collect()) == [2, 5]
    session.range(3).createOrReplaceTempView("readings")
    assert session.table("readings").columns == ["id"]  # as for any table, a temporary view comes first
    session.catalog.dropTempView("readings")


def test_a_temporary_view_of_the_tables_name_does_not_reach_into_views(session: Any, tmp_path: Path) -> None:
    session.sql("CREATE VIEW seen AS SELECT n FROM readings")
    session.range(2).createOrReplaceTempView("readings")
    try:
        assert sorted(row.n for row in session.table("seen").collect()) == [1, 2, 5]
        session.sql("CREATE TEMPORARY VIEW passing AS SELECT * FROM READINGS")  # this one means the temporary view
        assert session.table("passing").columns == ["id"]
    finally:
        session.catalog.dropTempView("readings")
        session.catalog.dropTempView("passing")


def test_a_column_is_named_with_its_database_and_its_catalog(session: Any) -> None:
    assert session.sql("SELECT default.readings.n FROM readings").count() == 3
    assert session.sql("SELECT spark_catalog.default.readings.n, READINGS.n FROM READINGS").count() == 3
    assert session.table("readings").selectExpr("default.readings.*").columns == ["time", "key", "n"]


@pytest.mark.drawn
def test_a_query_goes_on_with_a_table_by_the_path_that_describe_shows(session: Any, tmp_path: Path) -> None:
    """Not by its name: the option resume is a path."""

    def copy(checkpoint: str, resume: str | None = None) -> None:
        reader = session.readStream if resume is None else session.readStream.option("resume", resume)
        writer = reader.table("readings").select("time", "n").writeStream.format("strandline")
        writer = writer if resume is None else writer.option("resume", "true")
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        query.start(str(tmp_path / "copies")).awaitTermination()

    copy("cp")
    session.sql(f"CREATE TABLE copies USING strandline LOCATION '{tmp_path}/copies'")
    for name in ("copies", "default.copies"):
        with pytest.raises(StreamingQueryException, match=f"no channel at the path {name}, .*DESCRIBE EXTENDED {name} shows"):
            copy(f"by-{name}", resume=name)
    [path] = [row.data_type for row in session.sql("DESCRIBE EXTENDED copies").collect() if row.col_name == "Path"]
    say(Channel.open(tmp_path / "readings"), "a", (2, 7), then=[3])
    copy("new", resume=path)
    assert contents(tmp_path / "copies") == [(0, 1), (0, 2), (1, 5), (2, 7)]


def test_describe_shows_the_time_and_the_frontier(session: Any, tmp_path: Path) -> None:
    plain = session.sql("DESCRIBE readings").collect()
    extended = [tuple(row) for row in session.sql("DESCRIBE EXTENDED readings").collect()]
    assert [row[0] for row in plain[:3]] == ["time", "key", "n"] == [row[0] for row in extended[:3]]
    assert "Frontier" not in [row[0] for row in plain]
    channel = Channel.open(tmp_path / "readings")
    assert extended[-5] == ("# Channel", "", "")
    assert extended[-4][0] == "Path"
    assert extended[-4][1].removeprefix("file:") == str(tmp_path / "readings")
    assert extended[-3:] == [
        ("Time", "time (int64)", ""),
        ("Version", str(channel.version), ""),
        ("Frontier", "2", ""),
    ]
    with channel.producer("a") as producer:
        producer.drop()
    assert session.sql("DESCRIBE TABLE EXTENDED default.readings").collect()[-1].data_type == "everything is closed"
    (tmp_path / "readings").rename(tmp_path / "elsewhere")
    with suppress(AnalysisException):  # some catalogs look for the columns, and refuse
        last = session.sql("DESCRIBE EXTENDED readings").collect()[-1]
        assert last.col_name == "Frontier"
        assert "STRANDLINE_NOT_A_TABLE" in last.data_type
    (tmp_path / "elsewhere").rename(tmp_path / "readings")


def test_describe_shows_no_secret(session: Any, tmp_path: Path) -> None:
    location = f"LOCATION '{tmp_path}/readings' OPTIONS ('storage.AWS_SECRET_ACCESS_KEY' 'SEKRIT')"
    session.sql(f"CREATE TABLE again USING strandline {location}")
    described = session.sql("DESCRIBE EXTENDED again")
    assert described.collect()[-1].data_type == "2"
    assert "SEKRIT" not in str(described.collect())
    assert "SEKRIT" not in session.sql("EXPLAIN EXTENDED DESCRIBE EXTENDED again").collect()[0][0]


def test_a_table_has_the_channels_columns_as_they_are_now(session: Any, tmp_path: Path) -> None:
    Channel.open(tmp_path / "readings").add_columns(pa.schema([("unit", pa.string())]))
    assert session.table("readings").columns[-1] == "unit"
    for described in ("DESCRIBE readings", "DESCRIBE EXTENDED readings"):
        assert [row.col_name for row in session.sql(described).collect()[:4]] == ["time", "key", "n", "unit"]


@pytest.mark.drawn
def test_a_query_reads_and_writes_tables_and_closes_its_times(session: Any, tmp_path: Path) -> None:
    sums = session.readStream.option("maxFilesPerTrigger", 1).table("readings").groupBy("time").agg(F.sum("n").alias("n"))
    session.sql(f"CREATE TABLE sums USING strandline LOCATION '{sums_channel(tmp_path)}'")
    writer = sums.writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.option("producer", "sums").trigger(availableNow=True).toTable("sums").awaitTermination()
    assert [tuple(row) for row in session.table("sums").orderBy("time").collect()] == [(0, 3), (1, 5)]
    assert Channel.open(tmp_path / "sums").frontier.to_json() == [2]


def sums_channel(folder: Path) -> Path:
    Channel.create(folder / "sums", pa.schema([time_field("time", int64), ("n", pa.int64())]), producers=["sums"])
    return folder / "sums"


@pytest.mark.drawn
def test_to_table_creates_the_table_and_its_channel(session: Any, tmp_path: Path) -> None:
    writer = session.readStream.table("readings").where("n > 1").writeStream.format("strandline")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option("path", str(tmp_path / "few"))
    writer.trigger(availableNow=True).toTable("few").awaitTermination()
    assert contents(tmp_path / "few") == [(0, "k", 2), (1, "k", 5)]
    assert session.table("few").count() == 2


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO readings SELECT * FROM readings", "STRANDLINE_BATCH_WRITE_UNSUPPORTED"),
        ("INSERT OVERWRITE readings SELECT * FROM readings", "STRANDLINE_BATCH_WRITE_UNSUPPORTED"),
        ("DELETE FROM readings WHERE n = 1", "STRANDLINE_BATCH_WRITE_UNSUPPORTED.*DELETE cannot"),
        ("DELETE FROM strandline.`{folder}/readings`", "STRANDLINE_BATCH_WRITE_UNSUPPORTED.*DELETE cannot"),
        ("UPDATE readings AS r SET n = 3 WHERE r.n = 1", "STRANDLINE_BATCH_WRITE_UNSUPPORTED.*UPDATE cannot"),
        (
            "MERGE INTO readings r USING (SELECT 1 AS n) s ON r.n = s.n WHEN MATCHED THEN DELETE",
            "STRANDLINE_BATCH_WRITE_UNSUPPORTED.*MERGE cannot",
        ),
        ("TRUNCATE TABLE readings", "STRANDLINE_BATCH_WRITE_UNSUPPORTED.*TRUNCATE TABLE cannot"),
        ("CREATE TABLE copy USING strandline AS SELECT * FROM readings", "STRANDLINE_BATCH_WRITE_UNSUPPORTED.*saveAsTable"),
        (
            "CREATE TABLE copy USING strandline LOCATION '{folder}/copy' AS SELECT * FROM readings",
            "STRANDLINE_BATCH_WRITE_UNSUPPORTED.*saveAsTable",
        ),
        (
            "CREATE TABLE again (n BIGINT) USING strandline LOCATION '{folder}/readings'",
            "STRANDLINE_TABLE_COLUMNS_UNSUPPORTED.*columns n,",
        ),
        (
            "CREATE OR REPLACE TABLE readings (n INT) USING strandline LOCATION '{folder}/readings'",
            "STRANDLINE_TABLE_COLUMNS_UNSUPPORTED.*columns n,",
        ),
        ("ALTER TABLE readings ADD COLUMNS (unit STRING)", "STRANDLINE_TABLE_COLUMNS_UNSUPPORTED.*add_columns"),
        ("ALTER TABLE readings RENAME COLUMN n TO m", "STRANDLINE_TABLE_COLUMNS_UNSUPPORTED"),
        ("ALTER TABLE readings DROP COLUMN n", "STRANDLINE_TABLE_COLUMNS_UNSUPPORTED|cannot|not support"),
        ("CREATE TABLE other LIKE readings", "STRANDLINE_TABLE_COLUMNS_UNSUPPORTED.*LIKE copies the columns"),
        (
            "CREATE TABLE other LIKE readings USING strandline LOCATION '{folder}/readings'",
            "STRANDLINE_TABLE_COLUMNS_UNSUPPORTED.*LIKE copies the columns",
        ),
        ("ALTER TABLE readings ADD CONSTRAINT big CHECK (n > 3)", "STRANDLINE_TABLE_CHANGE_UNSUPPORTED.*nothing checks the rows"),
        ("ALTER TABLE readings ADD CONSTRAINT one PRIMARY KEY (n)", "STRANDLINE_TABLE_CHANGE_UNSUPPORTED"),
        ("ALTER TABLE readings DROP CONSTRAINT big", "STRANDLINE_TABLE_CHANGE_UNSUPPORTED"),
        ("ALTER TABLE readings SET SERDEPROPERTIES ('a' = 'b')", "STRANDLINE_TABLE_CHANGE_UNSUPPORTED.*OPTIONS"),
        (
            "CREATE OR REPLACE TABLE readings USING parquet AS SELECT 1 AS n",
            "STRANDLINE_TABLE_CHANGE_UNSUPPORTED.*DROP TABLE first",
        ),
        ("CREATE OR REPLACE TABLE readings (n INT) USING parquet", "STRANDLINE_TABLE_CHANGE_UNSUPPORTED.*another name"),
        ("CREATE TABLE nowhere USING strandline LOCATION '{folder}/nowhere'", "STRANDLINE_NOT_A_TABLE"),
        ("CREATE TABLE nothing USING strandline", "STRANDLINE_PATH_MISSING.*LOCATION"),
        ("SELECT * FROM strandline.`{folder}/nowhere`", "STRANDLINE_NOT_A_TABLE"),
        ("SELECT * FROM readings WITH (maxFile = 3)", "STRANDLINE_OPTION_UNKNOWN"),
    ],
)
def test_what_a_table_cannot_do_is_refused_by_name(session: Any, tmp_path: Path, sql: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        session.sql(sql.format(folder=tmp_path)).collect()
    assert session.table("readings").count() == 3


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["readings", "default.readings", "strandline.`{folder}/readings`"])
def test_commands_of_delta_that_would_change_a_channel_are_refused_by_name(session: Any, tmp_path: Path, name: str) -> None:
    table = name.format(folder=tmp_path)
    for command, message in (
        (f"ALTER TABLE {table} DROP FEATURE deletionVectors", "DROP FEATURE.*no effect"),
        (f"ALTER TABLE {table} DROP FEATURE deletionVectors TRUNCATE HISTORY", "DROP FEATURE.*no effect"),
        (f"RESTORE TABLE {table} TO VERSION AS OF 1", "RESTORE TABLE would take back commits.*lost-checkpoint"),
        (f"RESTORE {table} TO TIMESTAMP AS OF '2024-01-01'", "RESTORE TABLE would take back commits"),
    ):
        with pytest.raises(AnalysisException, match=f"STRANDLINE_TABLE_CHANGE_UNSUPPORTED.*{message}"):
            session.sql(command)
    session.sql("CREATE TABLE plain (n BIGINT) USING parquet")
    for command in ("ALTER TABLE plain DROP FEATURE deletionVectors", "RESTORE TABLE plain TO VERSION AS OF 1"):
        assert "STRANDLINE_" not in refusal(session, command)
    assert session.table("readings").count() == 3


def refusal(session: Any, command: str) -> str:
    try:
        session.sql(command)
    except AnalysisException as error:
        return str(error)
    return ""


@pytest.mark.drawn
@pytest.mark.parametrize("query", ["SELECT * FROM readings", "SELECT n FROM readings WHERE n > 1"])
def test_a_view_of_a_channel_is_refused_as_the_channel_is(session: Any, query: str) -> None:
    session.sql(f"CREATE VIEW seen AS {query}")
    session.sql(query).createOrReplaceTempView("passing")
    session.range(3).createOrReplaceTempView("plain")
    for view in ("seen", "passing"):
        for command in (
            f"DELETE FROM {view}",
            f"DELETE FROM {view} WHERE n = 1",
            f"UPDATE {view} SET n = 3",
            f"MERGE INTO {view} v USING (SELECT 1 AS n) s ON v.n = s.n WHEN MATCHED THEN DELETE",
        ):
            with pytest.raises(AnalysisException, match="STRANDLINE_BATCH_WRITE_UNSUPPORTED"):
                session.sql(command)
    with pytest.raises(Exception) as refused:  # noqa: PT011 - Spark's own, which differs by catalog
        session.sql("DELETE FROM plain")
    assert "STRANDLINE_" not in str(refused.value)


@pytest.mark.drawn
@pytest.mark.parametrize("below", [False, True], ids=["elsewhere", "below the warehouse"])
def test_another_table_does_not_take_the_place_of_a_channel(session: Any, tmp_path: Path, below: bool) -> None:
    """Spark would drop the table first, and then write into its folder below the warehouse."""
    query = (
        session.readStream.table("readings").writeStream.format("strandline").option("checkpointLocation", str(tmp_path / "cp"))
    )
    query = query if below else query.option("path", str(tmp_path / "copies"))
    query.trigger(availableNow=True).toTable("copies").awaitTermination()
    rows = session.range(3)
    for write in (
        lambda: rows.write.mode("overwrite").saveAsTable("copies"),
        lambda: rows.write.mode("overwrite").format("parquet").saveAsTable("default.copies"),
        lambda: rows.writeTo("copies").using("parquet").createOrReplace(),
    ):
        with pytest.raises(
            AnalysisException, match="STRANDLINE_TABLE_CHANGE_UNSUPPORTED.*default.copies, which is the channel at"
        ):
            write()
    assert session.table("copies").count() == 3
    rows.write.mode("overwrite").format("parquet").saveAsTable("plain")
    rows.write.mode("overwrite").format("parquet").saveAsTable("plain")
    assert session.table("plain").count() == 3


def test_show_create_table_can_be_run_again(session: Any, tmp_path: Path) -> None:
    session.sql(
        f"CREATE TABLE again USING strandline OPTIONS ('storage.AWS_SECRET_ACCESS_KEY' 'SEKRIT', asOfVersion '{0}') "
        f"LOCATION '{tmp_path}/readings' COMMENT 'the meter\\'s'"
    )
    [[statement]] = session.sql("SHOW CREATE TABLE again").collect()
    assert "SEKRIT" not in statement
    assert "'asOfVersion' '0'" in statement
    assert "the meter\\'s" in statement
    session.sql("DROP TABLE again")
    [[statement]] = session.sql("SHOW CREATE TABLE default.readings").collect()
    session.sql("DROP TABLE readings")
    session.sql(statement)
    assert session.table("readings").count() == 3
    assert [tuple(row) for row in session.sql("SHOW CREATE TABLE readings").collect()] == [(statement,)]


def test_a_cached_table_is_read_as_it_is_now(session: Any, tmp_path: Path) -> None:
    session.sql("CACHE TABLE readings")
    assert session.table("readings").count() == 3
    say(Channel.open(tmp_path / "readings"), "a", (2, 7), then=[3])
    assert session.table("readings").count() == 4
    assert session.sql("REFRESH TABLE readings").collect() == []
    assert session.sql(f"REFRESH TABLE strandline.`{tmp_path}/readings`").collect() == []
    assert session.table("readings").count() == 4
    session.catalog.clearCache()


@pytest.mark.drawn
def test_a_data_frame_is_not_written_into_a_table(session: Any) -> None:
    for write in (
        lambda: session.table("readings").write.format("strandline").saveAsTable("copy"),
        lambda: session.table("readings").write.format("strandline").mode("append").saveAsTable("readings"),
        lambda: session.table("readings").write.insertInto("readings"),
        lambda: session.table("readings").writeTo("readings").append(),
        lambda: session.table("readings").writeTo("copy").using("strandline").create(),
    ):
        with pytest.raises(AnalysisException, match="STRANDLINE_BATCH_WRITE_UNSUPPORTED"):
            write()
    assert session.table("readings").count() == 3
    assert not session.catalog.tableExists("copy")


@pytest.mark.drawn
def test_a_table_that_an_expression_names_is_refused_too(session: Any) -> None:
    for sql in (
        "INSERT INTO IDENTIFIER('read' || 'ings') SELECT * FROM readings",
        "DELETE FROM IDENTIFIER('read' || 'ings')",
        "UPDATE IDENTIFIER('read' || 'ings') SET n = 3",
    ):
        with pytest.raises(AnalysisException, match="STRANDLINE_BATCH_WRITE_UNSUPPORTED"):
            session.sql(sql)
    assert session.sql("SELECT * FROM IDENTIFIER('read' || 'ings')").count() == 3


def test_a_temporary_view_hides_the_table_from_describe_and_show_create_table(session: Any) -> None:
    session.range(3).createOrReplaceTempView("readings")
    try:
        assert "Frontier" not in [row.col_name for row in session.sql("DESCRIBE EXTENDED readings").collect()]
        with pytest.raises(AnalysisException, match="temporary view|temp view"):  # as for any table
            session.sql("SHOW CREATE TABLE readings")
        assert "strandline" in session.sql("SHOW CREATE TABLE default.readings").head()[0]
    finally:
        session.catalog.dropTempView("readings")


def test_a_database_of_our_name_is_no_prefix_of_paths(session: Any) -> None:
    session.sql("CREATE DATABASE strandline")
    try:
        session.sql("CREATE TABLE strandline.plain (n BIGINT) USING parquet")
        session.sql("INSERT INTO strandline.plain VALUES (1)")
        assert session.table("strandline.plain").count() == 1
        with pytest.raises(AnalysisException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):  # Spark's own
            session.table("strandline.nothing")
    finally:
        session.sql("DROP DATABASE strandline CASCADE")


@pytest.mark.drawn
def test_commands_on_other_tables_are_sparks(session: Any) -> None:
    session.sql("CREATE TABLE plain (n BIGINT) USING parquet")
    session.sql("ALTER TABLE plain ADD COLUMNS (unit STRING)")
    session.sql("INSERT INTO plain SELECT n, 'm' FROM readings")
    assert session.table("plain").count() == 3
    session.sql("TRUNCATE TABLE plain")
    session.sql("CREATE TABLE copy USING parquet AS SELECT * FROM readings")
    assert (session.table("plain").count(), session.table("copy").count()) == (0, 3)


def test_describe_shows_a_channel_that_is_no_table(session: Any, tmp_path: Path) -> None:
    by_path = f"strandline.`{tmp_path}/readings`"
    assert [tuple(row) for row in session.sql(f"DESCRIBE {by_path}").collect()][::2] == [
        ("time", "bigint", None),
        ("n", "bigint", None),
    ]
    assert [tuple(row) for row in session.sql(f"DESCRIBE EXTENDED {by_path}").collect()][-1] == ("Frontier", "2", "")


def test_other_tables_are_left_to_spark(session: Any, tmp_path: Path) -> None:
    session.range(3).write.format("parquet").save(str(tmp_path / "files"))
    assert session.sql(f"SELECT * FROM parquet.`{tmp_path}/files`").count() == 3
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        session.table("nothing_of_this_name")


HIVE = """
import sys
import pyarrow as pa
from pyspark.sql import SparkSession, functions as F
from pyspark_strandline import configure
from strandline.channel import Channel

root = sys.argv[1]
settings = {
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.warehouse.dir": f"{root}/warehouse",
    "spark.sql.shuffle.partitions": "2",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={root}/metastore;create=true",
}
spark = configure(SparkSession.builder.master("local[2]").config(map=settings), delta=False).getOrCreate()
if sys.argv[2] == "first":
    spark.sql(f"CREATE TABLE readings USING strandline LOCATION '{root}/readings'")
for change in (
    "ALTER TABLE readings ADD COLUMNS (unit STRING)",
    "ALTER TABLE readings ADD CONSTRAINT big CHECK (n > 3)",
    "TRUNCATE TABLE readings",
    "DELETE FROM readings",
    "CREATE OR REPLACE TABLE readings USING parquet AS SELECT 1 AS n",
    f"CREATE TABLE again (n STRING) USING strandline LOCATION '{root}/readings'",
):
    try:
        spark.sql(change)
        print("changed by", change)
    except Exception as error:
        assert "STRANDLINE_" in str(error), error
sums = spark.readStream.table("readings").groupBy("time").agg(F.sum("n").alias("n"))
writer = sums.writeStream.format("strandline").option("checkpointLocation", f"{root}/checkpoint").option("path", f"{root}/sums")
writer.trigger(availableNow=True).toTable("sums").awaitTermination()
print("found", [tuple(row) for row in spark.sql("SELECT time, n FROM sums ORDER BY time").collect()])
Channel.open(f"{root}/readings").add_columns(pa.schema([(sys.argv[2], pa.string())]))
columns = [spark.sql("SELECT * FROM readings").columns, spark.sql(f"SELECT * FROM strandline.`{root}/readings`").columns]
columns.append([row.col_name for row in spark.sql("DESCRIBE readings").collect()])
columns.append(spark.readStream.table("readings").columns)
print("columns", *columns[0], all(each == columns[0] for each in columns))
spark.range(3).write.mode("overwrite").saveAsTable("plain")
spark.table("plain")
calls = spark._jvm.org.apache.spark.metrics.source.HiveCatalogMetrics.METRIC_HIVE_CLIENT_CALLS()
before = calls.getCount()
spark.table("plain")
print("calls", calls.getCount() - before)
"""


@pytest.mark.drawn("processes")
def test_a_metastore_keeps_tables_for_the_next_driver(tmp_path: Path) -> None:
    """Each driver adds a column to the channel. The next driver's table has it."""
    channel = make_channel(tmp_path / "readings", producers=("a",))
    for turn, (hour, found) in {"first": (0, [(0, 3)]), "second": (1, [(0, 3), (1, 3)])}.items():
        with channel.producer("a") as producer:
            columns = {"time": [hour] * 2, "key": ["k"] * 2, "n": [1, 2]}
            added = {name: [None] * 2 for name in channel.schema.names if name not in columns}
            producer.send(pa.table(columns | added, schema=channel.schema))
            producer.delay([hour + 1])
        command = [sys.executable, "-c", HIVE, str(tmp_path), turn]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path)
        assert f"found {found}" in done.stdout, done.stderr[-4000:]
        assert "changed by" not in done.stdout
        channel.refresh()
        assert channel.schema.names[-1] == turn
        assert f"columns {' '.join(channel.schema.names)} True" in done.stdout
        assert "calls 2\n" in done.stdout, done.stdout  # to look at the name of any table: one of Spark's, and one of ours
