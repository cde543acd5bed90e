"""``record``: rows from outside get times of a clock that never ties, in the commit that takes them in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pyspark_strandline import record
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.replay import CLOCK, Timestamper, nodes
from strandline.report import verify
from strandline.time.arrow import times_of

pytestmark = pytest.mark.spark


def files(spark: Any, folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    return spark.readStream.schema("word string").option("maxFilesPerTrigger", 2).json(str(folder))


def put(folder: Path, name: str, *words: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("".join(f'{{"word": "{word}"}}\n' for word in words))
    (folder / f".{name}").rename(folder / f"{name}.json")


def run(spark: Any, folder: Path, **options: Any) -> None:
    writer = record(files(spark, folder / "files"), folder / "words", node="words", **options)
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def recorded_rows(folder: Path) -> list[tuple[Any, str]]:
    table = Channel.open(folder / "words").read()
    return sorted(zip(times_of(table.column("time"), CLOCK), table.column("word").to_pylist(), strict=True))


@pytest.mark.drawn
def test_rows_are_recorded_in_their_order_by_the_receiving_clock(spark: Any, tmp_path: Path) -> None:
    before = time.time_ns() // 1000
    for n in range(3):
        put(tmp_path / "files", f"f{n}", *(f"{n}{letter}" for letter in "abc"))
    run(spark, tmp_path)
    put(tmp_path / "files", "g", "last")
    run(spark, tmp_path)
    found = recorded_rows(tmp_path)
    times = [at for at, _ in found]
    assert len(set(times)) == len(times) == 10
    assert found[-1][1] == "last"
    assert len({n for _, _, n in times}) == 10
    assert [n for _, _, n in times] == sorted(n for _, _, n in times)
    assert all(before < instant < time.time_ns() // 1000 and node == 0 for instant, node, _ in times)
    for n in range(3):  # the order within a task is kept
        own = [word for _, word in found if word.startswith(str(n))]
        assert own == [f"{n}{letter}" for letter in "abc"]
    channel = Channel.open(tmp_path / "words")
    (frontier,) = channel.frontier
    assert frontier > times[-1]
    assert verify(channel.path).sound
    assert channel.sealed
    assert nodes(channel) == {"words": 0}


@pytest.mark.drawn
def test_a_repeated_batch_keeps_the_times_that_it_had(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "files", "f", "a", "b")
    run(spark, tmp_path)
    put(tmp_path / "files", "g", "c")
    run(spark, tmp_path)
    found, version = recorded_rows(tmp_path), Channel.open(tmp_path / "words").version
    (newest,) = sorted((tmp_path / "checkpoint" / "commits").glob("1*"))
    newest.unlink()  # the driver died between the commit of the batch and Spark's own record of it
    run(spark, tmp_path)
    assert recorded_rows(tmp_path) == found
    assert Channel.open(tmp_path / "words").version == version


@pytest.mark.drawn
def test_a_clock_that_was_set_back_gives_no_earlier_time(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "files", "f", "a")
    ahead = time.time_ns() // 1000 + 3600 * 1_000_000
    run(spark, tmp_path)
    with Timestamper(Channel.open(tmp_path / "words"), "words", clock=lambda: ahead, take_over=True):
        pass
    put(tmp_path / "files", "g", "b")
    run(spark, tmp_path)
    (_, first), (second, word) = recorded_rows(tmp_path)
    assert (first, word) == ("a", "b")
    assert second[0] >= ahead


def test_what_cannot_be_recorded_is_refused_before_anything_is_written(spark: Any, tmp_path: Path) -> None:
    stream = files(spark, tmp_path / "files")
    for given, options, condition in (
        (spark.range(3), {}, "STRANDLINE_NOT_A_STREAM"),
        (stream, {"time": "word"}, "STRANDLINE_COLUMN_RESERVED"),
        (stream, {"nodes": ["others"]}, "STRANDLINE_OPTION_INVALID"),
        (stream.selectExpr("array(word) as w", "interval 1 month as i"), {}, "STRANDLINE_COLUMN_TYPE"),
    ):
        with pytest.raises(StrandlineError) as error:
            record(given, tmp_path / "words", node="words", **options)
        assert error.value.condition.startswith(condition)
    assert not Channel.exists(tmp_path / "words")


def test_nodes_have_the_order_in_which_they_are_named(spark: Any, tmp_path: Path) -> None:
    stream = files(spark, tmp_path / "files")
    for node in ("news", "orders"):
        record(stream, tmp_path / "words", node=node, nodes=["orders", "news"])
    assert nodes(Channel.open(tmp_path / "words")) == {"orders": 0, "news": 1}
    with pytest.raises(StrandlineError, match="STRANDLINE_CHANNEL_SEALED"):
        record(stream, tmp_path / "words", node="more")
