"""The checks of one commit by itself: its actions, its statement, its checksum, the files that it names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import Schema

from strandline.channel import Commit
from strandline.channel.statements.checksum import Checked, checked, metadata_entry
from strandline.delta.data_file import DataFile
from strandline.delta.log import is_transaction
from strandline.delta.storage import inside
from strandline.delta.store_errors import native
from strandline.delta.table import refuse_features
from strandline.errors import StrandlineError
from strandline.report.soundness.verification import refused, violated
from strandline.time.arrow import find_time_field
from strandline.time.domain import TimeDomain

__all__ = [
    "Actions",
    "Metadata",
    "actions_of",
    "check_actions",
    "check_checksum",
    "check_file_actions",
    "metadata_of",
    "refuse_newer",
]

Actions = Mapping[str, list[dict[str, Any]]]
"""The actions of a commit by kind, as any writer may have written them."""

_WRITER = "Strandline"
_ADD_KEYS = {"path", "partitionValues", "size", "modificationTime", "dataChange", "stats"}


class Metadata:
    """The columns of a channel as a ``metaData`` action has them, checked as far as a reader depends on them."""

    def __init__(self, version: int, action: Mapping[str, Any]) -> None:
        self.id = action.get("id")
        text, configuration = action.get("schemaString"), action.get("configuration", {})
        if not isinstance(self.id, str) or not self.id:
            violated(version, "metaData.id", repr(self.id), "the table's id")
        if action.get("partitionColumns", []) != []:
            violated(version, "metaData.partitionColumns", action["partitionColumns"], "no partition columns")
        if not isinstance(configuration, dict) or any(not isinstance(value, str) for value in configuration.values()):
            violated(version, "metaData.configuration", configuration, "an object of texts")
        if (action.get("format") or {"provider": "parquet"}).get("provider") != "parquet":
            violated(version, "metaData.format", action["format"], "parquet")
        self.configuration: dict[str, str] = configuration
        self.text = text if isinstance(text, str) else ""
        try:
            fields = json.loads(self.text)["fields"]
            with native("a schema", threads=False):
                self.schema: pa.Schema = pa.schema(Schema.from_json(self.text))
        except Exception as error:  # deltalake raises a bare Exception here
            violated(version, "metaData.schemaString", str(error).splitlines()[:1], "the columns of a Delta table")
        self.time_column: str
        self.domain: TimeDomain
        with refused(version, "metaData", "the columns and properties of a channel"):
            refuse_features("The table", configuration, [], fields)
            self.time_column, self.domain = find_time_field(self.schema)
        for field in self.schema:
            if not field.nullable:
                violated(version, f"metaData, column {field.name}", "not nullable", "nullable")

    def check_next(self, version: int, after: Metadata) -> None:
        """Check that readers can go on with later metadata: Delta lets columns be added, and nothing else."""
        if after.id != self.id:
            violated(version, "metaData.id", after.id, self.id)
        if (after.time_column, after.domain) != (self.time_column, self.domain):
            violated(
                version,
                "metaData, time column",
                f"{after.time_column} of {after.domain}",
                f"{self.time_column} of {self.domain}",
            )
        for field in self.schema:
            now = after.schema.field(field.name).type if field.name in after.schema.names else "missing"
            if now != field.type:
                violated(version, f"metaData, column {field.name}", now, field.type)


def actions_of(version: int, data: bytes) -> Actions:
    """Return the actions of a commit's file by kind. Each line must be an object with one action."""
    found: dict[str, list[dict[str, Any]]] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            action = json.loads(line.decode(), object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            violated(version, f"line {number}", str(error)[:200], "one action as JSON")
        if not isinstance(action, dict) or len(action) != 1 or not isinstance(next(iter(action.values())), dict):
            violated(version, f"line {number}", str(action)[:200], "an object with one action")
        kind, body = next(iter(action.items()))
        found.setdefault(kind, []).append(body)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Which of two values of a key counts differs from reader to reader."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {twice[:80]!r} is there twice")
    return found


def metadata_of(version: int, actions: Actions) -> Metadata | None:
    """Return the metadata that a commit sets, and check its protocol action."""
    for kind in ("metaData", "protocol", "commitInfo"):
        if len(actions.get(kind, ())) > 1:
            violated(version, kind, f"{len(actions[kind])} actions", "one at most")
    for protocol in actions.get("protocol", ()):
        for key, least in (("minReaderVersion", 1), ("minWriterVersion", 1)):
            number = protocol.get(key)
            if type(number) is not int or not least <= number <= 7:
                violated(version, f"protocol.{key}", repr(number), "a version of Delta's protocol")
        for key in ("readerFeatures", "writerFeatures"):
            features = protocol.get(key)
            if features is not None and not (isinstance(features, list) and all(isinstance(each, str) for each in features)):
                violated(version, f"protocol.{key}", repr(features), "a list of names")
    found = [Metadata(version, action) for action in actions.get("metaData", ())]
    return found[0] if found else None


