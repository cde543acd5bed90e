"""Times as people write them: what a domain formats is read again, and what is no time is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import TimeError
from strandline.time.domain import TimeDomain, int64, parse_domain, product, timestamp, uint64
from strandline.time.path.steps import TruncateStep
from strandline.time.time_text import parse_time

DOMAINS = [int64, timestamp, product(at="timestamp", iter="int64"), parse_domain("lex(a int8, b product(c int64, d timestamp))")]


def times(domain: TimeDomain) -> st.SearchStrategy[Any]:
    if domain.coordinates:
        return st.tuples(*(times(part) for _, part in domain.coordinates))
    return st.integers(domain.minimum, domain.maximum)


def counted(domain: TimeDomain, time: Any) -> str:
    """A time as its numbers, those of timestamps with their unit."""
    if domain.coordinates:
        return f"[{', '.join(counted(part, each) for (_, part), each in zip(domain.coordinates, time, strict=True))}]"
    return f"{time} µs" if domain == timestamp else str(time)


@given(st.data(), st.sampled_from(DOMAINS))
def test_what_a_domain_formats_is_read_again(data: st.DataObject, domain: TimeDomain) -> None:
    time = data.draw(times(domain))
    assert parse_time(domain, domain.format(time)) == time
    assert parse_time(domain, counted(domain, time)) == time


@given(st.text(max_size=30), st.sampled_from(DOMAINS))
def test_any_other_text_is_a_time_or_is_refused(text: str, domain: TimeDomain) -> None:
    try:
        time = parse_time(domain, text)
    except TimeError:
        return
    assert domain.time(time) == time


@pytest.mark.parametrize(
    ("domain", "text", "says"),
    [
        (int64, "noon", "is not an integer"),
        (int64, str(1 << 63), "outside int64"),
        (timestamp, "2026-03-01T12:00", "has no zone"),
        (timestamp, "2026-03-01", "Write 2026-03-01T00:00Z for UTC"),
        (timestamp, "yesterday", "is not a moment"),
        (timestamp, "2026-03-01T24:00Z", "is not a moment"),
        (timestamp, "+294248-01-01", "outside the range of timestamps"),
        (timestamp, "1795010112345", "Write the moment, such as 2026-11-18T13:55:12.345Z. SQL converts: timestamp_millis"),
        (timestamp, "7", "is a number, which does not say its unit"),
        (int64, "0x1F", "is not an integer"),
        (int64, "1_000", "is not an integer"),
        (product(a="int64", b="int64"), "7", "is not a list of the coordinates a, b"),
        (product(a="int64", b="int64"), "[7]", "has 1 coordinates"),
        (product(a="int64", b="int64"), "(b=7, a=2)", "has 'b' where"),
        (int64, "1" * 5000, "at most 4096"),
    ],
)
def test_the_error_says_what_is_wrong(domain: TimeDomain, text: str, says: str) -> None:
    with pytest.raises(TimeError, match="STRANDLINE_TIME_INVALID") as refused:
        parse_time(domain, text, "TIME")
    assert says in str(refused.value)


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\x1c", "\u3000"])
@pytest.mark.parametrize("text", ["{}7", "7{}", "[7,{} 2]", "[epoch{}= 7, iter = 2]"])
def test_only_ascii_blanks_may_stand_around_a_time(text: str, blank: str) -> None:
    domain = product(epoch="int64", iter="int64") if text[0] == "[" else int64
    parse_time(domain, text.format(" "))
    with pytest.raises(TimeError, match="STRANDLINE_TIME_INVALID"):
        parse_time(domain, text.format(blank))


def test_the_least_time_has_a_word() -> None:
    for domain in (int64, timestamp):
        assert domain.format(domain.minimum) == "the beginning"
        assert parse_time(domain, " the beginning ") == domain.minimum
    assert uint64.format(0) == "0"
    pair = product(at="timestamp", iter="int64")
    assert pair.format(pair.minimum) == "(at=the beginning, iter=the beginning)"


def test_the_start_of_the_first_window_is_shown_from_the_beginning() -> None:
    [first] = TruncateStep(3_600_000_000, 0).least(timestamp, timestamp.minimum)
    shown = timestamp.format(first)
    assert (shown, parse_time(timestamp, shown)) == ("the beginning + 54775808 µs", first)
    for after in (1, 365 * 86_400_000_000, 367 * 86_400_000_000):
        time = timestamp.minimum + after
        assert parse_time(timestamp, timestamp.format(time)) == time
