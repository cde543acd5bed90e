"""Delta's compacted logs (``N.M.compacted.json``): Delta Spark reads one in the place of the commits that it stands for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from strandline.channel import Log
from strandline.delta.checks.checkpoints import compacted_logs
from strandline.delta.data_file import DataFile
from strandline.delta.log import MAX_COMMIT_BYTES
from strandline.delta.storage import LOG_DIR, commit_name
from strandline.report.soundness.commit_checks import Actions, actions_of, check_file_actions, metadata_of
from strandline.report.soundness.verification import Violated, violated

__all__ = ["check_compacted"]

_FILE = {"path", "dataChange", "partitionValues", "size", "stats", "tags", "deletionVector"}
_FIELDS = {
    "add": _FILE | {"modificationTime", "clusteringProvider", "baseRowId", "defaultRowCommitVersion"},
    "remove": _FILE | {"deletionTimestamp", "extendedFileMetadata", "baseRowId", "defaultRowCommitVersion"},
    "txn": {"appId", "version", "lastUpdated"},
    "metaData": {"id", "name", "description", "format", "schemaString", "partitionColumns", "configuration", "createdTime"},
    "protocol": {"minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"},
    "domainMetadata": {"domain", "configuration", "removed"},
}
"""The actions that a compacted log keeps, and their fields."""
_NEEDED_OF_REMOVES = {"path", "deletionTimestamp", "deletionVector"}
"""What readers and VACUUM take from a remove. The rest repeats the add, and may be left out."""

Key = tuple[str, str]
"""An action's kind, and what it is about: a file, an application, a domain."""


def check_compacted(log: Log, earliest: int, newest: int) -> None:
    """Compare each compacted log with the commits that it stands for, as far as the log still has them.

    Args:
        log: The log.
        earliest: The first commit that the log has.
        newest: The last one that was read.
    """
    for name, (first, last) in compacted_logs(log.store.list(LOG_DIR)).items():
        where = f"{LOG_DIR}/{name}"
        if last > newest and not log.exists(last):
            violated(last, where, f"versions {first} to {last}", f"versions up to {newest}, as the log has them")
        if last > newest or first < earliest:
            continue  # its commits came meanwhile, or were cleaned up
        data = log.store.read(where, 16 * MAX_COMMIT_BYTES)
        if data is None:
            continue  # it is cleaned up meanwhile
        with _within(where):
            actions = actions_of(last, data)
            if odd := actions.keys() - _FIELDS.keys() - {"commitInfo"}:
                violated(last, min(odd), "an action", f"none but {', '.join(_FIELDS)}")
            metadata_of(last, actions)
            check_file_actions(last, actions)
            said = _left(actions)
            if len(said) < sum(len(bodies) for kind, bodies in actions.items() if kind != "commitInfo"):
                violated(last, "actions", "two about the same", "one about each file, application and domain")
            try:
                expected, needed = _reconciled(_commits(log, first, last))
            except _CleanedUp:
                continue
            _compare(last, said, expected, needed)


class _CleanedUp(Exception):  # noqa: N818 - it ends a comparison, and is no error of it
    """A commit was cleaned up while it was to be read."""


def _commits(log: Log, first: int, last: int) -> Iterator[Actions]:
    """Yield the actions of commits one at a time: all of them together may be large."""
    for version in range(first, last + 1):
        data = log.store.read(commit_name(version), MAX_COMMIT_BYTES)
        if data is None:
            raise _CleanedUp
        yield actions_of(last, data)


@contextmanager
def _within(where: str) -> Iterator[None]:
    """Name the file in a violation of what is in it."""
    try:
        yield
    except Violated as found:
        raise Violated(replace(found.violation, field=f"{where}, {found.violation.field}")) from None


def _left(actions: Actions) -> dict[Key, dict[str, Any]]:
    """Return what is left of a file's actions: the last one about each file, application and domain."""
    found: dict[Key, dict[str, Any]] = {}
    for kind in ("remove", "add", "txn", "metaData", "protocol", "domainMetadata"):
        for body in actions.get(kind, ()):
            if kind in ("add", "remove"):
                path = DataFile.from_add({"path": body["path"], "size": 0}).path
                found.pop(("remove", path), None)
                found[kind, path] = body
            else:
                found[kind, str(body.get("appId" if kind == "txn" else "domain", ""))] = body
    return found


def _reconciled(commits: Iterable[Actions]) -> tuple[dict[Key, dict[str, Any]], set[Key]]:
    """Return what is left of commits, and which of it may not be left out. A file that came and went within them may be."""
    found: dict[Key, dict[str, Any]] = {}
    before: set[Key] = set()  # the removes of files that were there before
    for actions in commits:
        for (kind, name), body in _left(actions).items():
            if kind == "remove" and ("add", name) not in found:
                before.add((kind, name))
            if kind in ("add", "remove"):
                found.pop(("add", name), None)
                found.pop(("remove", name), None)
            found[kind, name] = body
    return found, {key for key in found if key[0] != "remove" or key in before}


def _compare(version: int, said: dict[Key, dict[str, Any]], expected: dict[Key, dict[str, Any]], needed: set[Key]) -> None:
    for kind, name in sorted((said.keys() - expected.keys()) | (needed - said.keys())):
        found, wanted = ("none", "one") if (kind, name) in needed else ("one", "none")
        violated(version, f"{kind} {name}".rstrip(), found, f"{wanted}, as its commits have")
    for (kind, name), body in said.items():
        whole = expected[kind, name]
        for field in sorted(body.keys() | (_FIELDS[kind] & whole.keys())):
            if field == "dataChange" or (kind == "remove" and field not in body and field not in _NEEDED_OF_REMOVES):
                continue  # no reader of a snapshot looks at it
            known = field in _FIELDS[kind] or field in whole
            if not known or _meaning(field, body.get(field)) != _meaning(field, whole.get(field)):
                violated(version, f"{kind} {name}".rstrip() + f", {field}", body.get(field), whole.get(field))


def _meaning(field: str, value: Any) -> str:
    """Return a field's value in one form, however its writer lays it out."""
    if field in ("schemaString", "stats") and isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    if field in ("readerFeatures", "writerFeatures"):
        value = sorted(value or ())
    return json.dumps(_stated(value), sort_keys=True)


def _stated(value: Any) -> Any:
    """Return a value without what is empty."""
    if isinstance(value, dict):
        value = {key: inner for key, each in value.items() if (inner := _stated(each)) is not None}
    return None if value in ({}, []) else value
