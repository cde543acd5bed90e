"""Random queries over what users bring: odd keys, functions, a table that changes. They crash between commits.

A plan is drawn from a seed. The expected rows are computed here in plain Python, from the rows of the input and, for each batch,
the version that the table had when the batch was planned first. Files without a version are read as they are in each run.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import sys
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import functions as F

from pyspark_strandline import Processor, hold, iterate, on_complete, process, write_outputs
from strandline.channel import Channel, Log
from strandline.time.arrow import time_field
from strandline.time.domain import int64

__all__ = ["CRASHES", "LoopStory", "Plan", "Story"]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not find what the tests import

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), [0.0, -0.0, math.nan, 1.5, -math.inf, None]),
    "string": (pa.string(), ["", " ", "a", "A", "é", "null", None]),
    "decimal": (pa.decimal128(20, 4), [Decimal("0.0000"), Decimal("1.5000"), Decimal("9007199254740993.0001"), None]),
    "long": (pa.int64(), [0, -1, 2**63 - 1, 2**53 + 1, None]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\x00", None]),
}
OPERATORS = ("rows", "sums", "held", "complete", "processor", "distinct")
TABLES = ("delta", "channel", "parquet")
FUNCTIONS = ("none", "python", "pandas", "arrow")
CRASHES = ("none", "before Spark's", "before all", "between")


@dataclass(frozen=True)
class Plan:
    """A query, and what happens to it. ``times`` is how many times the input has, one commit for each of its files."""

    seed: int
    key: str
    operator: str
    table: str
    function: str
    outputs: int
    partitions: int
    native: bool
    crashes: tuple[str, ...]

    @classmethod
    def draw(cls, seed: int) -> Plan:
        """Draw a plan. Each operator, table and kind of crash is as likely as any other."""
        r = random.Random(seed)
        return cls(
            seed=seed,
            key=r.choice(sorted(KEYS)),
            operator=OPERATORS[seed % len(OPERATORS)],
            table=r.choice(TABLES[:2] * 2 + TABLES[2:]),
            function=r.choice(FUNCTIONS),
            outputs=r.choice((1, 2)),
            partitions=r.choice((1, 2, 3)),
            native=r.random() < 0.7,
            crashes=tuple(r.choice(CRASHES) for _ in range(3)),
        )


class Totals(Processor):
    """Tells at each time what a key has had up to it."""

    schema = "total bigint, rows bigint"
    state_schema = "total bigint, rows bigint"

    def on_rows(self, time: Any, rows: pa.Table) -> None:
        had = self.state or {"total": 0, "rows": 0}
        values = rows.column("v").to_pylist()
        self.state = {"total": had["total"] + sum(values), "rows": had["rows"] + len(values)}
        self.emit(time, [self.state])


def complete(time: Any, key: Any, rows: pa.Table) -> list[dict[str, Any]]:
    """Return the sum of a time and key, with the number of its rows."""
    values = rows.column("v").to_pylist()
    return [{"time": time, "k": key[0], "total": sum(values), "rows": len(values)}]


def _double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        at = batch.schema.get_field_index("v")
        values = pa.array([2 * value for value in batch.column(at).to_pylist()], pa.int64())
        yield batch.set_column(at, batch.schema.field(at), values)


class _Life(ABC):
    """A query's life in a folder: it runs, and crashes."""

    def __init__(self, spark: Any, folder: Path, seed: int, paths: Mapping[str, Path]) -> None:
        self.spark, self.folder = spark, folder
        self.checkpoint = folder / "checkpoint"
        self.paths = paths
        self._random = random.Random(f"{seed} story")
        self.table = "delta"
        self.pinned: dict[int, int] = {}
        """The version of the table that each batch must be made with."""

    @abstractmethod
    def newest(self) -> int:
        """Return the table's version."""

    @abstractmethod
    def run(self) -> None:
        """Run the query until all that there is has been read."""

    def try_to_run(self) -> str | None:
        """Run the query. Return the condition with which it was refused; a refused run writes nothing."""
        before, done = self.versions(), _numbers(self.checkpoint / "commits")
        try:
            self.run()
        except Exception as error:
            found = re.search(r"\[(STRANDLINE_\w+)\]", str(error))
            if found is None:
                raise
            if found[1] == "STRANDLINE_REPLAY_DIFFERS":
                assert self.versions() == before
            return found[1]
        for batch in _numbers(self.checkpoint / "offsets"):
            if batch not in done and (self.table == "parquet" or batch not in self.pinned):
                self.pinned[batch] = self.newest()
        return None

    def crash(self, kind: str) -> None:
        """Leave behind what a crash of the newest batch leaves: Spark's commit is missing, and those of some outputs, or all."""
        if kind == "none":
            return
        batch = max(_numbers(self.checkpoint / "commits"))
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)
        names = sorted(self.paths)
        lost = names if kind == "before all" else names[1:] if kind == "between" else []
        for name in lost:
            self._forget(self.paths[name], batch)
        if lost:
            shutil.rmtree(self.checkpoint / "strandline" / "commits", ignore_errors=True)
            (self.checkpoint / "strandline" / "commits").unlink(missing_ok=True)

    def _forget(self, path: Path, batch: int) -> None:
        """Remove a batch's commit from an output's log, if it has one. It is the newest."""
        newest = max((path / "_delta_log").glob("*.json"))
        commit = Log(path).require(int(newest.stem))
        if batch not in commit.transactions.values():
            return
        if int(newest.stem) == 0 or (batch == 0 and int(newest.stem) == 1):
            shutil.rmtree(path)
            return
        newest.unlink()

    def versions(self) -> dict[str, int]:
        """Return each output's newest version; -1 if there is none."""
        return {name: Channel.open(path).version if Channel.exists(path) else -1 for name, path in self.paths.items()}


