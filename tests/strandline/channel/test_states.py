"""States that JSON cannot express: refused by name before anything is written, and the session goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import make_channel, rows
from strandline.channel import Channel, ProducerError
from strandline.channel.write.append import Append
from strandline.time.antichain import Antichain
from strandline.time.domain import int64

ITSELF: list[Any] = []
ITSELF += [ITSELF, ITSELF]
IN_A_KEY: dict[str, Any] = {"a": {}}
IN_A_KEY["a"]["b"] = IN_A_KEY
DOUBLED: Any = "x"
for _ in range(200):
    DOUBLED = [DOUBLED, DOUBLED]
DEEP: Any = 1
for _ in range(5000):
    DEEP = {"x": DEEP}

BAD = {
    "itself": ITSELF,
    "itself in an object": IN_A_KEY,
    "doubled 200 times": DOUBLED,
    "deep": DEEP,
    "set": {"a": {1, 2}},
    "bytes": b"x",
    "object": object(),
    "numpy": {"at": np.int64(3)},
    "nan": [float("nan")],
    "infinity": {"x": float("-inf")},
    "key": {(1, 2): 3},
    "a key that is not finite": {float("inf"): 3},
    "long integer": 10**5000,
}


def commits(path: Path) -> int:
    return Channel.open(path).version


@pytest.mark.parametrize(
    "state",
    [pytest.param(bad, id=name, marks=[pytest.mark.drawn("core")] if "doubled" in name else []) for name, bad in BAD.items()],
)
@pytest.mark.timeout(60)
def test_a_producers_state_that_is_not_json_is_refused(tmp_path: Path, state: Any) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    producer = channel.producer("a")
    producer.send(rows(int64, (1, 1)))
    producer.state = state
    before = commits(tmp_path / "in")
    for call in (producer.commit, producer.close):
        with pytest.raises(ProducerError, match=r"STRANDLINE_STATE_INVALID.*producer 'a'.*Nothing was written") as caught:
            call()
        assert len(str(caught.value)) < 500
    assert commits(tmp_path / "in") == before
    producer.state = {"at": 1}
    producer.close()
    fresh = Channel.open(tmp_path / "in")
    assert fresh.producers["a"].state == {"at": 1}
    assert fresh.read().column("n").to_pylist() == [1]


@pytest.mark.parametrize(
    ("name", "state"),
    [pytest.param(name, BAD[bad], id=f"{name}-{bad}") for name in ("a", "$registrar") for bad in BAD if "doubled" not in bad],
)
@pytest.mark.timeout(60)
def test_a_state_of_an_append_that_is_not_json_is_refused(tmp_path: Path, state: Any, name: str) -> None:
    channel = make_channel(tmp_path / "in", producers=("a",))
    append = Append(channel._owner, holds={"a": Antichain(int64, [1])}, states={name: state})
    for call in (
        lambda: channel.append([], statements={"a": [1]}, states={name: state}),
        lambda: channel.append_decided(lambda: append),
    ):
        with pytest.raises(ProducerError, match="STRANDLINE_STATE_INVALID"):
            call()
    assert commits(tmp_path / "in") == 0
    channel.append([], statements={"a": [1]}, states={name: {"at": 1}})
    assert commits(tmp_path / "in") == 1


def test_a_state_that_is_repeated_within_itself_is_json(tmp_path: Path) -> None:
    shared = [1, 2]
    with make_channel(tmp_path / "in", producers=("a",)).producer("a") as producer:
        producer.state = {"x": shared, "y": shared, 3: (shared,)}
    assert Channel.open(tmp_path / "in").producers["a"].state == {"x": [1, 2], "y": [1, 2], "3": [[1, 2]]}
