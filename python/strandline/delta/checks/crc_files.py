"""The ``.crc`` files that Delta Spark writes beside commits.

Such a file repeats the metadata, the protocol and the transactions of its version. deltalake believes the newest one since the
last checkpoint. But one may be left from commits that were removed, and whose versions were written again. So what it says is
compared with the log, and transactions are read from the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from strandline.delta import errors
from strandline.delta.checks.checkpoints import Checkpoints
from strandline.delta.log import DeltaCommit, DeltaLog
from strandline.delta.storage import LOG_DIR
from strandline.delta.store_errors import native
from strandline.errors import StorageError

__all__ = [
    "LogFacts",
    "check_crc",
    "check_crc_size",
    "crc_differs",
    "crc_in_use",
    "crc_versions",
    "facts_at",
    "logged_transactions",
    "read_crc",
]

_CRC = re.compile(r"(\d{20})\.crc")
_MOST_BYTES = 64 << 20
_NEWEST = 1 << 63
_KINDS = ("metaData", "protocol", "txn")


class LogFacts(NamedTuple):
    """What the log says up to a version: its metadata, its protocol, and each application's newest transaction."""

    metadata: dict[str, Any] | None
    protocol: dict[str, Any] | None
    transactions: dict[str, int]


def crc_versions(names: Iterable[str]) -> list[int]:
    """Return the versions that have a ``.crc`` file, from the names of a log's files.

    >>> crc_versions([f"{7:020d}.crc", f".{7:020d}.crc.crc", f"{7:020d}.json"])
    [7]
    """
    return [int(found[1]) for name in names if name.endswith(".crc") and (found := _CRC.fullmatch(name))]


def crc_in_use(names: Collection[str], version: int) -> int | None:
    """Return the version of the ``.crc`` file that deltalake may believe at a version, ``None`` if there is none.

    >>> names = [f"{3:020d}.crc", f"{5:020d}.crc", f"{4:020d}.checkpoint.parquet"]
    >>> crc_in_use(names, 7), crc_in_use(names, 4), crc_in_use([*names, f"{6:020d}.checkpoint.parquet"], 7)
    (5, None, None)
    """
    newest = max((each for each in crc_versions(names) if each <= version), default=None)
    if newest is None:
        return None
    # A checkpoint after it hides it. One in several parts, or of Delta's second kind, does not count here: comparing is no loss.
    hidden = any(newest < each <= version and [_one(each)] in found for each, found in Checkpoints(names).readable.items())
    return None if hidden else newest


