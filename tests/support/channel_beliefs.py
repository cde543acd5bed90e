"""What a reader of a channel believes and gets: the specification of which damages count, beside ``strandline.report.verify``.

Everything is read with the library's own reading, as an application does. Two channels with equal beliefs are the same to every
reader. When a commit was made, and by which program, is not part of it.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from channel_mutations import versions
from strandline.channel import Channel
from strandline.delta.storage import LOG_DIR, commit_name
from strandline.errors import StrandlineError
from strandline.ingest import status
from strandline.ingest.names import PARKED_FOLDER


def beliefs(path: Path) -> Any:
    """What readers believe and get, as a value that can be compared; an error where a reader is refused something."""
    odd = [
        file.relative_to(path).as_posix()
        for folder in (path, path / LOG_DIR, path / PARKED_FOLDER)
        if folder.exists()
        for file in sorted(folder.iterdir())
        if file.suffix in (".json", ".parquet") and not _regular(file)
    ]
    if odd:
        return {"not files": odd}  # nothing waits for a pipe here
    try:
        return _beliefs(path)
    except StrandlineError as error:
        return {"refused": error.condition}


def _regular(file: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(file).st_mode)
    except OSError:
        return False


def _beliefs(path: Path) -> Any:
    channel = Channel.open(path)
    commits = []
    for version in versions(path):
        commit = channel.log.require(version)
        said = commit.statement
        if said is not None:
            said = repr((dict(sorted(said.statements.items())), said.times, said.spans, said.table, said.id, said.reads))
        files = [(file.path, file.size, file.rows, file.stats) for file in commit.files]
        commits.append((said, sorted(commit.transactions.items()), files, commit.removed, _try(lambda c=commit: c.check())))
        commits.append(_try(lambda c=commit: channel.read_files(c.files).to_pylist()))
    parked = sorted((path / PARKED_FOLDER).glob("*")) if (path / PARKED_FOLDER).exists() else []
    return {
        "newest": channel.version,
        "table": (channel.table_id, str(channel.schema), channel.time_column, str(channel.domain)),
        "frontier": channel.frontier.to_json(),
        "progress": repr(sorted(channel.progress.producers.items())) + repr(channel.registrar),
        "commits": commits,
        "files": sorted((file.path, file.size, file.rows) for file in channel.snapshot_files()),
        "rows": _try(lambda: sorted(map(repr, channel.read().to_pylist()))),
        "status": _try(lambda: str(status(str(path)))),
        "parked": [file.read_bytes() for file in parked],
    }


def _try(read: Any) -> Any:
    try:
        return read()
    except StrandlineError as error:
        return error.condition


def is_shorter(path: Path, before: Path) -> bool:
    """Whether the log only lacks its newest commits: it is the sound log of an earlier version, and no log can tell."""
    there, were = versions(path), versions(before)
    return there == were[: len(there)] != were and all(_bytes(path, version) == _bytes(before, version) for version in there)


def is_cleaned_up(path: Path, before: Path) -> bool:
    """Whether the log only lacks its oldest commits, and a later checkpoint stands for them, as after ``Channel.clean_log``."""
    there, were = versions(path), versions(before)
    stands = there and any((path / LOG_DIR / f"{version:020d}.checkpoint.parquet").exists() for version in there)
    return bool(stands) and were[-len(there) :] == there != were and all(_bytes(path, v) == _bytes(before, v) for v in there)


def is_later_metadata(path: Path, before: Path) -> bool:
    """Whether there is one commit more, which only sets metadata as Delta allows it for a table with readers.

    Such a commit is ALTER TABLE: nobody can tell whether its writer meant it.
    """
    there, were = versions(path), versions(before)
    if there != [*were, were[-1] + 1] or any(_bytes(path, version) != _bytes(before, version) for version in were):
        return False
    actions = [json.loads(line) for line in _bytes(path, there[-1]).splitlines()]
    if len(actions) != 1 or "metaData" not in actions[0]:
        return False
    first = next(json.loads(line)["metaData"] for line in _bytes(before, 0).splitlines() if b'"metaData"' in line)
    after = actions[0]["metaData"]
    try:
        old, new = (json.loads(each["schemaString"])["fields"] for each in (first, after))
        kept = {field["name"]: (field["type"], field["nullable"], field["metadata"].get("strandline.time")) for field in new}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    same = all(kept.get(field["name"]) == (field["type"], True, field["metadata"].get("strandline.time")) for field in old)
    configuration = after.get("configuration", {})
    plain = isinstance(configuration, dict) and not any(
        key.startswith("delta.") and first["configuration"].get(key) != value for key, value in configuration.items()
    )
    return same and plain and after.get("id") == first["id"] and after.get("partitionColumns") == []


def _bytes(path: Path, version: int) -> bytes:
    file = path / commit_name(version)
    return file.read_bytes() if _regular(file) else b""
