"""A policy that a user wrote: what it raises is named, what it returns is checked, and nothing of the batch is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ingest_bench import Bench
from strandline.channel import Channel
from strandline.channel.statements.statement_columns import MIN_COLUMNAR
from strandline.ingest import Policy, PolicyError, Settings, composed, heartbeat, idle, ordered

METHODS = ("open", "refresh", "partitions", "changed", "announced")
TIMED = pa.schema([("t", pa.timestamp("us", "UTC")), ("p", pa.string()), ("n", pa.int64())])
PAIRS = pa.schema([("t", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("p", pa.string()), ("n", pa.int64())])


class Own(Policy):
    """Answers what a test says."""

    def __init__(self, answer: Callable[[Any, Any], Any]) -> None:
        self.answer = answer

    def promise(self, seen: Any, state: Any) -> Any:
        return self.answer(seen, state)

    def arguments(self) -> list[str]:
        return []


def raising(error: Exception) -> Callable[..., Any]:
    def answer(*_: Any) -> Any:
        raise error

    return answer


@pytest.mark.parametrize("around", [lambda own: own, lambda own: idle(own, "1 hour"), lambda own: composed({"*": own})])
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (raising(ZeroDivisionError("division by zero")), "raised ZeroDivisionError for partition 'a': division by zero"),
        (raising(KeyError("x")), "raised KeyError for partition 'a'"),
        (lambda seen, state: seen.greatest, "returned 5 for partition 'a', not a pair"),
        (lambda seen, state: None, "returned None for partition 'a', not a pair"),
        (lambda seen, state: ([5], state, 1), "not a pair"),
        (lambda seen, state: (5, state), "the lower bounds 5 for partition 'a', not a list of times"),
        (lambda seen, state: ("5", state), "the lower bounds '5'"),
        (lambda seen, state: ([4.5], state), "the lower bound 4.5 for partition 'a', not times of int64: whole numbers"),
        (lambda seen, state: ([float("nan")], state), "the lower bound nan"),
        (lambda seen, state: ([True], state), "the lower bound True"),
        (lambda seen, state: ([None], state), "the lower bound None"),
        (lambda seen, state: ([1 << 63], state), "the lower bound 9223372036854775808"),
        (lambda seen, state: ([(5,)], state), "the lower bound"),
        (lambda seen, state: ([5], {1, 2}), "the state {1, 2} for partition 'a', not a state that is a JSON value"),
        (lambda seen, state: ([5], float("inf")), "the state inf"),
    ],
)
def test_what_a_policy_does_wrong_is_named(
    answer: Callable[..., Any], says: str, around: Callable[[Policy], Policy], tmp_path: Path
) -> None:
    bench = Bench(tmp_path, around(Own(answer)))
    with pytest.raises(PolicyError, match="STRANDLINE_POLICY_FAILED.*promise of the policy .*test_policy_calls:Own") as refused:
        bench.run((5, "a", 0))
    assert says in str(refused.value)
    assert "it repeats the batch" in str(refused.value)
    assert not Channel.open(bench.settings.path).read().num_rows


def test_bounds_are_times_of_the_domain(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    bench = Bench(tmp_path / "1", Own(lambda seen, state: ((each for each in [noon]), [*(state or []), seen.rows])), TIMED)
    bench.run((noon, "a", 0))
    assert bench.holds() == {"a": [1_767_268_800_000_000]}
    naive = Bench(tmp_path / "2", Own(lambda seen, state: ([noon.replace(tzinfo=None)], state)), TIMED)
    with pytest.raises(PolicyError, match="STRANDLINE_POLICY_FAILED.*whole microseconds or datetimes with a zone"):
        naive.run((noon, "a", 0))
    numbers = Bench(tmp_path / "3", Own(lambda seen, state: ([np.int64(4)], state)))
    numbers.run((5, "a", 0))
    assert numbers.holds() == {"a": [4]}
    pair = Bench(tmp_path / "4", Own(lambda seen, state: ((1, 2), state)), PAIRS, domain="product(a int64, b int64)")
    with pytest.raises(PolicyError, match="STRANDLINE_POLICY_FAILED.*the lower bound 1 .*one for each coordinate"):
        pair.run(({"a": 1, "b": 2}, "x", 0))


def test_what_is_around_and_inside_a_policy_names_the_users_class(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("beat", pa.bool_())])
    bench = Bench(tmp_path, heartbeat("beat", Own(raising(ValueError("broken")))), schema)
    with pytest.raises(PolicyError, match="STRANDLINE_POLICY_FAILED.*test_policy_calls:Own raised ValueError"):
        bench.run((5, "a", 0, False))


@pytest.mark.parametrize(
    ("method", "answer", "says"),
    [
        *(
            (m, raising(OSError("gone")), "raised OSError: gone")
            for m in ("open", "refresh", "partitions", "changed", "announced")
        ),
        ("partitions", lambda: "abc", "returned 'abc', not a list of names"),
        ("changed", lambda: 5, "returned 5, not a list of names"),
        ("announced", lambda: 5, "returned 5, not a list of names"),
    ],
)
def test_the_other_methods_too(method: str, answer: Callable[..., Any], says: str, tmp_path: Path) -> None:
    own = type("Own", (Own,), {method: lambda self, *_: answer()})(lambda seen, state: ([5], state))
    with pytest.raises(PolicyError, match=f"STRANDLINE_POLICY_FAILED.*{method} of the policy .*Own {says}"):
        Bench(tmp_path, own).run((5, "a", 0))


def test_bind_is_called_at_the_door(tmp_path: Path) -> None:
    own = type("Own", (Own,), {"bind": raising(TypeError("no"))})(lambda seen, state: ([5], state))
    with pytest.raises(PolicyError, match="STRANDLINE_POLICY_FAILED.*bind of the policy .*Own raised TypeError: no"):
        Settings.of(str(tmp_path), TIMED, time="t", policy=own)


@pytest.mark.parametrize(
    "answer",
    [lambda greatest: greatest.astype(float), lambda greatest: greatest[:-1], lambda greatest: [None] * len(greatest)],
)
def test_promises_of_very_many_partitions_are_checked(answer: Callable[..., Any], tmp_path: Path) -> None:
    own = type("Own", (Own,), {"promise": lambda self, seen, state: ([seen.greatest], state)})
    own.promise_all = lambda self, greatest: answer(greatest)
    rows = [(5, f"p{i}", i) for i in range(MIN_COLUMNAR + 1)]
    bench = Bench(tmp_path, own(ordered))
    with pytest.raises(PolicyError, match="STRANDLINE_POLICY_FAILED.*promise_all of the policy .*times of int64"):
        for _ in range(3):
            bench.run(*rows)
