"""Lists of parked rows: a commit states what changed, not all that waits; and a list that is gone or damaged is named."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from channel_mutations import restate
from ingest_bench import Bench
from strandline.channel import Channel
from strandline.errors import IngestError
from strandline.ingest import drop_partitions, ordered, release_parked, remove_unnamed_parked, status
from strandline.ingest.names import PARKED
from strandline.ingest.parked.parcel import Parked, parcels_to_json
from strandline.report import verify
from strandline.time.domain import int64


def ahead(path: Path, batches: int = 60) -> Bench:
    """A channel with a parked file for each batch."""
    bench = Bench(path, ordered(), partitions=["slow", "fast"], max_ahead=10)
    bench.run((0, "slow", -1), (0, "fast", -2))
    for n in range(batches):
        bench.run((1000 + 20 * n, "fast", n), tasks=1)
    return bench


def state_of(bench: Bench) -> dict[str, Any]:
    state = bench.channel.producers[PARKED].state
    assert isinstance(state, dict)
    return state


def lists_of(bench: Bench) -> list[Path]:
    return [Path(bench.settings.path) / entry["list"] for entry in state_of(bench)["parked"] if isinstance(entry, dict)]


def sizes(bench: Bench) -> list[int]:
    return [file.stat().st_size for file in sorted((Path(bench.settings.path) / "_delta_log").glob("*.json"))]


@pytest.mark.drawn
def test_a_commit_does_not_grow_with_what_waits(tmp_path: Path) -> None:
    bench = ahead(tmp_path, 150)
    assert status(bench.settings.path).parked_rows == 150
    assert max(sizes(bench)[100:]) < 2 * max(sizes(bench)[10:20])
    assert len(state_of(bench)["parked"]) < 16 + 8
    written = [json.loads(file.read_text()) for file in (tmp_path / "channel" / "_ahead").glob("list-*.json")]
    assert sum(len(each["parked"]) for each in written) <= 150 * 5  # each parcel a few times
    assert verify(bench.settings.path).sound
    bench.restart()
    bench.run((1000 + 20 * 75, "slow", 0))  # frontier and maxAhead are in the middle of the lists
    assert status(bench.settings.path).parked_rows == 150 - 76
    assert [t for t, *_ in bench.rows()][-2:] == [1000 + 20 * 75] * 2
    bench.run((1000 + 20 * 75 + 10, "slow", 0))
    assert status(bench.settings.path).parked_rows == 150 - 77
    assert verify(bench.settings.path).sound
    bench.run((2600, "slow", 0))
    assert status(bench.settings.path).parked_rows == 150 - 81  # the 81st is at 2600
    bench.run((2700, "slow", 0), (3980, "fast", 0))
    bench.run((3980, "slow", 0))
    assert (status(bench.settings.path).parked_rows, len(bench.rows())) == (0, 158)


@pytest.mark.drawn
def test_a_state_that_names_very_many_parcels_goes_on(tmp_path: Path) -> None:
    """Somebody wrote it who makes no lists."""
    bench = ahead(tmp_path)
    listed = [one for file in lists_of(bench) for one in json.loads(file.read_text())["parked"]]
    own = [entry for entry in state_of(bench)["parked"] if isinstance(entry, list)]
    assert len(listed) + len(own) == 60
    restate(Path(bench.settings.path), PARKED, lambda state: {**state, "parked": [*own, *listed]})
    for file in (tmp_path / "channel" / "_ahead").glob("list-*.json"):
        file.unlink()
    bench.restart()
    bench.run((1, "slow", 0))
    assert (status(bench.settings.path).parked_rows, len(lists_of(bench))) == (60, 1)
    bench.run((1000 + 20 * 30, "slow", 0))
    assert status(bench.settings.path).parked_rows == 29
    drop_partitions(bench.settings.path, ["slow", "fast"])
    assert len(bench.rows()) == 64


@pytest.mark.drawn
@pytest.mark.parametrize("damage", ["gone", "another", "longer", "empty"])
def test_a_list_that_is_gone_or_damaged_is_named_and_its_rows_can_be_given_up(damage: str, tmp_path: Path) -> None:
    bench = ahead(tmp_path)
    path, entries = bench.settings.path, [entry for entry in state_of(bench)["parked"] if isinstance(entry, dict)]
    file, lost = Path(path) / entries[0]["list"], entries[0]["rows"]
    text = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes({"another": text.replace(b"1000", b"1001"), "longer": text + b" ", "empty": b""}[damage])
    condition = "STRANDLINE_PARKED_FILE_MISSING" if damage == "gone" else "STRANDLINE_PARKED_FILE_DIFFERS"
    bench.restart()
    before = bench.channel.version
    for refused in (
        lambda: bench.run((5, "slow", 0)),
        lambda: release_parked(path, take_over=True),
        lambda: drop_partitions(path, ["slow"]),
    ):
        with pytest.raises(
            IngestError, match=rf"{condition}.*{file.name}.*strandline release-parked {path} --take-over --forget-missing"
        ):
            refused()
    assert condition in str(verify(path))
    assert bench.channel.version == before
    file.unlink(missing_ok=True)  # as the remedy says
    assert release_parked(path, take_over=True, forget_missing=True) is not None
    assert len(bench.rows()) == 62 - lost
    bench.run((5, "slow", 0))
    assert verify(path).sound


def test_a_list_is_believed_only_as_far_as_a_state_is(tmp_path: Path) -> None:
    """Anyone who can write the log can write a list with its checksum, too."""
    from hashlib import sha256

    bench = ahead(tmp_path, 20)
    path = Path(bench.settings.path)
    ((listed,),) = [[e for e in state_of(bench)["parked"] if isinstance(e, dict)]]
    parcels = json.loads((path / listed["list"]).read_text())["parked"]
    data = bench.channel.snapshot_files()[0].path
    outside = parcels_to_json([Parked((), 1000, 1000, 0)], int64)[0]
    for wrong in (
        {"parked": [*parcels, parcels[-1]]},
        {"parked": [*parcels, [[[data, 1, 1]], 5000, 5000, 1]]},
        {"parked": [*parcels, [[["_ahead/../x", 1, 1]], 5000, 5000, 1]]},
        {"parked": [outside, 5]},
        [],
        {"parked": list(reversed(parcels))},
    ):
        text = json.dumps(wrong).encode()
        (path / "_ahead" / "list-x.json").write_bytes(text)
        rows = sum(one[3] if isinstance(one, list) else 0 for one in wrong["parked"]) if isinstance(wrong, dict) else 17
        entry = {"list": "_ahead/list-x.json", "bytes": len(text), "sum": sha256(text).hexdigest()[:16], "rows": rows}
        restate(path, PARKED, lambda state, entry=entry: {**state, "parked": [entry]})
        with pytest.raises(IngestError, match="STRANDLINE_(INGEST_STATE_INVALID|PARKED_FILE_DIFFERS)"):
            release_parked(str(path), take_over=True)


@pytest.mark.drawn
def test_a_channel_with_lists_is_copied_moved_vacuumed_and_restored(tmp_path: Path) -> None:
    bench = ahead(tmp_path / "a", 40)
    version = bench.channel.version
    shutil.copytree(tmp_path / "a", tmp_path / "old")
    for n in range(40, 80):
        bench.run((1000 + 20 * n, "fast", n), tasks=1)
    DeltaTable(bench.settings.path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    # The log alone is restored to its earlier state: lists that are not named any more are still there.
    shutil.rmtree(tmp_path / "a" / "channel" / "_delta_log")
    shutil.copytree(tmp_path / "old" / "channel" / "_delta_log", tmp_path / "a" / "channel" / "_delta_log")
    for where in ("a", "old"):
        moved = tmp_path / f"moved-{where}"
        (tmp_path / where).rename(moved)
        path = str(moved / "channel")
        assert Channel.open(path).version == version
        assert release_parked(path, take_over=True) is not None
        assert Channel.open(path).read().num_rows == 42
        assert verify(path).sound


@pytest.mark.drawn
def test_what_nothing_names_is_removed_and_nothing_else(tmp_path: Path) -> None:
    bench = ahead(tmp_path, 40)
    folder = Path(bench.settings.path) / "_ahead"
    before = {file.name for file in folder.iterdir()}
    bench.take([(5000, "fast", 7)])  # a batch that was killed: its files are nobody's
    young = {file.name for file in folder.iterdir()} - before
    assert remove_unnamed_parked(bench.settings.path) == []
    week = time.time() - 8 * 86_400
    for name in before:
        os.utime(folder / name, (week, week))
    named = {file.name for file in lists_of(bench)}
    old = {f"_ahead/{name}" for name in before if name.startswith("list-") and name not in named}
    assert old
    assert set(remove_unnamed_parked(bench.settings.path)) == old
    for name in young:
        os.utime(folder / name, (week, week))
    assert set(remove_unnamed_parked(bench.settings.path)) == {f"_ahead/{name}" for name in young}
    bench.run((1400, "slow", 0))
    for file in folder.iterdir():
        os.utime(file, (week, week))
    remove_unnamed_parked(bench.settings.path)
    assert status(bench.settings.path).parked_rows == 40 - 21
    assert release_parked(bench.settings.path, take_over=True) is not None
    assert len(bench.rows()) == 43
    assert verify(bench.settings.path).sound
    with pytest.raises(ValueError, match="an hour or more"):
        remove_unnamed_parked(bench.settings.path, older_than=timedelta(0))
