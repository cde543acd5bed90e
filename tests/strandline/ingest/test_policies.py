"""Policies: the law of each by property, their texts, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.ingest import (
    Observation,
    Policy,
    PolicyError,
    bounded,
    composed,
    heartbeat,
    idle,
    manifest,
    ordered,
    parse_policy,
    punctuated,
)
from strandline.time.antichain import Antichain, join_antichains
from strandline.time.domain import int64, lex, parse_domain, product, timestamp
from strandline.time.duration import Duration

TIMES = st.integers(min_value=-1000, max_value=1000)
BATCHES = st.lists(st.lists(TIMES, max_size=6), max_size=6)
SPACE = product(a="int64", b="int64")
PAIRS = st.tuples(TIMES, TIMES)


def seen(times: list[Any], domain: Any = int64, **more: Any) -> Observation:
    least = greatest = None
    for time in times:
        least = time if least is None else domain.meet(least, time)
        greatest = time if greatest is None else domain.join(greatest, time)
    return Observation("p", len(times), least, greatest, **more)


def holds_after(policy: Policy, domain: Any, batches: list[list[Any]]) -> list[Antichain]:
    """What a partition holds after each batch, from the domain's minimum on."""
    policy.bind(domain)
    held, state, result = Antichain.least(domain), None, []
    for times in batches:
        promised, state = policy.promise(seen(times, domain), state)
        if promised is not None:
            held = join_antichains(domain, held, list(promised))
        result.append(held)
    return result


@given(BATCHES)
def test_ordered_holds_the_greatest_time(batches: list[list[int]]) -> None:
    so_far: list[int] = []
    for times, held in zip(batches, holds_after(ordered(), int64, batches), strict=True):
        so_far += times
        assert list(held) == [max(so_far, default=int64.minimum)]


@given(BATCHES, st.integers(min_value=0, max_value=50))
def test_bounded_holds_the_greatest_time_less_the_delay(batches: list[list[int]], delay: int) -> None:
    so_far: list[int] = []
    for times, held in zip(batches, holds_after(bounded(delay), int64, batches), strict=True):
        so_far += times
        assert list(held) == [max(so_far) - delay if so_far else int64.minimum]


@given(st.lists(st.lists(PAIRS, max_size=4), max_size=5))
def test_ordered_in_a_partial_order_holds_the_join(batches: list[list[tuple[int, int]]]) -> None:
    so_far: list[tuple[int, int]] = []
    for times, held in zip(batches, holds_after(ordered(), SPACE, batches), strict=True):
        so_far += times
        assert list(held) == [(max(a for a, _ in so_far), max(b for _, b in so_far)) if so_far else SPACE.minimum]


@given(st.lists(st.lists(PAIRS, max_size=4), max_size=5), st.sampled_from(["a", "b"]))
def test_bounded_in_a_partial_order_bounds_one_coordinate(batches: list[list[tuple[int, int]]], coordinate: str) -> None:
    so_far: list[int] = []
    at = "ab".index(coordinate)
    for times, held in zip(batches, holds_after(bounded(3, coordinate), SPACE, batches), strict=True):
        so_far += [time[at] for time in times]
        least = [int64.minimum, int64.minimum]
        if so_far:
            least[at] = max(so_far) - 3
        assert list(held) == [tuple(least)]


@given(BATCHES, st.integers(min_value=0, max_value=50))
def test_batches_make_no_difference_to_where_it_ends(batches: list[list[int]], delay: int) -> None:
    whole = [[time for times in batches for time in times]]
    for policy in (ordered(), bounded(delay)):
        assert holds_after(policy, int64, [[], *batches])[-1] == holds_after(policy, int64, whole)[-1]


def test_a_delay_stops_at_the_domains_minimum() -> None:
    small = parse_domain("int8")
    assert list(holds_after(bounded(100), small, [[-100]])[-1]) == [-128]
    assert list(holds_after(bounded("1 week"), timestamp, [[timestamp.minimum + 5]])[-1]) == [timestamp.minimum]


@given(st.lists(st.tuples(st.lists(TIMES, max_size=3), st.none() | TIMES), max_size=5))
def test_punctuations_alone_move_time(batches: list[tuple[list[int], int | None]]) -> None:
    policy, with_rows = punctuated("m"), heartbeat("m", ordered())
    policy.bind(int64), with_rows.bind(int64)
    for times, mark in batches:
        promised, _ = policy.promise(seen(times, mark=mark), None)
        assert promised == (None if mark is None else [mark])
        both_, _ = with_rows.promise(seen(times, mark=mark), None)
        said = [*times, *([] if mark is None else [mark])]
        assert both_ == ([max(said)] if said else None)


def test_composed_takes_the_first_pattern_that_fits() -> None:
    policy = composed({"kafka-1": ordered(), "kafka-*": bounded(5), "*": punctuated("m")})
    policy.bind(int64)
    assert [str(policy.for_partition(n)) for n in ("kafka-1", "kafka-10", "a")] == ["ordered()", "bounded(5)", "punctuated(m)"]
    assert policy.promise(seen([9])._replace(partition="kafka-2"), None) == ([4], None)
    with pytest.raises(PolicyError, match="STRANDLINE_POLICY_MISSING.*'b'"):
        composed({"a": ordered()}).for_partition("b")


