"""A recorded link: what its rows are is stated by the commit that took them in, so a row that was changed later is found."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.channel import Channel
from strandline.channel.batch.batch_digest import BatchDigest
from strandline.channel.statements.checksum import with_checksum
from strandline.channel.statements.session import WriterSession
from strandline.channel.write.append import Append
from strandline.channel.write.file_writer import FileWriter
from strandline.delta.file_stats import stats_of
from strandline.replay import CLOCK, ORIGINAL, compare, recorded
from strandline.replay.clock import NodeStart
from strandline.replay.originals import Originals
from strandline.replay.restamp import LinkStamps, Numbered, Restamp, Stamper
from strandline.report.soundness.bounds_checks import bounds_of_rows
from strandline.report.soundness.verify import verify
from strandline.time.antichain import Antichain
from strandline.time.arrow import array_of, time_field, times_of

LEAST = -(1 << 63)
SCHEMA = pa.schema([time_field("time", CLOCK), ("price", pa.int64()), ("who", pa.string())])
LAG = 100
BATCHES, ROWS = 3, 6


def record(path: Path, draw: random.Random, batches: int = BATCHES, rows_each: int = ROWS) -> Channel:
    """Record a link batch by batch, as the sink of a query does."""
    channel = Channel.create(path, recorded(SCHEMA), producers=["loop"])
    n = 0
    for batch in range(batches):
        frontier = (1000 * batch, LEAST, LEAST)
        originals = sorted((1000 * batch + draw.randrange(900), 0, 100 * batch + i) for i in range(rows_each))
        stamper = Stamper(LinkStamps(Restamp.of("earliest", 0), frontier, (1000 * batch + 950, LEAST, LEAST), 0, n), 0, "time")
        with FileWriter(path, channel.schema, "time", CLOCK, digests=True, stamp=stamper) as writer:
            lagged = array_of([(at + LAG, LEAST, LEAST) for at, *_ in originals], CLOCK)
            rows = {
                "time": lagged,
                "price": [draw.randrange(1000) for _ in originals],
                "who": [draw.choice("abc") for _ in originals],
                ORIGINAL: array_of(originals, CLOCK),
            }
            writer.write(pa.table(rows, schema=channel.schema))
            files, times = writer.finish()
            spans = writer.spans
        assert writer.unstamped is not None
        digest = BatchDigest(writer.digest, BatchDigest.of_times(writer.time_hashes), {"back": writer.unstamped})
        holds = {"loop": Antichain(CLOCK, [frontier])}
        append = Append(WriterSession.here("q"), files, holds, times=times, spans=spans, digest=digest, most_times=1 << 16)
        channel.append_decided(lambda append=append: append, ("q", batch))
        n = stamper.counts["n"]
    return channel


def damage(path: Path, draw: random.Random, batches: int = BATCHES) -> int:
    """Change one value, drop a row, or exchange a column of two rows, and make the log fit to it. Return the version."""
    version = draw.randrange(1, batches + 1)

    def change(rows: list[dict[str, Any]]) -> None:
        one, other = draw.sample(range(len(rows)), 2)
        kind, column = draw.choice(["value", "drop", "swap"]), draw.choice([*rows[0]])
        if kind == "drop":
            del rows[one]
        elif kind == "swap":
            rows[one][column], rows[other][column] = rows[other][column], rows[one][column]
        elif isinstance(before := rows[one][column], dict):
            rows[one][column] = before | {"n": before["n"] ^ (1 << draw.randrange(8))}
        elif isinstance(before, str):
            rows[one][column] = chr(ord(before) ^ (1 << draw.randrange(3)))
        else:
            rows[one][column] = before ^ (1 << draw.randrange(8))

    while not rewrite(path, version, change):
        pass
    return version


def rewrite(path: Path, version: int, change: Callable[[list[dict[str, Any]]], None]) -> bool:
    """Change the rows of a version's file, and make the log fit to it. Return whether they are others then."""
    log, schema = path / "_delta_log" / f"{version:020d}.json", Channel.open(path).schema
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    add = next(action["add"] for action in actions if "add" in action)
    file = path / add["path"]
    table = pq.read_table(file)
    rows = table.to_pylist()
    change(rows)
    if rows == table.to_pylist():
        return False
    changed = pa.Table.from_pylist(rows, schema=table.schema)
    pq.write_table(changed, file, compression="zstd", store_schema=False, write_page_checksum=True)
    add["size"] = file.stat().st_size
    add["stats"] = json.dumps(stats_of(changed.num_rows, schema, bounds_of_rows(pa.table(changed.columns, schema=schema))))
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    text = re.sub(r',"sum":"[0-9a-f]{16}"(?=}}$)', "", info["userMetadata"])
    files = [(action["add"]["path"], action["add"]["size"], action["add"]["stats"]) for action in actions if "add" in action]
    transactions = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    info["userMetadata"] = with_checksum(text, files, transactions)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return True


