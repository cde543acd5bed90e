"""Recordings, replays and comparisons, beside the plain sink, the plain source, and Spark's ``exceptAll``.

    python benchmarks/replay.py [--rows 10000000] [--files 32] [--rounds 5] [--part record] [--part replay] [--part compare]

The part ``record`` copies a channel's rows by ``record``, and by the plain sink into another channel, alternately. The recording
may take 1.1 times as long. It has a column more, of 24 bytes a row: the rows' own times are data of it. The rows have 24 bytes
themselves; a fifth as many have a text of 100 letters, too.

The part ``replay`` reads a channel with ``replay`` = ``max`` and without, into a sink that does nothing, alternately. The replay
is to reach 0.95 of the plain source's rows per second.

The part ``compare`` compares two channels with the same rows: by Arrow in this process, by Spark, and by one ``exceptAll`` of the
same tables in Spark, alternately. ``exceptAll`` says only what the first table has more; a comparison says it of both. The better
of ours, by Arrow, may take 1.5 times as long. It also compares them with a channel that differs in one row, and checks that its
time is found. The memory of a comparison by Arrow is the peak of a process of its own, for all rows and for a tenth of them in a
tenth of the files. It is flat if the former is at most 1.25 of the latter.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from _alternating import OURS, Measure, alternately, seconds, spark_session, summary
from pyspark_strandline import record
from pyspark_strandline.replay import compare as compare_by_spark
from strandline.channel import Channel
from strandline.replay import compare
from throughput import build

BY_SPARK, EXCEPT = "ours by Spark", "Spark's exceptAll"
PEAK = """
import resource, sys
from strandline.replay import compare
assert compare(sys.argv[1], sys.argv[2]).equal
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def planted(source: Path, path: Path) -> Any:
    """Copy a channel, with another value in one row in its middle. Return that row's time."""
    original = Channel.open(source)
    copy = Channel.create(path, original.schema, producers=["load"])
    files = list(original.snapshot_files(original.version))
    time = None
    for i, file in enumerate(files):
        rows = original.read_files([file])
        if i == len(files) // 2:
            at, values = rows.num_rows // 2, rows["value"].to_pylist()
            values[at] += 1.0
            rows = rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(values))
            time = rows["time"][at].value
        with copy.file_writer() as writer:
            writer.write(rows)
            written, times = writer.finish()
        copy.append(written, statements={"load": [] if i + 1 == len(files) else [original.domain.minimum]}, times=times)
    return time


