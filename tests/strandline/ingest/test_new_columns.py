"""``mergeSchema`` of an ingest: columns that come later, in the channel, among late and parked rows, and in a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from ingest_bench import SCHEMA, Bench
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.ingest import ordered, readmit
from strandline.report import verify

MORE = pa.schema([("m", pa.int64()), *SCHEMA])
"""The new column comes first, so that the columns of older files are at other places."""


def later(bench: Bench, tmp_path: Path, schema: pa.Schema = MORE, **options: Any) -> Bench:
    """The same query, started again with other columns."""
    other = Bench(tmp_path, ordered(), schema, **{"merge_schema": True, **options})
    other.batch = bench.batch
    return other


def table(bench: Bench) -> list[tuple[Any, ...]]:
    return sorted(((row["n"], row.get("m")) for row in bench.channel.read().to_pylist()), key=repr)


def test_the_channel_and_the_late_table_get_a_new_column(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), tasks=1)
    bench.run((3, "a", 1), tasks=1)  # late
    after = later(bench, tmp_path)
    after.run((70, 7, "a", 2), (71, 4, "a", 3))
    assert table(after) == [(0, None), (2, 70)]
    assert after.late("n", "m") == [(1, None), (3, 71)]
    older = later(after, tmp_path, SCHEMA)  # an older program: what it lacks is null
    older.run((8, "a", 4), (2, "a", 5))
    assert table(older) == [(0, None), (2, 70), (4, None)]
    assert older.late("n", "m") == [(1, None), (3, 71), (5, None)]
    assert verify(older.settings.path).sound


def test_it_is_only_done_on_request(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0))
    version = bench.channel.version
    with pytest.raises(StrandlineError, match=r"STRANDLINE_SCHEMA_MISMATCH.*m \(int64 for none\).*mergeSchema"):
        later(bench, tmp_path, merge_schema=False).run((70, 7, "a", 2))
    assert bench.channel.version == version


@pytest.mark.parametrize("field", [pa.field("N", pa.int64()), pa.field("n", pa.string())], ids=str)
def test_another_type_or_case_is_refused(field: pa.Field, tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0))
    with pytest.raises(StrandlineError, match="STRANDLINE_SCHEMA_MISMATCH"):
        later(bench, tmp_path, pa.schema([SCHEMA.field("t"), SCHEMA.field("p"), field])).run((7, "a", None))


def test_a_late_table_with_another_type_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0))
    DeltaTable(bench.settings.late_path).alter.add_columns(Field("m", PrimitiveType("string")))
    with pytest.raises(StrandlineError, match=r"STRANDLINE_SCHEMA_MISMATCH.*late table.*m \(int64 for string\)"):
        later(bench, tmp_path).run((70, 7, "a", 2))
    assert "m" not in bench.channel.schema.names
    assert [row[2] for row in bench.rows()] == [0]


def test_the_replay_of_a_batch_from_before_is_the_same_batch(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), (6, "b", 1))
    again = later(bench, tmp_path)
    again.batch -= 1
    again.run((70, 5, "a", 0), (71, 6, "b", 1))  # the new program has values in the new column
    assert table(again) == [(0, None), (1, None)]
    assert "m" not in again.channel.schema.names
    again.run((72, 7, "a", 2))
    replay = later(again, tmp_path)
    replay.batch -= 1
    replay.run((72, 7, "a", 2))
    assert table(replay) == [(0, None), (1, None), (2, 72)]


@pytest.mark.parametrize("row", [(70, 5, "a", 9), (None, 5, "b", 0)], ids=["another value", "another partition"])
def test_a_replay_with_other_rows_is_still_refused(row: tuple[Any, ...], tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0))
    again = later(bench, tmp_path)
    again.batch -= 1
    with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_DIFFERS"):
        again.run(row)


def test_a_replay_of_a_batch_that_had_the_column_compares_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), MORE, merge_schema=True)
    bench.run((70, 5, "a", 0))
    for schema, row in ((MORE, (71, 5, "a", 0)), (SCHEMA, (5, "a", 0))):
        again = later(bench, tmp_path, schema)
        again.batch -= 1
        with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_DIFFERS"):
            again.run(row)


def statistics(path: str, key: str) -> list[dict[str, Any]]:
    """Delta's statistics of each file that has a certain least ``n``."""
    found = []
    for version in range(DeltaTable(path).version() + 1):
        for line in Path(path, "_delta_log", f"{version:020}.json").read_text().splitlines():
            add = json.loads(line).get("add")
            found += [json.loads(add["stats"])[key]] if add else []
    return found


def test_parked_rows_join_after_a_column_came(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), max_ahead=10)
    bench.run((5, "a", 0), (5, "b", 9), tasks=1)  # b holds the frontier
    bench.run((100, "a", 1), (6, "a", 2), tasks=1)
    after = later(bench, tmp_path, max_ahead=10)
    after.run((70, 200, "a", 3), tasks=1)
    assert (3, 70) not in table(after)
    older = later(after, tmp_path, SCHEMA, max_ahead=None)  # the row that was parked with the column joins without it
    older.run((201, "a", 4), tasks=1)
    assert table(older) == [(0, None), (1, None), (2, None), (3, 70), (4, None), (9, None)]
    least = {entry["n"]: entry for entry in statistics(older.settings.path, "minValues")}
    assert least[1] == {"t": 100, "p": "a", "n": 1}
    assert least[3] == {"m": 70, "t": 200, "p": "a", "n": 3}
    assert verify(older.settings.path).sound


def test_statistics_of_late_rows_that_somebody_else_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever publishes them later knows the files only, whose columns are in another order than the table's."""
    bench = Bench(tmp_path, ordered())
    bench.run((5, "a", 0), tasks=1)
    after = later(bench, tmp_path)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="power"):
        patch.setattr("strandline.ingest.late.late_table.LateTable.publish", lambda *_: (_ for _ in ()).throw(OSError("power")))
        after.run((70, 3, "a", 1), tasks=1)
    after.batch += 1
    after.restart()
    after.run((71, 9, "a", 2), tasks=1)
    assert after.late("n", "m") == [(1, 70)]
    (stats,) = statistics(after.settings.late_path, "minValues")
    assert (stats["m"], stats["t"], stats["n"], stats["_reason"]) == (70, 3, 1, "late")


def test_late_rows_from_before_are_readmitted_with_null(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), corrections=True)
    bench.run((5, "a", 0))
    bench.run((3, "a", 1))
    after = later(bench, tmp_path, corrections=True)
    after.run((70, 7, "a", 2), (71, 4, "a", 3))
    readmit(after.settings.path, after.settings.late_path)
    assert sorted(((row["n"], row["m"]) for row in Channel.open(after.settings.path).read().to_pylist()), key=repr) == [
        (0, None),
        (1, None),
        (2, 70),
        (3, 71),
    ]