def check(folder: Path, seeds: range) -> None:
    for seed in seeds:
        draw, path = random.Random(seed), folder / str(seed)
        record(path, draw)
        assert verify(path).violation is None
        version = damage(path, draw)
        violation = verify(path).violation
        assert violation is not None, f"seed {seed}"
        assert violation.version == version, f"seed {seed}: {violation}"
        shutil.rmtree(path)


def test_a_row_that_was_changed_after_it_was_recorded_is_found(tmp_path: Path) -> None:
    check(tmp_path, range(40))


@pytest.mark.soak
def test_three_hundred_damages_are_found(tmp_path: Path) -> None:
    check(tmp_path, range(1000, 1300))


def test_a_row_is_found_among_more_than_are_counted_one_by_one(tmp_path: Path) -> None:
    draw = random.Random(3)
    record(tmp_path, draw, batches=1, rows_each=70_000)
    assert verify(tmp_path).violation is None
    damage(tmp_path, draw, batches=1)
    assert verify(tmp_path).violation is not None


@pytest.mark.parametrize("is_stated", [True, False])
def test_a_number_is_found_that_is_compared_up_to_rounding_in_a_repeated_batch(tmp_path: Path, is_stated: bool) -> None:
    """Beside a great one. Commits of earlier versions do not state enough to find it."""
    schema = pa.schema([time_field("time", CLOCK), ("price", pa.float64())])
    channel = Channel.create(tmp_path, schema, producers=["loop"])
    with FileWriter(tmp_path, schema, "time", CLOCK, digests=True, rounding=True) as writer:
        times_given = array_of([(1000, 0, i) for i in range(3)], CLOCK)
        writer.write(pa.table({"time": times_given, "price": [1e9, 5.0, 0.1]}, schema=schema))
        files, times = writer.finish()
    stated = BatchDigest(writer.digest, BatchDigest.of_times(writer.time_hashes), exact=writer.exact if is_stated else None)
    append = Append(WriterSession.here("q"), files, {"loop": Antichain.least(CLOCK)}, times=times, digest=stated)
    channel.append_decided(lambda: append, ("q", 0))
    assert verify(tmp_path).violation is None
    assert rewrite(tmp_path, 1, lambda rows: rows[1].update(price=6.0))
    violation = verify(tmp_path).violation
    assert (None if violation is None else violation.field) == ("digest" if is_stated else None)


def test_recordings_are_compared_at_the_times_from_before(tmp_path: Path) -> None:
    record(tmp_path / "a", random.Random(1))
    record(tmp_path / "b", random.Random(1))
    same = compare(Originals(tmp_path / "a"), Originals(tmp_path / "b"))
    assert same.equal
    assert same.times == (BATCHES - 1) * ROWS  # what the frontier has closed
    record(tmp_path / "c", random.Random(2))
    assert not compare(Originals(tmp_path / "a"), Originals(tmp_path / "c")).equal


@pytest.mark.parametrize("count", [3, 1024, 1025, 5000])
def test_rows_numbered_by_a_task_are_written_as_any_others(tmp_path: Path, count: int) -> None:
    """Their numbers are encoded in another way, and very many are one span. The rows, and their digest, are the same."""
    schema = pa.schema([time_field("time", CLOCK), ("price", pa.int64()), ("tags", pa.list_(pa.string()))])
    channel = Channel.create(tmp_path, schema, producers=["in"])
    stamp = Numbered(NodeStart(0, 1000, 7), 3, "time")
    rows = {"time": array_of([(0, 0, 0)] * count, CLOCK), "price": list(range(count)), "tags": [["a", None]] * count}
    table = pa.table(rows, schema=schema)
    with FileWriter(tmp_path, schema, "time", CLOCK, digests=True, stamp=stamp, in_order=True) as writer:
        for at in range(0, count, 1000):
            writer.write(table.slice(at, 1000))
        files, times = writer.finish()
    assert sum(rows for _, rows in times) + sum(span.rows for span in writer.spans) == count
    assert len(writer.spans) == (count > 1024)
    assert writer.unstamped is None
    (file,) = files
    written = channel.read_files([file])
    assert written.column("price").to_pylist() == list(range(count))
    found = times_of(written.column("time"), CLOCK)
    assert found == [(1000, 0, 7 + 3 + (i << 16)) for i in range(count)]
    assert [(span.low, span.high) for span in writer.spans] == [(found[0], found[-1])] * len(writer.spans)
    with FileWriter(tmp_path, schema, "time", CLOCK, digests=True) as plain:
        plain.write(written)
        plain.finish()
    assert plain.digest == writer.digest