def _numbers(folder: Path) -> list[int]:
    """Return the batches in a folder of a checkpoint."""
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.exists() else []


class Story(_Life):
    """A query over a channel and a table. The input grows, and the table changes."""

    def __init__(self, spark: Any, folder: Path, plan: Plan) -> None:
        super().__init__(spark, folder, plan.seed, {name: folder / name for name in ("out", "raw")[: plan.outputs]})
        self.plan, self.table = plan, plan.table
        kind, _ = KEYS[plan.key]
        self._schema = pa.schema([time_field("time", int64), ("k", kind), ("n", pa.int64())])
        self._input = Channel.create(folder / "in", self._schema, producers=["p"], at=0)
        self._sent: dict[int, list[tuple[int, Any, int]]] = {}
        """The rows of each commit of the input, by its version."""
        self._time = self._number = 0
        self._versions: dict[int, list[tuple[int, int]]] = {}
        """The rows of the table in each of its versions."""

    # ---------------------------------------------------------------------------------------------- what surrounds the query

    def send(self) -> None:
        """Add a commit with rows at the open times. The last time that was open may be closed."""
        r, (_, keys) = self._random, KEYS[self.plan.key]
        rows = []
        for _ in range(r.randrange(1, 5)):
            rows.append((self._time + r.randrange(3), r.choice(keys), self._number))
            self._number += 1
        self._time += r.randrange(2)
        with self._input.producer("p") as producer:
            producer.send(pa.Table.from_pylist([dict(zip(self._schema.names, row, strict=True)) for row in rows], self._schema))
            producer.delay(self._time)
            version = producer.commit()
        assert version is not None
        self._sent[version] = rows

    def end(self) -> None:
        """Close all times of the input."""
        with self._input.producer("p") as producer:
            producer.drop()
            producer.commit()

    def change_table(self) -> None:
        """Add rows to the table: each value matches more than before."""
        last = max(self._versions, default=None)
        new = [(i, self._random.randrange(100)) for i in range(3) if last is None or self._random.random() < 0.7]
        had = [] if last is None else self._versions[last]
        path = str(self.folder / "table")
        if self.plan.table == "channel":
            schema = pa.schema([time_field("day", int64), ("id", pa.int64()), ("v", pa.int64())])
            channel = Channel.open(path) if Channel.exists(path) else Channel.create(path, schema, producers=["p"], at=0)
            with channel.producer("p") as producer:
                producer.send(pa.table({"day": [0] * len(new), "id": [i for i, _ in new], "v": [v for _, v in new]}))
                version = producer.commit()
            version = channel.version if version is None else version
        else:
            frame = self.spark.createDataFrame(new, "id long, v long").coalesce(1)
            frame.write.format(self.plan.table).mode("append").save(path)
            version = 0 if last is None else last + 1
        self._versions[version] = had + new

    # ------------------------------------------------------------------------------------------------------------- the query

    def frame(self) -> Any:
        """Return the query's result: rows joined with the table, through a function, through an operator."""
        plan, spark = self.plan, self.spark
        reader = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1)
        rows = reader.option("nativeScan", "auto" if plan.native else "off").load(str(self.folder / "in"))
        format_ = "strandline" if plan.table == "channel" else plan.table
        table = spark.read.format(format_).load(str(self.folder / "table")).select("id", F.col("v").alias("w"))
        if plan.table == "parquet":
            table = spark.read.schema("id long, v long").parquet(str(self.folder / "table")).select("id", F.col("v").alias("w"))
        joined = rows.join(table, rows.n % 3 == table.id).select("time", "k", "n", F.col("w").alias("v"))
        if plan.function == "python":
            joined = joined.withColumn("v", F.udf(lambda v: 2 * v, "long", useArrow=False)("v"))
        elif plan.function == "pandas":
            joined = joined.withColumn("v", F.pandas_udf(lambda v: 2 * v, "long")("v"))
        elif plan.function == "arrow":
            joined = joined.mapInArrow(_double, joined.schema)
        return joined

    def result(self, joined: Any) -> Any:
        """Return the operator's rows."""
        operator = self.plan.operator
        if operator == "sums":
            return joined.groupBy("time", "k").agg(F.sum("v").alias("total"), F.count("*").alias("rows"))
        if operator == "held":
            return hold(joined, by="k")
        if operator == "complete":
            kind = joined.schema["k"].dataType.simpleString()
            return on_complete(joined, complete, f"time long, k {kind}, total long, rows long", key="k")
        if operator == "processor":
            return process(hold(joined, by="k"), Totals(), key="k").select("time", "k", "total", "rows")
        if operator == "distinct":
            return joined.select("time", "k", "v").dropDuplicates(["time", "k", "v"])
        return joined

    def run(self) -> None:
        """Run the query until all that there is has been read."""
        joined = self.frame()
        if self.plan.outputs == 1:
            writer = self.result(joined).writeStream.format("strandline").option("path", str(self.paths["out"]))
        else:
            raw = joined.select("time", "k", "n", "v")
            writer = write_outputs({"out": (self.result(joined), self.paths["out"]), "raw": (raw, self.paths["raw"])})
        self.spark.conf.set("spark.sql.shuffle.partitions", str(self.plan.partitions))
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    def raw(self, joined: list[tuple[int, Any, int, int]]) -> Counter[tuple[Any, ...]]:
        """Return the rows of the output ``raw``."""
        return Counter((time, canonical(key), n, v) for time, key, n, v in joined)

    # -------------------------------------------------------------------------------------------------------- what must come

    def batch_of(self, version: int) -> int:
        """Return the batch that read a commit of the input, by Spark's log of offsets."""
        for batch in _numbers(self.checkpoint / "offsets"):
            offset = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
            if "snapshot" in offset:
                continue
            if offset["commit"] > version or (offset["commit"] == version and offset["file"] > 0):
                return batch
        raise AssertionError(f"no batch has read version {version}")

    def newest(self) -> int:
        return max(self._versions)

    def joined(self) -> list[tuple[int, Any, int, int]]:
        """Return the joined rows."""
        twice = 1 if self.plan.function == "none" else 2
        return [
            (time, key, n, twice * v)
            for version, rows in self._sent.items()
            for time, key, n in rows
            for id_, v in self._versions[self.pinned[self.batch_of(version)]]
            if n % 3 == id_
        ]

    def expected(self, joined: list[tuple[int, Any, int, int]]) -> Counter[tuple[Any, ...]]:
        """Return the rows of the output ``out``, when all times are closed."""
        operator, groups = self.plan.operator, defaultdict(list)
        if operator in ("rows", "held"):
            return Counter((time, canonical(key), n, v) for time, key, n, v in joined)
        if operator == "distinct":
            return Counter({(time, canonical(key), v) for time, key, _, v in joined})
        for time, key, _, v in joined:
            groups[time, canonical(key)].append(v)
        if operator == "processor":
            result: Counter[tuple[Any, ...]] = Counter()
            had: dict[Any, list[int]] = defaultdict(list)
            for (time, key), values in sorted(groups.items(), key=lambda each: each[0][0]):
                had[key] += values
                result[time, key, sum(had[key]), len(had[key])] += 1
            return result
        return Counter((time, key, sum(values), len(values)) for (time, key), values in groups.items())

    def found(self, name: str = "out") -> Counter[tuple[Any, ...]]:
        """Return the rows of an output."""
        rows = Channel.open(self.paths[name]).read().to_pylist()
        return Counter((row.pop("time"), canonical(row.pop("k")), *row.values()) for row in rows)


