"""Verifies a channel: its whole log and all its files against the protocol. It only reads, and it never repairs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping

from strandline.channel import Channel, Log
from strandline.delta.checks.checkpoints import Checkpoints, compacted_logs
from strandline.delta.checks.crc_files import crc_differs, crc_versions, facts_at, read_crc
from strandline.delta.data_file import DataFile
from strandline.delta.log import MAX_COMMIT_BYTES
from strandline.delta.storage import LOG_DIR, Store, commit_name
from strandline.delta.table import Table
from strandline.errors import StrandlineError
from strandline.ingest.names import PARKED
from strandline.ingest.parked.lists import ParkedLists
from strandline.ingest.state.corrections_state import CorrectionsState
from strandline.ingest.state.manifest_state import ManifestState
from strandline.ingest.state.parked_state import ParkedState
from strandline.ingest.state.partition_state import idle_states, states_of_partitions
from strandline.ingest.state.registrar_state import RegistrarState, own_names
from strandline.ingest.status import status_of
from strandline.report import errors
from strandline.report.soundness.checkpoint_file import read_checkpoint
from strandline.report.soundness.commit_checks import Actions, actions_of
from strandline.report.soundness.compacted_files import check_compacted
from strandline.report.soundness.file_checks import FileCounts, check_file, check_files
from strandline.report.soundness.log_checks import LogState, Replay
from strandline.report.soundness.verification import Verification, Violated, refused, violated

__all__ = ["verify"]

_MOST_TRIES = 5
_LOG_FILES = re.compile(
    r"\d{20}\.(json|checkpoint(\.\d{10}\.\d{10})?\.parquet|checkpoint\.[0-9a-f-]{36}\.(json|parquet))|_last_checkpoint"
)
_NAMED = re.compile(r"[^\s,]+\.(?:parquet|json|crc)")
_CRC_FILES = re.compile(r"\d{20}\.crc")
_PARKED_MISSING = "STRANDLINE_PARKED_FILE_MISSING"

Told = Callable[[str, int, int], None]


def verify(
    path: str | os.PathLike[str], storage: Mapping[str, str] | None = None, *, progress: Told | None = None
) -> Verification:
    """Verify a channel's whole log and its files against the protocol, and return the first violation, if there is one.

    Everything is read: each commit, each data file, the Delta checkpoints, the states of ingests and the parked files. A log that
    was cut off after one of its commits is the sound log of an earlier version, so that is not found.

    Args:
        path: The channel's path.
        storage: The options of the channel's storage.
        progress: Is called with what is being read, and how many of how many were read.

    Raises:
        ChannelError: ``STRANDLINE_NOT_A_TABLE`` if there is no log at all.
            ``STRANDLINE_TABLE_FEATURE`` if the table has features that Strandline does not support, such as row tracking.
        StatementError: ``STRANDLINE_PROTOCOL_NEWER`` if a newer release has written the channel, so this one cannot judge it.
        StorageError: The storage failed, so nothing can be said.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import pyarrow as pa
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     channel = Channel.create(folder, pa.schema([time_field("time", int64)]), producers=["a"], at=0)
    ...     with channel.producer("a") as a:
    ...         a.delay([7])
    ...     print(verify(folder).sound)
    ...     newest = Path(folder, "_delta_log", f"{2:020d}.json")
    ...     _ = newest.write_text(newest.read_text().replace("[7]", "[8]"))
    ...     print(verify(folder).violation.field)
    True
    sum
    """
    told: Told = progress or (lambda what, done, whole: None)
    log = Log(path, storage)
    if not any(_LOG_FILES.fullmatch(name) for name in log.store.list(LOG_DIR)):
        log.latest()  # raises: it is not a table
        Table(path, storage)
    if not _is_written_by_strandline(log):
        Channel.open(path, storage)  # raises: it is a table of another kind
    field = ""
    for _ in range(_MOST_TRIES):
        versions = set(log.versions())
        found = _verify_once(log, storage, told)
        violation = found.violation
        if violation is None or violation.field == field:
            return found  # what is wrong at the same place twice is not what others did meanwhile
        field = violation.field
        if set(log.versions()) == versions and not _is_removed(log, versions, field):
            return found
    if not _is_removed(log, versions, field):
        return found
    raise errors.channel_changes(log.path, _MOST_TRIES)


def _is_removed(log: Log, versions: set[int], field: str) -> bool:
    """Return whether others have removed the oldest commits meanwhile, or a file that a violation names."""
    return min(log.versions(), default=-1) != min(versions, default=-1) or any(
        log.store.size(name) is None for name in _NAMED.findall(field)
    )


def _is_written_by_strandline(log: Log) -> bool:
    """Return whether any commit has a statement, or might have had one: whatever damage it has."""
    readable = False
    for version in sorted(log.versions()):
        try:
            data = log.store.read(commit_name(version), MAX_COMMIT_BYTES)
        except StrandlineError:
            return True
        if data is None:
            return True
        try:
            actions = actions_of(version, data)
        except (StrandlineError, Violated):
            if b"strandline" in data.lower():
                return True
            continue  # what is left of it does not say it. The others do, if it is a channel
        if _names_strandline(actions) or not actions or (version == 0 and "metaData" not in actions):
            return True
        readable = True
    return not readable


def _names_strandline(actions: Actions) -> bool:
    """Return whether a commit's writer, its statement or a time column says so. Names, paths and predicates may have any text."""
    said = [body.get(field) for body in actions.get("commitInfo", ()) for field in ("engineInfo", "userMetadata")]
    columns = [body.get("schemaString") for body in actions.get("metaData", ())]
    return "strandline" in repr(said).lower() or "strandline.time" in repr(columns).lower()


