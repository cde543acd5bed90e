"""`verify` finds bounds and counts in a Parquet footer, or page index, that would let a reader skip rows that are there."""

from __future__ import annotations

import decimal
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import strandline.channel.write.file_writer as file_writer
from strandline.channel import Channel
from strandline.delta.checks.parquet_footer import footer_of
from strandline.delta.data_file import DataFile
from strandline.delta.storage import LocalStore
from strandline.report import verify
from strandline.report.soundness.bounds_checks import check_bounds
from strandline.report.soundness.file_checks import RowsDigest
from strandline.report.soundness.verification import Violated
from strandline.time.arrow import time_field
from strandline.time.domain import int64

URL = "https://example.org/orders/2026/03/01/"


def written(path: Path, *fields: pa.Field, **columns: pa.Array) -> tuple[Channel, Path]:
    """A channel with one data file."""
    schema = pa.schema([time_field("time", int64), *fields])
    channel = Channel.create(path, schema, producers=["p"], at=0)
    rows = len(next(iter(columns.values())))
    with channel.producer("p") as producer:
        producer.send(pa.table({"time": [1] * rows, **columns}, schema=schema))
        producer.delay([2])
    assert verify(path).sound
    [file] = path.glob("*.parquet")
    return channel, file


def footer_begins(data: bytes) -> int:
    return len(data) - 8 - int(struct.unpack("<I", data[-8:-4])[0])


def change(file: Path, old: bytes, new: bytes, which: int = -1) -> None:
    """Change bytes in the footer of a file: the last place where they are, unless told otherwise."""
    data = file.read_bytes()
    begin = footer_begins(data)
    parts = data[begin:].split(old)
    assert len(parts) > 1
    at = which % (len(parts) - 1) + 1
    file.write_bytes(data[:begin] + old.join(parts[:at]) + new + old.join(parts[at:]))


