"""Producers that were removed: whoever reads, from wherever and in whatever order, knows the same, and none comes back."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.channel import Progress
from strandline.channel.statements.commit_statement import CommitStatement
from strandline.channel.statements.log import Commit
from strandline.channel.statements.statement import REGISTRAR, REMOVED, Statement
from strandline.errors import StatementError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, int64, product

PAIR = product(a="int64", b="int64")


class History(NamedTuple):
    domain: TimeDomain
    said: list[CommitStatement]
    states: list[dict[str, Statement]]
    """The specification: the newest statement of each producer, after each commit."""


@st.composite
def histories(draw: st.DrawFn, many: bool = False) -> History:
    """Producers join, move, end, and are removed; their names come again. Each commit may repeat all the others."""
    domain = draw(st.sampled_from([int64, PAIR]))

    def at(n: int) -> Time:
        return n if domain is int64 else (n, draw(st.integers(0, 3)))

    names = [f"p{i}" for i in range(100 if many else 5)]
    least = (0,) if domain is int64 else ((0, 0),)
    known: dict[str, Statement] = {REGISTRAR: Statement(0, least, None, {})}
    said, states, first, now = [CommitStatement(dict(known))], [dict(known)], 0, 0
    for version in range(1, draw(st.integers(2, 14))):
        now += draw(st.integers(0, 2))
        new: dict[str, Statement] = {}
        dead = [name for name in names if name in known and not known[name].holds]
        removed = tuple(draw(st.lists(st.sampled_from(dead), unique=True))) if dead and draw(st.booleans()) else ()
        for name in draw(st.just(names) if many and version < 3 else st.lists(st.sampled_from(names), unique=True, min_size=1)):
            if name in removed:
                continue
            if name not in known:
                new[name] = Statement(first, (at(now),), None, {"at": version})
            elif known[name].holds:
                held = known[name].holds[0]
                later = held if draw(st.booleans()) else domain.join(held, at(now))
                new[name] = Statement(known[name].seq + 1, () if draw(st.booleans()) else (later,))
        if removed:
            first = max(first, *(known[name].seq + 1 for name in removed))
            registrar = known[REGISTRAR]
            new[REGISTRAR] = Statement(registrar.seq + 1, registrar.holds, None, {REMOVED: first})
        repeats = draw(st.booleans())
        others = {name: statement for name, statement in known.items() if name not in new and name not in removed}
        said.append(CommitStatement(new, known=others if repeats else None, removed=removed, after_removal=first > 0))
        known = others | new
        states.append(dict(known))
    return History(domain, said, states)


def commit(version: int, said: CommitStatement) -> Commit:
    return Commit(version, json.dumps({"commitInfo": {"userMetadata": said.to_user_metadata()}}).encode())


def known_of(progress: Progress) -> dict[str, tuple[int, Antichain]]:
    return {name: (state.seq, state.holds) for name in [REGISTRAR, *progress.producers] if (state := progress.get(name))}


def expected(history: History, version: int) -> dict[str, tuple[int, Antichain]]:
    return {n: (s.seq, Antichain(history.domain, s.holds)) for n, s in history.states[version].items()}


def check(history: History) -> None:
    domain, said, _ = history
    views: list[Progress] = []
    straight = Progress(domain)
    before = straight.frontier
    for version, statement in enumerate(said):
        straight.apply(commit(version, statement))
        assert known_of(straight) == expected(history, version)
        least = Antichain(domain, [t for s in history.states[version].values() for t in s.holds])
        assert straight.frontier == least
        assert before.dominates(straight.frontier)
        before = straight.frontier
        views.append(straight.copy())
    for start, statement in enumerate(said):  # from any copy on
        if statement.known is not None:
            progress = Progress(domain)
            progress.begin(commit(start, statement))
            for version in range(start, len(said)):
                progress.apply(commit(version, said[version]))
            assert known_of(progress) == known_of(straight)
            assert progress.frontier == straight.frontier


@given(histories())
def test_every_reader_knows_the_same(history: History) -> None:
    check(history)


@pytest.mark.drawn
@given(histories(many=True))
def test_very_many_removed_at_once(history: History) -> None:
    check(history)


@given(histories(), st.randoms(use_true_random=False))
def test_views_merge_in_any_order(history: History, rng: random.Random) -> None:
    views, progress = [], Progress(history.domain)
    for version, statement in enumerate(history.said):
        progress.apply(commit(version, statement))
        views.append(progress.copy())
    chosen = [rng.choice(views).copy() for _ in range(rng.randint(1, 6))]
    newest = max(view.version for view in chosen)
    merged = Progress(history.domain)
    for view in chosen:
        merged.merge(view)
        merged.merge(view)
    assert known_of(merged) == expected(history, newest)
    assert merged.frontier == views[newest].frontier
    a, b, c = (rng.choice(views) for _ in range(3))

    def of(*parts: Progress) -> Progress:
        whole = Progress(history.domain)
        for part in parts:
            whole.merge(part)
        return whole

    assert of(a, b) == of(b, a)
    assert of(of(a, b), c) == of(a, of(b, c))


@given(histories(), st.randoms(use_true_random=False))
def test_statements_in_any_order_hide_none_that_came_after_a_removal(history: History, rng: random.Random) -> None:
    """Old copies of all times among them. Who was removed may be known still, which is conservative. No one else is affected."""
    events = [(n, s) for said in history.said for part in (said.statements, said.known or {}) for n, s in part.items()]
    rng.shuffle(events)
    progress = Progress(history.domain)
    for event in events:
        progress.apply_statement(*event)
    newest = expected(history, len(history.said) - 1)
    assert {name: known for name, known in known_of(progress).items() if name in newest} == newest
    whole = Progress(history.domain)
    for version, statement in enumerate(history.said):
        whole.apply(commit(version, statement))
    assert progress.frontier.dominates(whole.frontier)
    for removed in known_of(progress).keys() - newest.keys():
        assert not progress.producers[removed].holds  # its last statement is that it holds nothing


@pytest.mark.parametrize(
    ("removed", "first", "problem"),
    [
        (("nobody",), 9, "which is not one"),
        (("live",), 9, "which holds"),
        (("dead",), 3, "whose newest statement is 3, but producers join with 3"),
        (("dead",), None, "whose newest statement is 3, but producers join with 0"),
        (("stated",), 9, "which is stated there too"),
    ],
)
def test_what_no_writer_removes(removed: tuple[str, ...], first: Any, problem: str) -> None:
    progress = Progress(int64)
    for name, statement in {REGISTRAR: Statement(0, (0,)), "live": Statement(0, (4,)), "dead": Statement(3, ())}.items():
        progress.apply_statement(name, statement)
    progress.apply_statement("stated", Statement(0, ()))
    progress.version = 6
    said = {"stated": Statement(1, ())} | ({} if first is None else {REGISTRAR: Statement(1, (0,), None, {REMOVED: first})})
    with pytest.raises(StatementError, match=f"STRANDLINE_STATEMENT_CONTRADICTION.*commit 7.*{problem}"):
        progress.apply(commit(7, CommitStatement(said, removed=removed)))
    assert progress.version == 6
    assert "dead" in progress.producers


def test_who_joins_after_a_removal_begins_after_it() -> None:
    progress = Progress(int64)
    progress.apply(commit(0, CommitStatement({REGISTRAR: Statement(0, (0,), None, {REMOVED: 7})})))
    with pytest.raises(StatementError, match="STRANDLINE_STATEMENT_CONTRADICTION.*statement 0 of 'a'.*the next one is 7"):
        progress.apply(commit(1, CommitStatement({"a": Statement(0, (3,))})))
    progress.apply(commit(1, CommitStatement({"a": Statement(7, (3,))}, after_removal=True)))
    assert progress.producers["a"].seq == 7


@pytest.mark.parametrize("value", ["a", [5], ["$registrar"], ["a", "a"], None, [""]])
def test_a_list_that_is_none_is_refused(value: Any) -> None:
    text = json.dumps({"strandline": {"version": 3, "statements": {}, "removed": value}})
    with pytest.raises(StatementError, match="STRANDLINE_STATEMENT_INVALID.*removed"):
        CommitStatement.from_user_metadata(text, 5)
