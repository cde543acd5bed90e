"""Progress: merging statements is idempotent, commutative and associative, and the frontier is that of a plain recount."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_strategies import domains, times
from strandline.channel import Commit, CommitStatement, Progress, Statement, StatementError
from strandline.channel.statements.statement import REGISTRAR
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain, int64


def commit(version: int, said: CommitStatement | None) -> Commit:
    info: dict[str, Any] = {} if said is None else {"userMetadata": said.to_user_metadata()}
    return Commit(version, json.dumps({"commitInfo": info}).encode())


def recount(progress: Progress) -> Antichain:
    """The specification of the frontier: everything held by anybody."""
    states = [*progress.producers.values()]
    registrar = progress.get(REGISTRAR)
    assert registrar is not None
    return Antichain(progress.domain, [time for state in [*states, registrar] for time in state.holds])


@st.composite
def histories(draw: st.DrawFn) -> tuple[TimeDomain, list[CommitStatement]]:
    """A channel's founding statement and what its producers said after it, capabilities only ever delayed."""
    domain = draw(domains())
    least = draw(times(domain, 1))
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3))
    holds: dict[str, Antichain] = {name: Antichain(domain, [least]) for name in (REGISTRAR, *names)}
    seqs = dict.fromkeys(holds, 0)
    said = [CommitStatement({name: Statement(0, (least,)) for name in holds})]
    for _ in range(draw(st.integers(0, 8))):
        statements = {}
        for name in draw(st.lists(st.sampled_from([REGISTRAR, *"abcd"]), unique=True, max_size=2)):
            source = holds.get(name, holds[REGISTRAR])
            if name not in holds and not source:
                continue
            moved = draw(st.lists(times(domain), max_size=3).map(lambda ts, s=source: [t for t in ts if s.less_equal(t)]))
            seqs[name] = seqs[name] + 1 if name in seqs else 0
            statements[name] = Statement(seqs[name], tuple(Antichain(domain, moved)))
        # As of the commit: what one says in it does not change what another may say in it.
        holds |= {name: Antichain(domain, statement.holds) for name, statement in statements.items()}
        said.append(CommitStatement(statements))
    return domain, said


@given(histories(), st.randoms(use_true_random=False))
def test_along_the_log_the_frontier_is_a_recount_and_never_moves_back(
    history: tuple[TimeDomain, list[CommitStatement]], rng: random.Random
) -> None:
    domain, said = history
    progress = Progress(domain)
    before = progress.frontier
    assert before == Antichain.least(domain)
    for version, statement in enumerate(said):
        read = commit(version, statement)
        progress.apply(read)
        assert progress.frontier == recount(progress)
        assert before.dominates(progress.frontier)
        if rng.random() < 0.3:
            progress.apply(read)  # again: nothing changes
            assert progress.frontier == recount(progress)
        before = progress.frontier
        assert progress.version == version


@given(histories(), st.randoms(use_true_random=False))
def test_merging_is_idempotent_commutative_and_associative(
    history: tuple[TimeDomain, list[CommitStatement]], rng: random.Random
) -> None:
    domain, said = history
    single = [(name, statement) for s in said for name, statement in s.statements.items()]

    def view() -> Progress:
        result = Progress(domain)
        for name, statement in rng.sample(single, rng.randint(0, len(single))):
            result.apply_statement(name, statement)
        return result

    def merged(*views: Progress) -> Progress:
        result = Progress(domain)
        for one in views:
            result.merge(one)
        return result

    a, b, c = view(), view(), view()
    assert merged(a, a) == a
    assert merged(a, b) == merged(b, a)
    assert merged(merged(a, b), c) == merged(a, merged(b, c))
    assert merged(a, b).frontier == merged(b, a).frontier


@given(histories(), st.randoms(use_true_random=False))
def test_any_order_of_everything_with_copies_ends_in_the_same_state(
    history: tuple[TimeDomain, list[CommitStatement]], rng: random.Random
) -> None:
    domain, said = history
    straight = Progress(domain)
    copies = []
    for version, statement in enumerate(said):
        straight.apply(commit(version, statement))
        copies.append(straight.others({}))
    events = [*((lambda p, n=n, s=s: p.apply_statement(n, s)) for c in said for n, s in c.statements.items())]
    events += [
        lambda p, k=k: [p.apply_statement(*entry) for entry in k.items()] for k in rng.sample(copies, rng.randint(0, len(copies)))
    ]
    rng.shuffle(events)
    shuffled = Progress(domain)
    for event in events:
        event(shuffled)
    assert shuffled == straight
    assert shuffled.frontier == straight.frontier


