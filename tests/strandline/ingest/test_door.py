"""What is met at the door: times of every kind and bad ones, strangers, two ingests at once; who joins and who goes."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest_bench import SCHEMA, Bench
from strandline.channel import Channel, ProducerError, WriterSession
from strandline.errors import StrandlineError
from strandline.ingest import (
    IngestError,
    PolicyError,
    Settings,
    bounded,
    composed,
    drop_partitions,
    ordered,
    punctuated,
    readmit,
    status,
)
from strandline.ingest.columns.time_column import check_times
from strandline.time.domain import int64, lex, parse_domain, product, timestamp

LEAST = -(1 << 63)
UTC = timezone.utc


def with_time(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("t", kind), ("p", pa.string()), ("n", pa.int64())])


# ---------------------------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("kind", "domain"),
    [
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.timestamp("ns", "Europe/Vienna"), "timestamp"),
        (pa.date32(), "timestamp"),
        (pa.string(), "timestamp"),
        (pa.int64(), "int64"),
        (pa.int16(), "int16"),
    ],
)
def test_the_domain_is_the_columns(kind: pa.DataType, domain: str, tmp_path: Path) -> None:
    settings = Settings.of(str(tmp_path), with_time(kind), time="t", policy=ordered())
    assert str(settings.domain) == domain


@pytest.mark.parametrize(
    ("kind", "domain", "message"),
    [
        (pa.timestamp("us"), None, "STRANDLINE_TIME_COLUMN_INVALID.*no time zone.*Cast it"),
        (pa.float64(), None, "STRANDLINE_TIME_COLUMN_INVALID.*double"),
        (pa.bool_(), None, "STRANDLINE_TIME_COLUMN_INVALID.*bool"),
        (pa.struct([("a", pa.int64())]), None, "STRANDLINE_TIME_COLUMN_INVALID.*struct without a domain"),
        (pa.struct([("a", pa.int64())]), "product(a int64, b int64)", "STRANDLINE_TIME_COLUMN_INVALID.*'a', 'b'"),
        (pa.int64(), "timestamp", "STRANDLINE_TIME_COLUMN_INVALID.*int64"),
        (pa.timestamp("us", "UTC"), "int64", "STRANDLINE_TIME_COLUMN_INVALID.*timestamp"),
        (pa.int64(), "uint64", "STRANDLINE_TIME_DOMAIN_UNSTORABLE"),
        (pa.int64(), "fortnights", "STRANDLINE_TIME_DOMAIN_INVALID"),
    ],
)
def test_columns_that_say_no_time_are_refused(kind: pa.DataType, domain: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(StrandlineError, match=message):
        Settings.of(str(tmp_path), with_time(kind), time="t", policy=ordered(), domain=domain)


def test_bad_times_are_set_aside_with_their_reason_and_the_others_go_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, bounded("1 hour"), with_time(pa.string()))
    bench.run(
        ("2013-01-01T05:00:00Z", "a", 0),
        ("2013-01-01 05:30", "a", 1),
        ("2013-01-01T07:00:00+01:00", "a", 2),
        ("2013-01-02", "a", 3),
        ("soon", "a", 4),
        ("", "a", 5),
        ("2013-13-01", "a", 6),
        (None, "a", 7),
        ("2013-01-01T06:00:00Z", None, 8),
        ("2013-01-01T06:00:00Z", "", 9),
        ("2013-01-01T06:00:00Z", "$registrar", 10),
        ("2013-01-01T06:00:00Z", "strandline:parked", 11),
    )
    assert [(t.astimezone(UTC).strftime("%d %H:%M"), n) for t, _, n in bench.rows()] == [
        ("01 05:00", 0),
        ("01 05:30", 1),
        ("01 06:00", 2),
        ("02 00:00", 3),
    ]
    assert bench.late("n", "_reason") == [
        (10, "invalid partition name"),
        (11, "invalid partition name"),
        (4, "unparsable time"),
        (5, "unparsable time"),
        (6, "unparsable time"),
        (7, "null time"),
        (8, "null partition"),
        (9, "invalid partition name"),
    ]
    assert set(bench.late("t")) >= {("soon",), (None,), ("2013-13-01",)}
    assert bench.holds() == {"a": [timestamp.time(datetime(2013, 1, 1, 23, tzinfo=UTC))]}
    said = status(bench.settings.path)
    assert (said.aside, said.aside_without_partition) == (8, 4)


def test_a_time_beyond_the_domain_is_set_aside(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), with_time(pa.int64()), domain="int8")
    bench.run((5, "a", 0), (127, "a", 1), (128, "a", 2), (-(1 << 40), "a", 3))
    assert bench.late("n", "_reason") == [(2, "time beyond the domain"), (3, "time beyond the domain")]
    assert bench.holds() == {"a": [127]}
    values, codes = check_times(pa.array(["300", "12", "x", None]), parse_domain("int8"))
    assert codes.tolist() == [3, 0, 2, 1]
    assert values[1].as_py() == 12


def test_null_coordinates_are_set_aside(tmp_path: Path) -> None:
    schema = with_time(pa.struct([("b", pa.int32()), ("a", pa.int64())]))
    bench = Bench(tmp_path, ordered(), schema, domain="lex(a int64, b int64)")
    bench.run(({"a": 1, "b": 5}, "x", 0), ({"a": None, "b": 5}, "x", 1), (None, "x", 2), ({"a": 2, "b": 0}, "x", 3))
    assert bench.late("n", "_reason") == [(1, "null time"), (2, "null time")]
    assert bench.holds() == {"x": [(2, 0)]}
    bench.run(({"a": 1, "b": 9}, "x", 4), ({"a": 2, "b": 1}, "x", 5))
    assert bench.late("n", "_frontier") == [
        (1, [{"a": None, "b": None}]),
        (2, [{"a": None, "b": None}]),
        (4, [{"a": 2, "b": 0}]),
    ]


def test_times_of_a_partial_order(tmp_path: Path) -> None:
    schema = with_time(pa.struct([("a", pa.int64()), ("b", pa.int64())]))
    bench = Bench(tmp_path, composed({"x": ordered(), "*": bounded(2, "b")}), schema, domain=product(a="int64", b="int64"))
    bench.run(({"a": 1, "b": 5}, "x", 0), ({"a": 3, "b": 2}, "x", 1), ({"a": 3, "b": 9}, "y", 2))
    assert bench.holds() == {"x": [(3, 5)], "y": [(LEAST, 7)]}
    bench.run(({"a": 9, "b": 4}, "x", 3), ({"a": 3, "b": 5}, "x", 4), ({"a": -5, "b": 7}, "y", 5), ({"a": 99, "b": 6}, "y", 6))
    assert [n for n, *_ in bench.late("n")] == [3, 6]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(4, "a", 1)], "STRANDLINE_ROW_LATE.*'a' with t = 4 is late, because the partition holds [{]5[}]"),
        ([(None, "a", 1)], "STRANDLINE_ROW_INVALID.*'a' with t = None is invalid .null time"),
        ([(9, None, 1)], "STRANDLINE_ROW_INVALID.*null partition"),
    ],
)
def test_with_fail_nothing_of_the_batch_is_written(rows: list[Any], message: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), on_late="fail")
    bench.run((5, "a", 0))
    files = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(IngestError, match=message):
        bench.take([(7, "a", 1), *rows], tasks=1)
    assert sorted(tmp_path.rglob("*.parquet")) == files
    assert bench.rows() == [(5, "a", 0)]


def test_rows_equal_to_the_greatest_are_not_late_wherever_a_batch_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    for n in range(4):
        bench.run((5, "a", n), (5, "a", 10 + n))
    assert not bench.late()


def test_a_policys_columns_are_looked_at_before_a_row_is(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match="STRANDLINE_COLUMN_UNKNOWN.*policy names the column 'mark'"):
        Bench(tmp_path, punctuated("mark"))
    with pytest.raises(IngestError, match="STRANDLINE_COLUMN_UNKNOWN.*partition names the column 'q'"):
        Bench(tmp_path, ordered(), partition="q")
    with pytest.raises(IngestError, match="STRANDLINE_COLUMN_UNKNOWN.*time names the column 'q'"):
        Bench(tmp_path, ordered(), time="q")
    for name in ("_reason", "_Query"):
        with pytest.raises(IngestError, match=f"STRANDLINE_COLUMN_RESERVED.*{name}"):
            Bench(tmp_path, ordered(), pa.schema([*SCHEMA, (name, pa.string())]))
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_COLUMN_INVALID.*'key'.*binary.*string"):
        Bench(tmp_path, ordered(), pa.schema([*SCHEMA, ("key", pa.binary())]), partition="key")
    with pytest.raises(IngestError, match="STRANDLINE_OPTION_INVALID.*onLate"):
        Bench(tmp_path, ordered(), on_late="drop")
    with pytest.raises(PolicyError, match="maxAhead.*a duration, but times are of int64"):
        Bench(tmp_path, ordered(), max_ahead="1 hour")
    with pytest.raises(PolicyError, match="maxAhead.*negative"):
        Bench(tmp_path, ordered(), max_ahead=-1)


def test_a_punctuation_that_is_no_time_sets_its_row_aside(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("mark", pa.string())])
    bench = Bench(tmp_path, punctuated("mark"), schema)
    bench.run((5, "a", 0, "4"), (6, "a", 1, "four"), (7, "a", 2, None), (0, "a", 3, "5"))
    assert bench.holds() == {"a": [5]}
    assert bench.late("n", "_reason") == [(1, "invalid punctuation")]
    bench.run((0, "a", 4, "9"))  # late, yet its punctuation counts
    assert bench.holds() == {"a": [9]}
    assert [n for n, *_ in bench.late("n")] == [1, 4]


# ---------------------------------------------------------------------------------------------------------- partitions


def test_a_stranger_is_refused_by_name_and_nothing_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a", "b"])
    bench.run((5, "a", 0))
    assert bench.channel.sealed
    files = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(
        IngestError, match="STRANDLINE_PARTITION_UNKNOWN.*'c' cannot join, because the channel is sealed. Its partitions: a, b"
    ):
        bench.take([(6, "a", 1), (6, "c", 2)], tasks=1)
    assert sorted(tmp_path.rglob("*.parquet")) == files


def test_a_pattern_lets_partitions_join_where_the_slowest_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["topic-0", "topic-1", "topic-*"])
    bench.run((5, "topic-0", 0))
    assert bench.frontier() == [LEAST]  # topic-1 is known, and has said nothing
    bench.run((7, "topic-1", 1), (9, "topic-0", 2))
    bench.run((6, "topic-2", 3), (8, "topic-2", 4))  # the topic has more partitions now
    assert bench.late("n", "_frontier") == [(3, [7])]
    assert bench.holds() == {"topic-0": [9], "topic-1": [7], "topic-2": [8]}
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_UNKNOWN.*'other-0'"):
        bench.take([(9, "other-0", 1)])


def test_one_partition_of_several_columns_and_none(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64()), ("topic", pa.string()), ("part", pa.int32())])
    bench = Bench(tmp_path / "several", ordered(), schema, partition=["topic", "part"])
    bench.run((5, "x", 0), (6, "x", 1), (7, None, 1))
    assert bench.holds() == {"x-0": [5], "x-1": [6]}
    assert bench.late("t", "_reason") == [(7, "null partition")]
    bench = Bench(tmp_path / "none", ordered(), schema, partition=())
    bench.run((5, "x", 0), (6, "y", 1))
    assert bench.holds() == {"stream": [6]}


def test_two_ingests_share_a_channel_unless_their_partitions_overlap(tmp_path: Path) -> None:
    one, two = Bench(tmp_path, ordered(), query="one"), Bench(tmp_path, ordered(), query="two")
    one.run((5, "a", 0))
    two.run((9, "b", 1))
    one.run((8, "a", 2))
    assert one.frontier() == [8]
    version, files = one.channel.version, sorted(tmp_path.rglob("*.parquet"))
    reports = two.take([(9, "a", 3), (1, "b", 4), (10, "b", 5)])
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_LIVE.*'a'"):
        two.commit(reports)
    two.ingest.abort(("two", two.batch), reports)
    assert one.channel.version == version
    assert sorted(tmp_path.rglob("*.parquet")) == files
    assert not one.late()


def test_an_ingest_that_takes_over_goes_on_and_fences_the_other(tmp_path: Path) -> None:
    one, two = Bench(tmp_path, ordered(), query="one"), Bench(tmp_path, ordered(), query="two", take_over=True)
    one.run((5, "a", 0))
    two.run((4, "a", 1), (6, "a", 2))
    assert one.late("n", "_query") == [(1, "two")]
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_FENCED"):
        one.run((7, "a", 3))


def test_a_batch_that_was_overtaken_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), (3, "b", 0))
    reports = bench.take([(4, "b", 1), (2, "b", 2)])
    drop_partitions(bench.settings.path, ["b"])
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_OVERTAKEN.*'b'"):
        bench.commit(reports)
    bench.ingest.abort(("q", bench.batch), reports)
    bench.restart()
    bench.run((4, "b", 1), (2, "b", 2))
    assert bench.late("n", "_frontier") == [(1, []), (2, [])]


def test_a_dead_partition_is_dropped_by_an_operator(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), (3, "b", 0))
    assert bench.frontier() == [3]
    drop_partitions(bench.settings.path, ["b"])
    assert bench.frontier() == [5]
    bench.run((6, "a", 1))
    assert bench.frontier() == [6]
    with pytest.raises(IngestError, match="STRANDLINE_PARTITION_UNKNOWN.*'c'. Its partitions: a, b"):
        drop_partitions(bench.settings.path, ["c"])


def test_columns_that_differ_from_the_tables_are_refused(tmp_path: Path) -> None:
    Bench(tmp_path, ordered()).run((5, "a", 0))
    other = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.string())])
    with pytest.raises(IngestError, match=r"STRANDLINE_SCHEMA_MISMATCH.*n \(string for int64\)"):
        Bench(tmp_path, ordered(), other).take([])
    with pytest.raises(IngestError, match="STRANDLINE_SCHEMA_MISMATCH.*int32"):
        Bench(tmp_path, ordered(), domain="int32").take([])


def test_a_channel_that_is_not_an_ingests_takes_one_beside_its_producers(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    Channel.create(bench.settings.path, bench.settings.channel_schema, time="t", producers=["manual"], sealed=False, at=0)
    bench.run((5, "a", 0))
    assert bench.frontier() == [0]
    with Channel.open(bench.settings.path).producer("manual", owner=WriterSession.here("m")) as manual:
        manual.drop()
    bench.run((6, "a", 1))
    assert bench.frontier() == [6]


# --------------------------------------------------------------------------------------------------------- corrections


def test_what_was_late_comes_back_once_as_a_correction(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    path = bench.settings.path
    bench.run((1, "a", 0), (5, "a", 1), (3, "b", 2))
    bench.run((2, "a", 3), (7, "a", 4), (None, "b", 5))
    assert bench.frontier() == [(LEAST, 1), (3, 0)]
    done = readmit(path)
    assert (done.correction, done.rows, done.left) == (1, 1, 1)
    assert ((2, 1), "a", 3) in bench.rows()
    assert readmit(path).rows == 0
    bench.run((4, "a", 6), (8, "a", 7))
    assert readmit(path).correction == 2
    assert bench.frontier() == [(LEAST, 3), (3, 0)]
    assert [row[0] for row in bench.rows()] == [(1, 0), (2, 1), (3, 0), (4, 2), (5, 0), (7, 0), (8, 0)]


def test_rows_are_mended_on_their_way_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((5, "a", 1), (None, "a", 2), (None, "a", 3))

    def mend(rows: pa.Table) -> pa.Table:
        chosen = rows.filter(pa.compute.equal(rows["n"], 2))
        return chosen.set_column(chosen.column_names.index("t"), "t", pa.array([4] * chosen.num_rows, pa.int64()))

    assert readmit(bench.settings.path, where=mend).rows == 1
    assert bench.rows() == [((4, 1), "a", 2), ((5, 0), "a", 1)]
    bench.run((None, "a", 4))
    with pytest.raises(IngestError, match="STRANDLINE_ROW_INVALID.*None"):
        readmit(bench.settings.path, where=lambda rows: rows)


def test_of_two_readmissions_at_once_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((5, "a", 1))
    bench.run((4, "a", 2))
    real = Channel.file_writer

    def meanwhile(self: Channel, *args: Any) -> Any:
        monkeypatch.setattr(Channel, "file_writer", real)
        assert readmit(bench.settings.path).rows == 1
        return real(self, *args)

    monkeypatch.setattr(Channel, "file_writer", meanwhile)
    with pytest.raises(IngestError, match="STRANDLINE_READMIT_OVERTAKEN.*correction 1"):
        readmit(bench.settings.path)
    assert bench.rows() == [((4, 1), "a", 2), ((5, 0), "a", 1)]


def test_a_channel_without_corrections_says_how_to_have_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 1))
    with pytest.raises(IngestError, match="STRANDLINE_CORRECTIONS_UNSUPPORTED.*corrections=True"):
        readmit(bench.settings.path)


def test_lex_and_integer_domains_have_their_texts() -> None:
    assert str(lex(a="int64", b=int64)) == "lex(a int64, b int64)"
