"""`verify` of checkpoints that keep statistics in columns, as other engines write them."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from strandline.channel import Channel
from strandline.report import verify
from strandline.report.soundness.stats_columns import StatsColumns
from strandline.time.arrow import time_field
from strandline.time.domain import int64

IN_COLUMNS = "delta.checkpoint.writeStatsAsStruct"
AS_JSON = "delta.checkpoint.writeStatsAsJson"


def channel_of(path: Path, values: pa.Array, *, json_too: bool) -> Channel:
    """A channel with a column of these values. Its checkpoints have statistics in columns."""
    schema = pa.schema([time_field("time", int64), ("x", values.type)])
    channel = Channel.create(path, schema, producers=["a"], at=0)
    send(channel, 1, values)
    say_properties(path, json_too=json_too)
    return channel


def send(channel: Channel, at: int, values: pa.Array) -> None:
    with channel.producer("a", take_over=True) as a:
        a.send(pa.table({"time": [at] * len(values), "x": values}, schema=channel.schema))
        a.delay(at + 1)
        a.commit()


def say_properties(path: Path, *, json_too: bool) -> None:
    properties = {IN_COLUMNS: "true", AS_JSON: str(json_too).lower()}
    DeltaTable(path).alter.set_table_properties(properties, raise_if_not_exists=False)


def checkpoint(path: Path, *, alone: bool = False) -> Path:
    """Make a checkpoint of the newest version. ``alone``: the log begins there."""
    version = Channel.open(path).checkpoint()
    log = path / "_delta_log"
    if alone:
        for file in log.glob("0*"):
            if int(file.name[:20]) < version:
                file.unlink()
    return log / f"{version:020d}.checkpoint.parquet"


def rewrite(file: Path, way: list[str], value: Any, **options: Any) -> None:
    """Set a field of each add action of a checkpoint; by default write the same again, in another form."""
    whole = pq.read_table(file, coerce_int96_timestamp_unit="us")

    def put(array: pa.Array, left: list[str]) -> pa.Array:
        if not left:
            return pa.array([value] * len(array), array.type)
        fields = [put(array.field(f.name), left[1:]) if f.name == left[0] else array.field(f.name) for f in array.type]
        return pa.StructArray.from_arrays(fields, fields=list(array.type), mask=array.is_null())

    if way:
        adds = put(whole.column("add").combine_chunks(), way)
        whole = whole.set_column(whole.schema.get_field_index("add"), whole.schema.field("add"), adds)
    pq.write_table(whole, file, **options)


@pytest.mark.parametrize("json_too", [False, True])
@pytest.mark.parametrize("days", [[-800_000, 3_000_000], [-719_528, -719_163], [2_932_896, 2_932_897]])
def test_days_of_any_year_are_compared(days: list[int], json_too: bool, tmp_path: Path) -> None:
    values = pa.array(days, pa.int32()).cast(pa.date32())
    channel = channel_of(tmp_path / "c", values, json_too=json_too)
    send(channel, 2, values)
    DeltaTable(channel.path).optimize.compact()  # a file of deltalake, which states them
    file = checkpoint(tmp_path / "c")
    assert verify(channel.path).violation is None
    rewrite(file, ["stats_parsed", "maxValues", "x"], 5)
    violation = verify(channel.path).violation
    assert violation is not None
    assert "maxValues.x" in violation.field


def test_moments_in_spark_s_old_form_are_compared_in_all_years(tmp_path: Path) -> None:
    moments = pa.array([-62_135_596_800_000_000, 253_402_214_400_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    channel = channel_of(tmp_path / "c", moments, json_too=True)
    file = checkpoint(tmp_path / "c")
    rewrite(file, [], None, use_deprecated_int96_timestamps=True)
    columns = pq.ParquetFile(file).metadata.row_group(0)
    assert "INT96" in {columns.column(i).physical_type for i in range(columns.num_columns)}
    assert verify(channel.path).violation is None
    rewrite(file, ["stats_parsed", "maxValues", "x"], 5, use_deprecated_int96_timestamps=True)
    assert verify(channel.path).violation is not None


@pytest.mark.parametrize("again", [False, True])
def test_a_bound_that_is_nan_is_like_itself(again: bool, tmp_path: Path) -> None:
    """Delta Spark states NaN as the greatest value of a column that has one."""
    values = pa.array([1.5, math.nan], pa.float64())
    channel = channel_of(tmp_path / "c", values, json_too=False)
    send(channel, 2, values)
    DeltaTable(channel.path).optimize.compact()
    file = checkpoint(tmp_path / "c", alone=True)
    rewrite(file, ["stats_parsed", "maxValues", "x"], math.nan)
    if again:
        send(Channel.open(channel.path), 3, values)
        checkpoint(tmp_path / "c")
    assert verify(channel.path).violation is None
    if again:
        rewrite(checkpoint(tmp_path / "c"), ["stats_parsed", "minValues", "x"], 1.75)
        assert verify(channel.path).violation is not None


def test_json_of_later_files_is_compared_beside_files_that_only_columns_describe(tmp_path: Path) -> None:
    channel = channel_of(tmp_path / "c", pa.array([1, 2]), json_too=False)
    checkpoint(tmp_path / "c", alone=True)
    say_properties(tmp_path / "c", json_too=True)
    send(Channel.open(tmp_path / "c"), 2, pa.array([3, 4]))
    file = checkpoint(tmp_path / "c")
    assert verify(channel.path).violation is None
    stated = [add["stats"] for add in pq.read_table(file).column("add").to_pylist() if add is not None]
    assert any(stated)
    whole = pq.read_table(file)
    adds = whole.column("add").combine_chunks()
    texts = [None if text is None else text.replace('"x":4', '"x":3') for text in adds.field("stats").to_pylist()]
    fields = [pa.array(texts, f.type) if f.name == "stats" else adds.field(f.name) for f in adds.type]
    wrong = pa.StructArray.from_arrays(fields, fields=list(adds.type), mask=adds.is_null())
    pq.write_table(whole.set_column(whole.schema.get_field_index("add"), whole.schema.field("add"), wrong), file)
    violation = verify(channel.path).violation
    assert violation is not None
    assert violation.field.endswith(", add")


@pytest.mark.parametrize(
    ("value", "said", "same"),
    [
        ("0.12345678901234567890", "0.12345678901234567890", True),
        ("0.12345678901234567891", "0.12345678901234567890", False),  # another decimal, but the same double
        ("0.12345678901234567891", "0.12345678901234568", True),  # a writer gave it as a double
        ("-9999999999999999999.99999", "-9999999999999999999.99998", False),
        ("12300000000000000000.00000", "12300000000000000000", True),
        ("1.00000", "true", False),
        ("1.00000", "{}", False),
        ("1.00000", '"1e999999999"', False),
    ],
)
def test_decimals_are_compared_with_all_the_digits_that_are_stated(value: str, said: str, same: bool) -> None:
    kind = pa.struct({"maxValues": pa.struct({"x": pa.decimal128(38, 20 if value.startswith("0") else 5)})})
    columns = StatsColumns({"maxValues": {"x": Decimal(value)}}, kind)
    assert (columns.differs(f'{{"maxValues":{{"x":{said}}}}}') is None) is same
