"""What a commit says of the query that made it: how far the query had read each of its input channels."""

from __future__ import annotations

from typing import Any, NamedTuple

from strandline.channel.statements.beginning import Beginning
from strandline.json_value import JsonObject

__all__ = ["Input", "inputs_from_json"]

_MOST = 10_000
"""The number of inputs. Writers and readers share it."""


class Input(NamedTuple):
    """A channel that a query reads, and how far it had read it when it made a commit.

    Attributes:
        table: The id of the channel's Delta table.
        commit: All commits before this one were read.
        file: And so many files of it.
        path: Where the query finds the channel; ``None`` where its writer does not know it.
        summary: The steps from the channel's times to those of this output (docs/protocol.md); ``None`` if not known.
        domain: The domain that the channel's times enter before the first step; ``None`` if not known.
        after: What tells the newest commit that was read from any other of its version; ``None`` if not known.
        snapshot: The version of the snapshot with which the query begins, while ``file`` counts the files of that.
        began: Where the query began to read the channel; ``None`` if not known.
        input: The channel's name in a source of several channels, if the query follows the channel's own frontier; ``None`` if it
            follows that of all channels of the source together.

    >>> Input("7c1f", 5, 0, "/lake/flights", ()).to_json()
    {'table': '7c1f', 'commit': 5, 'file': 0, 'path': '/lake/flights', 'summary': []}
    """

    table: str
    commit: int
    file: int
    path: str | None = None
    summary: tuple[Any, ...] | None = None
    domain: str | None = None
    after: str | None = None
    snapshot: int | None = None
    began: Beginning | None = None
    input: str | None = None

    def to_json(self) -> JsonObject:
        """Return the JSON object of a statement."""
        body: JsonObject = {"table": self.table, "commit": self.commit, "file": self.file}
        if self.path is not None:
            body["path"] = self.path
        if self.summary is not None:
            body["summary"] = list(self.summary)
        if self.domain is not None:
            body["domain"] = self.domain
        if self.after is not None:
            body["after"] = self.after
        if self.snapshot is not None:
            body["snapshot"] = self.snapshot
        if self.began is not None:
            body["began"] = self.began.to_json()
        if self.input is not None:
            body["input"] = self.input
        return body


def inputs_from_json(value: Any) -> tuple[Input, ...]:
    """Read the field ``reads`` of a statement. Raises ``ValueError`` for anything that no writer of ours makes."""
    if not isinstance(value, list) or len(value) > _MOST:
        raise ValueError(f"reads is not a list of at most {_MOST} inputs")
    return tuple(_input(each) for each in value)


def _input(value: Any) -> Input:
    if not isinstance(value, dict):
        raise ValueError("an entry of reads is not an object")
    table, commit, file, path, summary, domain, after, snapshot, began, name = (value.get(key) for key in Input._fields)
    if not isinstance(table, str) or any(type(n) is not int or n < 0 for n in (commit, file)):
        raise ValueError("an entry of reads has no table, commit or file")
    if not isinstance(path, str | None) or not isinstance(summary, list | None) or not isinstance(domain, str | None):
        raise ValueError("an entry of reads has a wrong path, summary or domain")
    if not isinstance(name, str | None):
        raise ValueError("an entry of reads has a wrong input")
    if not isinstance(after, str | None) or (snapshot is not None and (type(snapshot) is not int or snapshot < 0)):
        raise ValueError("an entry of reads has a wrong after or snapshot")
    steps = None if summary is None else tuple(summary)
    return Input(table, int(commit or 0), int(file or 0), path, steps, domain, after, snapshot, Beginning.from_json(began), name)
