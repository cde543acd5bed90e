"""Comparisons of columns whose types differ, of dates that Python does not have, and of nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.replay import assert_same, compare
from strandline.time.arrow import time_field
from strandline.time.domain import int64


def channel(path: Path, values: pa.Array, name: str = "v", at: int = 0) -> Channel:
    schema = pa.schema([time_field("t", int64), pa.field(name, values.type)])
    made = Channel.create(path, schema, producers=["p"], at=0)
    with made.producer("p") as producer:
        producer.send(pa.table({"t": pa.array([at] * len(values), pa.int64()), name: values}, schema=schema))
        producer.delay(at + 1)
    return made


REFUSED = [
    (pa.array([Decimal("10.0")], pa.decimal128(10, 1)), pa.array([Decimal("1.00")], pa.decimal128(10, 2))),
    (pa.array([5], pa.date32()), pa.array([5], pa.int32())),
    (pa.array([True]), pa.array([1])),
    (pa.array(["x"]), pa.array([b"x"])),
    (pa.array([5], pa.timestamp("us", "UTC")), pa.array([5], pa.timestamp("us"))),
    (pa.array([5], pa.timestamp("us", "UTC")), pa.array([5])),
    (pa.array([0]), pa.array([0.0])),
    (pa.array([[5]], pa.list_(pa.date32())), pa.array([[5]], pa.list_(pa.int32()))),
    (pa.array([{"x": True}]), pa.array([{"x": 1}])),
]


@pytest.mark.parametrize(("one", "other"), REFUSED, ids=[f"{one.type}-{other.type}" for one, other in REFUSED])
def test_columns_of_other_types_do_not_compare(tmp_path: Path, one: pa.Array, other: pa.Array) -> None:
    a, b = channel(tmp_path / "a", one), channel(tmp_path / "b", other)
    with pytest.raises(StrandlineError, match="STRANDLINE_COMPARE_TYPES"):
        compare(a, b)
    assert compare(a, b, columns=[]).equal  # as the error says: without the column


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.list_(pa.timestamp("us"))])
def test_dates_that_python_does_not_have_are_shown(tmp_path: Path, kind: pa.DataType) -> None:
    far = 2932897 if kind == pa.date32() else 253402300800000000
    values = [[far]] if pa.types.is_list(kind) else [far]
    a = channel(tmp_path / "a", pa.array(values, kind))
    b = channel(tmp_path / "b", pa.array(values * 2, kind))
    found = compare(a, b)
    assert "10000-01-01" in found.to_text()
    assert "10000-01-01" in str(found.to_json()["differences"])


def test_a_key_may_name_the_time(tmp_path: Path) -> None:
    a, b = channel(tmp_path / "a", pa.array([1])), channel(tmp_path / "b", pa.array([2]))
    assert compare(a, b, key=["t"]).first == 0


def test_nothing_that_is_compared_is_not_called_equal(tmp_path: Path) -> None:
    a, b = channel(tmp_path / "a", pa.array([1])), channel(tmp_path / "b", pa.array([2]))
    assert "Nothing was compared" in compare(a, b, since=99).to_text()
    late, later = (channel(tmp_path / name, pa.array([1]), at=7) for name in ("c", "d"))
    assert compare(a, b, since=99).is_empty
    with pytest.raises(AssertionError, match="Nothing was compared"):
        assert_same(a, b, since=99)
    assert_same(late, later, until=5)
    assert "neither has rows at these times" in compare(late, later, until=5).to_text()
