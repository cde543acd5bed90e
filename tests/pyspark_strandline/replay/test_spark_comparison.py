"""``compare`` by Spark says what ``compare`` by Arrow says, with bounded rows."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helpers import make_channel, rows
from pyspark_strandline.replay import compare as by_spark
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.replay import Comparison, compare
from strandline.time.arrow import time_field
from strandline.time.domain import TimeDomain, int64, lex, product, timestamp

pytestmark = pytest.mark.spark

DOMAINS: dict[str, TimeDomain] = {
    "int64": int64,
    "product": product(epoch="int64", iter="int64"),
    "lex": lex(epoch="int64", iter="int64"),
    "nested": product(at="timestamp", inner=lex(a="int64", b="int32")),
}


def told(found: Comparison) -> tuple[Any, ...]:
    """What both comparisons must say. Which rows count as changed depends on their order, so all rows count alike here."""
    differences = []
    for each in found.differences:
        rows = each.only_a.to_pylist(), each.only_b.to_pylist(), each.changed
        differences.append((each.time, each.rows_a, each.rows_b, *(Counter(map(str, some)) for some in rows)))
    counts = found.times, found.rows_a, found.rows_b, found.times_parted
    return found.closed, found.since, counts, found.parted, differences


def random_time(domain: TimeDomain, chance: random.Random) -> Any:
    if domain.coordinates:
        return tuple(random_time(each, chance) for _, each in domain.coordinates)
    return chance.randrange(3)


def recorded(path: Path, domain: TimeDomain, entries: list[Any], then: list[Any]) -> None:
    with make_channel(path, domain, producers=("p",)).producer("p") as producer:
        if entries:
            producer.send(rows(domain, *entries))
        producer.delay(then)


@pytest.mark.parametrize("seed", [2, *(pytest.param(n, marks=pytest.mark.drawn) for n in (0, 1, 3, 4, 5))])
def test_it_says_what_arrow_says(spark: Any, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    domain = list(DOMAINS.values())[seed % len(DOMAINS)]
    a = [(random_time(domain, chance), chance.randrange(4)) for _ in range(30)]
    b = chance.sample(a, 30)
    for _ in range(chance.randrange(4)):
        b[chance.randrange(30)] = (random_time(domain, chance), chance.randrange(4))
    holds = [[random_time(domain, chance) for _ in range(chance.randrange(3))] for _ in range(2)]
    for name, entries, then in (("a", a, holds[0]), ("b", b, holds[1])):
        recorded(tmp_path / name, domain, entries, then)
    since = [random_time(domain, chance)] if chance.random() < 0.5 else None
    both = [one(tmp_path / "a", tmp_path / "b", since=since) for one in (compare, lambda *p, **o: by_spark(spark, *p, **o))]
    assert told(both[0]) == told(both[1])


def test_values_of_all_kinds_differ_where_arrow_says_so(spark: Any, tmp_path: Path) -> None:
    kinds = {
        "i": (pa.int64(), [1, None]),
        "f": (pa.float64(), [1.5, None, math.nan]),
        "s": (pa.string(), ["x", "", None]),
        "d": (pa.decimal128(12, 2), [Decimal("1.50"), None]),
        "at": (pa.timestamp("us", "UTC"), [datetime(2020, 1, 1, tzinfo=timezone.utc), None]),
        "l": (pa.list_(pa.int64()), [[1, None], [None, 1], [], None, [None]]),
        "st": (pa.struct([("a", pa.int64()), ("b", pa.int64())]), [{"a": 1, "b": None}, {"a": None, "b": 1}, None]),
        "m": (pa.map_(pa.string(), pa.int64()), [[("x", 1), ("y", None)], [("x", None), ("y", 1)], [], None]),
    }
    schema = pa.schema([time_field("t", int64), *(pa.field(name, kind) for name, (kind, _) in kinds.items())])
    entries: list[dict[str, Any]] = [{name: values[0] for name, (_, values) in kinds.items()}]
    entries += [entries[0] | {name: value} for name, (_, values) in kinds.items() for value in values[1:]]
    for name, order in (("a", 1), ("b", -1)):
        with Channel.create(tmp_path / name, schema, producers=["p"], at=0).producer("p") as producer:
            told = [{"t": i, **entry} for i, entry in enumerate(entries if order == 1 else [*entries[1:], entries[0]])]
            producer.send(pa.Table.from_pylist(told, schema=schema))
            producer.delay([])
    assert by_spark(spark, tmp_path / "a", tmp_path / "a").equal
    found, wanted = by_spark(spark, tmp_path / "a", tmp_path / "b", most=2), compare(tmp_path / "a", tmp_path / "b", most=2)
    assert (found.parted, found.times_parted) == (wanted.parted, len(entries))
    assert [each.only_a.num_rows + len(each.changed) for each in found.differences] == [1, 1]


def test_the_form_of_a_value_does_not_count(spark: Any, tmp_path: Path) -> None:
    for name, kind, values in (("a", pa.int32(), [0.0, math.nan]), ("b", pa.int64(), [-0.0, -math.nan])):
        more = [pa.field("more", pa.string())] if name == "b" else []
        schema = pa.schema([time_field("t", int64), pa.field("n", kind), pa.field("f", pa.float64()), *more])
        with Channel.create(tmp_path / name, schema, producers=["p"], at=0).producer("p") as producer:
            producer.send(pa.Table.from_pylist([{"t": 1, "n": 5, "f": value} for value in values], schema=schema))
            producer.delay([])
    assert compare(tmp_path / "a", tmp_path / "b").equal
    assert by_spark(spark, tmp_path / "a", tmp_path / "b").equal


def test_rows_that_differ_are_bounded(spark: Any, tmp_path: Path) -> None:
    recorded(tmp_path / "a", int64, [(1, n) for n in range(50)], [])
    recorded(tmp_path / "b", int64, [(1, n) for n in range(50, 99)] + [(2, 1)], [])
    found = by_spark(spark, tmp_path / "a", tmp_path / "b", most_rows=10)
    (first, second) = found.differences
    assert (first.bounded, first.only_a.num_rows, first.only_b.num_rows, first.rows_a, first.rows_b) == (True, 10, 10, 50, 49)
    assert not second.bounded
    assert "not all rows" in found.to_text()


def test_it_refuses_what_arrow_refuses(spark: Any, tmp_path: Path) -> None:
    recorded(tmp_path / "a", int64, [(1, 1)], [2])
    recorded(tmp_path / "b", timestamp, [], [])
    with pytest.raises(StrandlineError, match="STRANDLINE_COMPARE_DOMAINS"):
        by_spark(spark, tmp_path / "a", tmp_path / "b")
    with pytest.raises(StrandlineError, match="STRANDLINE_COMPARE_OPEN"):
        by_spark(spark, tmp_path / "a", tmp_path / "a", until=3)
    with pytest.raises(StrandlineError, match="STRANDLINE_COLUMN_UNKNOWN"):
        by_spark(spark, tmp_path / "a", tmp_path / "a", columns=["x"])


UNLIKE = [
    ("V", pa.int64(), "v", pa.int64()),
    ("col", pa.int64(), "col", pa.int64()),
    ("v", pa.struct([("x", pa.int64()), ("y", pa.int64())]), "v", pa.struct([("y", pa.int64()), ("x", pa.int64())])),
]


@pytest.mark.parametrize(("one", "kind", "other", "other_kind"), UNLIKE)
def test_what_spark_would_compare_otherwise_is_refused(
    spark: Any, tmp_path: Path, one: str, kind: pa.DataType, other: str, other_kind: pa.DataType
) -> None:
    for name, column, type_ in (("a", one, kind), ("b", other, other_kind)):
        Channel.create(tmp_path / name, pa.schema([time_field("t", int64), (column, type_)]), producers=["p"], at=0)
    with pytest.raises(StrandlineError, match="STRANDLINE_COMPARE_BY_SPARK"):
        by_spark(spark, tmp_path / "a", tmp_path / "b")
