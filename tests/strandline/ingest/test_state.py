"""States in a log: what is read is written again byte for byte, also what is not known of them; what is damaged is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_mutations import make_ingested
from strandline.channel import Channel
from strandline.channel.statements.statement import REGISTRAR
from strandline.errors import IngestError
from strandline.ingest.names import CORRECTIONS, PARKED
from strandline.ingest.state.corrections_state import CorrectionsState
from strandline.ingest.state.manifest_state import ManifestState
from strandline.ingest.state.parked_state import ParkedState
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.record import Record
from strandline.ingest.state.registrar_state import RegistrarState

counts, numbers = st.integers(0, (1 << 50) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
moments = st.integers(-62_135_596_800_000, 253_402_300_799_999)
texts, flags, times = st.text(max_size=4), st.booleans(), st.lists(numbers, max_size=3)
values = st.none() | flags | numbers | texts | st.lists(numbers, max_size=2) | st.dictionaries(texts, numbers, max_size=2)


@st.composite
def objects(draw: st.DrawFn, known: Mapping[str, st.SearchStrategy[Any]], *required: str) -> dict[str, Any]:
    """Objects with some of the known keys and some others, in any order."""
    keys = {*required, *draw(st.sets(st.sampled_from(sorted(known))))}
    found = {key: draw(known[key]) for key in keys}
    found |= {key: value for key, value in draw(st.dictionaries(texts, values, max_size=2)).items() if key not in known}
    return {key: found[key] for key in draw(st.permutations(sorted(found)))}


idle = objects({"was": times, "since": moments, "listened": counts, "silent": counts, "rejoins": flags}, "was", "since")
partition = objects(
    {
        "at": moments,
        "aside": counts,
        "own": values,
        "heard": counts,
        "heardWall": counts,
        "idle": idle,
        "soon": times,
        "dropped": values,
        "future": counts,
        "generation": counts,
    }
)
clock = objects(
    {
        "listened": counts,
        "run": texts,
        "planned": moments,
        "wall": moments,
        "real": moments,
        "offset": numbers,
        "tick": st.tuples(texts, counts, counts).map(list),
        "doubted": moments,
        "certain": flags,
    }
)
files = st.lists(st.tuples(texts, counts, counts).map(list), max_size=2)
pending = objects({"batch": numbers, "files": files, "before": numbers}, "batch", "files", "before")
entry = objects(
    {
        "policy": texts,
        "clock": clock,
        "since": counts,
        "sinceWall": moments,
        "snapshot": flags,
        "late": texts,
        "aside": counts,
        "future": counts,
        "asideForgotten": counts,
        "newest": numbers,
        "pending": pending,
        "batch": st.tuples(numbers, counts, values).map(list),
        "values": st.tuples(numbers, values).map(list),
        "moved": st.sets(numbers, max_size=3).map(sorted),
        "cancelled": st.lists(st.tuples(numbers, st.lists(st.tuples(texts, texts | st.none()).map(list))).map(list), max_size=2),
        "fenced": st.just({"id": "q", "host": "h", "pid": 7, "start": 5, "more": 1}),
    }
)
registrar = st.dictionaries(texts, entry | numbers, max_size=3)
path = st.uuids().map(lambda name: f"_ahead/{name}")
parcel = st.tuples(st.lists(st.tuples(path, counts, counts).map(list), max_size=2), values, values, counts).map(list)
lists = objects({"list": path, "bytes": counts, "sum": texts, "rows": counts, "after": numbers}, "list", "bytes", "sum", "rows")
parked = objects(
    {"rows": counts, "parked": st.lists(parcel | lists, max_size=3), "beyond": numbers, "ahead": st.integers(0, 1 << 60)}
)
ranges = st.dictionaries(texts, st.sets(st.integers(0, 99), max_size=2).map(lambda ns: [[3 * n, 3 * n + 1] for n in sorted(ns)]))
corrections = objects({"done": ranges, "late": ranges})
came = st.dictionaries(numbers, counts, max_size=3).map(lambda found: [[time, rows] for time, rows in found.items()])
announced = objects({"held": times, "came": came, "done": numbers, "total": numbers, "left": numbers}, "done")

READ: dict[str, Callable[[Any], Record | RegistrarState]] = {
    "partition": lambda value: PartitionState.of("a", value),
    "registrar": RegistrarState.from_json,
    "parked": lambda value: ParkedState.from_json(value, "the state"),
    "corrections": lambda value: CorrectionsState.from_json(value, "the state"),
    "manifest": lambda value: ManifestState.of("a", value),
}


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        ("partition", partition),
        ("registrar", registrar),
        ("parked", parked),
        ("corrections", corrections),
        ("manifest", announced),
    ],
)
@given(st.data())
def test_what_is_read_is_written_again_byte_for_byte(kind: str, states: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(states)
    assert json.dumps(READ[kind](value).to_json()) == json.dumps(value)


def test_the_states_of_an_ingest_are_written_again_byte_for_byte(tmp_path: Path) -> None:
    make_ingested(tmp_path / "channel")
    channel = Channel.open(str(tmp_path / "channel"))
    seen = set()
    for version in range(channel.version + 1):
        statement = channel.log.require(version).statement
        for name, each in {} if statement is None else statement.statements.items():
            kind = {REGISTRAR: "registrar", CORRECTIONS: "corrections", PARKED: "parked"}.get(name, "partition")
            if each.state is not None:
                assert json.dumps(READ[kind](each.state).to_json()) == json.dumps(each.state)
                seen.add(kind)
    assert seen == {"registrar", "corrections", "parked", "partition"}


@given(partition, st.sampled_from([None, 5]), st.sampled_from([None, 7]))
def test_a_key_that_is_set_keeps_its_place_or_comes_last(value: dict[str, Any], at: int | None, aside: int | None) -> None:
    state = PartitionState.of("a", value).changed(at=at, aside=aside)
    wanted = {k: v for k, v in value.items() if k not in ("at", "aside") or {"at": at, "aside": aside}[k] is not None}
    wanted |= {key: new for key, new in {"at": at, "aside": aside}.items() if new is not None}
    assert json.dumps(state.to_json()) == json.dumps(wanted)
    again = PartitionState.of("a", state.to_json())
    assert again == state


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("partition", {"at": "noon"}, r"the state of 'a' has 'noon' for 'at'"),
        ("partition", [1], r"the state of 'a' is \[1\], which is not an object"),
        ("partition", {"idle": {"was": []}}, r"the state of 'a' has \{'was': \[\]\} for 'idle'"),
        ("registrar", {"q": {"pending": {"batch": 1, "files": []}}}, r"the entry of query 'q' has .* for 'pending'"),
        ("registrar", {"q": {"moved": [3, 2]}}, r"the entry of query 'q' has \[3, 2\] for 'moved'"),
        ("registrar", {"strandline:names": "escaped"}, r"the registrar's state has 'escaped' for 'strandline:names'"),
        ("corrections", {"done": {"q": 5}}, r"the range of corrections has 5 for 'q'"),
        ("manifest", {"total": 5}, r"the state of 'a', for its manifest, has nothing for 'done'"),
        ("parked", {"parked": [{"list": "_ahead/x"}]}, r"the state has .* for 'parked'"),
    ],
)
def test_a_damaged_state_is_refused_by_name(kind: str, value: Any, problem: str) -> None:
    with pytest.raises(IngestError, match=rf"STRANDLINE_INGEST_STATE_INVALID.*{problem}"):
        READ[kind](value)
