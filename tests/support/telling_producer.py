"""A producer in a process of its own, which writes down what it was told is committed: arguments channel, file."""

from __future__ import annotations

import sys

from helpers import rows
from strandline.channel import Channel
from strandline.time.domain import int64


def main(path: str, told: str) -> None:
    """Commit a row after another, in files of their own, until killed; now and then a checkpoint."""
    channel = Channel.open(path)
    with channel.producer("a") as producer, open(told, "a", encoding="utf-8") as file:
        n = 0
        while True:
            producer.send(rows(int64, (n, n)))
            producer.delay([n + 1])
            producer.commit()
            n += 1
            print(n, file=file, flush=True)
            if n % 40 == 0:
                channel.checkpoint()


if __name__ == "__main__":
    main(*sys.argv[1:])
