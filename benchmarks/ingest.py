"""Writes a Kafka topic into a channel, and into a Delta table with Spark's own sink; measures the driver's cost of partitions.

    python benchmarks/ingest.py [--rows 2000000] [--partitions 8] [--rounds 5] [--batch 500000] [--quiet-seconds 20]

Throughput: whole availableNow queries over the same topic, alternately in one session, including start-up. Delta runs as it
comes, and tuned for a small machine. Ours must ingest at least 1.05 times the rows per second of the better one. Driver: the
driver's work on a batch of 10 000 partitions must take at most 50 ms of processor time. Some or all of these partitions bring
rows. Dead partitions: a batch beside 32 000 of them must take at most 4 times as long as one without, and once they are forgotten
as long. Silence: a query without changes makes no batch and no commit. The last line holds when all of this holds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from _alternating import OURS, Measure, alternately, deltas, seconds, spark_session, summary
from broker import Broker, spark_jars
from pyspark_strandline import ingest
from strandline.channel import Channel, WriterSession
from strandline.ingest import (
    Ingest,
    Moment,
    Observation,
    Settings,
    TaskReport,
    bounded,
    drop_partitions,
    forget_partitions,
    idle,
    status,
)
from strandline.ingest.policies.policy import ObservationColumns

GOAL = 1.05
DRIVER_GOAL_MS = 50
START_MS = 1_767_225_600_000


def fill(broker: Broker, topic: str, rows: int, partitions: int) -> None:
    """Send rows of about a hundred bytes, with their times in Kafka's own timestamp.

    The times are ten milliseconds apart, and a second out of order.
    """
    broker.create(topic, partitions)
    # Idempotent: otherwise rows that are sent again, as while a new topic has no leader yet, come behind rows sent later.
    options = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **options})
    jitter = np.random.default_rng(1).integers(0, 1000, rows)
    for i in range(rows):
        value = f'{{"id": {i}, "reading": {i % 977}, "note": "a row of some hundred bytes, as rows of devices are"}}'
        while True:
            try:
                producer.produce(topic, value, partition=i % partitions, timestamp=START_MS + i * 10 - int(jitter[i]))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def throughput(spark: Any, scratch: Path, broker: Broker, arguments: argparse.Namespace) -> Measure:
    """Measure the rows per second into a channel and into a Delta table."""
    fill(broker, "readings", arguments.rows, arguments.partitions)

    def frame() -> Any:
        rows = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", "readings")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", arguments.batch)
            .load()
        )
        return rows.select(
            F.col("timestamp").alias("time"), F.col("partition").cast("string").alias("partition"), F.col("value").cast("string")
        )

    def ours(turn: int) -> float:
        writer = ingest(frame(), str(scratch / f"channel-{turn}"), time="time", partition="partition", policy=bounded("1 second"))
        writer = writer.option("checkpointLocation", str(scratch / f"ours-{turn}")).trigger(availableNow=True)
        return arguments.rows / seconds(lambda: writer.start().awaitTermination())

    def delta(way: str, turn: int) -> float:
        writer = frame().writeStream.format("delta").option("checkpointLocation", str(scratch / f"{way}-checkpoint-{turn}"))
        writer = writer.trigger(availableNow=True)
        return arguments.rows / seconds(lambda: writer.start(str(scratch / f"{way}-{turn}")).awaitTermination())

    print(f"{arguments.rows} rows in {arguments.partitions} partitions; rows a second")
    took = alternately({OURS: ours, **deltas(spark, delta)}, arguments.rounds)
    taken = Channel.open(str(scratch / "channel-1")).read(columns=["time"]).num_rows
    aside = status(str(scratch / "channel-1")).aside
    assert (taken, aside) == (arguments.rows, 0), f"{taken} rows in the channel, {aside} set aside"
    return Measure.beside("kafka into a channel", took, unit="rows/s", at_least=GOAL)


def quiet(spark: Any, scratch: Path, broker: Broker, span: float) -> Measure:
    """Count the batches and commits of a query that receives nothing."""
    broker.create("quiet", 3)
    broker.send("quiet", [(p, "first") for p in range(3)])
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "quiet")
        .option("startingOffsets", "earliest")
        .load()
        .select(F.col("timestamp").alias("time"), F.col("partition").cast("string").alias("partition"))
    )
    path = str(scratch / "quiet")
    query = ingest(rows, path, time="time", partition="partition", policy=bounded("1 second"))
    query = query.option("checkpointLocation", str(scratch / "quiet-checkpoint")).start()
    query.processAllAvailable()
    batches, version = query.lastProgress["batchId"], Channel.open(path).version
    time.sleep(span)
    query.processAllAvailable()
    more = Channel.open(path).version - version
    newest = max(int(p.name) for p in (scratch / "quiet-checkpoint" / "offsets").glob("[0-9]*"))
    query.stop()
    made = newest - batches + more
    print(f"{span:.0f} s of silence: {newest - batches} batches, {more} commits")
    return Measure.alone("batches and commits in silence", made, "", at_most=0)


def driver(scratch: Path, partitions: int, moving: int, batches: int = 20) -> Measure:
    """Measure the processor time of the driver's part of a batch in which ``moving`` of the partitions bring rows.

    The last batch comes after a year without rows.
    """
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("partition", pa.string())])
    path = str(scratch / f"driver-{moving}")
    taking = Ingest(Settings.of(path, schema, time="time", partition="partition", policy=bounded("1 minute")))
    owner = WriterSession.here("driver")
    names = [f"device-{i:05d}" for i in range(partitions)]

    def batch(at: int, time_us: int, names: list[str]) -> float:
        began = time.process_time()
        start = taking.start()
        spent = time.process_time() - began
        rows, least, greatest = (np.full(len(names), value) for value in (3, time_us, time_us + 1000))
        report = TaskReport(start.version, columns=ObservationColumns(names, rows, least, greatest))
        began = time.process_time()
        taking.commit(("driver", at), [report], owner, Moment(at))
        return 1000 * (spent + time.process_time() - began)

    minute = 60_000_000
    batch(0, START_MS * 1000, names)  # all join
    each = [batch(at, START_MS * 1000 + at * minute, names[:moving]) for at in range(1, batches)]
    year = batch(batches, START_MS * 1000 + 365 * 1440 * minute, names[:moving])
    print(f"{moving} of {partitions} partitions bring rows: {year:.1f} ms after a silent year")
    name = f"driver, {moving} of {partitions} partitions"
    return Measure.alone(name, statistics.median(each), "ms", DRIVER_GOAL_MS, more={"after a silent year": round(year, 1)})


def dead_ones(scratch: Path, dead: int, *, pairs: bool, forgotten: bool = False, batches: int = 30) -> Measure:
    """Measure the driver's part of a batch of a channel with very many dead partitions, beside one with none, alternately.

    With ``pairs``, times have a correction, so that partitions are judged one by one. ``forgotten`` removes the dead ones first.
    """
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("partition", pa.string())])
    owner, live = WriterSession.here("dead"), [f"live-{i}" for i in range(10)]

    def batch(taking: Ingest, at: int, names: list[str]) -> float:
        began = time.process_time()
        start, time_us = taking.start(), START_MS * 1000 + at * 60_000_000
        seen = [Observation(name, 3, time_us, time_us + 1000) for name in names]
        taking.commit(("dead", at), [TaskReport(start.version, seen=seen)], owner, Moment(at))
        return 1000 * (time.process_time() - began)

    ingests: dict[str, Ingest] = {}
    for which, more in ((OURS, dead), ("none dead", 0)):
        path = str(scratch / f"dead-{more}-{pairs}-{forgotten}")
        policy = idle(bounded("1 minute"), "1 hour")
        ingests[which] = Ingest(Settings.of(path, schema, time="time", partition="partition", policy=policy, corrections=pairs))
        gone = [f"dead-{i:05d}" for i in range(more)]
        batch(ingests[which], 0, [*live, *gone])
        if gone:
            drop_partitions(path, gone)
        if gone and forgotten:
            forget_partitions(path)
        batch(ingests[which], 1, live)
    results: dict[str, list[float]] = {which: [] for which in ingests}
    for at in range(2, batches):
        for which, taking in ingests.items():
            results[which].append(batch(taking, at, live))
    name = f"driver, {dead} {'forgotten' if forgotten else 'dead'} partitions{' of pairs' if pairs else ''}"
    return Measure.beside(name, results, "ms", at_most=1.1 if forgotten else 4)


def main() -> None:
    """Measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=500_000)
    parser.add_argument("--quiet-seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder, "kafka")) as broker:
        scratch = Path(folder)
        spark = spark_session(scratch, jars=spark_jars())
        measures = [throughput(spark, scratch, broker, arguments), quiet(spark, scratch, broker, arguments.quiet_seconds)]
        spark.stop()
        measures += [driver(scratch, 10_000, moving) for moving in (100, 10_000)]
        cases = [{"pairs": False}, {"pairs": False, "forgotten": True}, {"pairs": True}]
        measures += [dead_ones(scratch, 32_000, **case) for case in cases]
    summary("ingest", measures)


if __name__ == "__main__":
    main()
