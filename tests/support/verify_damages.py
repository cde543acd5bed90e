"""Single damages by name, each with what ``strandline.report.verify`` must say of it: version and field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.channel.statements.checksum import with_checksum
from strandline.delta.data_file import DataFile
from strandline.delta.storage import commit_name

Change = Callable[[Path], None]


def _text(version: int, old: str, new: str) -> Change:
    def change(path: Path) -> None:
        file = path / commit_name(version)
        text = file.read_text()
        assert old in text, text
        file.write_text(text.replace(old, new, 1))

    return change


def _statement(version: int, edit: Callable[[dict[str, Any]], None]) -> Change:
    """Edit a statement as a faulty writer would: its checksum is right."""

    def change(path: Path) -> None:
        file = path / commit_name(version)
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        files = [DataFile.from_add(action["add"]) for action in actions if "add" in action]
        transactions = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
        for action in actions:
            info = action.get("commitInfo", {})
            if "userMetadata" in info:
                body = json.loads(info["userMetadata"])
                body["strandline"].pop("sum")
                edit(body["strandline"])
                text = json.dumps(body, separators=(",", ":"))
                info["userMetadata"] = with_checksum(text, [(f.path, f.size, f.stats) for f in files], transactions)
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))

    return change


def _file(edit: Callable[[Path], None]) -> Change:
    """Edit the data file of version 3."""

    def change(path: Path) -> None:
        [name] = re.findall(r'"path":"([^"]+)"', (path / commit_name(3)).read_text())
        edit(path / name)

    return change


def _same_size(file: Path) -> None:
    """Change a byte of a page so that its rows are others: neither the size nor the footer nor an error tells."""
    data, rows = file.read_bytes(), pq.read_table(file)
    for offset in range(pq.read_metadata(file).row_group(0).column(1).data_page_offset, len(data)):
        file.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        with suppress(pa.ArrowException, OSError):
            if not pq.read_table(file).equals(rows):
                return
    raise AssertionError("no byte counts")


def _other_rows(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(table.set_column(1, "n", pa.array([5, 6])), file)


DAMAGES: dict[str, tuple[str, Change, int | None, str]] = {
    "a capability moved ahead": ("few", _text(7, r"\"holds\":[7]", r"\"holds\":[8]"), 7, "sum"),
    "a state of a producer": ("few", _text(3, r"\"at\":3", r"\"at\":4"), 3, "sum"),
    "what a query read": ("few", _text(7, r"\"sum\"", r"\"reads\":[],\"sum\""), 7, "sum"),
    "a transaction": ("few", _text(4, '"version":4,"lastUpdated"', '"version":5,"lastUpdated"'), 4, "sum"),
    "statistics": ("few", _text(4, r'"stats":"{\"numRecords\":2,', r'"stats":"{\"numRecords\":2, '), 4, "sum"),
    "a capability moved back": (
        "few",
        _statement(5, lambda body: body["statements"]["b"].update(holds=[1])),
        5,
        "statements",
    ),
    "a number of a statement": ("few", _statement(5, lambda body: body["statements"]["b"].update(seq=9)), 5, "statements"),
    "a copy of another producer": (
        "few",
        _statement(5, lambda body: body["known"]["a"].update(holds=[9])),
        5,
        "statements",
    ),
    "rows at a time that was closed": (
        "few",
        _statement(6, lambda body: body.update(times=[[-5, 1], [7, 1]])),
        6,
        "times",
    ),
    "rows at another time": ("few", _statement(6, lambda body: body.update(times=[[6, 1], [8, 1]])), 6, "times"),
    "fewer rows": ("few", _statement(6, lambda body: body.update(times=[[6, 1]])), 6, "commit"),
    "an id of another commit": ("few", lambda path: _twice(path), 6, "id"),
    "another table": ("few", _statement(6, lambda body: body.update(table="x")), 6, "table"),
    "another schema": ("few", _text(0, r"\"name\":\"n\"", r"\"name\":\"m\""), 0, "sum"),
    "a property": ("few", _text(0, '"delta.checkpointInterval":"100"', '"delta.checkpointInterval":"101"'), 0, "sum"),
    "a commit gone": ("few", lambda path: (path / commit_name(4)).unlink(), 5, "_delta_log"),
    "a line that is no action": ("few", lambda path: _append(path, b"[]\n"), 4, commit_name(4)),
}


def _twice(path: Path) -> None:
    first = json.loads(json.loads((path / commit_name(5)).read_text().splitlines()[0])["commitInfo"]["userMetadata"])
    _statement(6, lambda body: body.update(id=first["strandline"]["id"]))(path)


def _append(path: Path, line: bytes) -> None:
    file = path / commit_name(4)
    file.write_bytes(file.read_bytes() + line)


def file_damages() -> dict[str, Change]:
    """Damages of the data file of version 3."""
    return {
        "gone": _file(lambda file: file.unlink()),
        "a byte of a page": _file(_same_size),
        "cut": _file(lambda file: file.write_bytes(file.read_bytes()[:-9])),
        "other rows": _file(_other_rows),
    }