def _verify_once(log: Log, storage: Mapping[str, str] | None, told: Told) -> Verification:
    path = location = log.path
    replay = Replay(log, lambda: Table(path, storage), lambda done, whole: told("commits", done, whole))
    counts = FileCounts()
    try:
        _check_regular(log.store)
        _refuse_features(path, storage)
        _check_crcs(log, replay.run())
        with refused(None, "the table", "a table that readers can open"):
            channel = Channel.open(path, storage)
            table = Table(path, storage)
        state = replay.go_on(channel.version)  # others may have committed meanwhile
        _check_table(table, channel, state)
        check_compacted(log, state.earliest, state.version)
        _check_checkpoints(log.store, table.id, state, lambda done, whole: told("checkpoints", done, whole))
        check_files(channel, state, counts, lambda done, whole: told("files", done, whole))
        _check_states(channel, counts)
    except Violated as found:
        known = replay.state
        read = (known.version, known.read, known.sums) if known is not None else (-1, 0, 0)
        return Verification(location, *read, counts.files, counts.rows, found.violation, tuple(counts.unchecked))
    return Verification(location, state.version, state.read, state.sums, counts.files, counts.rows, None, tuple(counts.unchecked))


def _refuse_features(path: str, storage: Mapping[str, str] | None) -> None:
    """Raise ``ChannelError`` for a table with features that Strandline does not support: it cannot judge what they change."""
    try:
        Table(path, storage)
    except StrandlineError as error:
        if error.condition == "STRANDLINE_TABLE_FEATURE":
            raise


def _check_regular(store: Store) -> None:
    """Refuse pipes, folders and dangling links in the log before anything waits for them, and a hint that leads nowhere."""
    hint = store.last_checkpoint()  # before the listing: a checkpoint that comes meanwhile is in it
    names = sorted(store.list(LOG_DIR))
    if hint and hint > Checkpoints(names).newest:
        violated(None, f"{LOG_DIR}/_last_checkpoint", f"version {hint}", "a version that has a checkpoint, or one before it")
    compacted = compacted_logs(names)
    for name in names:
        if _LOG_FILES.fullmatch(name) or name in compacted or _CRC_FILES.fullmatch(name):
            with refused(None, f"{LOG_DIR}/{name}", "a regular file"):
                if store.read(f"{LOG_DIR}/{name}", 1) is None:
                    violated(None, f"{LOG_DIR}/{name}", "a link to nothing", "a regular file")
    for name in sorted(store.list(f"{LOG_DIR}/_sidecars")):
        with refused(None, f"{LOG_DIR}/_sidecars/{name}", "a regular file"):
            store.read(f"{LOG_DIR}/_sidecars/{name}", 1)


def _check_table(table: Table, channel: Channel, state: LogState) -> None:
    """Compare what deltalake, from its checkpoint, and an opened channel say with what the whole log says."""
    if channel.version != state.version:
        violated(None, "version", channel.version, state.version)
    if channel.progress != state.progress:
        violated(state.version, "known", "a reader that begins there has another state", "the state that all commits make")
    if state.metadata is not None and table.loaded_version <= state.version:
        for what, found, expected in (
            ("metaData.id", table.id, state.metadata.id),
            ("metaData.schemaString", table.schema, state.metadata.schema),
            ("metaData.configuration", table.configuration, state.metadata.configuration),
        ):
            if found != expected:
                violated(None, f"{what} as a reader opens it", found, expected)
    if state.active is not None:
        with refused(None, "the files of the newest version", "the files that the commits add and do not remove"):
            there = {(file.path, file.size) for file in channel.snapshot_files(state.version)}
        expected = {(file.path, file.size) for file in state.active.values()}
        if there != expected:
            odd = min(there ^ expected)
            violated(
                None, "the files of the newest version", f"{odd[0]} differs", "the files that the commits add and do not remove"
            )
    for application, number in state.transactions.items():
        if channel.committed(application) != number:
            violated(None, f"txn of {application} as a reader opens it", channel.committed(application), number)


