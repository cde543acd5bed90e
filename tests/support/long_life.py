"""One driver that lives long: a query of very many small batches, and what driver and workers hold meanwhile.

    python tests/support/long_life.py channel FOLDER --batches 2000

The first argument is the kind of life: ``channel`` (strandline to strandline, with a stateful aggregation), ``ingest`` (files to
a channel), ``delta`` (the control: the same aggregation from Delta to Delta, with Spark's watermark and without strandline's
extension), ``restarts`` (each "batch" is a query that is started and stopped), or ``sessions`` (each "batch" is a session that is
started, runs five queries and is stopped: one of them fails while its sources start, and one still runs at the end). Each
sample is one line of JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from strandline.channel import Channel

__all__ = ["KINDS", "live"]

KINDS = ("channel", "ingest", "delta", "restarts", "sessions")
_LIFE = "STRANDLINE_LIFE"
_ROWS = 40
_KEYS = 20
_AHEAD = 3
"""The feeder is that many commits ahead of the query, so that each batch finds one."""
_OPEN = 2
"""A time stays open for that many batches after its rows, so that there is state to write, to read and to remove."""
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


# ------------------------------------------------------------------------------------------------------------ what is held


class Probe:
    """Reads what the driver's JVM, its Python, and all Python processes of Spark hold, from outside where that is possible."""

    def __init__(self, spark: Any, folder: Path, histograms: bool) -> None:
        self._folder, self._histograms = folder, histograms
        self.jvm = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))

    def sample(self, batch: int) -> dict[str, float]:
        """Return the figures now, after a full collection in the JVM and in this process."""
        pid = str(self.jvm.pid)
        classes = _jcmd(pid, "GC.class_histogram")  # collects first
        heap = _jcmd(pid, "GC.heap_info")
        counters = dict(re.findall(r"^(\S+)=(\d+)", _jcmd(pid, "PerfCounter.print"), re.MULTILINE))
        if self._histograms:
            (self._folder / f"histogram-{batch:05d}").write_text(classes)
            (self._folder / f"files-{batch:05d}").write_text("\n".join(sorted(_open_files(self.jvm.pid))))
        gc.collect()
        figures: dict[str, float] = {
            "live": sum(int(total) for total in re.findall(r"^Total\s+\d+\s+(\d+)", classes, re.MULTILINE)) / 1e6,
            "metaspace": sum(int(used) for used in re.findall(r"Metaspace\s+used (\d+)K", heap)) / 1024,
            "classes": int(counters["java.cls.loadedClasses"]) - int(counters["java.cls.unloadedClasses"]),
            "objects": len(gc.get_objects()),
            "py4j": _py4j_objects(),
        }
        for role, processes in self._processes().items():
            for name, value in _held(processes).items():
                figures[f"{role}.{name}"] = value
        figures["cpu"] = sum(value for name, value in figures.items() if name.endswith(".cpu"))
        busy = psutil.cpu_times()
        figures["others"] = (sum(busy) - busy.idle - getattr(busy, "iowait", 0)) * 1000 - figures["cpu"]
        return figures

    def _processes(self) -> dict[str, list[psutil.Process]]:
        found: dict[str, list[psutil.Process]] = {"jvm": [self.jvm], "python": [psutil.Process()]}
        for process in self.jvm.children(recursive=True):
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            module = words[words.index("-m") + 1] if "-m" in words else words[0] if words else "gone"
            found.setdefault(module.rsplit(".", 1)[-1].removeprefix("python_streaming_"), []).append(process)
        return found


def _jcmd(*words: str) -> str:
    return subprocess.run(["jcmd", *words], capture_output=True, text=True, check=True, timeout=120).stdout


def _py4j_objects() -> int:
    from py4j.finalizer import ThreadSafeFinalizer

    return len(ThreadSafeFinalizer.finalizers)


def _held(processes: list[psutil.Process]) -> dict[str, float]:
    result: Counter[str] = Counter()
    for process in processes:
        root = Path("/proc") / str(process.pid)
        try:
            status = dict(re.findall(r"^(\w+):\s+(\d+)", (root / "status").read_text(), re.MULTILINE))
            files = _open_files(process.pid)
            calls = dict(re.findall(r"^(\w+): (\d+)", (root / "io").read_text(), re.MULTILINE))
            ticks = sum(map(int, (root / "stat").read_text().rpartition(")")[2].split()[11:13]))  # user and system
        except OSError:  # it has ended meanwhile
            continue
        result["count"] += 1
        result["rss"] += int(status.get("VmRSS", 0)) // 1024
        result["threads"] += int(status["Threads"])
        result["files"] += len(files)
        result["sockets"] += sum(file.startswith("socket:") for file in files)
        result["reads"] += int(calls["syscr"])
        result["read_bytes"] += int(calls["rchar"])
        result["cpu"] += ticks * 1000 // os.sysconf("SC_CLK_TCK")
    return dict(result)


