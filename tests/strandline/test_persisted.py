"""The states that producers keep in the log are written as they were read, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.channel.progress.query_producer_state import QueryProducerState
from strandline.ingest.state.corrections_state import CorrectionsState
from strandline.ingest.state.parked_state import ParkedState
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.registrar_state import RegistrarState

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "persisted"
KINDS: dict[str, Callable[[Any], Any]] = {
    "corrections": lambda value: CorrectionsState.from_json(value, "corrections"),
    "parked": lambda value: ParkedState.from_json(value, "parked rows"),
    "partition": lambda value: PartitionState.from_json(value, "partition"),
    "query": QueryProducerState.from_json,
    "registrar": RegistrarState.from_json,
}


def recorded(kind: str) -> list[str]:
    return (GOLDEN / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()


def test_each_kind_of_state_is_recorded() -> None:
    assert {path.stem for path in GOLDEN.glob("*.jsonl")} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_written_as_it_was_read(kind: str) -> None:
    states = recorded(kind)
    assert len(states) > 5
    for text in states:
        assert json.dumps(KINDS[kind](json.loads(text)).to_json(), separators=(",", ":"), ensure_ascii=False) == text


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_keys_stay_where_they_were(kind: str) -> None:
    """A later release's keys, first and last."""
    for text in recorded(kind):
        value = {"later": {"a": [1]}, **json.loads(text), "last": None}
        if kind == "registrar":  # its keys are queries, so the unknown keys are in their entries
            value = {
                name: {"later": [1], **entry, "last": None} if isinstance(entry, dict) else entry
                for name, entry in json.loads(text).items()
            }
        assert json.dumps(KINDS[kind](value).to_json()) == json.dumps(value)
