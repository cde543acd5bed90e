"""Several channels as one source: one cut, one offset, fair limits, each row once and nothing early, and what is refused."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from helpers import contents, make_channel, run, say
from pyspark_strandline import read_channels
from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read.admission_limits import AdmissionLimits
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.source import StreamReader
from strandline import Antichain, int64, parse_domain
from strandline.channel import Channel
from strandline.errors import StrandlineError

pytestmark = pytest.mark.spark

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def make_all(folder: Path, *names: str) -> dict[str, str]:
    for name in names:
        make_channel(folder / name, producers=("a",))
    return {name: str(folder / name) for name in names}


def rows_in(path: Path | str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in Channel.open(path).read().to_pylist())


# ---- limits, without Spark -----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(1, 8))
def test_shares_of_a_limit_are_fair(have: list[int], limit: int) -> None:
    """No more than the limit together; nobody who comes early gets more than a share of what is left; nothing stands still."""
    room = AdmissionLimits(limit, None)
    left, took = limit, []
    for n, files in enumerate(have):
        share = -(-left // (len(have) - n))
        took.append(room.share(len(have) - n).take([1] * files))
        assert took[-1] == min(files, share)
        left -= took[-1]
    assert sum(took) <= limit
    assert sum(took) > 0 or not any(have)
    assert AdmissionLimits(None, None).share(3).take([1, 2]) == 2


@given(st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=4), st.integers(1, 12))
def test_shares_of_bytes_take_at_least_one_file_in_all(sizes: list[list[int]], limit: int) -> None:
    room = AdmissionLimits(None, limit)
    took = [each[: room.share(len(sizes) - n).take(each)] for n, each in enumerate(sizes)]
    files = [size for each in took for size in each]
    assert len(files) > 0 or not any(sizes)
    assert sum(files) <= limit or len(files) == 1


# ---- offsets, without a session ------------------------------------------------------------------------------------------


def reader(paths: dict[str, str], **options: str) -> StreamReader:
    parsed = ReadOptions.parse({"channels": json.dumps(paths), "strandline.extension": "0", **options}).for_stream()
    return StreamReader(parsed, Inputs(parsed).schema())


def taken(of: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> Counter[tuple[str, int]]:
    """The rows of a batch: the channel and ``n`` of each."""
    found: Counter[tuple[str, int]] = Counter()
    for part in of.partitions(start, end):
        for batch in of.read(part):
            for row in batch.to_pylist():
                name = row["_channel"]
                assert [key for key, value in row.items() if value is not None] == ["_channel", name]
                found[name, row[name]["n"]] += 1
    return found


@pytest.mark.drawn
@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_every_row_comes_once_at_a_cut_and_none_behind_its_frontier(tmp_path: Path, seed: int) -> None:
    """Random commits while a reader goes on, random limits, and a new reader from a logged offset at any time."""
    r = random.Random(seed)
    names = ["x", "y", "z"]
    paths = make_all(tmp_path, *names)
    at, sent, got = dict.fromkeys(names, 0), Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    options = [
        {"maxFilesPerTrigger": "1"},
        {"maxFilesPerTrigger": "4", "startingVersion": "snapshot"},
        {"maxBytesPerTrigger": "1500"},
        {"startingVersion": "snapshot"},
    ][seed % 4]
    limit = ReadMaxFiles(1) if len(options) > ("startingVersion" in options) else ReadAllAvailable()
    for n, name in enumerate(names * 2):  # what is there before the stream begins
        sent[name, -n] += 1
        say(Channel.open(paths[name]), "a", (0, -n), then=[0])
    source = reader(paths, **options)
    offset = source.initialOffset()
    assert source.initialOffset() == offset
    number = 0
    for step in range(20):
        for name in r.choices(names, k=r.randrange(3) if step < 12 else 0):
            for _ in range(r.randrange(4)):
                sent[name, number := number + 1] += 1
                say(Channel.open(paths[name]), "a", (at[name] + r.randrange(3), number), then=[at[name]])
            at[name] += r.randrange(3)
            say(Channel.open(paths[name]), "a", then=[at[name]])
        if r.random() < 0.3:
            source, offset = reader(paths, **options), json.loads(json.dumps(offset))
        end = source.latestOffset(offset, limit)
        batch = taken(source, offset, end)
        assert taken(reader(paths, **options), offset, end) == batch  # a replay after a restart
        got += batch
        least = Antichain(int64, [t for each in end["channels"].values() for t in each["frontier"]])
        assert Antichain.from_json(int64, end["frontier"]) == least
        offset = json.loads(json.dumps(end))
    while (end := source.latestOffset(offset, limit)) != offset:
        got += taken(source, offset, end)
        offset = end
    assert got == sent
    assert offset["frontier"] == [min(at.values())]


@pytest.mark.drawn
def test_a_reader_that_has_read_everything_starts_again_after_maintenance(tmp_path: Path) -> None:
    """One channel goes on while the other one is idle. Each night files are compacted and the logs are cleaned."""
    paths = make_all(tmp_path, "busy", "idle")
    say(Channel.open(paths["idle"]), "a", (1, 1), then=[2])
    say(Channel.open(paths["idle"]), "a", (2, 1), then=[3])
    offset = reader(paths).initialOffset()
    for night in range(6):  # on the last ones it only moves, and the common frontier stands still
        say(Channel.open(paths["busy"]), "a", *([(night, night)] if night < 3 else []), then=[night + 1])
        offset = json.loads(json.dumps(reader(paths).latestOffset(offset, ReadAllAvailable())))
        for path in paths.values():
            DeltaTable(path).optimize.compact()
            for _ in range(2):
                Channel.open(path).clean_log(timedelta(0))
    assert reader(paths).latestOffset(offset, ReadAllAvailable()) == offset
    assert offset["frontier"] == [3]
    assert len(Channel.open(paths["idle"]).log.versions()) <= 4


def test_a_row_behind_its_own_channels_frontier_is_refused_by_name(tmp_path: Path) -> None:
    """The other channel still holds the row's time open. That does not excuse it."""
    paths = make_all(tmp_path, "x", "y")
    say(Channel.open(paths["x"]), "a", (1, 1), then=[5])
    source = reader(paths)
    offset = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    say(Channel.open(paths["x"]), "a", (7, 7), then=[8])
    first, *_, newest = (p for p in sorted(Path(paths["x"], "_delta_log").glob("*.json")) if '"add"' in p.read_text())
    old = next(line for line in first.read_text().splitlines() if line.startswith('{"add"'))
    newest.write_text("\n".join(old if line.startswith('{"add"') else line for line in newest.read_text().splitlines()))
    with pytest.raises(StrandlineError, match="STRANDLINE_ROW_BEHIND_FRONTIER.*channel x has the time 1"):
        taken(source, offset, source.latestOffset(offset, ReadAllAvailable()))