def _one(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def facts_at(log: DeltaLog[Any], version: int, names: Collection[str]) -> LogFacts | None:
    """Read what the log says up to a version, from the newest checkpoint on. Return ``None`` if the log lacks a commit for it.

    Args:
        log: The log.
        version: The version.
        names: The names of the log's files.
    """
    checkpoints = Checkpoints(names)
    metadata: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    transactions: dict[str, int] = {}
    for at in range(version, -1, -1):
        files = checkpoints.any_of(at)
        commit: DeltaCommit | None = None
        if files is None:
            commit = log.read(at)
            if commit is None:
                return None
            found = {"metaData": commit.metadata, "protocol": commit.protocol}
            applied = commit.transactions
        else:
            actions = _checkpoint(log, files)
            found = {kind: next(iter(actions[kind]), None) for kind in ("metaData", "protocol")}
            applied = {str(action["appId"]): int(action["version"]) for action in actions["txn"]}
        metadata = found["metaData"] if metadata is None else metadata
        protocol = found["protocol"] if protocol is None else protocol
        transactions = {**applied, **transactions}
        if files is not None:
            break
    return LogFacts(metadata, protocol, transactions)


def _checkpoint(log: DeltaLog[Any], names: list[str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _KINDS}
    for name in names:
        path = f"{LOG_DIR}/{name}"
        if name.endswith(".json"):
            commit = DeltaCommit(int(name[:20]), log.store.read(path, _MOST_BYTES) or b"")
            for kind in _KINDS:
                found[kind] += commit._actions(kind)
            continue
        try:
            with native(log.store.location, log.store.options, threads=False), log.store.open_input(path) as source:
                file = pq.ParquetFile(source)
                rows = file.read(columns=[kind for kind in _KINDS if kind in file.schema_arrow.names])
            for kind in rows.column_names:
                found[kind] += rows.column(kind).combine_chunks().drop_null().to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise errors.table_unreadable_checkpoint(name, log.path, error) from None
    return found


def read_crc(log: DeltaLog[Any], version: int) -> dict[str, Any] | None:
    """Return the content of a ``.crc`` file, ``None`` if Python does not read it. deltalake may read it all the same."""
    data = log.store.read(f"{LOG_DIR}/{version:020d}.crc", _MOST_BYTES)
    try:
        # deltalake reads numbers of any length, and texts that are none where it does not use them.
        said, _ = json.JSONDecoder(parse_int=_number).raw_decode((data or b"").decode("utf-8", "replace").lstrip())
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _number(text: str) -> int:
    return int(text) if len(text) < 4000 else 0


def crc_differs(said: dict[str, Any], facts: LogFacts) -> tuple[str, Any, Any] | None:
    """Return what a ``.crc`` file says otherwise than the log of its version: the field, its value, and the log's."""
    for field, known in (("metadata", facts.metadata), ("protocol", facts.protocol)):
        stated = said.get(field)
        if stated is not None and not isinstance(stated, dict):  # deltalake takes a list for an object
            return field, type(stated).__name__, "an object"
        if isinstance(stated, dict) and known is not None and (different := _differs(field, _meaning(stated), _meaning(known))):
            return different
    stated = said.get("setTransactions")
    for action in stated if isinstance(stated, list) else []:
        application, version = (action.get("appId"), action.get("version")) if isinstance(action, dict) else (None, None)
        if facts.transactions.get(str(application)) != version:
            return f"setTransactions of {str(application)[:80]}", version, facts.transactions.get(str(application))
    return None


def _differs(field: str, found: dict[str, Any], expected: dict[str, Any]) -> tuple[str, Any, Any] | None:
    return next(((f"{field}.{key}", value, expected[key]) for key, value in found.items() if value != expected[key]), None)


def _meaning(action: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have a meaning, in a form that does not depend on the writer. Values of other types stay."""
    try:
        schema = json.loads(action.get("schemaString") or "null")
    except (ValueError, TypeError, RecursionError):
        schema = action.get("schemaString")
    return {
        "id": action.get("id"),
        "schemaString": schema,
        "partitionColumns": action.get("partitionColumns") or [],
        "configuration": _pairs(action.get("configuration") or {}),
        "minReaderVersion": action.get("minReaderVersion"),
        "minWriterVersion": action.get("minWriterVersion"),
        "readerFeatures": _features(action.get("readerFeatures")),
        "writerFeatures": _features(action.get("writerFeatures")),
    }


def _pairs(value: Any) -> Any:
    """Return a map as an object. A checkpoint's maps are lists of pairs."""
    try:
        return dict(value)
    except (TypeError, ValueError):
        return value


def _features(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, list) else value or []


def check_crc_size(log: DeltaLog[Any], version: int | None) -> None:
    """Raise if the ``.crc`` file that deltalake would read for a version is so large that no engine wrote it.

    Args:
        log: The log.
        version: The version, ``None`` for the newest one.

    Raises:
        ChannelError: ``STRANDLINE_CRC_STALE``.
    """
    crc = crc_in_use(log.store.list(LOG_DIR), _NEWEST if version is None else version)
    size = None if crc is None else log.store.size(f"{LOG_DIR}/{crc:020d}.crc")
    if crc is not None and size is not None and size > _MOST_BYTES:
        raise errors.crc_stale_size(crc, log.path, size, _MOST_BYTES)


def check_crc(log: DeltaLog[Any], handle: DeltaTable) -> None:
    """Raise if deltalake believes a ``.crc`` file whose metadata or protocol is not the log's. Its transactions are not used.

    What deltalake says is compared, not the file, which Python may read otherwise or not at all.

    Args:
        log: The log.
        handle: The table, as deltalake has opened it.

    Raises:
        ChannelError: ``STRANDLINE_CRC_STALE``.
    """
    names, version = log.store.list(LOG_DIR), int(handle.version())
    crc = crc_in_use(names, version)
    if crc is None:
        return
    facts = facts_at(log, version, names)
    if facts is None:
        if _is_cleaned(log, names):
            check_crc(log, handle)
            return
        raise errors.crc_stale(crc, log.path)
    metadata, protocol = handle.metadata(), handle.protocol()
    with native(log.path, log.store.options, threads=False):
        columns = json.loads(handle.schema().to_json())
    found = {
        "metadata": {
            "id": metadata.id,
            "schemaString": columns,
            "partitionColumns": metadata.partition_columns,
            "configuration": metadata.configuration,
        },
        "protocol": {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            "readerFeatures": _features(protocol.reader_features),
            "writerFeatures": _features(protocol.writer_features),
        },
    }
    for field, known in (("metadata", facts.metadata), ("protocol", facts.protocol)):
        expected = _meaning(known or {})
        if field == "metadata":
            expected["schemaString"] = _as_deltalake_has_it(log, (known or {}).get("schemaString"))
        if different := _differs(field, found[field], expected):
            field, value, logged = different
            raise errors.crc_stale_content(crc, log.path, field, value, logged)


def _as_deltalake_has_it(log: DeltaLog[Any], schema: Any) -> Any:
    """Return a schema as deltalake returns it: fields that it does not know are left out. What is no schema stays."""
    try:
        with native(log.path, log.store.options, threads=False):
            return json.loads(Schema.from_json(schema).to_json())
    except StorageError:
        raise
    except Exception:  # deltalake raises a bare Exception here
        return schema


def logged_transactions(log: DeltaLog[Any], version: int) -> dict[str, int] | None:
    """Return each application's newest transaction as the log says it, ``None`` if there is no ``.crc`` file to believe instead.

    Args:
        log: The log.
        version: The version that deltalake has opened.

    Raises:
        ChannelError: ``STRANDLINE_CRC_STALE``. The log lacks commits for it.
    """
    names = log.store.list(LOG_DIR)
    crc = crc_in_use(names, version)
    if crc is None:
        return None
    facts = facts_at(log, version, names)
    if facts is None:
        if _is_cleaned(log, names):
            return logged_transactions(log, version)
        raise errors.crc_stale(crc, log.path)
    return facts.transactions


def _is_cleaned(log: DeltaLog[Any], names: Collection[str]) -> bool:
    """Whether somebody has cleaned the log up since its files were listed."""
    return not set(names) <= set(log.store.list(LOG_DIR))
