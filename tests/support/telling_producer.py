"""A producer in a process of its own, which writes down what it was told is committed: arguments channel, file, name."""

from __future__ import annotations

import sys

import pyarrow as pa

from strandline.channel import Channel


def main(path: str, told: str, name: str = "a") -> None:
    """Commit a row after another, in files of their own, until killed, beginning where an earlier process was; now and then a
    checkpoint."""
    channel = Channel.open(path)
    with channel.producer(name) as producer, open(told, "a", encoding="utf-8") as file:
        (n,) = producer.holds
        while True:
            producer.send(pa.table({"time": [n], "key": [name], "n": [n]}))
            producer.delay([n + 1])
            producer.commit()
            n += 1
            print(n, file=file, flush=True)
            if n % 40 == 0:
                channel.checkpoint()


if __name__ == "__main__":
    main(*sys.argv[1:])
