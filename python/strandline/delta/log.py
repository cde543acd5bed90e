"""The Delta log as a sequence of commits, read file by file. A refresh costs only as much as the new commits."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from strandline.delta import errors
from strandline.delta.data_file import DataFile
from strandline.delta.data_file_columns import DataFiles
from strandline.delta.storage import LOG_DIR, Store, commit_name, open_store

__all__ = ["MAX_COMMIT_BYTES", "DeltaCommit", "DeltaLog", "check_nesting", "is_transaction", "moment_of"]

MAX_COMMIT_BYTES = 256 << 20
"""A larger commit file is refused without parsing it, because others write the log."""

_KINDS = ("add", "remove", "commitInfo", "txn", "metaData", "protocol", "cdc", "domainMetadata", "checkpointMetadata", "sidecar")
_ADD = b'{"add"'
_LAST_MS = 253_402_300_799_999  # the year 9999
_MANY = 64
"""At least this many ``add`` actions are read as columns instead of one by one."""
_DEEPEST = 4000
"""deltalake's parser ends the process by a stack overflow at somewhat more than four times this depth."""
_AT_ONCE = 1 << 22
_MOST_LINES = 1 << 22
"""No commit of that size has more actions: they would have 64 bytes each. A list of their lines must fit into memory."""
_BLANK = re.compile(rb"\n\s*\n")
_CLOSE, _NEWLINE = b"}\n"
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_BETWEEN = np.isin(np.arange(256), list(b" \t\r\n}"))
"""What may be outside of a line's object: white space, and its own end."""
_NO_LONG = 1 << 63
"""Delta's versions of transactions have 64 bits."""
_PREFIXES = tuple((f'{{"{kind}"'.encode(), kind) for kind in _KINDS)


def is_transaction(application: object, version: object) -> bool:
    """Return whether these are an application's id and a version that Delta's transactions can have.

    >>> is_transaction("query", 7), is_transaction("query", True), is_transaction("query", 1 << 63)
    (True, False, False)
    """
    try:
        return isinstance(application, str) and len(application.encode()) > 0 and type(version) is int and abs(version) < _NO_LONG
    except UnicodeError:
        return False


def check_nesting(version: int, data: bytes) -> None:
    """Raise :class:`LogError` if parsing a commit's file with deltalake might end the process by its nesting.

    deltalake's parser calls itself for each level, in the lines and in the statistics. It reads several values of a line, and
    a value over several lines. So a file with more brackets than are allowed to be nested must have one JSON object in each
    line, as Delta's protocol says.
    """
    if len(data) < 2 * _DEEPEST or _brackets(data) <= _DEEPEST:
        return
    start = 0
    while start < len(data):  # some lines at a time: the work arrays are several times as large
        end = data.find(b"\n", start + _AT_ONCE) + 1 or len(data)
        deepest = _depth_of_lines(version, data[start:end])
        for line in data[start:end].split(b"\n"):
            if _brackets(line) > _DEEPEST:
                deepest = max(deepest, _depth_in(version, line))
        if deepest > _DEEPEST:
            raise errors.commit_invalid_nesting(version, _DEEPEST)
        start = end


def _brackets(text: bytes) -> int:
    """Return at least the number of opening brackets, also of those that are written as escapes."""
    return text.count(b"[") + text.count(b"{") + text.count(b"\\u00")


def _depth_of_lines(version: int, lines: bytes) -> int:
    """Return how deep whole lines are nested. Raises :class:`LogError` unless each has one object, or is blank."""
    outside, depth, closed = _structure(lines)
    top = outside[depth == 0]
    ends = top[(top == _CLOSE) | (top == _NEWLINE)]  # no object may follow another one without a line's end
    alone = not ((ends[:-1] == _CLOSE) & (ends[1:] == _CLOSE)).any() and bool(_BETWEEN[top].all())
    if not closed or not alone or depth[outside == _NEWLINE].any() or depth[-1:].any():
        raise errors.commit_invalid_line(version)
    return int(depth.max(initial=0))