CASES: dict[str, tuple[pa.DataType, list[Any], bytes, bytes, Any]] = {  # type, values, a bound, the changed one, a lost value
    "a long text": (pa.string(), [URL + x for x in ("aa", "bb", "zz")], (URL + "zz").encode(), (URL + "Zz").encode(), URL + "zz"),
    "the upper bound of doubles": (pa.float64(), [1.0, 2.0, 1e3], struct.pack("<d", 1e3), struct.pack("<d", 3.90625), 1e3),
    "a bound of the second row group": (pa.int64(), list(range(2000)), struct.pack("<q", 1000), struct.pack("<q", 1004), 1002),
    "a decimal": (
        pa.decimal128(20, 3),
        [decimal.Decimal("0.001"), decimal.Decimal("12345678901234567.891")],
        (12345678901234567891).to_bytes(9, "big"),
        (12345678901234567891 - (1 << 62)).to_bytes(9, "big"),
        decimal.Decimal("12345678901234567.891"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bound_that_hides_rows_is_found(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kind, values, old, new, lost = CASES[case]
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", 1000)
    channel, file = written(tmp_path / "c", pa.field("x", kind), x=pa.array(values, kind))
    for which in (-1, -2):  # one of these is the bound that readers take; the other one is of older readers, or the other group's
        before = file.read_bytes()
        if before[footer_begins(before) :].count(old) < -which:
            continue
        change(file, old, new, which)
        kept = ds.dataset(str(file)).to_table(filter=ds.field("x") == pa.scalar(lost, kind)).num_rows
        found = verify(channel.path)
        assert found.violation is not None
        assert found.violation.field.startswith(f"footer of {file.name}, row group ")
        if kept == 0:
            break
        file.write_bytes(before)
    assert kept == 0  # a reader loses rows by it


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("bound", [1.5, 1.75])
def test_a_bound_that_is_no_number_is_found_in_a_file_of_ours_only(kind: pa.DataType, bound: float, tmp_path: Path) -> None:
    """Some readers skip rows by it, others ignore it as Parquet says."""
    form, bits = ("<d", "<Q") if kind == pa.float64() else ("<f", "<I")
    rows = pa.table({"x": pa.array([1.5, 1.625, 1.75], kind)})
    channel, file = written(tmp_path / "c", pa.field("x", kind), x=rows.column("x").combine_chunks())
    other = tmp_path / "other.parquet"  # as another writer names it
    pq.write_table(rows, other)
    exponent = 0x7FF << 52 if kind == pa.float64() else 0xFF << 23
    [number] = struct.unpack(bits, struct.pack(form, bound))
    for path in (file, other):
        whole = path.read_bytes()
        for sign in (0, 1 << (struct.calcsize(form) * 8 - 1)):
            for which in (-1, -2):  # the bound that readers take, and the one of older readers
                path.write_bytes(whole)
                change(path, struct.pack(form, bound), struct.pack(bits, number | exponent | sign), which)
                if path == other:
                    described = DataFile(other.name, other.stat().st_size, 3)
                    unknown = check_bounds(LocalStore(str(tmp_path)), 1, described, rows, ours=False)
                    assert unknown is not None
                    assert "a bound is NaN" in unknown
                    continue
                violation = verify(channel.path).violation
                assert violation is not None
                assert violation.field.endswith("row group 0, column x")


def test_columns_after_the_32nd_have_bounds_too(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(40)]
    columns = {name: pa.array([7, 8]) for name in names[:-1]}
    _, file = written(tmp_path / "c", *(pa.field(name, pa.int64()) for name in names), **columns, c39=pa.array([7, 1 << 40]))
    change(file, struct.pack("<q", 1 << 40), struct.pack("<q", 9))
    found = verify(tmp_path / "c").violation
    assert found is not None
    assert found.field.endswith("column c39")


def test_a_damaged_footer_ends_no_process(tmp_path: Path) -> None:
    """Arrow ends the process when a column's type in a row group is not the one in the schema."""
    channel, file = written(tmp_path / "c", pa.field("x", pa.string()), x=pa.array(["a", "b"]))
    change(file, b"\x15\x0c\x19", b"\x15\x04\x19")  # the column's type: no text, but an integer of 64 bits
    program = f"from strandline.report import verify; print(verify({channel.path!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, "is not sound: version 2, footer of" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.soak
def test_no_bit_of_a_footer_that_is_called_sound_hides_a_row(tmp_path: Path) -> None:
    values = {"url": [URL + x for x in ("aa", "bb", "zz")], "price": [1.0, 2.0, 1000.0]}
    fields = [pa.field("url", pa.string()), pa.field("price", pa.float64())]
    channel, file = written(tmp_path / "c", *fields, **{name: pa.array(each) for name, each in values.items()})
    questions = [ds.field(name) == value for name, each in values.items() for value in each]
    questions += [ds.field("price") > 500, ds.field("price") < 1.5, ds.field("time") == 1]

    def answers() -> list[int]:
        return [ds.dataset(str(file)).to_table(filter=question).num_rows for question in questions]

    whole, right = file.read_bytes(), answers()
    sound = 0
    for bit in range(footer_begins(whole) * 8, len(whole) * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        if verify(channel.path).sound:
            sound += 1
            try:
                assert answers() == right, bit
            except (pa.ArrowException, OSError):  # a reader of datasets refuses it, and loses nothing
                continue
    assert sound  # encodings, the name of the writer and the like


def many_types(random: Random, rows: int) -> pa.Table:
    def column(kind: pa.DataType, draw: Any) -> pa.Array:
        return pa.array([None if random.random() < 0.2 else draw() for _ in range(rows)], kind)

    def small() -> int:
        return random.randint(-100, 100)

    odd = [0.0, -0.0, float("nan"), float("inf"), 2.5]
    return pa.table(
        {
            "byte": column(pa.int8(), small),
            "unsigned": column(pa.uint32(), lambda: random.randint(0, 2**32 - 1)),
            "long": column(pa.int64(), lambda: random.randint(-(2**63), 2**63 - 1)),
            "double": column(pa.float64(), lambda: random.choice(odd)),
            "nan": column(pa.float32(), lambda: float("nan")),
            "text": column(pa.string(), lambda: "é" * random.randint(0, 80) + str(random.random())),
            "bool": column(pa.bool_(), lambda: random.random() < 0.5),
            "binary": column(pa.binary(), lambda: bytes([random.randint(0, 255)]) * 3),
            "date": column(pa.int32(), lambda: random.randint(-(10**6), 10**6)).cast(pa.date32()),
            "timestamp": column(pa.int64(), lambda: random.randint(-(10**17), 10**17)).cast(pa.timestamp("us", "UTC")),
            "decimal": column(pa.decimal128(12, 2), lambda: decimal.Decimal(small()).scaleb(-2)),
            "struct": column(
                pa.struct({"a": pa.int64(), "b": pa.list_(pa.int64())}), lambda: {"a": small(), "b": [small(), None]}
            ),
            "map": column(pa.map_(pa.string(), pa.int64()), lambda: [(str(random.random()), small())]),
            "list": column(pa.list_(pa.float64()), lambda: [random.choice([*odd, None]) for _ in range(random.randint(0, 3))]),
            "nothing": pa.nulls(rows, pa.string()),
        }
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"write_page_index": True, "data_page_size": 500},
        {"write_page_index": True, "store_decimal_as_integer": True},
        {"write_page_index": True, "use_dictionary": False, "data_page_size": 300, "version": "1.0"},
    ],
)
def test_sound_footers_and_page_indexes_of_all_types(options: dict[str, Any], tmp_path: Path) -> None:
    rows = many_types(Random(7), 1500)
    path = tmp_path / "f.parquet"
    pq.write_table(rows, path, row_group_size=600, **options)
    file = DataFile(path.name, path.stat().st_size, rows.num_rows)
    check_bounds(LocalStore(str(tmp_path)), None, file, pq.ParquetFile(path).read(), ours=False)
    if not options:
        return
    data = path.read_bytes()
    for _, chunks in footer_of(data[footer_begins(data) : -8]).groups:  # the bounds of each column's pages are compared
        at, length = next(chunk.column_index for chunk in chunks if chunk.path == ("long",) and chunk.column_index)
        bounds = {data[i : i + 8] for chunk in chunks if chunk.path == ("long",) for i in range(at, at + length - 8)}
        longs = {struct.pack("<q", n) for n in rows["long"].to_pylist() if n is not None}
        high = max(bounds & longs, key=lambda each: struct.unpack("<q", each)[0])
        place = data.index(high, at)
        path.write_bytes(data[:place] + struct.pack("<q", struct.unpack("<q", high)[0] // 2) + data[place + 8 :])
        with pytest.raises(Violated, match="page index, page"):
            check_bounds(LocalStore(str(tmp_path)), None, file, rows, ours=False)


@pytest.mark.drawn("core")
def test_the_rows_of_optimize_are_compared_without_keeping_them() -> None:
    rows = pa.table({"n": range(100_000), "text": [str(n % 1000) for n in range(100_000)]})
    one, other = RowsDigest(), RowsDigest()
    one.add(rows)
    tracemalloc.start()
    other.add(rows.slice(60_000))
    other.add(rows.slice(0, 60_000))
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert one == other
    assert used < 60 * 100_000  # each row as a value of Python, and its text in a dictionary, has above 300 bytes
    other.add(rows.slice(0, 1))
    assert one != other