def check_actions(commit: Commit, actions: Actions) -> None:
    """Check a commit's actions as a reader does, and the fields of its files that no reader looks at."""
    version = commit.version
    info = next(iter(actions.get("commitInfo", ())), {})
    stamp = info.get("timestamp")
    if stamp is not None and (type(stamp) is not int or stamp < 0):
        violated(version, "commitInfo.timestamp", repr(stamp), "milliseconds since 1970")
    with refused(version, "commit", "a commit of a channel: whole, with a statement for its rows, and none of them changed"):
        commit.check()
    if info.get("engineInfo") == _WRITER and commit.statement is None:
        violated(version, "userMetadata", "no statement", "the statement that Strandline writes with each commit")
    check_file_actions(version, actions, ours=info.get("engineInfo") == _WRITER)


def check_file_actions(version: int, actions: Actions, *, ours: bool = False) -> None:
    """Check the files and the transactions of actions. ``ours``: Strandline made them, so they have no other field."""
    for kind in ("add", "remove"):
        for action in actions.get(kind, ()):
            path = action.get("path")
            if not isinstance(path, str) or not path:
                violated(version, f"{kind}.path", repr(path), "a path below the table")
            with refused(version, f"{kind}.path", "a path below the table"):
                inside(DataFile.from_add({"path": path, "size": 0}).path)
    for action in actions.get("add", ()):
        if action.get("partitionValues") not in ({}, None) or (ours and action.get("partitionValues") is None):
            violated(version, "add.partitionValues", action.get("partitionValues"), "none")
        if type(action.get("size")) is not int:
            violated(version, "add.size", repr(action.get("size")), "the size in bytes")
        if action.get("deletionVector") is not None:
            violated(version, "add.deletionVector", action["deletionVector"], "none")
        if type(action.get("dataChange", True)) is not bool or (ours and action.get("dataChange") is not True):
            violated(version, "add.dataChange", repr(action.get("dataChange")), "true")
        if ours and set(action) - _ADD_KEYS:
            violated(version, "add", f"the field {min(set(action) - _ADD_KEYS)!r}", f"the fields {', '.join(sorted(_ADD_KEYS))}")
        modified = action.get("modificationTime")
        if type(modified) is not int or not 0 <= modified < 1 << 63:
            violated(version, "add.modificationTime", repr(modified), "milliseconds since 1970")
    for action in actions.get("txn", ()):
        if not is_transaction(action.get("appId"), action.get("version")):
            violated(version, "txn", action, "an application and a version")


def refuse_newer(commit: Commit, metadata: Metadata | None) -> None:
    """Raise ``StatementError`` for a statement of a newer release. If it does not have its checksum, a damage made it newer."""
    try:
        _ = commit.statement
    except StrandlineError as error:
        if error.condition != "STRANDLINE_PROTOCOL_NEWER":
            return  # what follows says what is wrong
        with refused(commit.version, "add", "files as Delta's protocol has them"):
            found = _sums(commit, metadata)
        if found is None or found.stated == found.found:
            raise
        violated(commit.version, "sum", f"{found.stated}, but statement, files and transactions have {found.found}", "equal sums")


def check_checksum(commit: Commit, metadata: Metadata | None) -> bool:
    """Compare a commit's checksum. Return whether it has one. A commit of Strandline must have one."""
    statement = commit.statement
    if statement is None:
        return False
    found = _sums(commit, metadata)
    if found is None:
        if statement.id is not None or commit.info.get("engineInfo") == _WRITER:
            violated(commit.version, "sum", "none", "a checksum")
        return False
    if found.stated != found.found:
        violated(commit.version, "sum", f"{found.stated}, but statement, files and transactions have {found.found}", "equal sums")
    return True


def _sums(commit: Commit, metadata: Metadata | None) -> Checked | None:
    files = [(file.path, file.size, file.stats) for file in commit.files]
    if commit.version == 0 and metadata is not None:
        files.append(metadata_entry(metadata.text, metadata.configuration))
    return checked(commit.info["userMetadata"], files, commit.transactions)