def _depth_in(version: int, line: bytes) -> int:
    """Return how deep the statistics in a line are nested, also where a key is there twice."""
    found: list[str] = []
    try:
        json.loads(line, object_pairs_hook=lambda pairs: found.extend(v for k, v in pairs if k == "stats" and isinstance(v, str)))
    except RecursionError:
        return _DEEPEST + 1
    except ValueError as error:
        raise errors.commit_invalid_json(version, error) from None
    depths = [_structure(text.encode("utf-8", "surrogatepass"))[1].max(initial=0) for text in found]
    return int(max(depths, default=0))


def _structure(text: bytes) -> tuple[Any, Any, bool]:
    """Return the bytes outside of strings, the nesting after each, and whether all strings end in the line where they begin."""
    # With letters for escaped backslashes and quotes, each quote begins or ends a string. Outside of objects no letter may be.
    plain = np.frombuffer(text.replace(b"\\\\", b"aa").replace(b'\\"', b"aa"), np.uint8)
    inside = np.logical_xor.accumulate(plain == ord('"'))
    outside = plain[~inside]
    broken = bool(inside[-1:].any() or (inside & (plain == _NEWLINE)).any())
    return outside, np.cumsum(_STEPS[outside], dtype=np.int32), not broken


def moment_of(ms: int) -> int | None:
    """Return a commit's moment, or ``None`` if it is not one that a calendar has. Others write the log.

    >>> moment_of(1_357_106_400_000), moment_of(0), moment_of(1 << 80)
    (1357106400000, None, None)
    """
    return ms if 0 < ms <= _LAST_MS else None