class Tides(Policy):
    """A user's own: rows come twice a day."""

    def __init__(self, hours: str = "12") -> None:
        self.hours = int(hours)

    def promise(self, seen: Observation, state: Any) -> Any:
        return (None, state) if seen.greatest is None else ([seen.greatest - self.hours], (state or 0) + 1)

    def arguments(self) -> list[str]:
        return [f"hours={self.hours}"]


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12).filter(lambda t: t.strip() == t)
DELAYS = st.builds(lambda n, unit: Duration.of(f"{n} {unit}"), st.integers(0, 500), st.sampled_from(["seconds", "hours", "days"]))
SIMPLE = st.one_of(
    st.just(ordered()),
    st.builds(bounded, DELAYS),
    st.builds(bounded, st.integers(0, 10**9)),
    st.builds(bounded, DELAYS, NAMES),
    st.builds(punctuated, NAMES),
    st.builds(lambda column: heartbeat(column), NAMES),
    st.builds(lambda column, delay: heartbeat(column, bounded(delay)), NAMES, DELAYS),
    st.builds(manifest, NAMES, st.none() | NAMES),
    st.builds(
        lambda delay, counts: idle(ordered(), delay, counts=counts),
        DELAYS.filter(lambda d: d.amount > 0),
        st.sampled_from(["listening", "wall"]),
    ),
    st.just(Tides("6")),
)
POLICIES = st.one_of(SIMPLE, st.dictionaries(NAMES, SIMPLE, min_size=1, max_size=4).map(composed))


@given(POLICIES)
def test_text_round_trip(policy: Policy) -> None:
    again = parse_policy(str(policy))
    assert str(again) == str(policy)
    assert again == policy
    assert type(again) is type(policy)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not of the form"),
        ("bounded", "not of the form"),
        ("bounded(5", "not of the form"),
        ("bounded(5))", "closing parenthesis"),
        ("bounded('5)", "closing quote"),
        ("bounded(5,,6)", "empty argument"),
        ("bounded()", "arguments of bounded are invalid: .*delay"),
        ("bounded(5 fortnights)", "STRANDLINE_DELAY_INVALID.*'5 fortnights'"),
        ("bounded(-5 minutes)", "STRANDLINE_DELAY_INVALID.*negative"),
        ("bounded(-1)", "STRANDLINE_DELAY_INVALID.*negative"),
        ("bounded(5, hours=2)", "arguments of bounded are invalid: .*hours"),
        ("bounds(5)", "names 'bounds', which does not exist. Did you mean bounded"),
        ("composed(a)", "pattern: policy"),
        ("composed(a: ordered(), a: bounded(1))", "twice"),
        ("composed(a: composed(b: ordered(), c: ordered()))", "one composed"),
        ("idle(ordered(), 5)", "STRANDLINE_DELAY_INVALID"),
        ("idle(idle(ordered(), 5 minutes), 5 minutes)", r"idle\(\) already"),
        ("heartbeat(a, punctuated(b))", "columns or partitions of its own"),
        ("no.such.module:Thing()", "cannot be imported"),
        ("json:loads()", "is not a class of policies"),
        ("a" * 70000 + "()", "longer than"),
        ("composed(a: " * 9 + "ordered()" + ")" * 9, "nests deeper"),
    ],
)
def test_texts_that_are_no_policy(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_policy(text)


def test_a_users_own_policy_is_named_by_its_module() -> None:
    policy = Tides("6")
    assert str(policy) == f"{__name__}:Tides(hours=6)"
    again = parse_policy(str(policy))
    assert isinstance(again, Tides)
    assert again.hours == 6


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("60 minutes", "1 hour"),
        ("1 hour 30 minutes", "90 minutes"),
        ("interval 1 day", "1 day"),
        (timedelta(seconds=90), "90 seconds"),
        ("0 seconds", "0 seconds"),
        (7, "7"),
        ("7", "7"),
        ("250 milliseconds", "250 milliseconds"),
    ],
)
def test_delays(value: Any, text: str) -> None:
    assert str(Duration.of(value)) == text
    assert Duration.of(text) == Duration.of(value)


def test_a_delay_of_the_wrong_kind_is_refused_when_the_times_are_known() -> None:
    with pytest.raises(PolicyError, match="STRANDLINE_DELAY_INVALID.*a duration, but times are of int64"):
        bounded("5 minutes").bind(int64)
    with pytest.raises(PolicyError, match="STRANDLINE_DELAY_INVALID.*without a unit, but times are of timestamp"):
        bounded(5).bind(timestamp)
    bounded(0).bind(timestamp)
    with pytest.raises(PolicyError, match="coordinate 'c'"):
        bounded(5, "c").bind(SPACE)
    with pytest.raises(PolicyError, match="coordinate 'a'"):
        bounded(5, "a").bind(int64)
    with pytest.raises(PolicyError, match="not a scalar"):
        bounded(5).bind(product(at=lex(a="int64", b="int64"), c="int64"))
