"""Makes the bucket and the topic, and sends readings of three devices. One of them is silent half of the time."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

TOPIC = "readings"
DEVICES = ("a", "b", "c")


def readings(second: int, now: datetime) -> Iterator[dict[str, Any]]:
    """Return what the devices send in one second: ``c`` sends nothing in every other pair of minutes."""
    for device in DEVICES:
        if device != "c" or second // 120 % 2 == 0:
            yield {"time": now.isoformat(), "device": device, "n": second % 10}


def make_bucket(endpoint: str, bucket: str) -> None:
    """Make the bucket, unless it is there."""
    from pyarrow.fs import S3FileSystem

    scheme, _, host = endpoint.partition("://")
    store = S3FileSystem(endpoint_override=host, scheme=scheme, region="us-east-1", allow_bucket_creation=True)
    store.create_dir(bucket)


def make_topic(servers: str) -> None:
    """Make the topic with a partition for each device, unless it is there."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})  # it must live until the answer is there
    made = admin.create_topics([NewTopic(TOPIC, num_partitions=len(DEVICES))])
    try:
        made[TOPIC].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def send(servers: str, seconds: int | None = None) -> None:
    """Send readings, a second's after the other, for ever or for some seconds at once."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    started = datetime.now(timezone.utc)
    for second in range(seconds if seconds is not None else sys.maxsize):
        now = (
            datetime.now(timezone.utc)
            if seconds is None
            else datetime.fromtimestamp(started.timestamp() - 3600 + second, timezone.utc)
        )
        for reading in readings(second, now):
            producer.produce(TOPIC, json.dumps(reading), key=reading["device"])
        producer.flush()
        if seconds is None:
            time.sleep(1)


def main() -> None:
    """Make what is missing, and send."""
    servers = os.environ.get("KAFKA", "localhost:9092")
    make_bucket(os.environ["S3_ENDPOINT"], os.environ.get("BUCKET", "lake"))
    make_topic(servers)
    Path(os.environ.get("STARTED", "/tmp/started")).touch()  # noqa: S108 - the file is the container's
    seconds = os.environ.get("HOW_LONG")
    send(servers, None if seconds is None else int(seconds))


if __name__ == "__main__":
    main()
