"""What tests of loops share: channels of numbers, and running a query to its rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from loop_plans import FLAT
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import int64

__all__ = ["all_rows", "channel_of", "finish", "make_lake"]


def finish(writer: Any, checkpoint: Path) -> Any:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def channel_of(path: Path, *fields: tuple[str, pa.DataType]) -> Channel:
    return Channel.create(path, pa.schema([time_field("time", int64), *fields]), producers=["p"], at=0)


def all_rows(loop: Any) -> Any:
    return loop["numbers"].union(loop["back"])


def make_lake(folder: Path, first: int = 5) -> Path:
    """A channel of numbers with one row at 0, the number ``first``, and the channel of a loop."""
    numbers = channel_of(folder / "numbers", ("n", pa.int64()))
    with numbers.producer("p") as producer:
        producer.send(pa.table({"time": [0], "n": [first]}))
        producer.delay(1)
    Channel.create(folder / "back", pa.schema([time_field("time", FLAT), ("n", pa.int64())]), producers=["loop"])
    return folder
