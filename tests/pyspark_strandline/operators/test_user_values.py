"""What the code of users returns to Spark: each door checks it, and says who, where and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from pyspark_strandline import Processor, VertexProgram, on_complete, pregel, process
from strandline import int64
from strandline.channel import Channel
from strandline.time.arrow import time_field

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([time_field("day", int64), ("k", pa.string()), ("n", pa.int64())])


def numbers(path: Path, days: list[int]) -> str:
    """A channel with a row for each day, each in a file of its own."""
    with Channel.create(path, SCHEMA, time="day", producers=["p"], at=0).producer("p") as producer:
        for number, day in enumerate(days):
            producer.send(pa.table({"day": [day], "k": ["a"], "n": [2**53 + 1 + number]}, schema=SCHEMA))
            if number < len(days) - 1:
                producer.commit()
        producer.delay(max(days) + 1)
    return str(path)


def stream(spark: Any, path: str, files: int = 1) -> DataFrame:
    frame: DataFrame = spark.readStream.format("strandline").option("maxFilesPerTrigger", files).load(path)
    return frame


def rows_of(frame: DataFrame, folder: Path, name: str) -> list[tuple[Any, ...]]:
    writer = frame.writeStream.format("memory").queryName(name).outputMode("append").trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / name)).start().awaitTermination()
    return [tuple(row) for row in frame.sparkSession.table(name).collect()]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ([{"day": 0, "n": 1.5}], r"row 0, n is 1.5 \(float\), not a value of bigint"),
        ([{"day": 0, "n": 1}, {"day": 0, "m": 1}], r"row 1 has the fields \['m'\].* lacks the fields \['n'\]"),
        ([{"day": 0.5, "n": 1}], r"row 0, day is 0.5 \(float\), not a time of int64"),
        (pa.table({"day": [0], "n": ["1"]}), r"n has the type string, not bigint"),
        (pd.DataFrame({"day": [0], "n": [1.5]}), r"row 0, n is 1.5"),
    ],
)
def test_a_function_is_told_what_it_returned(spark: Any, tmp_path: Path, result: Any, why: str) -> None:
    def returns(time: Any, key: Any, rows: Any) -> Any:
        return result

    frame = spark.read.format("strandline").load(numbers(tmp_path / "in", [0]))
    called = r"The result of the function returns, called at the time 0 for the key \('a',\),"
    with pytest.raises(Exception, match=rf"STRANDLINE_RESULT_INVALID\] {called} does not fit the schema: {why}|{called}.*{why}"):
        on_complete(frame, returns, "day bigint, n bigint", key="k").collect()


def test_an_exception_of_user_code_keeps_its_class_and_says_when(spark: Any, tmp_path: Path) -> None:
    def fails(time: Any, rows: Any) -> Any:
        yield [{"n": 1}]
        raise LookupError("nothing there")

    frame = spark.read.format("strandline").load(numbers(tmp_path / "in", [0]))
    with pytest.raises(Exception, match=r"(?s)LookupError: nothing there.*In the function fails, called at the time 0,"):
        on_complete(frame, fails, "n bigint").collect()


def test_integers_come_back_from_pandas_as_they_were(spark: Any, tmp_path: Path) -> None:
    frame = spark.read.format("strandline").load(numbers(tmp_path / "in", [0])).selectExpr("day", "explode(array(n, null)) n")
    again = on_complete(frame, lambda time, rows: rows, "n bigint", rows="pandas")
    assert sorted((row.n for row in again.collect()), key=str) == [2**53 + 1, None]


def misbehaving(how: str) -> Processor:
    """A processor of a class that is pickled whole: workers cannot import this module."""

    class Odd(Processor):
        schema = "n bigint"
        state_schema = "n bigint, more array<struct<x int>>"

        def on_rows(self, time: Any, rows: Any) -> None:
            if how == "state":
                self.state = {"n": 1, "more": [{"x": 1}, {"x": 2**31}]}
            elif how == "emit":
                self.emit(time, [{"n": None}, {"n": "x"}])
            elif how == "notify":
                self.notify_at(time + 0.5)
            else:
                raise LookupError("nothing there")

    return Odd()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("state", r"RESULT_INVALID\] The state after Odd.on_rows {call},.*more\[1\].x is 2147483648, which is outside int "),
        ("emit", r"RESULT_INVALID\] What is emitted in Odd.on_rows {call},.*row 1, n is 'x' \(str\)"),
        ("notify", r"TIME_INVALID\] In Odd.on_rows {call}, the time given to notify_at is 0.5 \(float\)"),
        ("fail", r"(?s)LookupError: nothing there.*In Odd.on_rows {call},"),
    ],
)
def test_a_processor_is_told_what_it_gave(spark: Any, tmp_path: Path, how: str, why: str) -> None:
    frame = process(stream(spark, numbers(tmp_path / "in", [0])), misbehaving(how), key="k")
    with pytest.raises(Exception, match=why.replace("{call}", r"at the time 0 for the key \('a',\)")):
        rows_of(frame, tmp_path, f"odd_{how}")


def remembering() -> Processor:
    class Remembering(Processor):
        """Emits what its state looks like before each call, and keeps what is not quite of its types."""

        schema = "seen string"
        state_schema = "f float, list array<bigint>, map map<string, bigint>, zero double, at timestamp"

        def __init__(self) -> None:
            self.mine = {"f": 0.1, "list": (1, 2), "map": {"a": np.int8(1)}, "zero": 0.0, "at": None}

        def on_rows(self, time: Any, rows: Any) -> None:
            self.emit(time, [{"seen": repr(self.state)}])
            self.mine["zero"] = -0.0 if time == 1 else self.mine["zero"]
            self.mine["at"] = pd.Timestamp(time, unit="D", tz="Asia/Kolkata")
            self.state = self.mine
            self.notify_at(time)

        def on_notify(self, time: Any) -> None:
            assert self.state is not None
            self.emit(time, [{"seen": repr(self.state["map"]["a"])}])

    return Remembering()


@pytest.mark.drawn
def test_a_state_is_the_same_wherever_a_batch_ends(spark: Any, tmp_path: Path) -> None:
    path = numbers(tmp_path / "in", [0, 1, 2])
    seen = {
        files: rows_of(
            process(stream(spark, path, files), remembering(), key="k").select("day", "seen"), tmp_path, f"files_{files}"
        )
        for files in (1, 9)
    }
    assert sorted(seen[1]) == sorted(seen[9])
    texts = dict(sorted(row for row in seen[1] if len(row[1]) > 4))
    assert "'f': 0.10000000149" in texts[1]
    assert "'zero': 0.0" in texts[1]
    assert "'zero': -0.0" in texts[2]
    assert len(seen[1]) == 6


def vertices(how: str) -> VertexProgram:
    class Odd(VertexProgram):
        state_schema = "n bigint"
        message_schema = "n bigint"
        schema = "n bigint"

        def compute(self, inputs: Any, messages: Any) -> None:
            if how == "message":
                self.send("b", m=1)
            elif how == "vertex":
                self.send(3, n=1)
            self.state = {"n": True} if how == "state" else {"n": 1}

        def result(self) -> Any:
            return {"n": 1.5}

    return Odd()


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("message", r"The message that Odd sends {at} is not of message_schema: has the fields \['m'\]"),
        ("vertex", r"The vertex to which Odd sends a message {at} .*is 3 \(int\), not a value of string"),
        ("state", r"The state that Odd leaves {at} is not of state_schema: n is True \(bool\)"),
        ("result", r"The result that Odd returns at vertex 'a', time 0, after the last superstep, is not of schema: n is 1.5"),
    ],
)
def test_a_vertex_program_is_told_what_it_gave(spark: Any, tmp_path: Path, how: str, why: str) -> None:
    path = numbers(tmp_path / "in", [0])
    writer = pregel(spark, {"in": path}, vertices(how), lambda streams: streams["in"], tmp_path / "out", vertex="k")
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
    at = "at vertex 'a', time 0, superstep 0,"
    with pytest.raises(Exception, match=rf"STRANDLINE_RESULT_INVALID\] {why.replace('{at}', at)}"):
        query.awaitTermination()
