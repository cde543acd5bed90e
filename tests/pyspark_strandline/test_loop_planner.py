"""The planner of a loop through several queries, without Spark: what others commit while a batch is planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.several.loop_logs import LoopLogs
from pyspark_strandline.read.several.source import SeveralReader
from strandline.channel import Channel
from strandline.channel.write.file_writer import FileWriter
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, int64, product

DOMAIN = product(epoch="int64", iter="int64")
QUERIES = {
    "ask": {"reads": ["numbers", "back"], "writes": {"there": {}}},
    "answer": {"reads": ["there"], "writes": {"back": {"iter": 1}}},
}


class Loop:
    """The channels of a loop through two queries, and what each commits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        Channel.create(folder / "numbers", pa.schema([time_field("time", int64), ("n", pa.int64())]), producers=["p"], at=0)
        for name, query in (("there", "ask"), ("back", "answer")):
            Channel.create(folder / name, pa.schema([time_field("time", DOMAIN), ("n", pa.int64())]), producers=[query])
        self.batches = 0

    def options(self, query: str) -> ReadOptions:
        channels = {name: str(self.folder / name) for name in ("numbers", "there", "back")}
        given = {"channels": json.dumps(channels), "queries": json.dumps(QUERIES), "query": query, "domain": str(DOMAIN)}
        return ReadOptions.parse(given).for_stream()

    def reader(self, query: str) -> SeveralReader:
        return SeveralReader(self.options(query), Inputs(self.options(query)).schema())

    def commit(self, query: str, channel: str, state: dict[str, Any], *times: Time) -> None:
        """Commit rows of a query with its state, as its sink does."""
        opened = Channel.open(self.folder / channel)
        files, counts = [], []
        if times:
            with FileWriter(opened.path, opened.schema, "time", DOMAIN) as writer:
                rows = [array_of(list(times), DOMAIN), pa.array([0] * len(times), pa.int64())]
                writer.write(pa.RecordBatch.from_arrays(rows, names=["time", "n"]))
                files, counts = writer.finish()
        self.batches += 1
        opened.append(
            files,
            statements={query: opened.frontier},
            times=counts,
            states={query: {"loop": {"query": query, "definition": Inputs(self.options(query)).definition, **state}}},
            transaction=(query, self.batches),
            take_over=True,
        )


def test_a_commit_between_the_look_at_rows_and_at_states_closes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other query commits a row, and that it has nothing more to write, while this one plans a batch."""
    loop = Loop(tmp_path)
    with Channel.open(tmp_path / "numbers").producer("p") as producer:
        producer.send(pa.table({"time": [0], "n": [5]}))
        producer.delay(1)
    ask = loop.reader("ask")
    first = ask.latestOffset(ask.initialOffset(), ReadAllAvailable())
    assert first["frontier"] == [[0, 1], [1, 0]]
    loop.commit("ask", "there", {**first["loop"], "held": {"there": []}}, (0, 0))
    answered = {"outside": [], "consumed": {"there": 99}, "held": {"back": []}}
    look = LoopLogs.arrivals

    def late(self: LoopLogs, consumed: dict[str, int]) -> Any:
        if loop.batches == 1:
            loop.commit("answer", "back", answered, (0, 1))
        return look(self, consumed)

    monkeypatch.setattr(LoopLogs, "arrivals", late)
    second = ask.latestOffset(first, ReadAllAvailable())
    assert loop.batches == 2
    assert second["channels"]["back"] == first["channels"]["back"]  # the row is not taken
    assert not Antichain.from_json(DOMAIN, second["frontier"]).closed((0, 1))