class LoopStory(_Life):
    """Who can be reached, over edges in a table that gets more of them. Each outer time has a first vertex."""

    def __init__(self, spark: Any, folder: Path, seed: int) -> None:
        super().__init__(spark, folder, seed, {name: folder / "loop" / name for name in ("result", "rounds")})
        r = random.Random(seed)
        self.table = r.choice(TABLES)
        self.crashes = tuple(r.choice(CRASHES) for _ in range(3))
        self._edges: dict[int, set[tuple[int, int]]] = {}
        """The edges in each version of the table."""
        schema = pa.schema([time_field("time", int64), ("v", pa.int64())])
        self._seeds = Channel.create(folder / "seeds", schema, producers=["p"], at=0)
        self._sent: list[tuple[int, int]] = []
        self._time = 0

    def send(self) -> None:
        """Add an outer time with its first vertex, and close it."""
        with self._seeds.producer("p") as producer:
            row = self._time, self._random.randrange(8)
            producer.send(pa.table({"time": [row[0]], "v": [row[1]]}))
            self._time += 1
            producer.delay(self._time)
            producer.commit()
        self._sent.append(row)

    def end(self) -> None:
        """Close all outer times."""
        with self._seeds.producer("p") as producer:
            producer.drop()
            producer.commit()

    def change_table(self) -> None:
        """Add edges."""
        last = max(self._edges, default=None)
        new = [(self._random.randrange(8), self._random.randrange(8)) for _ in range(6 if last is None else 3)]
        path = str(self.folder / "edges")
        if self.table == "channel":
            schema = pa.schema([time_field("day", int64), ("a", pa.int64()), ("b", pa.int64())])
            channel = Channel.open(path) if Channel.exists(path) else Channel.create(path, schema, producers=["p"], at=0)
            with channel.producer("p") as producer:
                producer.send(pa.table({"day": [0] * len(new), "a": [a for a, _ in new], "b": [b for _, b in new]}))
                version = producer.commit()
            assert version is not None
        else:
            self.spark.createDataFrame(new, "a long, b long").coalesce(1).write.format(self.table).mode("append").save(path)
            version = 0 if last is None else last + 1
        self._edges[version] = set(new) | (set() if last is None else self._edges[last])

    def run(self) -> None:
        if self.table == "parquet":
            edges = self.spark.read.schema("a long, b long").parquet(str(self.folder / "edges"))
        else:
            edges = self.spark.read.format("strandline" if self.table == "channel" else "delta").load(str(self.folder / "edges"))
        edges = edges.select("a", "b")

        def follow(rows: Any) -> Any:
            return rows.join(F.broadcast(edges), rows.v == edges.a).select("time", F.col("b").alias("v"))

        writer = iterate(self.spark, self.folder / "seeds", follow, self.folder / "loop")
        writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start().awaitTermination()

    def newest(self) -> int:
        return max(self._edges)

    def check(self) -> None:
        """Each row is in the result if and only if it went round, and it follows from rows by edges of its batch's version."""
        result = Counter((row["time"], row["v"]) for row in Channel.open(self.paths["result"]).read().to_pylist())
        rounds: Counter[tuple[int, int]] = Counter()
        read_in: dict[tuple[int, int], int] = {}  # seeds go round, too
        log = Log(self.paths["rounds"])
        for version in range(1, Channel.open(self.paths["rounds"]).version + 1):
            for file in log.require(version).files:
                for row in pq.read_table(self.paths["rounds"] / file.path, partitioning=None).to_pylist():
                    at = row["time"]["outer"], row["v"]
                    rounds[at] += 1
                    read_in.setdefault(at, self._batch_of("rounds", version))
        assert result == rounds
        assert set(result.values()) <= {1}
        found, todo = set(self._sent), list(self._sent)
        while todo:
            time, v = todo.pop()
            for a, b in self._edges[self.pinned[read_in[time, v]]]:
                if a == v and (time, b) not in found:
                    found.add((time, b))
                    todo.append((time, b))
        assert set(result) == found

    def _batch_of(self, name: str, version: int) -> int:
        for batch in _numbers(self.checkpoint / "offsets"):
            offset = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])["channels"][name]
            if offset["commit"] > version:
                return batch
        raise AssertionError(f"no batch has read version {version} of {name}")


def canonical(key: Any) -> Any:
    """Return a key as Spark groups by it: one zero, one NaN."""
    if isinstance(key, float):
        return "NaN" if math.isnan(key) else key + 0.0
    return key
