"""Progress statements: what is written is read back, and whatever else is there is refused by name, never by a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_strategies import domains, times
from strandline.channel import CommitStatement, Span, Statement, StatementError, WriterSession
from strandline.channel.statements import commit_statement as module
from strandline.channel.statements.statement import REGISTRAR
from strandline.time.domain import int64, product

PAIR = product(epoch="int64", iter="int64")
OWNERS = st.builds(WriterSession, st.text(max_size=8), st.text(max_size=8), st.integers(1, 9), st.floats(0, 1e10))
NAMES = st.sampled_from([REGISTRAR, "a", "b", "né", "x/y"])


@st.composite
def commit_statements(draw: st.DrawFn) -> CommitStatement:
    domain = draw(domains())
    time = times(domain)
    count = st.integers(0, 1 << 40)
    state = st.none() | st.integers() | st.dictionaries(st.text(max_size=3), st.booleans(), max_size=2)
    statement = st.builds(Statement, count, st.lists(time, max_size=3).map(tuple), st.none() | OWNERS, state)
    statements = st.dictionaries(NAMES, statement, max_size=3)
    return CommitStatement(
        draw(statements),
        tuple(draw(st.lists(st.tuples(time, count), max_size=3))),
        tuple(draw(st.lists(st.builds(Span, time, time, count), max_size=2))),
        draw(st.none() | statements),
    )


@given(commit_statements())
def test_what_is_written_is_read_back(said: CommitStatement) -> None:
    assert CommitStatement.from_user_metadata(said.to_user_metadata(), 9) == said


@pytest.mark.parametrize("text", ["", "x", "{}", "[]", "null", '"strandline"', '{"other":1}', '{"a":{"strandline":1}}', "{"])
def test_other_peoples_metadata_is_no_statement(text: str) -> None:
    assert CommitStatement.from_user_metadata(text, 3) is None


def test_a_newer_protocol_version_is_refused_with_both_versions() -> None:
    with pytest.raises(
        StatementError, match=r"STRANDLINE_PROTOCOL_NEWER.*Commit 12 .*version 4, but this .* reads versions 1 to 3 only.*Upgrade"
    ):
        CommitStatement.from_user_metadata('{"strandline":{"version":4,"statements":"anything at all"}}', 12)


OK: dict[str, Any] = {"version": 1, "statements": {}}


@pytest.mark.parametrize(
    "body",
    [
        None,
        1,
        [],
        {},
        {"version": 0},
        {"version": True},
        {"version": "1"},
        OK | {"statements": []},
        OK | {"statements": {"a": 1}},
        OK | {"statements": {"a": {}}},
        OK | {"statements": {"a": {"seq": 1}}},
        OK | {"statements": {"a": {"seq": -1, "holds": []}}},
        OK | {"statements": {"a": {"seq": 1.5, "holds": []}}},
        OK | {"statements": {"a": {"seq": True, "holds": []}}},
        OK | {"statements": {"a": {"seq": 1, "holds": 3}}},
        OK | {"statements": {"a": {"seq": 1, "holds": ["3"]}}},
        OK | {"statements": {"a": {"seq": 1, "holds": [None]}}},
        OK | {"statements": {"a": {"seq": 1, "holds": [{"epoch": 1}]}}},
        OK | {"statements": {"a": {"seq": 1, "holds": [], "owner": 0}}},
        OK | {"statements": {"a": {"seq": 1, "holds": [], "owner": "me"}}},
        OK | {"statements": {"": {"seq": 1, "holds": []}}},
        OK | {"statements": {"$other": {"seq": 1, "holds": []}}},
        OK | {"statements": {"x" * 2000: {"seq": 1, "holds": []}}},
        OK | {"owners": {}},
        OK | {"owners": [{}]},
        OK | {"owners": [{"id": "i", "host": "h", "pid": "1", "start": 1}]},
        OK | {"owners": [{"id": "i" * 9999, "host": "h", "pid": 1, "start": 1}]},
        OK | {"times": {}},
        OK | {"times": [1]},
        OK | {"times": [[1]]},
        OK | {"times": [[1, "2"]]},
        OK | {"times": [[1, -2]]},
        OK | {"spans": [[1, 2]]},
        OK | {"known": []},
        OK | {"known": {"a": {"seq": 1}}},
    ],
    ids=lambda body: json.dumps(body)[:60],
)
def test_malformed_statements_are_refused_naming_the_commit(body: Any) -> None:
    with pytest.raises(StatementError, match=r"STRANDLINE_STATEMENT_INVALID.*commit 12 "):
        CommitStatement.from_user_metadata(json.dumps({"strandline": body}), 12)


@pytest.mark.parametrize("text", ['{"strandline"', '{"strandline":' + "[" * 100_000])
def test_broken_json_and_bottomless_nesting_are_refused(text: str) -> None:
    with pytest.raises(StatementError, match=r"STRANDLINE_STATEMENT_INVALID.*commit 12 "):
        CommitStatement.from_user_metadata(text, 12)


def test_too_long_a_statement_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STATEMENT_CHARS", 100)
    with pytest.raises(StatementError, match=r"STRANDLINE_STATEMENT_INVALID.*commit 12 has 120 characters, but at most 100"):
        CommitStatement.from_user_metadata("x" * 120, 12)


def test_too_many_capabilities_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_HOLDS", 2)
    said = CommitStatement({"a": Statement(1, ((0, 3), (1, 2), (2, 1)))})
    with pytest.raises(StatementError, match=r"commit 12 is malformed: 'a' holds 3 capabilities, but at most 2"):
        CommitStatement.from_user_metadata(said.to_user_metadata(), 12)


def test_times_of_another_domain_are_refused_by_field() -> None:
    for said in (
        CommitStatement(times=((3, 1),)),
        CommitStatement(spans=(Span((0, 0), 3, 1),)),
    ):
        with pytest.raises(
            StatementError, match=r"STRANDLINE_STATEMENT_INVALID.*commit 5 has a time that is not of .* domain product"
        ):
            said.check_message_times(PAIR, 5)


def test_int64_statement_is_as_the_protocol_page_shows() -> None:
    said = CommitStatement({"jfk": Statement(4, (7,), WriterSession("s", "h", 12, 3.5))}, times=((5, 2),))
    assert json.loads(said.to_user_metadata()) == {
        "strandline": {
            "version": 1,
            "statements": {"jfk": {"seq": 4, "holds": [7], "owner": 0}},
            "times": [[5, 2]],
            "owners": [{"id": "s", "host": "h", "pid": 12, "start": 3.5}],
        }
    }
    said.check_message_times(int64, 0)


@pytest.mark.parametrize("key", ["id", "table"])
def test_half_a_character_is_no_text(key: str) -> None:
    text = json.dumps({"strandline": {"version": 1, key: "\ud800"}})
    with pytest.raises(StatementError, match=rf"STRANDLINE_STATEMENT_INVALID.*{key} is .*no text"):
        CommitStatement.from_user_metadata(text, 5)
