"""`verify` finds every damage that changes what a reader believes or gets, and finds nothing in what the library makes.

STRANDLINE_SEED=N begins at another seed; each failure names its seed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from channel_beliefs import beliefs, is_cleaned_up, is_later_metadata, is_shorter
from channel_mutations import damaged, make_channels, versions
from helpers import ROOT
from sound_channels import make_sound
from strandline.channel import Channel
from strandline.delta.storage import LOG_DIR, commit_name
from strandline.errors import ChannelError, StrandlineError
from strandline.report import Verification, verify
from strandline.time.arrow import time_field
from strandline.time.domain import int64
from verify_damages import DAMAGES, file_damages

FEW, MANY = 15, 1000
SEED = int(os.environ.get("STRANDLINE_SEED", "0"))
SOUND_SEEDS = (3, 7, 101, 172)


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("channels")
    make_channels(folder)
    for seed in SOUND_SEEDS:
        make_sound(folder / f"sound-{seed}" / "channel", Random(seed))
    return folder


class Damages:
    """Damages of many seeds: which of them counted, and which were found."""

    def __init__(self, channels: Path, work: Path) -> None:
        self._channels, self._work = channels, work
        self._names = [
            "few",
            "few",
            "pairs",
            "columns",
            "long",
            "ingested",
            "ingested",
            *(f"sound-{n}/channel" for n in SOUND_SEEDS),
        ]
        self._beliefs = {name: repr(beliefs(channels / name)) for name in set(self._names)}
        self.counts: Counter[str] = Counter()

    def one(self, seed: int) -> None:
        random = Random(seed)
        name = random.choice(self._names)
        before, path = self._channels / name, self._work / "channel"
        shutil.copytree(before, path)
        if (late := self._channels / f"{name}_late").exists():
            shutil.copytree(late, self._work / "channel_late")
        there = versions(path)
        told = damaged(path, random, random.choice([there[-1], there[-1], there[0], random.choice(there)]))
        changed = repr(beliefs(path)).replace(str(path), str(before)) != self._beliefs[name]
        if changed and any(same(path, before) for same in (is_shorter, is_cleaned_up, is_later_metadata)):
            self.counts["told apart: another sound channel"] += 1
        else:
            found = sound(path)
            assert found is not True or not changed, f"seed {seed}, {name}, {told}: not found"
            self.counts["found" if changed else "changed nothing that counts"] += 1
        shutil.rmtree(self._work)


def sound(path: Path) -> bool:
    """Whether nothing is found. A channel without any log is refused, which finds it."""
    try:
        return verify(path).sound
    except ChannelError:
        return False


def test_some_damages_are_found(channels: Path, tmp_path: Path) -> None:
    damages = Damages(channels, tmp_path / "work")
    for seed in range(SEED, SEED + FEW):
        damages.one(seed)
    assert damages.counts["found"] > FEW / 2


@pytest.mark.soak
def test_each_of_1000_damages_that_count_is_found(channels: Path, tmp_path: Path) -> None:
    damages, seed = Damages(channels, tmp_path / "work"), SEED
    while damages.counts["found"] < MANY:
        damages.one(seed)
        seed += 1
    print(f"seeds {SEED} to {seed - 1}: {dict(damages.counts)}")


def made_sound(path: Path, seed: int) -> Verification:
    did = make_sound(path / "channel", Random(seed))
    found = verify(path / "channel")
    assert found.sound, f"seed {seed}: {did}: {found.violation}"
    shutil.rmtree(path)
    return found


@pytest.mark.drawn("core")
def test_nothing_is_found_in_some_sound_channels(tmp_path: Path) -> None:
    for seed in range(SEED, SEED + 10):
        made_sound(tmp_path / "work", seed)


@pytest.mark.soak
def test_nothing_is_found_in_1000_sound_channels(tmp_path: Path) -> None:
    found = [made_sound(tmp_path / "work", seed) for seed in range(SEED, SEED + MANY)]
    commits, files, rows = (sum(getattr(each, what) for each in found) for what in ("commits", "files", "rows"))
    print(f"seeds {SEED} to {SEED + MANY - 1}: {commits} commits, {files} files, {rows} rows")


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_first_violation_is_named(damage: str, channels: Path, tmp_path: Path) -> None:
    name, change, version, field = DAMAGES[damage]
    path = tmp_path / "channel"
    shutil.copytree(channels / name, path)
    change(path)
    found = verify(path)
    assert found.violation is not None
    assert (found.violation.version, found.violation.field) == (version, field), found
    assert json.loads(json.dumps(found.to_json()))["violation"]["version"] == version


@pytest.mark.parametrize("damage", file_damages())
def test_a_damaged_data_file_is_named(damage: str, channels: Path, tmp_path: Path) -> None:
    path = tmp_path / "channel"
    shutil.copytree(channels / "few", path)
    file_damages()[damage](path)
    found = verify(path).violation
    assert found is not None
    assert found.version == 3
    assert found.field.endswith(".parquet")


def test_verify_never_changes_anything(channels: Path, tmp_path: Path) -> None:
    path = tmp_path / "channel"
    shutil.copytree(channels / "ingested", path)
    before = dict(_contents(path))
    told: list[tuple[str, int, int]] = []
    assert verify(path, progress=lambda what, done, whole: told.append((what, done, whole))).sound
    assert dict(_contents(path)) == before
    assert ("commits", 7, 7) in told


@pytest.mark.drawn
def test_a_channel_is_verified_while_others_write_to_it(tmp_path: Path) -> None:
    path = tmp_path / "channel"
    schema = pa.schema([time_field("time", int64)])
    channel = Channel.create(path, schema, producers=["a"], at=0)

    def write() -> None:
        with Channel.open(path).producer("a") as producer:
            for n in range(120):
                producer.send(pa.table({"time": [n]}, schema=schema))
                producer.delay([n])
                producer.commit()

    writer = Thread(target=write)
    writer.start()
    looks = []
    while writer.is_alive() or not looks:
        looks.append(verify(path))
    writer.join()
    assert [found.violation for found in looks] == [None] * len(looks)
    channel.refresh()
    assert (verify(path).version, verify(path).rows) == (channel.version, 120)


@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_commit_whose_checksum_is_gone_is_damaged(channels: Path, tmp_path: Path, place: int) -> None:
    path = tmp_path / "channel"
    shutil.copytree(channels / "few", path)
    found = verify(path)
    assert (found.sound, found.commits, found.sums) == (True, 8, 8)
    version = versions(path)[place]
    _without_sum(path / commit_name(version))
    assert str(verify(path).violation).startswith(f"version {version}, sum: found none; expected a checksum")


def test_channels_of_earlier_releases_are_sound(tmp_path: Path) -> None:
    archives = list((ROOT / "tests" / "compat").glob("*.tar.gz"))
    assert archives
    for archive in archives:
        with tarfile.open(archive) as packed:
            if hasattr(tarfile, "data_filter"):  # the first releases of Python 3.10 and 3.11 have none
                packed.extraction_filter = tarfile.data_filter
            packed.extractall(tmp_path / archive.stem)  # noqa: S202 - the archive is ours
        channels = [log.parent for log in (tmp_path / archive.stem).rglob(LOG_DIR) if Channel.exists(log.parent)]
        assert len(channels) > 5
        for path in channels:
            assert (found := verify(path)).sound, found


def test_no_table_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StrandlineError) as refused:
        verify(tmp_path / "nothing")
    assert refused.value.condition == "STRANDLINE_NOT_A_TABLE"


def _without_sum(file: Path) -> None:
    file.write_text(re.sub(r',\\"sum\\":\\"[0-9a-f]{16}\\"', "", file.read_text()))


def _contents(path: Path) -> Iterator[tuple[str, Any]]:
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield str(file), (file.read_bytes(), file.stat().st_mtime_ns)


def test_a_deep_log_folder_is_not_in_the_way(channels: Path, tmp_path: Path) -> None:
    """Files that others leave in the log's folder are nobody's business: checksums of Spark, drafts, sidecars."""
    path = tmp_path / "channel"
    shutil.copytree(channels / "few", path)
    for name in (f"{3:020d}.crc", ".strandline-1.tmp", "notes.txt"):
        (path / LOG_DIR / name).write_text("x")
    (path / LOG_DIR / "_sidecars").mkdir()
    assert verify(path).sound
