"""What a commit repeats of the others is what they said, and a statement is its producer's next: else it is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.channel import Channel, Commit, CommitStatement, Progress, Statement, StatementError
from strandline.channel.progress.producer_state_columns import ProducerStateColumns
from strandline.channel.progress.producer_states import ProducerStateMap
from strandline.channel.progress.snapshot import StatementsSinceCopy
from strandline.channel.statements.nullable_int64 import NullableInt64
from strandline.channel.statements.session import WriterSession
from strandline.channel.statements.statement import REGISTRAR, ProducerState
from strandline.channel.statements.statement_columns import MixedStatements, StatementColumns
from strandline.delta.storage import commit_name
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

CONTRADICTION = "STRANDLINE_STATEMENT_CONTRADICTION"
HOLDS = '"a":{"seq":4,"holds":[9]'
LIES: dict[str, tuple[str, str]] = {
    "later": (HOLDS, '"a":{"seq":4,"holds":[1000]'),
    "earlier": (HOLDS, '"a":{"seq":4,"holds":[3]'),
    "nothing held": (HOLDS, '"a":{"seq":4,"holds":[]'),
    "another statement": (HOLDS, '"a":{"seq":7,"holds":[9]'),
    "another producer": (HOLDS, '"c":{"seq":4,"holds":[9]'),
    "one more": (HOLDS, f'"c":{{"seq":0,"holds":[9]}},{HOLDS}'),
    "one less": (f",{HOLDS}}}", ""),
    "one that speaks itself": (HOLDS, f'"b":{{"seq":3,"holds":[3]}},{HOLDS}'),
    "a state": (HOLDS, f'{HOLDS},"state":{{"at":1}}'),
    "the registrar": ('"$registrar":{"seq":0,"holds":[0]', '"$registrar":{"seq":0,"holds":[7]'),
}


@pytest.fixture
def channel(make: Any, tmp_path: Path) -> Channel:
    """Two producers; the newest commit is of ``b``, and repeats what ``a`` and the registrar said."""
    channel = Channel.create(tmp_path / "in", make.schema(), producers=["a", "b"], at=0, sealed=False)
    for name, time in (("a", 5), ("b", 3), ("a", 9), ("b", 4)):
        with channel.producer(name) as producer:
            producer.delay(time)
    return channel


def change(channel: Channel, old: str, new: str) -> None:
    """Another text in the newest statement."""
    path = Path(channel.path) / commit_name(channel.version)
    before, after = (json.dumps(text)[1:-1] for text in (old, new))
    text = path.read_text()
    assert text.count(before) == 1, text
    path.write_text(text.replace(before, after))


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("reader", ["fresh", "running"])
def test_what_a_commit_repeats_is_what_the_others_said(channel: Channel, lie: str, reader: str) -> None:
    behind = Channel.open(channel.path)
    behind._snapshot.progress = behind.progress_at(channel.version - 1)  # it had read as far as that
    change(channel, *LIES[lie])
    with pytest.raises(StatementError, match=CONTRADICTION):
        if reader == "fresh":
            Channel.open(channel.path)
        else:
            behind.refresh()


@pytest.mark.parametrize("holds", ["[9,[9]]", "[[1,2]]", "[99999999999999999999]"])
def test_what_is_no_time_is_refused_where_it_is_repeated(channel: Channel, holds: str) -> None:
    behind = Channel.open(channel.path)
    behind._snapshot.progress = behind.progress_at(channel.version - 1)
    change(channel, HOLDS, HOLDS.replace("[9]", holds))
    with pytest.raises(StatementError, match="STRANDLINE_STATEMENT_INVALID"):
        behind.refresh()


@pytest.mark.parametrize("seq", [0, 3, 5, 1 << 62])
@pytest.mark.parametrize("reader", ["fresh", "running"])
def test_a_statement_is_the_next_of_its_producer(channel: Channel, seq: int, reader: str) -> None:
    """A greater one would make those that follow count for nothing, and the frontier stay where it is."""
    behind = Channel.open(channel.path)
    behind._snapshot.progress = behind.progress_at(channel.version - 1)
    change(channel, '"b":{"seq":4,', f'"b":{{"seq":{seq},')
    with pytest.raises(StatementError, match=f"{CONTRADICTION}.*'b'.*the next one is 4"):
        if reader == "fresh":
            Channel.open(channel.path)
        else:
            behind.refresh()


def test_a_log_that_was_cleaned_up_to_its_newest_copy_is_read(channel: Channel) -> None:
    reader = Channel.open(channel.path)
    for version in range(channel.version):
        (Path(channel.path) / commit_name(version)).unlink()
    assert reader._snapshot._read_back(channel.version, StatementsSinceCopy()) == channel._snapshot.progress


def test_a_state_is_compared_as_it_is_written(channel: Channel) -> None:
    """The writer still has the numeric keys that a reader gets as strings."""
    states = {"a": {"held": [(1, 2)], "which": {3: None}}}
    channel.append([], statements={"a": [10]}, states=states, owner="one")
    assert channel.producers["a"].state == {"held": [[1, 2]], "which": {3: None}}
    other = Channel.open(channel.path)
    other.append([], statements={"b": [11]}, owner="two")
    assert channel.refresh()
    assert channel.frontier == other.frontier


NAMES = st.sampled_from("abcdef")
OWNERS = [None, WriterSession("x", "host", 1, 0.5), WriterSession("y", "host", 1, 0.5)]
STATES = [None, {"at": 1}, {"at": 2}, {"n": 1}, {"at": 1, "n": 1}, {"idle": {}}, {"held": [[1]]}]


@st.composite
def everybody(draw: st.DrawFn) -> dict[str, Statement]:
    """What some producers said, the registrar among them."""
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    return {name: draw(said()) for name in [REGISTRAR, *names]}


def said() -> st.SearchStrategy[Statement]:
    times = st.sampled_from([(), (0,), (7,), (8,)])
    return st.builds(Statement, st.integers(0, 2), times, st.sampled_from(OWNERS), st.sampled_from(STATES))


def in_columns(statements: Mapping[str, Statement]) -> Mapping[str, Statement]:
    """As many as can be in columns, with sessions that are equal and not the same."""
    plain = {
        name: statement
        for name, statement in statements.items()
        if name != REGISTRAR and (statement.state is None or all(type(value) is int for value in statement.state.values()))
    }
    owners = np.array(
        [s.owner and WriterSession(s.owner.id, s.owner.host, s.owner.pid, s.owner.start) for s in plain.values()] + [None]
    )
    columns = StatementColumns(
        list(plain),
        np.array([s.seq for s in plain.values()], dtype=np.int64),
        NullableInt64.of([next(iter(s.holds), None) for s in plain.values()]),
        owners.astype(object)[:-1],
        {key: NullableInt64.of([(s.state or {}).get(key) for s in plain.values()]) for key in ("at", "n")},
    )
    return MixedStatements({name: s for name, s in statements.items() if name not in plain}, columns)


@given(everybody(), st.sets(NAMES), st.dictionaries(NAMES, st.none() | said(), max_size=2))
def test_what_differs_is_found_in_columns_and_one_by_one(
    states: dict[str, Statement], speak: set[str], changes: dict[str, Statement | None]
) -> None:
    """The specification: the others' statements are a mapping, and equal to what is repeated or not."""
    news = {name: Statement(9, ()) for name in speak}
    expected = {name: statement for name, statement in states.items() if name not in news}
    repeated: dict[str, Any] = {name: s for name, s in {**expected, **changes}.items() if s is not None}
    wrong = {name for name in {*expected, *repeated} if expected.get(name) != repeated.get(name)}
    for known in (ProducerStateMap(int64), ProducerStateColumns(int64)):
        known.put({name: ProducerState(s.seq, Antichain(int64, s.holds), s.owner, s.state) for name, s in states.items()})
        for form in (repeated, in_columns(repeated)):
            found = known.differs(form, news)
            assert found in wrong if wrong else found is None


def test_very_many_are_compared(make: Any) -> None:
    """A copy of 10 000 producers in columns, with one lie in it."""
    names = [f"p{n}" for n in range(10_000)]
    progress = Progress(int64)
    founding = {REGISTRAR: Statement(0, (0,))} | {name: Statement(0, (n,)) for n, name in enumerate(names)}
    progress.accept(0, founding)
    truth = progress.others({})

    def commit(known: Mapping[str, Statement]) -> Commit:
        info = {"commitInfo": {"userMetadata": CommitStatement(known=known).to_user_metadata()}}
        return Commit(1, json.dumps(info).encode())

    progress.copy().apply(commit(truth))
    assert isinstance(truth, MixedStatements)
    truth.columns.holds.values[4711] += 1
    with pytest.raises(StatementError, match=f"{CONTRADICTION}.*'p4711'.*4712.*4711"):
        progress.apply(commit(truth))
