"""What a query keeps as a producer: it is read and written again without a change, and a program's state is left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.channel.batch.batch_digest import BatchDigest, RowsDigest
from strandline.channel.batch.batch_identity import BatchIdentity
from strandline.channel.progress.query_producer_state import QueryProducerState, is_query, producer_of
from strandline.channel.statements.statement import ProducerState, WriterSession
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

WROTE = BatchDigest(RowsDigest(2, 7, {"x": (0.5, 1.5)}), (), {"sums": RowsDigest(1, 9)})
STATE = {
    "outputs": ["days", "hours"],
    "note": {"of": "a later release"},
    "loop": {"query": "ask", "held": {}},
    "continuedBy": ["5b1", "77a"],
    "strandline:batch": "4:9f86d081884c7d65",
    "strandline:wrote": {"batch": 4, **WROTE.to_json()},
}

values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)
)
positions = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 1)), max_size=4)


@given(st.permutations(list(STATE)), st.integers(0, len(STATE)))
def test_a_state_is_written_as_it_was_read(keys: list[str], most: int) -> None:
    """Its keys keep their order, too: the log has the same bytes."""
    state = {key: STATE[key] for key in keys[:most] if key != "strandline:wrote" or "strandline:batch" in keys[:most]}
    assert json.dumps(QueryProducerState.from_json(state).to_json()) == json.dumps(state)


@given(st.dictionaries(st.sampled_from([*STATE, "at"]), values) | values)
def test_any_state_of_a_program_is_read(state: Any) -> None:
    found = QueryProducerState.from_json(state)
    again = found.to_json()
    assert QueryProducerState.from_json(again) == found
    assert {key: value for key, value in again.items() if key not in STATE} == (
        {key: value for key, value in state.items() if key not in STATE} if isinstance(state, dict) else {}
    )


def test_a_new_state_has_its_keys_in_one_order() -> None:
    made = QueryProducerState(("days", "hours"), {"query": "ask"}, ("5b1",), BatchIdentity(4, "9f86d081884c7d65", WROTE))
    assert list(made.to_json()) == ["outputs", "loop", "continuedBy", "strandline:batch", "strandline:wrote"]
    assert QueryProducerState.from_json(made.to_json()) == made


def test_another_query_that_writes_as_the_producer_has_a_plan_of_its_own() -> None:
    state = QueryProducerState.from_json(STATE).without_plan().continued("new")
    assert state.writer == "new"
    assert list(state.to_json()) == ["note", "continuedBy", "strandline:batch", "strandline:wrote"]


@pytest.mark.parametrize(
    "wrote", [3, {"batch": 4}, {"batch": 4, "rows": [True, 0]}, {"batch": 5, "rows": [1, 0]}, {"rows": [1, 0]}]
)
def test_a_damaged_digest_is_told(wrote: Any) -> None:
    found = QueryProducerState.from_json({**STATE, "strandline:wrote": wrote})
    assert found.damage
    assert found.newest == BatchIdentity(4, "9f86d081884c7d65")


@given(positions, positions)
def test_batches_are_the_same_if_each_source_has_read_the_same(one: list[Any], other: list[Any]) -> None:
    """Sources of different tables may be in any order. Those of one table are told apart by their order."""
    same = all([at for at in one if at[0] == table] == [at for at in other if at[0] == table] for table in "ab")
    assert (BatchIdentity.of("q", 3, one) == BatchIdentity.of("q", 3, other)) == same
    assert BatchIdentity.of("q", 3, one).read != BatchIdentity.of("q", 4, one).read
    assert BatchIdentity.of("q", 3, one).read != BatchIdentity.of("r", 3, one).read


def test_an_identity_is_written_as_it_was_read() -> None:
    batch = BatchIdentity.of("q", 3, [("a", 1, 0)], WROTE)
    assert BatchIdentity.from_json(batch.batch_to_json(), batch.wrote_to_json()) == batch
    assert batch.batch_to_json() == "3:c60d274365890488"  # the log has it
    for damaged in (None, 3, "3", "3:", "x:9f86d081884c7d65", "3:9f86d081884c7d6", "3:9F86D081884C7D65"):
        assert BatchIdentity.from_json(damaged, None) is None


def test_the_producer_of_a_query_is_found() -> None:
    def known(state: Any, owner: str = "program") -> ProducerState:
        return ProducerState(0, Antichain(int64, [0]), WriterSession.here(owner), state)

    producers = {
        "a": known({"at": 3}),
        "b": known({"continuedBy": ["5b1"]}, "5b1"),
        "query-9": known(None, "9"),
        "c": known("text"),
    }
    assert producer_of(producers, "5b1") == "b"
    assert producer_of(producers, "9") == producer_of({}, "9") == "query-9"
    assert [name for name, state in producers.items() if is_query(name, state)] == ["b", "query-9"]


def test_what_a_program_kept_under_such_a_key_stays() -> None:
    value = {"k": 1, "outputs": 3, "continuedBy": "x", "strandline:batch": [1]}
    assert QueryProducerState.from_json(value).to_json() == value
    assert list(QueryProducerState.from_json(value).continued("q").to_json().items()) == [
        *[("k", 1), ("outputs", 3), ("continuedBy", ["q"]), ("strandline:batch", [1])]
    ]