def _check_crcs(log: Log, state: LogState) -> None:
    """Compare each ``.crc`` file of Delta Spark with the commits up to it.

    One that Python does not read was compared when the table was opened, if deltalake uses it.
    """
    names = log.store.list(LOG_DIR)
    for version in sorted(version for version in crc_versions(names) if version >= state.earliest):
        name = f"{LOG_DIR}/{version:020d}.crc"
        said = read_crc(log, version)
        if said is None:
            continue
        if version > state.version and not log.exists(version):  # others may have committed meanwhile
            violated(version, name, "a version that the log does not have", f"files of versions up to {state.version}")
        with refused(version, name, "what the commits up to it say"):
            facts = facts_at(log, version, names)
        different = None if facts is None else crc_differs(said, facts)
        if different is not None:
            violated(version, f"{name}, {different[0]}", different[1], different[2])


def _check_checkpoints(store: Store, table_id: str, state: LogState, told: Callable[[int, int], None]) -> None:
    """Compare each Delta checkpoint with the commits up to it."""
    shown = _Shown()
    expected: set[tuple[str, int, str]] = set()
    stats: dict[str, str | None] = {}
    changes = iter(state.changes)
    change = next(changes, None)
    for done, (version, names, known, transactions) in enumerate(state.checkpoints):
        told(done, len(state.checkpoints))
        while change is not None and change.version <= version:
            expected.difference_update(map(shown.file, change.removed))
            expected.update(map(shown.file, change.added))
            stats.update((file.path, file.stats) for file in change.added)
            change = next(changes, None)
        name, files, columns, applied, ids = read_checkpoint(store, version, names)
        if known:
            stated = any(file.stats is not None for file in files)
            bare = state.stats_columns.keys() if stated else {path for path, _, _ in expected}  # without JSON to compare
            there = {(path, size, "" if path in bare else text) for path, size, text in expected}
            found = {(file.path, file.size, "") if file.path in bare else shown.file(file) for file in files}
            if found != there or len(files) != len(there):
                odd = sorted(found ^ there)[:1]
                violated(version, f"{name}, add", odd or f"{len(files)} files", "the files of its version")
            for path, each in columns.items():
                first = state.stats_columns.get(path)  # no commit states it: this is compared with the file's rows
                different = each.differs(stats[path]) if first is None else each.differs_from(first)
                if different:
                    violated(version, f"{name}, stats_parsed of {path}, {different[0]}", different[1], different[2])
            if any(applied.get(application) != number for application, number in transactions.items()):
                violated(version, f"{name}, txn", applied, transactions)
        if ids != [table_id]:
            violated(version, f"{name}, metaData", ids, table_id)


class _Shown:
    """Files as a checkpoint and a commit both have them. Checkpoints may lay their statistics out in another way.

    Each checkpoint has the files of those before it, so each text is parsed once.
    """

    def __init__(self) -> None:
        self._texts: dict[str | None, str] = {}

    def file(self, file: DataFile) -> tuple[str, int, str]:
        text = self._texts.get(file.stats)
        if text is None:
            text = self._texts[file.stats] = _statistics(file.stats)
        return file.path, file.size, text


def _statistics(text: str | None) -> str:
    try:
        stated = json.loads(text or "{}")
        stats = {key: stated.get(key) for key in ("numRecords", "minValues", "maxValues", "nullCount")}
    except (ValueError, AttributeError, RecursionError):
        return str(text)
    return json.dumps(stats, sort_keys=True)


def _check_states(channel: Channel, counts: FileCounts) -> None:
    """Check what ingests keep in the states of producers, and the files that wait beyond ``maxAhead``."""
    progress, expected = channel.progress, "what docs/protocol.md says of an ingest's state"
    with refused(channel.version, "state", expected):
        if not RegistrarState.of(progress).entries:
            return
        partitions = progress.producers_but(*own_names(progress))
        for name, state in states_of_partitions(progress, ((name, known.state) for name, known in partitions.items())):
            if isinstance(state.own, dict) and "held" in state.own:
                ManifestState.of(name, state.own)
        idle_states(progress)
        CorrectionsState.of(progress)
        status_of(channel)
    for name in own_names(progress):
        if not name.startswith(PARKED):
            continue
        with refused(channel.version, f"state of {name}", expected):
            parked = ParkedState.of(name, progress.get(name))
            parcels = ParkedLists(channel.path, channel.storage_options).waiting(parked, channel.domain).parcels
        if sum(parcel.rows for parcel in parcels) != (parked.rows or 0):
            violated(channel.version, f"state of {name}, rows", parked.rows, sum(parcel.rows for parcel in parcels))
        for parcel in parcels:
            for file in parcel.files:
                _check_parked(channel, DataFile(file.path, file.size, file.rows), counts)


def _check_parked(channel: Channel, file: DataFile, counts: FileCounts) -> None:
    if channel.log.store.size(file.path) is None:
        violated(channel.version, file.path, "no file", "rows that wait beyond maxAhead", _PARKED_MISSING)
    table = check_file(channel, channel.log.store, channel.version, file, channel.schema.names, counts, missing=_PARKED_MISSING)
    counts.files, counts.rows = counts.files + 1, counts.rows + table.num_rows