def test_a_channel_that_always_has_more_starves_no_other(tmp_path: Path) -> None:
    paths = make_all(tmp_path, "much", "little")
    for n in range(12):
        say(Channel.open(paths["much"]), "a", (n, n), then=[n])
    for n in range(3):
        say(Channel.open(paths["little"]), "a", (n, n), then=[n])
    source = reader(paths, maxFilesPerTrigger="1")
    offset, order = source.initialOffset(), []
    while (end := source.latestOffset(offset, ReadMaxFiles(1))) != offset:
        order += [name for name, _ in taken(source, offset, end)]
        offset = end
    assert order[:6].count("little") == 3
    assert Counter(order) == {"much": 12, "little": 3}


def damaged(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def changed(offset: dict[str, Any]) -> dict[str, Any]:
        copy = json.loads(json.dumps(offset))
        change(copy)
        return copy

    return changed


OFFSETS = {
    "another name": (damaged(lambda o: o["channels"].update(w=o["channels"].pop("y"))), "STRANDLINE_CHECKPOINT_MISMATCH"),
    "one less": (damaged(lambda o: o["channels"].pop("y")), "STRANDLINE_CHECKPOINT_MISMATCH"),
    "another channel": (damaged(lambda o: o["channels"]["y"].update(channel="z")), "STRANDLINE_CHECKPOINT_MISMATCH"),
    "another frontier": (damaged(lambda o: o.update(frontier=[7])), "STRANDLINE_OFFSET_INVALID"),
    "a channel's frontier": (
        damaged(lambda o: (o["channels"]["y"].update(frontier=[1]), o.update(frontier=[1]))),
        "STRANDLINE_OFFSET_INVALID",
    ),
    "no channels": (damaged(lambda o: o.pop("channels")), "STRANDLINE_OFFSET_INVALID"),
    "text for a position": (damaged(lambda o: o["channels"].update(y="1")), "STRANDLINE_OFFSET_INVALID"),
    "a first that is none": (damaged(lambda o: o.update(first=2)), "STRANDLINE_OFFSET_INVALID"),
    "a file too many": (damaged(lambda o: o["channels"]["y"].update(file=9)), "STRANDLINE_OFFSET_INVALID"),
}


@pytest.mark.parametrize("what", OFFSETS)
def test_offsets_that_are_no_cut_are_refused(tmp_path: Path, what: str) -> None:
    paths = make_all(tmp_path, "x", "y")
    for path in paths.values():
        say(Channel.open(path), "a", (1, 1), then=[2])
    source = reader(paths)
    offset = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    for path in paths.values():
        say(Channel.open(path), "a", (3, 1), then=[4])
    change, condition = OFFSETS[what]
    with pytest.raises(StrandlineError) as caught:
        fresh = reader(paths)
        end = fresh.latestOffset(change(offset), ReadAllAvailable())
        list(fresh.partitions(change(offset), end))
    assert caught.value.condition == condition


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    paths = make_all(tmp_path, "x", "y")
    make_channel(tmp_path / "pairs", parse_domain("product(e int64, i int64)"), producers=("a",))
    text = json.dumps(paths)
    for given_options, condition in (
        ({"channels": "[]"}, "STRANDLINE_OPTION_INVALID"),
        ({"channels": "{}"}, "STRANDLINE_OPTION_INVALID"),
        ({"channels": '{"_Channel": "p"}'}, "STRANDLINE_OPTION_INVALID"),
        ({"channels": '{"a": "p", "A": "q"}'}, "STRANDLINE_OPTION_INVALID"),
        ({"channels": text, "domain": "timestamp"}, "STRANDLINE_SUMMARY_INVALID"),
        ({"path": "p", "domain": "int64"}, "STRANDLINE_OPTION_CONFLICT"),
        ({"channels": text, "maxRounds": "3"}, "STRANDLINE_OPTION_CONFLICT"),
        ({"channels": '{"a": 1}'}, "STRANDLINE_OPTION_INVALID"),
        ({"channels": text, "path": "p"}, "STRANDLINE_OPTION_CONFLICT"),
        ({"channels": text, "startingVersion": "3"}, "STRANDLINE_OPTION_CONFLICT"),
        ({"channels": text, "columns": "time"}, "STRANDLINE_OPTION_CONFLICT"),
        ({"channels": json.dumps({"x": paths["x"], "z": paths["x"]})}, "STRANDLINE_CHANNELS_INVALID"),
        ({"channels": json.dumps({"x": paths["x"], "p": str(tmp_path / "pairs")})}, "STRANDLINE_TIME_DOMAIN_MISMATCH"),
        ({"channels": json.dumps({"x": str(tmp_path / "none")})}, "STRANDLINE_NOT_A_TABLE"),
    ):
        with pytest.raises(StrandlineError) as caught:
            Inputs(ReadOptions.parse(given_options))
        assert caught.value.condition == condition
    with pytest.raises(StrandlineError, match="spark.readStream"):
        ReadOptions.parse({"channels": text}).for_batch()


@pytest.mark.drawn
def test_times_of_an_outer_channel_enter_the_common_domain(spark: Any, tmp_path: Path) -> None:
    pair = parse_domain("product(e int64, i int64)")
    outer = make_channel(tmp_path / "outer", producers=("a",))
    inner = make_channel(tmp_path / "inner", pair, producers=("a",))
    say(outer, "a", (0, 1), (1, 2), then=[1])
    say(inner, "a", ((0, 0), 10), ((0, 3), 20), then=[(0, 4), (1, 0)])
    streams = read_channels(spark, {"outer": str(tmp_path / "outer"), "inner": str(tmp_path / "inner")}, domain=pair)
    sums = streams["outer"].union(streams["inner"]).groupBy("time").agg(F.sum("n").alias("n"))
    run(sums, tmp_path / "sums", tmp_path / "checkpoint")
    assert contents(tmp_path / "sums") == [((0, 0), 11), ((0, 3), 20)]
    assert Channel.open(tmp_path / "sums").frontier == Antichain(pair, [(0, 4), (1, 0)])


# ---- queries -------------------------------------------------------------------------------------------------------------


@pytest.mark.drawn
@pytest.mark.parametrize("store", [pytest.param("", marks=pytest.mark.soak), ROCKS])
def test_a_union_and_a_join_have_one_source_and_are_right(spark: Any, tmp_path: Path, store: str) -> None:
    """Sums over both channels, and a join of equal times: batch after batch, with limits and a restart in the middle."""
    paths = make_all(tmp_path, "left", "right")
    r = random.Random(7)
    data: dict[str, list[tuple[int, int]]] = {"left": [], "right": []}

    def feed(upto: int, begin: int) -> None:
        for t in range(begin, upto):
            for name, path in paths.items():
                rows = [(t, r.randrange(100)) for _ in range(r.randrange(3))]
                data[name] += rows
                say(Channel.open(path), "a", *rows, then=[t + 1])

    def start() -> list[dict[str, Any]]:
        if store:
            spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
        try:
            streams = read_channels(spark, paths, maxFilesPerTrigger=2)
            left, right = streams["left"], streams["right"]
            sums = left.select("time", "n").union(right.select("time", "n")).groupBy("time").agg(F.sum("n").alias("n"))
            run(sums, tmp_path / "sums", tmp_path / "cp-sums")
            joined = left.select("time", "n").join(right.select("time", F.col("n").alias("m")), "time")
            return run(joined, tmp_path / "joined", tmp_path / "cp-joined")
        finally:
            spark.conf.unset("spark.sql.streaming.stateStore.providerClass")

    feed(4, 0)
    assert {len(p["sources"]) for p in start()} == {1}
    feed(9, 4)
    start()
    sums = Counter[int]()
    for t, n in data["left"] + data["right"]:
        sums[t] += n
    assert rows_in(tmp_path / "sums") == sorted((t, n) for t, n in sums.items())
    expected = sorted((t, n, m) for t, n in data["left"] for u, m in data["right"] if t == u)
    assert rows_in(tmp_path / "joined") == expected
    assert Channel.open(tmp_path / "sums").frontier == Antichain(int64, [9])


@pytest.mark.drawn
def test_an_idle_channel_holds_the_others_times_back(spark: Any, tmp_path: Path) -> None:
    paths = make_all(tmp_path, "busy", "idle")
    say(Channel.open(paths["busy"]), "a", (1, 1), (2, 2), then=[5])
    say(Channel.open(paths["idle"]), "a", then=[2])

    def start() -> None:
        streams = read_channels(spark, paths)
        rows = streams["busy"].union(streams["idle"]).groupBy("time").count()
        run(rows, tmp_path / "out", tmp_path / "checkpoint")

    start()
    assert rows_in(tmp_path / "out") == [(1, 1)]
    say(Channel.open(paths["busy"]), "a", (6, 6), then=[7])
    start()
    assert rows_in(tmp_path / "out") == [(1, 1)]
    say(Channel.open(paths["idle"]), "a", (2, 9), then=[3])
    start()
    assert rows_in(tmp_path / "out") == [(1, 1), (2, 2)]


def test_a_channel_made_anew_and_unknown_names_are_refused(spark: Any, tmp_path: Path) -> None:
    paths = make_all(tmp_path, "x", "y")

    def start() -> None:
        streams = read_channels(spark, paths)
        run(streams["x"].union(streams["y"]), tmp_path / "out", tmp_path / "checkpoint")

    say(Channel.open(paths["x"]), "a", (1, 1), then=[2])
    start()
    with pytest.raises(StrandlineError, match="STRANDLINE_CHANNELS_INVALID"):
        read_channels(spark, paths)["z"]
    assert list(read_channels(spark, paths)) == ["x", "y"]
    shutil.rmtree(paths["y"])
    make_all(tmp_path, "y")
    with pytest.raises(Exception, match="STRANDLINE_CHECKPOINT_MISMATCH"):
        start()
