"""A commit's progress statement: everything that Strandline writes into one commit, as JSON in its ``userMetadata``.

Reading assumes nothing about the log, because others write it. Sizes and nesting are bounded, and every error names the
commit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from strandline.channel import errors
from strandline.channel.batch.batch_digest import BatchDigest
from strandline.channel.batch.table_reads import TableRead, table_reads_from_json
from strandline.channel.statements.checksum import CHECKSUM_CHARS
from strandline.channel.statements.inputs import Input, inputs_from_json
from strandline.channel.statements.nullable_int64 import is_number
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import REGISTRAR, Span, Statement, name_problem
from strandline.channel.statements.statement_columns import MixedStatements, StatementColumns, split_columns
from strandline.errors import TimeError
from strandline.json_value import JsonObject
from strandline.time.domain import Time, TimeDomain

__all__ = ["MAX_MESSAGE_TIMES", "MAX_STATEMENT_CHARS", "PROTOCOL_VERSION", "CommitStatement", "wrong_domain"]

PROTOCOL_VERSION = 3
"""The newest protocol version that is read. A statement without columns is written as version 1, one with columns as 2. Version 3
is that of a channel from which producers were removed: a reader of version 2 would know them still, or refuse who joins later."""
MAX_STATEMENT_CHARS = 64 << 20
"""A longer ``userMetadata`` is refused. 100 000 producers need about a tenth of this."""
MAX_MESSAGE_TIMES = 1024
"""If a commit has more message times than this, they are given as spans."""

_MAX_HOLDS = 4096
"""The capabilities of a producer. In a partial order their comparison may take time with the square of their number."""


@dataclass(frozen=True)
class CommitStatement:
    """Everything that Strandline writes into one commit.

    Attributes:
        statements: Statements by producer. The registrar's is under :data:`REGISTRAR`. Very many are best given as
            :class:`MixedStatements`.
        times: The message times of the files, as pairs ``(time, rows)``.
        spans: The message times that were too many to name.
        known: In some commits, the newest statements of all other producers as of the version before. Together with
            ``statements`` they give every producer's state, so a reader may start at this commit.
        actions: The number of actions in the Delta commit, including the one with this statement. A commit with fewer was
            cut short.
        table: The id of the table that the commit belongs to.
        id: An id that no other commit has. Its writer recognises the commit by it.
        reads: How far the query that made the commit had read each of its inputs.
        digest: What the query's batch wrote.
        removed: The producers that are no longer part of the channel from this commit on. They hold nothing.
        after_removal: Whether this commit, or an earlier one, has removed producers.
        tables: The tables that its batch has read beside its streams.

    >>> statement = CommitStatement({"a": Statement(1, ((0, 1),))}, times=(((0, 3), 7),))
    >>> statement.to_user_metadata()
    '{"strandline":{"version":1,"statements":{"a":{"seq":1,"holds":[[0,1]]}},"times":[[[0,3],7]]}}'
    >>> CommitStatement.from_user_metadata(statement.to_user_metadata(), 5) == statement
    True
    """

    statements: Mapping[str, Statement] = field(default_factory=dict)
    times: tuple[tuple[Time, int], ...] = ()
    spans: tuple[Span, ...] = ()
    known: Mapping[str, Statement] | None = None
    actions: int | None = None
    table: str | None = None
    id: str | None = None
    reads: tuple[Input, ...] = ()
    digest: BatchDigest | None = None
    removed: tuple[str, ...] = ()
    after_removal: bool = False
    tables: tuple[TableRead, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows in the commit's files, according to ``times`` and ``spans``."""
        return sum(rows for _, rows in self.times) + sum(span.rows for span in self.spans)

    def to_user_metadata(self) -> str:
        """Return the text for the commit's ``userMetadata``.

        Raises :class:`ChannelError` ``STRANDLINE_STATEMENT_TOO_LARGE`` if readers would refuse the text, with its checksum,
        because of its length, and :class:`ProducerError` ``STRANDLINE_STATE_INVALID`` if a state is nested too deep.
        """
        owners: dict[WriterSession, int] = {}
        single, columns = split_columns(self.statements)
        body: JsonObject = {"version": 1, "statements": _statements_to_json(single, owners)}
        if columns is not None:
            body |= {"version": 2, "columns": columns.to_json(owners)}
        if self.times:
            body["times"] = [[time, rows] for time, rows in self.times]  # tuples become lists
        if self.spans:
            body["spans"] = [[span.low, span.high, span.rows] for span in self.spans]
        if self.known is not None:
            single, columns = split_columns(self.known)
            body["known"] = _statements_to_json(single, owners)
            if columns is not None:
                body |= {"version": 2, "knownColumns": columns.to_json(owners)}
        if self.removed:
            body["removed"] = self.removed
        if self.removed or self.after_removal:
            body["version"] = 3
        if self.actions is not None:
            body["actions"] = self.actions
        if self.table is not None:
            body["table"] = self.table
        if self.id is not None:
            body["id"] = self.id
        if self.reads:
            body["reads"] = [each.to_json() for each in self.reads]
        if self.digest is not None:
            body["digest"] = self.digest.to_json()
        if self.tables:
            body["tables"] = [each.to_json() for each in self.tables]
        if owners:
            body["owners"] = [owner.to_json() for owner in owners]
        try:
            text = json.dumps({"strandline": body}, separators=(",", ":"), allow_nan=False)
        except RecursionError:
            raise errors.state_invalid_depth() from None
        if len(text) + CHECKSUM_CHARS > MAX_STATEMENT_CHARS:
            raise errors.statement_too_large(len(text) + CHECKSUM_CHARS, MAX_STATEMENT_CHARS)
        return text

    @classmethod
    def from_user_metadata(cls, text: str, version: int, only: Collection[str] | None = None) -> CommitStatement | None:
        """Read the ``userMetadata`` of commit ``version``. Return ``None`` if Strandline did not write it.

        Args:
            text: The text of ``userMetadata``.
            version: The commit's version, for error messages.
            only: The producers whose statements are read; by default all. The statements of others may be left out, unchecked.

        Raises:
            StatementError: ``STRANDLINE_STATEMENT_INVALID`` or ``STRANDLINE_PROTOCOL_NEWER``.
        """
        if len(text) > MAX_STATEMENT_CHARS:
            raise errors.statement_invalid_size(version, len(text), MAX_STATEMENT_CHARS)
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError) as error:
            if not text.lstrip().startswith('{"strandline"'):
                return None
            raise errors.statement_invalid_json(version, error) from error
        if not isinstance(whole, dict) or "strandline" not in whole:
            return None
        body = whole["strandline"]
        protocol = body.get("version") if isinstance(body, dict) else None
        if not isinstance(protocol, int) or isinstance(protocol, bool) or protocol < 1:
            raise errors.statement_invalid_protocol(version)
        if protocol > PROTOCOL_VERSION:
            raise errors.protocol_newer(version, protocol, PROTOCOL_VERSION)
        try:
            owners = [WriterSession.from_json(owner) for owner in _list(body.get("owners", []), "owners")]
            return cls(
                _all_from_json(body.get("statements", {}), body.get("columns"), owners, "statements", "columns", only),
                tuple((_time(t), _count(n, "rows")) for t, n in _rows(body.get("times", []), 2, "times")),
                tuple(Span(_time(a), _time(b), _count(n, "rows")) for a, b, n in _rows(body.get("spans", []), 3, "spans")),
                None
                if body.get("known") is None
                else _all_from_json(body["known"], body.get("knownColumns"), owners, "known", "knownColumns", only),
                None if body.get("actions") is None else _count(body["actions"], "actions"),
                _text(body.get("table"), "table"),
                _text(body.get("id"), "id"),
                inputs_from_json(body["reads"]) if "reads" in body else (),
                BatchDigest.from_json(body["digest"]) if "digest" in body else None,
                _names(body["removed"], "removed") if "removed" in body else (),
                protocol >= 3,
                table_reads_from_json(body["tables"]) if "tables" in body else (),
            )
        except (ValueError, RecursionError) as error:
            raise errors.statement_invalid(version, error) from error

    def check_message_times(self, domain: TimeDomain, version: int) -> None:
        """Raise :class:`StatementError` unless every message time is a time of ``domain``, and no span goes back."""
        try:
            for time, _ in self.times:
                domain.time(time, "a message time")
            for span in self.spans:
                domain.time(span.low, "a span's low time")
                domain.time(span.high, "a span's high time")
                if not domain.less_equal(span.low, span.high):
                    raise errors.statement_invalid_span(version, domain.format(span.low), domain.format(span.high))
        except TimeError as error:
            wrong_domain(version, domain, error)


