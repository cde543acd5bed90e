"""The checkout, and what the connector's tests share: sessions, channels of two producers, rows, queries run to the end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from forked_runners import forking_python
from strandline.channel import Channel
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, TimeDomain, int64

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

PRODUCERS = ("a", "b")


def make_channel(
    path: Path, domain: TimeDomain = int64, producers: tuple[str, ...] = PRODUCERS, at: Time | None = None
) -> Channel:
    """A sealed channel of ``time``, ``key`` and ``n``, its producers holding ``at`` (default: zero in every coordinate)."""
    schema = pa.schema([time_field("time", domain), ("key", pa.string()), ("n", pa.int64())])
    return Channel.create(path, schema, producers=producers, at=zero(domain) if at is None else at)


def kafka_jars(folder: str) -> list[Path]:
    """The jars of Kafka's ``broker`` or of ``spark``'s source that ``tools/fetch_kafka.py`` fetched; the Makefile says where."""
    return sorted((Path(os.environ.get("STRANDLINE_KAFKA") or ROOT / ".build" / "kafka") / folder).glob("*.jar"))


QUICK = {
    # Hadoop's own starts a process for each file that it makes.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    # Or a task asks the driver for each class that a compiler of generated code looks for in vain.
    "spark.sql.artifact.isolation.enabled": "false",
}
"""Settings that make sessions cheaper. The tests whose sessions have processes of their own do without, as users do."""


def spark_builder(scratch: Path, master: str = "local[2]") -> Any:
    """A session builder as the tests use it: two cores, few partitions, no user interface, everything under ``scratch``.

    All modules' sessions share the JVM that the first of them starts, so Kafka's source is in each.
    """
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
        .config("spark.jars", ",".join(map(str, kafka_jars("spark"))))
        # Delta takes 50 and 200 tasks for what two can do on tables this small.
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")
        .config(map=QUICK if "SPARK_DIST_CLASSPATH" in os.environ else {})
        # No test of a session cuts the power. test_power_cuts.py does, with the default.
        .config("spark.hadoop.strandline.checkpoint.durable", "false")
    )


_shared: list[tuple[ExitStack, Any]] = []


def stop_shared_session() -> None:
    """Stop the session of :func:`shared_session`, if there is one."""
    while _shared:
        _shared.pop()[0].close()


@contextmanager
def shared_session(scratch: Path) -> Iterator[Any]:
    """The session of all modules that need no other: a start takes a second and more. What a module sets is unset at its end."""
    if not _shared:
        started = ExitStack()
        _shared.append((started, started.enter_context(spark_session(scratch))))
    session = _shared[0][1]
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)
    before = session.conf.getAll
    yield session
    for query in session.streams.active:
        query.stop()
    now = session.conf.getAll
    for name in filter(session.conf.isModifiable, before.keys() | now.keys()):
        if name not in before:
            session.conf.unset(name)
        elif now.get(name) != before[name]:
            session.conf.set(name, before[name])
    type(session).builder._options.clear()  # a page's, for the next page


@contextmanager
def settings(session: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for a while. At the end its queries are stopped, and it has the former settings."""
    before = session.conf.getAll
    try:
        for name, value in values.items():
            session.conf.set(name, value)
        yield
    finally:
        for query in session.streams.active:
            query.stop()
        for name in values:
            if name in before:
                session.conf.set(name, before[name])
            else:
                session.conf.unset(name)


@contextmanager
def spark_session(scratch: Path, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session set up by ``pyspark_strandline.configure``; its queries are stopped with it. The shared one is stopped before."""
    from pyspark_strandline import configure

    stop_shared_session()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", forking_python())  # what the JVM and the context that start here call Python
        session = configure(spark_builder(scratch).config(map=dict(settings or {}))).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()
    type(session).builder._options.clear()  # or the next module would inherit this one's


def zero(domain: TimeDomain) -> Time:
    """The time with every coordinate 0."""
    return tuple(zero(part) for _, part in domain.coordinates) if domain.coordinates else 0


def rows(domain: TimeDomain, *entries: tuple[Time, int]) -> pa.Table:
    """Rows of (time, n), with the key ``k``."""
    times = array_of([t for t, _ in entries], domain)
    return pa.table({"time": times, "key": ["k"] * len(entries), "n": [n for _, n in entries]})


def say(channel: Channel, producer: str, *entries: tuple[Time, int], then: list[Time] | None = None) -> int | None:
    """One commit: the rows, and what the producer holds afterwards (``None``: as before, ``[]``: nothing any more)."""
    with channel.producer(producer) as session:
        if entries:
            session.send(rows(channel.domain, *entries))
        if then is not None:
            session.delay(then)
        return session.commit()


def run(frame: Any, target: Path, checkpoint: Path, **options: str) -> list[dict[str, Any]]:
    """Run a query into a channel with ``availableNow``; returns its progress reports."""
    writer = frame.writeStream.format("strandline").option("checkpointLocation", str(checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start(str(target))
    query.awaitTermination()
    return [p for p in query.recentProgress if p["numInputRows"] or "addBatch" in p["durationMs"]]


def settle(query: Any) -> None:
    """Wait until a query has taken up everything that its sources have now.

    Once is not enough: Spark may have looked for new data before it came, and then tell of that look. The next one began later.
    """
    query.processAllAvailable()
    query.processAllAvailable()


def stream(spark: Any, path: Path, **options: str) -> Any:
    """A channel as a streaming DataFrame."""
    return spark.readStream.format("strandline").options(**options).load(str(path))


def contents(path: Path) -> list[tuple[Any, ...]]:
    """A channel's rows as sorted tuples; a struct time is a tuple of its coordinates."""
    table = Channel.open(path).read().to_pylist()
    return sorted(tuple(tuple(v.values()) if isinstance(v, dict) else v for v in row.values()) for row in table)