@given(histories())
def test_an_old_copy_is_conservative_and_never_ahead(history: tuple[TimeDomain, list[CommitStatement]]) -> None:
    domain, said = history
    progress = Progress(domain)
    for version, statement in enumerate(said):
        progress.apply(commit(version, statement))
    old = Progress(domain)
    for version, statement in enumerate(said):
        old.apply(commit(version, statement))
        from_copy = Progress(domain)
        from_copy.begin(commit(version, CommitStatement(statement.statements, known=old.others(statement.statements))))
        assert from_copy == old
        assert from_copy.frontier.dominates(progress.frontier)
        assert from_copy.frontier == old.frontier


def founded(domain: TimeDomain = int64, registrar: tuple[Time, ...] = (0,), **holds: tuple[Time, ...]) -> Progress:
    progress = Progress(domain)
    said = {REGISTRAR: Statement(0, registrar)} | {name: Statement(0, times) for name, times in holds.items()}
    progress.apply(commit(0, CommitStatement(said)))
    return progress


def test_commits_without_a_statement_move_the_version_alone() -> None:
    progress = founded(a=(3,))
    before = progress.frontier
    progress.apply(commit(1, None))
    assert (progress.version, progress.frontier) == (1, before)


def test_a_copy_is_independent() -> None:
    progress = founded(registrar=(), a=(3,))
    other = progress.copy()
    other.apply(commit(1, CommitStatement({"a": Statement(1, (9,))})))
    assert (progress.frontier, other.frontier) == (Antichain(int64, [3]), Antichain(int64, [9]))
    progress.frontier.insert(0)
    assert progress.frontier == Antichain(int64, [3])


def test_the_registrar_holds_back_what_nobody_else_does_and_is_no_producer() -> None:
    progress = founded(registrar=(2,), a=(5,))
    assert progress.frontier == Antichain(int64, [2])
    assert not progress.sealed
    assert list(progress.producers) == ["a"]
    assert len(progress.producers) == 1
    assert REGISTRAR not in progress.producers
    progress.apply(commit(1, CommitStatement({REGISTRAR: Statement(1, ())})))
    assert progress.sealed
    assert progress.frontier == Antichain(int64, [5])


def test_a_statement_that_takes_a_capability_back_is_refused_and_changes_nothing() -> None:
    progress = founded(registrar=(), a=(3,))
    with pytest.raises(
        StatementError, match=r"STRANDLINE_STATEMENT_REGRESSION.*commit 1 moves the capability of 'a' back from .* to 2"
    ):
        progress.apply(commit(1, CommitStatement({"a": Statement(1, (2,))})))
    assert (progress.version, progress.frontier) == (0, Antichain(int64, [3]))


def test_a_producer_from_nowhere_is_refused() -> None:
    sealed = founded(registrar=(), a=(3,))
    with pytest.raises(StatementError, match=r"STRANDLINE_STATEMENT_REGRESSION.*commit 1 adds the producer 'x' at 9"):
        sealed.apply(commit(1, CommitStatement({"x": Statement(0, (9,))})))
    late = founded(registrar=(5,), a=(3,))
    with pytest.raises(StatementError, match=r"adds the producer 'x' at 4, but producers may join only at \{5\}"):
        late.apply(commit(1, CommitStatement({"x": Statement(0, (4,))})))


def test_times_of_another_domain_are_refused_in_statements_and_copies() -> None:
    progress = founded(a=(3,))
    with pytest.raises(
        StatementError, match=r"STRANDLINE_STATEMENT_INVALID.*commit 1 has a time that is not of the channel's domain int64"
    ):
        progress.apply(commit(1, CommitStatement({"a": Statement(1, ((1, 2),))})))
    with pytest.raises(
        StatementError, match=r"STRANDLINE_STATEMENT_INVALID.*commit 4 has a time that is not of the channel's domain int64"
    ):
        progress.begin(commit(4, CommitStatement(known={"a": Statement(1, (1 << 70,))})))
    with pytest.raises(ValueError, match="commit 4 does not repeat"):
        progress.begin(commit(4, CommitStatement()))
    assert progress == founded(a=(3,))