def with_text(source: Path, path: Path) -> int:
    """Copy a fifth of a channel's files, with a text of 100 letters in each row. Return the number of rows."""
    original, draw = Channel.open(source), np.random.default_rng(5)
    copy = Channel.create(path, original.schema.append(pa.field("text", pa.string())), producers=["load"])
    files = list(original.snapshot_files(original.version))
    files = files[: max(1, len(files) // 5)]
    for i, file in enumerate(files):
        rows = original.read_files([file])
        letters = draw.integers(97, 123, 100 * rows.num_rows, dtype=np.uint8)
        offsets = np.arange(0, len(letters) + 1, 100, dtype=np.int32)
        text = pa.StringArray.from_buffers(rows.num_rows, pa.py_buffer(offsets), pa.py_buffer(letters))
        with copy.file_writer() as writer:
            writer.write(rows.append_column("text", text))
            written, times = writer.finish()
        copy.append(written, statements={"load": [] if i + 1 == len(files) else [original.domain.minimum]}, times=times)
    return sum(file.rows for file in files)


def recordings(spark: Any, scratch: Path, source: str, what: str, count: int, rounds: int) -> list[Measure]:
    """Measure a recording of a channel's rows beside the plain sink."""

    def run(name: str, turn: int) -> float:
        out, checkpoint = scratch / f"{source}-{name}-{turn}", scratch / f"{source}-{name}-checkpoint-{turn}"
        rows = spark.readStream.format("strandline").load(str(scratch / source))
        if name == "record":
            columns = [F.col(each).alias("event" if each == "time" else each) for each in rows.columns]
            writer = record(rows.select(*columns), out, node="in")
        else:
            writer = rows.writeStream.format("strandline").option("path", str(out))
        writer = writer.option("checkpointLocation", str(checkpoint))
        took = seconds(lambda: writer.trigger(availableNow=True).start().awaitTermination())
        assert sum(file.rows for file in Channel.open(out).snapshot_files(Channel.open(out).version)) == count
        shutil.rmtree(out)
        return took

    found = alternately({OURS: lambda turn: run("record", turn), "the plain sink": lambda turn: run("plain", turn)}, 2 * rounds)
    return [Measure.beside(f"recording, {what}", found, "s", at_most=1.1)]


def replays(spark: Any, scratch: Path, rows: int, rounds: int) -> list[Measure]:
    """Measure a replay beside the plain source."""

    def rate(name: str, **options: str) -> Callable[[int], float]:
        def run(turn: int) -> float:
            frame = spark.readStream.format("strandline").options(**options).load(str(scratch / "a"))
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(scratch / f"{name}-{turn}"))
            return rows / seconds(lambda: writer.trigger(availableNow=True).start().awaitTermination())

        return run

    # A run takes less than a second, so many are needed.
    found = alternately({OURS: rate("replay", replay="max"), "the plain source": rate("plain")}, 4 * rounds)
    return [Measure.beside("replay at max", found, "rows/s", at_least=0.95)]


def comparisons(spark: Any, scratch: Path, rows: int, files: int, rounds: int) -> list[Measure]:
    """Measure comparisons beside ``exceptAll``, find a planted row, and measure the memory."""
    a, b = str(scratch / "a"), str(scratch / "b")

    def by_arrow(_: int) -> float:
        return seconds(lambda: compare(a, b))

    def by_spark(_: int) -> float:
        return seconds(lambda: compare_by_spark(spark, a, b))

    def except_all(_: int) -> float:
        tables = [spark.read.format("delta").load(path) for path in (a, b)]
        return seconds(lambda: tables[0].exceptAll(tables[1]).count())

    took = alternately({OURS: by_arrow, BY_SPARK: by_spark, EXCEPT: except_all}, rounds)
    measures = [
        Measure.beside("comparison by Arrow", {OURS: took[OURS], EXCEPT: took[EXCEPT]}, "s", at_most=1.5),
        Measure.beside("comparison by Spark", {OURS: took[BY_SPARK], EXCEPT: took[EXCEPT]}, "s", at_most=1.5),
    ]
    time = planted(scratch / "a", scratch / "planted")
    for name, one in (("Arrow", compare), ("Spark", lambda *paths: compare_by_spark(spark, *paths))):
        found: list[Any] = []
        spent = seconds(lambda one=one, found=found: found.append(one(a, str(scratch / "planted"))))
        assert [at for at, _, _ in found[0].parted] == [time], found[0].parted
        measures.append(Measure.alone(f"a planted row is found by {name}", spent, "s"))
    few = scratch / "few-a", scratch / "few-b"
    for path in few:
        build(path, rows // 10, max(1, files // 10))
    whole, tenth = peak(a, b), peak(*map(str, few))
    measures.append(Measure.alone(f"memory, {rows} rows to a tenth", whole / tenth, "", at_most=1.25, more={"MiB": round(whole)}))
    print(f"peak memory: {whole:.0f} MiB for {rows} rows, {tenth:.0f} MiB for a tenth")
    return measures


def peak(a: str, b: str) -> float:
    """Return the greatest memory of a process that compares two channels, in MiB."""
    done = subprocess.run([sys.executable, "-c", PEAK, a, b], capture_output=True, text=True, check=True)
    return float(done.stdout)


PARTS = ("record", "replay", "compare")


def main() -> None:
    """Build, run the parts, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one (may be repeated)")
    arguments = parser.parse_args()
    parts = arguments.part or PARTS
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for name in ("a", "b"):
            build(scratch / name, arguments.rows, arguments.files)
        spark = spark_session(scratch)
        measures: list[Measure] = []
        if "record" in parts:
            measures += recordings(spark, scratch, "a", "rows of 24 bytes", arguments.rows, arguments.rounds)
            count = with_text(scratch / "a", scratch / "wide")
            measures += recordings(spark, scratch, "wide", "rows of 124 bytes", count, arguments.rounds)
        if "replay" in parts:
            measures += replays(spark, scratch, arguments.rows, arguments.rounds)
        if "compare" in parts:
            measures += comparisons(spark, scratch, arguments.rows, arguments.files, arguments.rounds)
        spark.stop()
    summary("replay", measures)


if __name__ == "__main__":
    main()