def _open_files(pid: int) -> list[str]:
    found = []
    for each in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(f"/proc/{pid}/fd/{each}"))
    return found


# ---------------------------------------------------------------------------------------------------------------- the feeder


class Feeder:
    """A process that commits to a channel, or lands files, as many as it was asked for."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._asked = 0
        command = [sys.executable, __file__, "feed", str(folder), "--kind", kind]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def up_to(self, count: int) -> None:
        if count > self._asked and self._process.stdin is not None:
            self._asked = count
            self._process.stdin.write(f"{count}\n")
            self._process.stdin.flush()

    def end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)


def _feed(kind: str, folder: Path) -> None:
    count = 0
    producer = None if kind == "ingest" else Channel.open(folder / "in").producer("p")
    for line in sys.stdin:
        while count < int(line):
            if producer is None:
                _land(folder, count)
            else:
                producer.send(_rows(count))
                producer.delay([max(count - _OPEN, 0)])
                producer.commit()
            count += 1


def _rows(time: int) -> pa.Table:
    keys = [f"k{i % _KEYS}" for i in range(_ROWS)]
    return pa.table({"time": pa.array([time] * _ROWS, pa.int64()), "key": keys, "n": pa.array(range(_ROWS), pa.int64())})


def _land(folder: Path, count: int) -> None:
    hidden = folder / "in" / f".{count}.parquet"
    pq.write_table(_rows(count), hidden)
    hidden.rename(folder / "in" / f"{count:06d}.parquet")


# --------------------------------------------------------------------------------------------------------------- the queries


def _session(kind: str, folder: Path, settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    from helpers import QUICK
    from pyspark_strandline import configure
    from pyspark_strandline.session import local_delta_jars

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("long life")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.memory", "1g")
        .config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config(map=QUICK if "SPARK_DIST_CLASSPATH" in os.environ else {})
        .config(map=settings)
    )
    if kind == "delta":
        builder = (
            builder.config("spark.jars", ",".join(local_delta_jars()))
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        )
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
    else:
        session = configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _prepare(kind: str, folder: Path) -> None:
    from strandline.time.arrow import time_field
    from strandline.time.domain import int64

    if kind == "ingest":
        (folder / "in").mkdir(parents=True)
        return
    schema = pa.schema([time_field("time", int64), ("key", pa.string()), ("n", pa.int64())])
    Channel.create(folder / "in", schema, producers=["p"], at=0)


def _start(kind: str, spark: Any, folder: Path, name: str = "") -> Any:
    from pyspark.sql import functions as F

    from pyspark_strandline import ingest

    results = [F.count("*").alias("rows"), F.sum("n").alias("n")]
    checkpoint, out, into = folder / f"checkpoint{name}", str(folder / f"out{name}"), str(folder / "in")
    if kind == "ingest":
        files = spark.readStream.schema("time bigint, key string, n bigint").option("maxFilesPerTrigger", 1).parquet(into)
        writer = ingest(files, out, time="time", partition="key", policy="bounded(3)")
        return writer.option("checkpointLocation", str(checkpoint)).start()
    if kind == "delta":
        rows = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(into)
        rows = rows.withColumn("time", F.timestamp_seconds("time")).withWatermark("time", "0 seconds")
        writer = rows.groupBy("time", "key").agg(*results).writeStream.format("delta")
    else:
        rows = spark.readStream.format("strandline").option("maxFilesPerTrigger", 1).load(into)
        writer = rows.groupBy("time", "key").agg(*results).writeStream.format("strandline")
    return writer.option("checkpointLocation", str(checkpoint)).start(out)


def _newest(checkpoint: Path) -> int:
    try:
        return max((int(name) for name in os.listdir(checkpoint / "commits") if name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


# ------------------------------------------------------------------------------------------------------------------ the life


def live(kind: str, folder: Path, batches: int, every: int, settings: dict[str, str], histograms: bool) -> None:
    """Run one life, and print a sample each ``every`` batches."""
    if kind == "sessions":
        _sessions(folder, batches, every, settings, histograms)
        return
    spark = _session(kind, folder, settings)
    _prepare(kind, folder)
    probe, feeder = Probe(spark, folder, histograms), Feeder(kind, folder)
    (_restarts if kind == "restarts" else _one_query)(kind, spark, folder, batches, every, probe, feeder)
    feeder.end()
    spark.stop()


def _one_query(kind: str, spark: Any, folder: Path, batches: int, every: int, probe: Probe, feeder: Feeder) -> None:
    feeder.up_to(_AHEAD)
    time.sleep(1)
    query, due, told = _start(kind, spark, folder), every, -1
    while due <= batches:
        done = _newest(folder / "checkpoint") + 1
        feeder.up_to(done + _AHEAD)
        if done < due:
            if not query.isActive:
                raise RuntimeError(f"the query has ended: {query.exception()}")
            time.sleep(0.02)
            continue
        reports = [p for p in query.recentProgress if told < p["batchId"] and "addBatch" in p["durationMs"]]
        told = max((p["batchId"] for p in reports), default=told)
        parts: dict[str, list[int]] = {}
        for report in reports:
            for name, duration in report["durationMs"].items():
                parts.setdefault(name, []).append(duration)
        durations = parts.pop("triggerExecution")
        medians = {name: sorted(each)[len(each) // 2] for name, each in parts.items()}
        state = reports[-1]["stateOperators"][0]["memoryUsedBytes"] if reports[-1]["stateOperators"] else 0
        _say(done, probe.sample(done) | {"state": state}, durations=durations, parts=medians, folder=folder)
        due = (done // every + 1) * every
    query.stop()
    time.sleep(2)
    _say(done, probe.sample(done), stopped=True)


def _restarts(kind: str, spark: Any, folder: Path, batches: int, every: int, probe: Probe, feeder: Feeder) -> None:
    """Start and stop queries. Each takes what is there, which is a batch or two."""
    feeder.up_to(2)
    time.sleep(1)
    took = []
    for count in range(1, batches + 1):
        began = time.monotonic()
        query = _start("channel", spark, folder, str(count))
        query.processAllAvailable()
        query.stop()
        took.append(round(1000 * (time.monotonic() - began)))
        if count % every == 0:
            time.sleep(3)  # Spark ends processes and unloads stores in the background
            _say(count, probe.sample(count), durations=took)
            took = []


def _sessions(folder: Path, sessions: int, every: int, settings: dict[str, str], histograms: bool) -> None:
    """Start and stop sessions in one JVM, each with five queries. Samples are taken while no session is there."""
    _prepare("channel", folder)
    feeder = Feeder("channel", folder)
    feeder.up_to(2)
    time.sleep(1)
    temporary = folder / "tmp"
    temporary.mkdir()
    os.environ |= {"TMPDIR": str(temporary), _LIFE: str(folder)}
    probe, took = None, []
    for count in range(1, sessions + 1):
        began = time.monotonic()
        spark = _session("sessions", folder, {"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary}", **settings})
        probe = probe or Probe(spark, folder, histograms)
        rows = spark.readStream.format("strandline").load(str(folder / "in"))  # no state: Spark leaves open RocksDB's files then
        running = rows.writeStream.format("noop").option("checkpointLocation", str(folder / f"checkpoint{count}-0")).start()
        for number in range(1, 4):
            query = _start("channel", spark, folder, f"{count}-{number}")
            query.processAllAvailable()
            query.stop()
        _fail(spark, folder, f"{count}-4")
        running.processAllAvailable()
        spark.stop()
        took.append(round(1000 * (time.monotonic() - began)))
        if count % every == 0:
            time.sleep(3)  # processes end in the background
            left = {where: sum(len(files) for _, _, files in os.walk(folder / where)) for where in ("tmp", "local")}
            left["processes"] = len(_of_life(folder) - {os.getpid(), probe.jvm.pid})
            _say(count, probe.sample(count) | left, durations=took)
            took = []
    feeder.end()


def _fail(spark: Any, folder: Path, name: str) -> None:
    """Run a query whose second source fails when it starts."""
    shutil.copytree(folder / "in", folder / "gone")
    both = (spark.readStream.format("strandline").load(str(folder / which)) for which in ("in", "gone"))
    rows = reduce(DataFrame.union, both)
    shutil.rmtree(folder / "gone")
    try:
        rows.writeStream.format("noop").option("checkpointLocation", str(folder / f"checkpoint{name}")).start().awaitTermination()
    except StreamingQueryException:
        return
    raise RuntimeError("a query has started without one of its channels")


def _of_life(folder: Path) -> set[int]:
    """Return the processes of this life, whoever their parents are now: their environment names its folder."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_LIFE) == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found


def _say(batch: int, figures: dict[str, float], folder: Path | None = None, **more: Any) -> None:
    if folder is not None:
        for part in ("offsets", "commits", "state", "sources", "metadata"):
            figures[f"checkpoint.{part}"] = sum(len(files) for _, _, files in os.walk(folder / "checkpoint" / part))
        figures["log"] = len(os.listdir(folder / "out" / "_delta_log"))
    print("SAMPLE " + json.dumps({"batch": batch, "at": round(time.time(), 1), "figures": figures, **more}), flush=True)


def main() -> None:
    """Live, or feed a life."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*KINDS, "feed"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--kind", default="channel")
    parser.add_argument("--histograms", action="store_true", help="write the JVM's classes with each sample")
    parser.add_argument("--set", action="append", default=[], help="a setting of the session, as key=value")
    arguments = parser.parse_args()
    if arguments.what == "feed":
        _feed(arguments.kind, arguments.folder)
        return
    settings = dict(each.split("=", 1) for each in arguments.set)
    live(arguments.what, arguments.folder, arguments.batches, arguments.every, settings, arguments.histograms)


if __name__ == "__main__":
    main()
