"""Statements and states as columns: beside the plain form, which is their specification, they say and refuse the same."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from column_forms import columns_for
from strandline.channel import Channel, Commit, CommitStatement, Progress, Statement, StatementError, WriterSession
from strandline.channel.progress.capability_updates import CapabilityUpdates
from strandline.channel.progress.producer_state_columns import ProducerStateColumns
from strandline.channel.statements.nullable_int64 import NullableInt64
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.statements.statement_columns import MixedStatements, StatementColumns, is_columnar
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import int64, parse_domain

OWNERS = (WriterSession("q", "h", 1, 2.0), WriterSession("r", "h", 1, 2.0))
NAMES = list("abcdef")
NUMBERS = st.sampled_from([0, 1, -5, 1 << 40, (1 << 63) - 1, -(1 << 63)])
STATES = (
    st.none()
    | st.dictionaries(st.sampled_from(["at", "aside", "heard"]), NUMBERS, min_size=1, max_size=3)
    | st.sampled_from([{}, {"idle": {"was": [3]}}, [1], {"at": 1.5}, {"at": True}, {"at": 1 << 70}])
)


def columns_of(statements: Mapping[str, Statement]) -> Mapping[str, Statement]:
    """The same statements, in columns where they fit."""
    plain = {n: s for n, s in statements.items() if n != REGISTRAR and len(s.holds) < 2 and is_columnar(s.state)}
    if not plain:
        return statements
    owner = np.empty(len(plain), dtype=np.object_)
    owner[:] = [s.owner for s in plain.values()]
    keys = {key for s in plain.values() for key in s.state or ()}
    columns = StatementColumns(
        list(plain),
        np.array([s.seq for s in plain.values()]),
        NullableInt64.of([s.holds[0] if s.holds else None for s in plain.values()]),
        owner,
        {key: NullableInt64.of([(s.state or {}).get(key) for s in plain.values()]) for key in keys},
    )
    return MixedStatements({n: s for n, s in statements.items() if n not in plain}, columns)


def statements(times: st.SearchStrategy[Any]) -> st.SearchStrategy[Statement]:
    holds = st.lists(times, max_size=1).map(tuple)
    return st.builds(Statement, st.integers(0, 9), holds, st.sampled_from([None, *OWNERS]), STATES)


@given(
    st.dictionaries(st.sampled_from(NAMES), statements(NUMBERS)),
    st.none() | st.dictionaries(st.just("k"), statements(NUMBERS)),
)
def test_columns_are_read_back_as_the_statements_that_they_are(
    said: dict[str, Statement], known: dict[str, Statement] | None
) -> None:
    as_columns = CommitStatement(columns_of(said), known=None if known is None else columns_of(known))
    text = as_columns.to_user_metadata()
    assert CommitStatement.from_user_metadata(text, 9) == CommitStatement(said, known=known) == as_columns
    version = json.loads(text)["strandline"]["version"]
    assert version == (2 if any(isinstance(part, MixedStatements) for part in (as_columns.statements, as_columns.known)) else 1)


def test_what_is_the_same_everywhere_is_said_once() -> None:
    said = CommitStatement(columns_of({n: Statement(3, (7,), OWNERS[0], {"at": 5}) for n in "ab"}))
    assert json.loads(said.to_user_metadata())["strandline"] == {
        "version": 2,
        "statements": {},
        "columns": {"names": ["a", "b"], "seq": 3, "holds": 7, "owner": 0, "state": {"at": 5}},
        "owners": [{"id": "q", "host": "h", "pid": 1, "start": 2.0}],
    }


OK: dict[str, Any] = {"names": ["a", "b"], "seq": 0, "holds": [1, None]}


@pytest.mark.parametrize(
    "columns",
    [
        1,
        [],
        {},
        OK | {"names": "ab"},
        OK | {"names": ["a", 1]},
        OK | {"names": ["a", "a"]},
        OK | {"names": ["a", ""]},
        OK | {"names": ["a", "$registrar"]},
        OK | {"names": ["a", "x" * 2000]},
        OK | {"names": ["a", "s"]},
        OK | {"seq": None},
        OK | {"seq": -1},
        OK | {"seq": [1]},
        OK | {"seq": [1, None]},
        OK | {"seq": [1, True]},
        OK | {"seq": [1, 2.0]},
        OK | {"seq": [1, 1 << 63]},
        OK | {"seq": 1 << 63},
        OK | {"holds": "1"},
        OK | {"holds": [1, [2]]},
        OK | {"holds": [1, 2, 3]},
        OK | {"owner": 1},
        OK | {"owner": -1},
        OK | {"owner": [0, 1]},
        OK | {"state": []},
        OK | {"state": {"at": {}}},
        OK | {"state": {"at": [1, "2"]}},
        OK | {"state": {str(i): 1 for i in range(17)}},
    ],
    ids=lambda columns: json.dumps(columns)[:60],
)
@pytest.mark.parametrize("where", ["columns", "knownColumns"])
def test_malformed_columns_are_refused_naming_the_commit(columns: Any, where: str) -> None:
    entry = {"s": {"seq": 0, "holds": []}}
    body = {"version": 2, "statements": entry, "known": entry, "owners": [OWNERS[0].to_json()], where: columns}
    with pytest.raises(StatementError, match=r"STRANDLINE_STATEMENT_INVALID.*commit 12 is malformed"):
        CommitStatement.from_user_metadata(json.dumps({"strandline": body}), 12)


def commit(version: int, said: CommitStatement) -> Commit:
    return Commit(version, json.dumps({"commitInfo": {"userMetadata": said.to_user_metadata()}}).encode())


def everything(progress: Progress, names: list[str]) -> Any:
    """All that a view of the log tells."""
    holds = {name: Antichain(progress.domain, [4]) for name in names}
    moves = CapabilityUpdates(names, np.full(len(names), 4), {})
    return (
        progress.version,
        progress.frontier,
        dict(progress.producers),
        progress.get(REGISTRAR),
        progress.sealed,
        progress.least_with(holds),
        progress.least_with({}, moves),
        progress.given(names),
        dict(progress.others(dict.fromkeys(names, Statement(0, ())))),
        list(progress.remembering("idle")),
        progress.unknown([*names, "z"]),
    )


def refused(progress: Progress, version: int, said: Mapping[str, Statement]) -> str | bool:
    """How a view refuses a commit; of several mistakes in one, the order in which they are met decides which is told."""
    try:
        progress.apply(commit(version, CommitStatement(said)))
    except StatementError as error:
        return str(error) if len(said) == 1 else True
    return False


SMALL = st.integers(-3, 9)


@given(
    st.lists(st.dictionaries(st.sampled_from([*NAMES, REGISTRAR]), statements(SMALL), max_size=5), max_size=6),
    st.lists(st.sampled_from(NAMES), unique=True),
    st.sampled_from(["int64", "int8"]),
)
def test_the_table_knows_and_refuses_what_the_plain_states_do(
    said: list[dict[str, Statement]], names: list[str], domain: str
) -> None:
    """Any statements in any order, in columns for the one and one by one for the other: right or wrong, both say the same."""
    with columns_for(all_=False):
        plain = Progress(parse_domain(domain))
    with columns_for(all_=True):
        table = Progress(parse_domain(domain))
        assert isinstance(table.columns, ProducerStateColumns)
        for version, statements_ in enumerate([{REGISTRAR: Statement(0, (0,))}, *said]):
            assert refused(plain, version, statements_) == refused(table, version, columns_of(statements_))
            assert everything(plain, names) == everything(table, names)
        copy = table.copy()
        assert everything(copy, names) == everything(table, names)
        begun = Progress(parse_domain(domain))
        begun.begin(commit(table.version, CommitStatement({}, known=table.others({}))))
        assert everything(begun, names) == everything(table, names)
        merged = Progress(parse_domain(domain))
        merged.merge(table)
        assert everything(merged, names) == everything(table, names)


def test_a_time_beyond_the_domain_is_refused_by_name() -> None:
    said = columns_of({"a": Statement(0, (3,)), "b": Statement(0, (200,))})
    with pytest.raises(
        StatementError, match=r"commit 4 has a time that is not of the channel's domain int8: a capability of 'b' is 200"
    ):
        Progress(parse_domain("int8")).apply(commit(4, CommitStatement(said)))


def test_more_kinds_of_numbers_than_the_table_has_columns_are_kept_all_the_same() -> None:
    progress = Progress(int64)
    for version in range(12):
        state = {f"k{version * 10 + i}": i for i in range(10)}
        progress.apply(commit(version, CommitStatement(columns_of({"a": Statement(version, (version,), None, state)}))))
        assert progress.producers["a"] == (version, Antichain(int64, [version]), None, state)
    assert progress.columns is not None
    assert len(progress.columns.state) <= 64


MOVES = st.dictionaries(st.sampled_from(NAMES), st.tuples(st.integers(-1, 4), st.integers(0, 1)), max_size=6)


@pytest.mark.drawn("core")
@settings(max_examples=30)
@given(
    st.lists(st.tuples(MOVES, st.sampled_from(OWNERS), st.booleans(), st.booleans(), st.sets(st.sampled_from("ab"))), max_size=6),
    st.booleans(),
)
def test_an_append_of_moves_is_one_of_statements(steps: list[Any], sealed: bool) -> None:
    """What a producer may hold, who may speak for it, what is stated, where the registrar goes: the same, or the same error."""
    schema = pa.schema([time_field("t", int64), ("n", pa.int64())])
    folder = Path(tempfile.mkdtemp())
    try:
        logs = []
        for way in ("one by one", "gathered", "moves"):
            path = str(folder / way)
            outcomes: list[Any] = []
            with columns_for(all_=way != "one by one"):
                channel = Channel.create(path, schema, time="t", producers=["a", "b", "c"], at=0, sealed=sealed)
                for said, owner, take_over, follow, donors in steps:
                    names = list(said)
                    times = np.array([time for time, _ in said.values()], dtype=np.int64)
                    state = {"at": NullableInt64.of([at or None for _, at in said.values()])}
                    moves = CapabilityUpdates(names, times, state if names else {})
                    given_ = {name: Antichain(int64, [1]) for name in donors - said.keys()}
                    try:
                        if way == "moves":
                            how: dict[str, Any] = {"statements": given_, "moves": moves}
                        else:
                            how = {"statements": given_ | moves.holds(int64), "states": moves.states()}
                        outcomes.append(channel.append([], **how, owner=owner, take_over=take_over, follow=follow, donors=donors))
                    except StrandlineError as error:
                        # Of several mistakes in one commit the order in which they are met decides which is told.
                        outcomes.append(str(error).replace(path, "") if len(names) + len(given_) == 1 else "refused")
                    outcomes.append((channel.version, channel.frontier, dict(channel.producers), channel.registrar))
                fresh = Channel.open(path)
                outcomes.append((fresh.frontier, dict(fresh.producers), fresh.progress == channel.progress))
                outcomes += [dict(c.statement.statements) for c in fresh.log.tail(0) if c.statement is not None]
            logs.append(outcomes)
        assert logs[0] == logs[1] == logs[2]
    finally:
        shutil.rmtree(folder)
