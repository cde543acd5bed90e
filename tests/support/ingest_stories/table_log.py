"""A Delta log read with nothing but ``json``: what the stories are judged by must not be the code that they judge."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from ingest_stories.times import Holds, Time, least, plain

__all__ = ["REGISTRAR", "Entry", "Said", "file_rows", "read_entry"]

REGISTRAR = "$registrar"


@dataclass(frozen=True)
class Said:
    """A producer's statement."""

    seq: int
    holds: Holds
    owner: str | None
    state: Any


@dataclass
class Entry:
    """A commit."""

    version: int
    statements: dict[str, Said] = field(default_factory=dict)
    times: list[tuple[Time, int]] = field(default_factory=list)
    transactions: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    held_before: dict[str, Holds] = field(default_factory=dict)
    """What its producers held before it."""


def read_entry(table: Path, version: int) -> Entry | None:
    """The commit of a version, ``None`` when there is none."""
    file = table / "_delta_log" / f"{version:020d}.json"
    if not file.exists():
        return None
    entry = Entry(version)
    for line in file.read_text().splitlines():
        ((kind, action),) = json.loads(line).items()
        if kind == "add":
            entry.files.append(unquote(action["path"]))
        elif kind == "remove":
            entry.removed.append(unquote(action["path"]))
        elif kind == "txn":
            entry.transactions[action["appId"]] = action["version"]
        elif kind == "commitInfo" and "userMetadata" in action:
            entry.metadata = json.loads(action["userMetadata"])
    said = entry.metadata.get("strandline")
    if said is not None:
        owners = [owner["id"] for owner in said.get("owners", ())]
        for name, one in [*said.get("statements", {}).items(), *_of_columns(said.get("columns"))]:
            owner = one.get("owner")
            who = None if owner is None else owners[owner]
            entry.statements[name] = Said(one["seq"], least(map(plain, one["holds"])), who, one.get("state"))
        entry.times = [(plain(time), rows) for time, rows in said.get("times", ())]
        entry.times += [(plain(low), rows) for low, _, rows in said.get("spans", ())]
    return entry


def _of_columns(columns: dict[str, Any] | None) -> list[tuple[str, dict[str, Any]]]:
    if columns is None:
        return []

    def at(column: Any, i: int) -> Any:
        return column[i] if isinstance(column, list) else column

    result = []
    for i, name in enumerate(columns["names"]):
        held = at(columns["holds"], i)
        one = {"seq": at(columns["seq"], i), "holds": [] if held is None else [held], "owner": at(columns.get("owner"), i)}
        state = {key: value for key, column in columns.get("state", {}).items() if (value := at(column, i)) is not None}
        result.append((name, {**one, "state": state or None}))
    return result


def file_rows(path: Path) -> list[tuple[Any, ...]]:
    """The rows of a Parquet file, times as tuples."""
    return [tuple(plain(v) if isinstance(v, dict) else v for v in row.values()) for row in pq.read_table(path).to_pylist()]
