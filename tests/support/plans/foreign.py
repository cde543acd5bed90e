"""A source of another kind beside channels: JSON files, with a watermark of their own or with our tag in their schema.

It states no frontier, so in a query that reads one no time is ever closed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import functions as F

from plans.environment import CHECKPOINT_FORMAT, NO_DATA, PROVIDER, ROCKS, Environment
from plans.history import Row
from plans.refusal import UNCLOSED
from plans.stream import Operator, Stream
from plans.times import EPOCH, INT64, SECOND, START, TIMESTAMP, Domain

FOLDER = "strandline.tests.folder"
"""The session's setting that says where a plan may put files of its own."""


@dataclass(frozen=True)
class Foreign(Operator):
    """The rows, and those of JSON files: by a union, or by a join on equal times and keys."""

    how: str
    domains = (TIMESTAMP, INT64)
    stateful = False
    HOW = ("union with our tag", "union with a watermark", "join with our tag", "join with a watermark", "aggregated beside")

    @classmethod
    def draw(cls, r: Random, domain: Domain) -> Foreign:
        return cls(r.choice(cls.HOW if domain is TIMESTAMP else cls.HOW[::2][:2]))

    @property
    def joins(self) -> bool:
        """Whether it has a state: nothing of another output mode may follow."""
        return not self.how.startswith("union")

    def rows(self, domain: Domain) -> tuple[Row, ...]:
        """What is in the files: times at which channels have rows too, and some of long ago."""
        unit, start = (SECOND, START) if domain is TIMESTAMP else (1, 0)
        return tuple((start + k * unit, "ab"[k % 2], k) for k in range(8))

    def frame(self, *inputs: Any) -> Any:
        rows = inputs[0]
        kind = rows.schema["time"].dataType.typeName()
        folder = Path(rows.sparkSession.conf.get(FOLDER)) / "foreign"
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "rows.json").write_text(
                "".join(
                    json.dumps({"time": _text(time) if kind == "timestamp" else time, "key": key, "n": n}) + "\n"
                    for time, key, n in self.rows(TIMESTAMP if kind == "timestamp" else INT64)
                )
            )
        schema = rows.schema if "our tag" in self.how else f"time {kind}, key string, n bigint"
        files = rows.sparkSession.readStream.schema(schema).json(str(folder))
        if "our tag" not in self.how:
            files = files.withWatermark("time", "1 second")
        if self.how.startswith("union"):
            return rows.union(files)
        if self.how == "aggregated beside":
            sums = files.groupBy(F.window("time", "1 second")).agg(F.sum("n").alias("n"))
            return rows.unionByName(sums.select(F.col("window.start").alias("time"), F.lit("*").alias("key"), "n"))
        both = rows.alias("l").join(files.alias("r"), F.expr("l.time = r.time AND l.key = r.key"))
        return both.select("l.time", "l.key", (F.col("l.n") + F.col("r.n")).alias("n"))

    def stream(self, *inputs: Stream) -> Stream:
        files = self.rows(inputs[0].domain)  # all in the first batch
        if self.how.startswith("union"):
            return inputs[0].with_rows((*inputs[0].rows, *((row, 0) for row in files if inputs[0].batches)))
        if self.how == "aggregated beside":
            return inputs[0]  # nothing is closed
        return inputs[0].with_rows(
            ((time, key, n + m), batch) for (time, key, n), batch in inputs[0].rows for t, k, m in files if (t, k) == (time, key)
        )

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        return UNCLOSED | {"STRANDLINE_UNION_MISMATCH"}


class PlainQuery:
    """A query of nothing but Spark: windows of a watermark, which a strandline query in the same session does not touch."""

    TIMES = range(8)

    def __init__(self, session: Any, folder: Path) -> None:
        files = folder / "plain"
        files.mkdir(parents=True)
        (files / "rows.json").write_text("".join(json.dumps({"t": _text(START + k * SECOND)}) + "\n" for k in self.TIMES))
        rows = session.readStream.schema("t timestamp").json(str(files)).withWatermark("t", "1 second")
        counts = rows.groupBy(F.window("t", "1 second")).count().select("window.start", "count")
        self.seen: list[tuple[Any, int]] = []
        self.ends_windows = session.conf.get(NO_DATA) == "true"
        if session.conf.get(CHECKPOINT_FORMAT, "1") == "2":
            # A query that goes on keeps its store, whatever the session says; this one begins, and needs one with checkpoint ids.
            session.conf.set(PROVIDER, ROCKS)
        writer = counts.writeStream.option("checkpointLocation", str(folder / "plain-checkpoint")).trigger(availableNow=True)
        self.query = writer.foreachBatch(lambda batch, _: self.seen.extend(map(tuple, batch.collect()))).start()

    def check(self) -> None:
        """A window comes in a batch after the watermark has passed it, which without new rows is one of no rows."""
        self.query.awaitTermination()
        last = self.TIMES[-1] - 1
        meant = [(START + k * SECOND, 1) for k in self.TIMES if k < last] if self.ends_windows else []
        assert sorted((TIMESTAMP.plain(start), n) for start, n in self.seen) == meant, f"the plain query gave {self.seen}"


def _text(time: int) -> str:
    return (EPOCH + timedelta(microseconds=time)).isoformat()