class DeltaCommit:
    """One version of a Delta table. It is parsed only as far as needed.

    Raises :class:`LogError` if the file does not follow Delta's protocol. The error names the version.

    >>> line = b'{"add":{"path":"a.parquet","size":9,"dataChange":true,"stats":"{\\\\"numRecords\\\\":3}"}}'
    >>> commit = DeltaCommit(4, line)
    >>> commit.files[0].rows, commit.removes
    (3, False)
    """

    def __init__(self, version: int, data: bytes, table: str = "") -> None:
        self.version = version
        self._table = table
        self._lines: dict[str, list[bytes]] = {"add": (adds := [])}
        if data.count(b"\n") > _MOST_LINES:
            data = _BLANK.sub(b"\n", data)  # they are no actions
            if data.count(b"\n") > _MOST_LINES:
                raise errors.commit_invalid_lines(version, _MOST_LINES, table)
        for line in data.split(b"\n"):
            if line.startswith(_ADD):  # a commit may have very many of them
                adds.append(line)
            elif line.strip():
                self._lines.setdefault(self._kind(line), []).append(line)
        if not adds and len(self._lines) == 1:
            raise errors.commit_torn_empty(version, table)

    def _kind(self, line: bytes) -> str:
        for prefix, kind in _PREFIXES:  # every writer in use puts the action's name first, without white space
            if line.startswith(prefix):
                return kind
        action = self._load(line)
        if not isinstance(action, dict) or len(action) != 1:
            raise errors.commit_invalid_line(self.version, self._table)
        return str(next(iter(action)))

    def _load(self, line: bytes) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise errors.commit_invalid_json(self.version, error, self._table) from error

    def _load_all(self, lines: list[bytes]) -> list[Any]:
        """Return each line's value.

        All lines are parsed at once, because a commit may remove many files. If that fails, each line is parsed alone.
        """
        if len(lines) > 1:
            with suppress(ValueError, RecursionError):
                loaded = json.loads(b"[%b]" % b",".join(lines))
                if len(loaded) == len(lines):
                    return list(loaded)
        return [self._load(line) for line in lines]

    def _actions(self, kind: str) -> list[dict[str, Any]]:
        actions = []
        for loaded in self._load_all(self._lines.get(kind, [])):
            action = loaded.get(kind) if isinstance(loaded, dict) else None
            if not isinstance(action, dict):
                raise errors.commit_invalid_action(self.version, kind, self._table)
            actions.append(action)
        return actions

    @cached_property
    def digest(self) -> str:
        """The first 32 digits of the SHA-256 of the commit's lines, sorted. It identifies a commit whose writer gave it no id."""
        lines = sorted(line for lines in self._lines.values() for line in lines)
        return hashlib.sha256(b"\n".join(lines)).hexdigest()[:32]

    @property
    def actions(self) -> int:
        """The number of actions in the commit."""
        return sum(map(len, self._lines.values()))

    @property
    def adds_files(self) -> bool:
        """Whether the commit adds any file, even if only to rearrange rows."""
        return bool(self._lines["add"])

    @cached_property
    def info(self) -> dict[str, Any]:
        """The ``commitInfo`` action, empty when there is none."""
        infos = self._actions("commitInfo")
        return infos[0] if infos else {}

    @property
    def operation(self) -> str:
        """The writer's name for the commit: ``WRITE``, ``OPTIMIZE``, ``STREAMING UPDATE``, …; empty if it gave none."""
        return str(self.info.get("operation", ""))

    @property
    def timestamp_ms(self) -> int:
        """The time of the commit according to its writer, in milliseconds since 1970; 0 if it gave none."""
        value = self.info.get("timestamp", 0)
        return value if isinstance(value, int) else 0

    @property
    def made_ms(self) -> int | None:
        """:attr:`timestamp_ms`, or ``None`` if the writer gave none that is one (:func:`moment_of`)."""
        return moment_of(self.timestamp_ms)

    @cached_property
    def files(self) -> DataFiles:
        """The files that bring new rows (``dataChange`` true), in the commit's order."""
        lines = self._lines["add"]
        many = DataFiles.from_adds(lines) if len(lines) >= _MANY else None
        return DataFiles.of(self._added()) if many is None else many

    def _added(self) -> Iterator[DataFile]:
        for action in self._actions("add"):
            if action.get("deletionVector"):
                raise errors.deletion_vectors_added(self.version, action.get("path"))
            try:
                file = DataFile.from_add(action)
            except ValueError as error:
                raise errors.commit_invalid_add(self.version, error, self._table) from error
            if action.get("dataChange", True) is not False:
                yield file

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """The paths whose rows the commit deletes or rewrites (removed with ``dataChange`` true)."""
        return tuple(str(r.get("path", "")) for r in self._actions("remove") if r.get("dataChange", True) is not False)

    @property
    def removes(self) -> bool:
        """Whether the commit deletes or rewrites rows."""
        return bool(self.removed)

    @property
    def removes_files(self) -> bool:
        """Whether the commit removes any file from the table, even if only to rearrange rows (OPTIMIZE)."""
        return "remove" in self._lines

    @property
    def metadata_changed(self) -> bool:
        """Whether the commit sets the table's metadata or protocol. Creating or altering a table does this."""
        return "metaData" in self._lines or "protocol" in self._lines

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The ``metaData`` action, if the commit has one."""
        actions = self._actions("metaData")
        return actions[-1] if actions else None

    @property
    def protocol(self) -> dict[str, Any] | None:
        """The ``protocol`` action, if the commit has one."""
        actions = self._actions("protocol")
        return actions[-1] if actions else None

    @cached_property
    def transactions(self) -> dict[str, int]:
        """The application transactions that the commit records: the version by application id."""
        found: dict[str, int] = {}
        for action in self._actions("txn"):
            application, version = action.get("appId"), action.get("version")
            if not is_transaction(application, version):
                raise errors.commit_invalid_txn(self.version, application, version, self._table)
            found[str(application)] = int(version or 0)
        return found

    def __repr__(self) -> str:
        actions = ", ".join(f"{len(lines)} {kind}" for kind, lines in self._lines.items() if lines)
        return f"{type(self).__name__}({self.version}, {actions})"


CommitT = TypeVar("CommitT", bound=DeltaCommit)


class DeltaLog(Generic[CommitT]):
    """Reads a table's commits by version, directly from ``_delta_log``.

    A subclass sets :attr:`commit_type`, the class of its commits. Reading a local commit takes some tens of microseconds.
    Other locations are read through deltalake's file system.
    """

    commit_type: type[Any] = DeltaCommit

    def __init__(
        self, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None, store: Store | None = None
    ) -> None:
        self.store: Store = open_store(path, storage_options) if store is None else store
        self.path = os.fspath(path)

    def read(self, version: int) -> CommitT | None:
        """Return the commit of ``version``, or ``None`` if its file does not exist, or no longer exists."""
        data = self.store.read(commit_name(version), MAX_COMMIT_BYTES + 1)
        return None if data is None else self.parse(version, data)

    def parse(self, version: int, data: bytes) -> CommitT:
        """Return the commit that a file has, or would have. Raises :class:`LogError` ``STRANDLINE_COMMIT_INVALID``."""
        self._check_size(version, len(data))
        commit: CommitT = self.commit_type(version, data, self.path)
        return commit

    def _check_size(self, version: int, size: int) -> None:
        if size > MAX_COMMIT_BYTES:
            raise errors.commit_invalid_size(version, MAX_COMMIT_BYTES, self.path)

    def check_nesting(self, newest: int | None = None) -> None:
        """Raise :class:`LogError` if a commit that deltalake parses to open a version is nested too deep (:func:`check_nesting`).

        These are the commits after the last checkpoint. Usually only their sizes are looked at. A commit larger than
        :data:`MAX_COMMIT_BYTES` is refused too.
        """
        start = self.store.last_checkpoint()
        if start and (start > (start if newest is None else newest) or not self.has_checkpoint(start)):
            start = 0
        if not self.exists(start):
            start = self.earliest()
        version = start
        while (newest is None or version <= newest) and (size := self.store.size(commit_name(version))) is not None:
            if size > 2 * _DEEPEST:
                self._check_size(version, size)
                check_nesting(version, self.store.read(commit_name(version), MAX_COMMIT_BYTES) or b"")
            version += 1

    def has_checkpoint(self, version: int) -> bool:
        """Return whether there is a Delta checkpoint of a version in one file, as Strandline writes them."""
        return self.store.size(f"{LOG_DIR}/{version:020d}.checkpoint.parquet") is not None

    def exists(self, version: int) -> bool:
        """Return whether the commit's file exists."""
        return self.store.size(commit_name(version)) is not None

    def latest(self, at_least: int = 0) -> int:
        """Return the newest version, found with few look-ups.

        The search starts at ``at_least``, which should be a version that exists.
        """
        low = max(at_least, 0)
        if not self.exists(low):
            low = self._newest_listed()
        step = 1
        while self.exists(low + step):
            low, step = low + step, step * 2
        while step > 1:  # versions are contiguous: halve the gap between the last one found and the first one missing
            step //= 2
            if self.exists(low + step):
                low += step
        return low

    def _newest_listed(self) -> int:
        hint = self.store.last_checkpoint()
        if hint and self.exists(hint):
            return hint
        versions = self.versions()
        if not versions:
            raise errors.not_a_table_without_commits(self.path)
        return max(versions)

    def versions(self) -> list[int]:
        """Return the versions whose commit files exist, in no particular order."""
        names = self.store.list(LOG_DIR)
        return [int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json") and name[:20].isdecimal()]

    def earliest(self) -> int:
        """Return the oldest version whose commit file still exists."""
        if self.exists(0):
            return 0
        versions = self.versions()
        return min(versions) if versions else 0

    def tail(self, start: int) -> Iterator[CommitT]:
        """Yield the commits from ``start`` on, one after the other, up to the newest one.

        Raises :class:`LogError` ``STRANDLINE_LOG_TRUNCATED`` if the log has newer commits but not the next one.
        """
        version = start
        while (commit := self.read(version)) is not None:
            yield commit
            version += 1
        # At the end of the log there is neither a later commit nor a later checkpoint. Two look-ups check this.
        if self.exists(version + 1) or (self.store.last_checkpoint() > version and self._goes_on(version)):
            if self.exists(version):  # it arrived between the look-ups
                yield from self.tail(version)
                return
            raise errors.log_truncated(version, self.path, self.earliest())

    def _goes_on(self, version: int) -> bool:
        """Return whether a commit or a checkpoint of ``version`` or later exists.

        The checkpoint hint alone does not prove this, because it may be damaged.
        """
        return any(name[:20].isdecimal() and int(name[:20]) >= version for name in self.store.list(LOG_DIR) if name[20:21] == ".")

    def require(self, version: int) -> CommitT:
        """Return the commit of ``version``. Raises ``STRANDLINE_LOG_TRUNCATED`` if its file does not exist."""
        commit = self.read(version)
        if commit is None:
            raise errors.log_truncated(version, self.path, self.earliest())
        return commit
