"""Delta's compacted logs (``N.M.compacted.json``): Delta Spark reads one in the place of the commits that it stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from strandline.channel import Log
from strandline.delta.checks.checkpoints import compacted_logs
from strandline.delta.log import MAX_COMMIT_BYTES
from strandline.delta.storage import LOG_DIR, commit_name
from strandline.report.soundness.verification import violated

__all__ = ["check_compacted"]


@dataclass
class _Actions:
    """What is left of actions, one after the other."""

    added: dict[str, Any] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    last: dict[str, Any] = field(default_factory=dict)
    """The newest metadata and protocol, and the newest transaction of each application."""

    def apply(self, data: bytes) -> None:
        """Apply the lines of a file. Raises ``ValueError`` if they are no actions."""
        for line in data.splitlines():
            if not line.strip():
                continue
            action = json.loads(line)
            if not isinstance(action, dict) or not all(isinstance(body, dict) for body in action.values()):
                raise ValueError("a line is no action")
            for kind, body in action.items():
                if kind in ("add", "remove"):
                    path = unquote(str(body.get("path")))
                    self.added.pop(path, None)
                    self.removed.discard(path)
                    if kind == "add":
                        self.added[path] = [body.get("size"), body.get("stats")]
                    else:
                        self.removed.add(path)
                elif kind == "txn":
                    self.last[f"txn of {body.get('appId')}"] = body.get("version")
                elif kind == "metaData":
                    self.last[kind] = {key: body.get(key) for key in ("id", "schemaString", "configuration")}
                elif kind == "protocol":
                    features = {key: sorted(body.get(key) or ()) for key in ("readerFeatures", "writerFeatures")}
                    self.last[kind] = {"reader": body.get("minReaderVersion"), "writer": body.get("minWriterVersion"), **features}


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
        said, expected = _Actions(), _Actions()
        before: set[str] = set()
        try:
            said.apply(log.store.read(where, 16 * MAX_COMMIT_BYTES) or b"")
        except (ValueError, RecursionError) as error:
            violated(last, where, str(error), "the actions of the commits that it stands for")
        for version in range(first, last + 1):
            data = log.store.read(commit_name(version), MAX_COMMIT_BYTES)
            if data is None:
                return  # it is cleaned up meanwhile
            try:
                own = _Actions()
                own.apply(data)
                before |= own.removed - expected.added.keys()
                expected.apply(data)
            except (ValueError, RecursionError):
                return  # the commit's own check says more
        _compare(last, where, said, expected, before & expected.removed)


def _compare(version: int, where: str, said: _Actions, expected: _Actions, needed: set[str]) -> None:
    """Compare what a compacted log says. A file that came and went within it may be left out."""
    for path in sorted(said.added.keys() ^ expected.added.keys()):
        found, wanted = ("no add", "an add") if path in expected.added else ("an add", "none")
        violated(version, f"{where}, {path}", found, f"{wanted}, as its commits have")
    for path, facts in expected.added.items():
        size, stats = said.added[path]
        if [size, facts[1] if stats is None else stats] != facts:
            violated(version, f"{where}, {path}", said.added[path], facts)
    odd = (needed - said.removed) | (said.removed - expected.removed)
    if odd:
        path = min(odd)
        violated(version, f"{where}, {path}", "a remove" if path in said.removed else "no remove", "what its commits have")
    for what in sorted(said.last.keys() | expected.last.keys()):
        if said.last.get(what) != expected.last.get(what):
            violated(version, f"{where}, {what}", said.last.get(what), expected.last.get(what))