def _statements_to_json(statements: Mapping[str, Statement], owners: dict[WriterSession, int]) -> JsonObject:
    result: JsonObject = {}
    for name, (seq, holds, owner, state) in statements.items():
        entry = result[name] = {"seq": seq, "holds": holds}  # tuples become lists
        if owner is not None:
            entry["owner"] = owners.setdefault(owner, len(owners))
        if state is not None:
            entry["state"] = state
    return result


def _all_from_json(
    value: Any, columns: Any, owners: list[WriterSession], where: str, where_columns: str, only: Collection[str] | None
) -> Mapping[str, Statement]:
    if only is not None and isinstance(value, dict):
        value = {name: value[name] for name in only if name in value}
    single = _statements_from_json(value, owners, where)
    if columns is None:
        return single
    more = StatementColumns.from_json(columns, owners, where_columns)
    twice = next((name for name in more if name in single), None) if single else None
    if twice is not None:
        raise ValueError(f"{twice[:80]!r} occurs both in {where} and in {where_columns}")
    return MixedStatements(single, more)


def _statements_from_json(value: Any, owners: list[WriterSession], where: str) -> dict[str, Statement]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    # Most producers of a large channel hold the same times: one tuple for each distinct set saves memory, and work later.
    seen: dict[tuple[Time, ...], tuple[Time, ...]] = {}
    result = {}
    for name, entry in value.items():
        if name != REGISTRAR and (problem := name_problem(name)):
            raise ValueError(f"the producer name {name[:80]!r} {problem}")
        if not isinstance(entry, dict):
            raise ValueError(f"{where}[{name!r}] is not an object")
        holds = entry.get("holds")
        if not isinstance(holds, list):
            raise ValueError(f"holds of {name!r} is not a list")
        if len(holds) > _MAX_HOLDS:
            raise ValueError(f"{name!r} holds {len(holds)} capabilities, but at most {_MAX_HOLDS} are allowed")
        times = tuple([_time(time) for time in holds])
        times = seen.setdefault(times, times)
        seq = entry.get("seq")
        if not is_number(seq) or seq < 0:
            raise ValueError(f"seq of {name!r} is {seq!r}, not a whole number of 0 or more")
        owner = entry.get("owner")
        if owner is not None and not (isinstance(owner, int) and 0 <= owner < len(owners)):
            raise ValueError(f"{name!r} names owner {owner!r}, but there are {len(owners)} owners")
        result[name] = Statement(seq, times, None if owner is None else owners[owner], entry.get("state"))
    return result


