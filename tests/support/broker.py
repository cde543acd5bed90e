"""A real Apache Kafka broker for tests: KRaft mode, a process of its own, killed and started again on the same data and port."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from helpers import kafka_jars
from ports import free_ports

__all__ = ["Broker", "spark_jars"]

_START_SECONDS = 60.0
_SILENT = logging.getLogger("kafka-client")  # a killed broker is news to its clients, not to the reader of a test's output
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_CLUSTER = "c3RyYW5kbGluZS10ZXN0cw"  # 16 bytes in base64, as Kafka wants a cluster's id

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
# Rows of last year are not too old.
log.retention.ms=-1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=1
num.io.threads=2
# After kill -9 the broker that was must not hold up the one that is.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""


def jars(folder: str) -> list[Path]:
    """The jars that ``tools/fetch_kafka.py`` fetched; raises when it was not run."""
    found = kafka_jars(folder)
    if not found:
        raise RuntimeError(f"no jars of Kafka's {folder}; run .venv/bin/python tools/fetch_kafka.py .build/kafka")
    return found


def spark_jars() -> str:
    """The jars of Spark's Kafka source, as ``spark.jars`` takes them."""
    return ",".join(map(str, jars("spark")))


class Broker:
    """One broker with its data in ``folder``; it goes on with what is there, on the port that it had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._producer: Producer | None = None
        self._admin: AdminClient | None = None
        ports = folder / "ports"
        if not ports.exists():
            ports.write_text(" ".join(map(str, free_ports(2))))
        port, controller = ports.read_text().split()
        self.bootstrap = f"127.0.0.1:{port}"
        self._properties.write_text(_PROPERTIES.format(port=port, controller=controller, data=folder / "data"))

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, wait: bool = True) -> Broker:
        """Start the process, and wait until it answers."""
        if not (self.folder / "data" / "meta.properties").exists():
            storage = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._properties)]
            subprocess.run(self._java(*storage), check=True, stdout=subprocess.DEVNULL, cwd=self.folder)
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._properties)), stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        """Until the broker answers a client."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            self.check_alive()
            try:
                self.admin().list_topics(timeout=2)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def kill(self) -> None:
        """``kill -9``."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def check_alive(self) -> None:
        """Raise when the process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"the broker ended with {self._process.returncode}:\n{(self.folder / 'log').read_text()[-4000:]}")

    def admin(self) -> AdminClient:
        """A client for topics."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 5000}, logger=_SILENT)
        return self._admin

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic."""
        self._done(self.admin().create_topics([NewTopic(topic, partitions, 1, config=settings)]))
        self._until(topic, partitions)

    def repartition(self, topic: str, partitions: int) -> None:
        """Give a live topic more partitions."""
        self._done(self.admin().create_partitions([NewPartitions(topic, partitions)]))
        self._producer = None  # it would know the old ones for minutes
        self._until(topic, partitions)

    def remove(self, topic: str) -> None:
        """Delete a topic; returns when clients see that it is gone."""
        self._done(self.admin().delete_topics([topic]))
        self._producer = None  # it would know the old one for minutes
        deadline = time.monotonic() + _START_SECONDS
        while topic in self.admin().list_topics(timeout=5).topics:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} is still there")

    def send(self, topic: str, messages: Iterable[tuple[int, bytes | str]]) -> None:
        """Write (partition, value) messages, in order within a partition, each once; returns when all are there."""
        if self._producer is None:
            settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 1}
            self._producer = Producer(settings, logger=_SILENT)
        for partition, value in messages:
            while True:
                try:
                    self._producer.produce(topic, value, partition=partition)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        if self._producer.flush(_START_SECONDS):
            raise TimeoutError(f"messages for {topic} were not taken in {_START_SECONDS:.0f} s")

    def ends(self, topic: str) -> dict[int, int]:
        """How many messages each partition has."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"}, logger=_SILENT)
        try:
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            return {p: self._end(consumer, TopicPartition(topic, p)) for p in sorted(partitions)}
        finally:
            consumer.close()

    @staticmethod
    def _end(consumer: Consumer, partition: TopicPartition) -> int:
        """A partition's end; the broker learns a moment after its clients that it leads a new one."""
        deadline = time.monotonic() + _START_SECONDS
        while (end := _end_if_led(consumer, partition)) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{partition.topic}-{partition.partition} has no leader")
            time.sleep(0.01)
        return end

    def _until(self, topic: str, partitions: int) -> None:
        """Until the metadata that clients are given have all the partitions, each with a leader."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            found = self.admin().list_topics(topic, timeout=5).topics[topic].partitions
            if len(found) == partitions and all(p.leader >= 0 for p in found.values()):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has {len(found)} of {partitions} partitions")

    @staticmethod
    def _done(futures: dict[str, object]) -> None:
        for future in futures.values():
            future.result()  # type: ignore[attr-defined]

    @staticmethod
    def _java(*command: str) -> list[str]:
        java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if os.environ.get("JAVA_HOME") else "java"
        small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        return [java, *small, "-cp", os.pathsep.join(map(str, jars("broker"))), *command]


def _end_if_led(consumer: Consumer, partition: TopicPartition) -> int | None:
    try:
        return int(consumer.get_watermark_offsets(partition, timeout=10)[1])
    except KafkaException as error:
        if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
            raise
        return None
