"""What the tests of the native scan share: running a query either way, seeing which way it went, comparing rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from helpers import stream
from strandline.channel import Channel, DataFile, Span

WAYS = ("on", "off")


def batches(frame: Any, checkpoint: Path) -> tuple[list[Any], list[dict[str, Any]], str]:
    """Run a stateless query to its end: its rows, its progress, and the last batch's plan."""
    got: list[Any] = []

    def collect(batch: Any, _: int) -> None:
        got.extend(batch.toArrow().to_pylist())  # Spark's own rows lose years that Python's clock cannot show

    writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return got, [p for p in query.recentProgress if "addBatch" in p["durationMs"]], plan_of(query)


def plan_of(query: Any) -> str:
    """The physical plan of a query's last batch, as ``explain`` shows it."""
    return str(query._jsq.explainInternal(False))


def is_native(plan: str) -> bool:
    """Whether the plan reads with Spark's own Parquet scan; exactly one of the two scans is in it."""
    native, by_python = "StrandlineFileIndex" in plan, "MicroBatchScan" in plan
    assert native != by_python, plan
    return native


def canonical(value: Any) -> Any:
    """A value whose text tells apart what Spark does, and no more: NaN is one value, the zeros are two."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dict):
        return {k: canonical(v) for k, v in value.items()}
    return [canonical(v) for v in value] if isinstance(value, list | tuple) else value


def multiset(rows_: list[Any]) -> list[str]:
    return sorted(repr(canonical(row)) for row in rows_)


def both_ways(spark: Any, path: Path, scratch: Path, query: Any = lambda frame: frame, **options: str) -> list[Any]:
    """The rows of a query read natively, after it is shown that Python reads the same."""
    read = {}
    for way in WAYS:
        frame = query(stream(spark, path, nativeScan=way, **options))
        read[way], _, plan = batches(frame, scratch / f"checkpoint-{way}")
        assert is_native(plan) == (way == "on")
    assert multiset(read["on"]) == multiset(read["off"])
    return read["on"]


def add_file(channel: Channel, name: str, table: pa.Table, **how: Any) -> None:
    """Commit a file that is not of Strandline's own writer."""
    path = Path(channel.path) / name
    pq.write_table(table, path, **how)
    file = DataFile(name, path.stat().st_size, table.num_rows, f'{{"numRecords":{table.num_rows}}}')
    times = table.column("time").to_pylist()
    channel.append([file], statements={"a": list(channel.frontier)}, spans=[Span(min(times), max(times), len(times))])
