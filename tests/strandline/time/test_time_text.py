"""Times as people write them: what a domain formats is read again, and what is no time is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import TimeError
from strandline.time.domain import TimeDomain, int64, parse_domain, product, timestamp
from strandline.time.time_text import parse_time

DOMAINS = [int64, timestamp, product(at="timestamp", iter="int64"), parse_domain("lex(a int8, b product(c int64, d timestamp))")]


def times(domain: TimeDomain) -> st.SearchStrategy[Any]:
    if domain.coordinates:
        return st.tuples(*(times(part) for _, part in domain.coordinates))
    return st.integers(domain.minimum, domain.maximum)


@given(st.data(), st.sampled_from(DOMAINS))
def test_what_a_domain_formats_is_read_again(data: st.DataObject, domain: TimeDomain) -> None:
    time = data.draw(times(domain))
    assert parse_time(domain, domain.format(time)) == time
    assert parse_time(domain, str(domain.to_json(time))) == time


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
        (timestamp, "yesterday", "is not a moment"),
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
