"""What a scope's file says: its time domain, its channels, its queries, and the path summaries of each query."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.errors import StrandlineError
from strandline.scope import errors
from strandline.time.domain import TimeDomain, parse_domain
from strandline.time.path.summary import Summaries, identity, summary_from_json

__all__ = ["SCOPE_VERSION", "ScopeChannel", "ScopeDefinition", "ScopeQuery", "checked_name", "summaries_of"]

SCOPE_VERSION = 1
"""The newest version of scope files that this release reads. It is also the version that it writes."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}")


@dataclass(frozen=True)
class ScopeChannel:
    """A channel of a scope.

    Attributes:
        path: The table's path: relative if the table lies below the scope's folder, otherwise absolute.
        table: The Delta table's id. A table that is made anew at the path has another one.
    """

    path: str
    table: str


@dataclass(frozen=True)
class ScopeQuery:
    """A query of a scope: what it reads and writes, and what it does to times on the way.

    Attributes:
        reads: The names of the channels that it reads.
        writes: The names of the channels that it writes.
        summaries: For each channel that it reads, the least path summaries to each channel that it writes. An output that is
            missing is not reached from that input.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    summaries: Mapping[str, Mapping[str, Summaries]]

    def __str__(self) -> str:
        paths = [
            f"{read} → {write} by {', '.join(map(str, found))}"
            for read, row in self.summaries.items()
            for write, found in row.items()
        ]
        return f"({', '.join(self.reads)}) → ({', '.join(self.writes)}) with {'; '.join(paths) or 'no path'}"


@dataclass(frozen=True)
class ScopeDefinition:
    """The content of a scope's file.

    >>> from strandline.time.domain import int64
    >>> ScopeDefinition("7c1f", int64).to_text()
    '{"strandlineScope":1,"id":"7c1f","domain":"int64","channels":{},"queries":{}}'
    >>> ScopeDefinition.from_text('{"strandlineScope":2}', "routes")
    Traceback (most recent call last):
    strandline.errors.ScopeError: [STRANDLINE_SCOPE_NEWER] ...
    """

    id: str
    domain: TimeDomain
    channels: Mapping[str, ScopeChannel] = field(default_factory=dict)
    queries: Mapping[str, ScopeQuery] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the text of the file."""
        body = {
            "strandlineScope": SCOPE_VERSION,
            "id": self.id,
            "domain": str(self.domain),
            "channels": {name: {"path": c.path, "table": c.table} for name, c in self.channels.items()},
            "queries": {
                name: {
                    "reads": list(query.reads),
                    "writes": list(query.writes),
                    "summaries": {
                        read: {write: found.to_json() for write, found in row.items()} for read, row in query.summaries.items()
                    },
                }
                for name, query in self.queries.items()
            },
        }
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str, where: str) -> ScopeDefinition:
        """Read the text of a scope's file. Nothing is assumed about it, because others may write it.

        Args:
            text: The text.
            where: The file, for error messages.

        Raises:
            ScopeError: ``STRANDLINE_SCOPE_INVALID`` or ``STRANDLINE_SCOPE_NEWER``.
        """
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise errors.scope_invalid_json(where, error) from error
        version = body.get("strandlineScope") if isinstance(body, dict) else None
        if type(version) is not int or version < 1:
            raise errors.scope_invalid_version(where)
        if version > SCOPE_VERSION:
            raise errors.scope_newer(where, version, SCOPE_VERSION)
        try:
            domain = parse_domain(_text(body.get("domain"), "domain"))
            channels = {
                _name(name): ScopeChannel(_text(entry.get("path"), "path"), _text(entry.get("table"), "table"))
                for name, entry in _objects(body.get("channels"), "channels")
            }
            queries = {_name(name): _query(entry, domain) for name, entry in _objects(body.get("queries"), "queries")}
            definition = cls(_text(body.get("id"), "id"), domain, channels, queries)
            for name, query in queries.items():
                definition.check_query(name, query)
        except (ValueError, RecursionError, StrandlineError) as error:
            raise errors.scope_invalid_content(where, error) from error
        return definition

    def check_query(self, name: str, query: ScopeQuery) -> None:
        """Raise :class:`ScopeError` unless the query reads and writes channels of the scope, each named once."""
        for kind, names in (("reads", query.reads), ("writes", query.writes)):
            for channel in names:
                if channel not in self.channels:
                    raise errors.scope_channel_unknown_to_query(name, kind, channel, self.channels)
                if names.count(channel) > 1:
                    raise errors.scope_query_invalid_twice(name, kind, channel)
        if not query.reads or not query.writes:
            raise errors.scope_query_invalid_number(name, query.reads, query.writes)
        for read, row in query.summaries.items():
            for write in row:
                if read not in query.reads or write not in query.writes:
                    raise errors.scope_query_invalid_ends(name, read, write, query.reads, query.writes)

    def require_channel(self, name: str) -> ScopeChannel:
        """Return a channel. Raises :class:`ScopeError` ``STRANDLINE_SCOPE_CHANNEL_UNKNOWN``."""
        found = self.channels.get(name)
        if found is None:
            raise errors.scope_channel_unknown(name, self.channels)
        return found


def checked_name(name: str, what: str) -> str:
    """Return ``name`` if it can be the name of a channel or a query. Raises :class:`ScopeError` otherwise.

    >>> checked_name("labels", "channel")
    'labels'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise errors.scope_name_invalid(name, what)
    return name


def summaries_of(
    domain: TimeDomain, name: str, given: Mapping[str, Mapping[str, Any]] | None, reads: Iterable[str], writes: Iterable[str]
) -> dict[str, dict[str, Summaries]]:
    """Return the path summaries of a query from what its caller gave. By default no time is changed, from each to each."""
    if given is None:
        unchanged = Summaries([identity(domain)])
        return {read: dict.fromkeys(writes, unchanged) for read in reads}
    result: dict[str, dict[str, Summaries]] = {}
    for read, row in given.items():
        for write, paths in row.items():
            each = list(paths) if isinstance(paths, Iterable) else [paths]
            if any(path.domain != domain for path in each):
                raise errors.scope_query_invalid_domain(name, read, write, domain)
            result.setdefault(read, {})[write] = Summaries(each)
    return result


def _query(entry: dict[str, Any], domain: TimeDomain) -> ScopeQuery:
    summaries = {
        read: {
            write: Summaries([summary_from_json(domain, each) for each in _list(paths, "summaries")])
            for write, paths in row.items()
        }
        for read, row in _objects(entry.get("summaries"), "summaries")
    }
    reads, writes = ([_name(name) for name in _list(entry.get(key), key)] for key in ("reads", "writes"))
    return ScopeQuery(tuple(reads), tuple(writes), summaries)


def _objects(value: Any, what: str) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(value, dict) or any(not isinstance(entry, dict) for entry in value.values()):
        raise ValueError(f"{what} is not an object of objects")
    return list(value.items())


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is not a list")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} is not a text")
    return value


def _name(value: Any) -> str:
    return checked_name(value, "channel or query")