def _names(value: Any, what: str) -> tuple[str, ...]:
    names = _list(value, what)
    if any(not isinstance(name, str) or name_problem(name) for name in names) or len(set(names)) < len(names):
        raise ValueError(f"{what} is not a list of different producers")
    return tuple(names)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is not a list")
    return value


def _rows(value: Any, width: int, what: str) -> list[list[Any]]:
    rows = _list(value, what)
    if any(not isinstance(row, list) or len(row) != width for row in rows):
        raise ValueError(f"{what} is not a list of lists of {width} elements")
    return rows


def _count(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{what} is {str(value)[:40]}, not a whole number from 0 to 2^63 - 1")
    return value


def _text(value: Any, what: str) -> str | None:
    if not isinstance(value, str | None):
        raise ValueError(f"{what} is {value!r}, not a string")
    if value is not None and value.encode("utf-8", "replace").decode() != value:
        raise ValueError(f"{what} is {ascii(value)[:200]}, which is no text")  # half a character
    return value


def _time(value: Any) -> Time:
    """Return a time in canonical form: lists become tuples. The domain of the time is checked elsewhere."""
    if type(value) is int:
        return value
    if isinstance(value, list):
        return tuple([_time(part) for part in value])
    raise ValueError(f"{str(value)[:80]!r} is not a time")


def wrong_domain(version: int, domain: TimeDomain, error: TimeError) -> NoReturn:
    """Raise the error for a commit whose statement has times that are not of ``domain``."""
    raise errors.statement_invalid_domain(version, domain, error.what.rstrip("."))
