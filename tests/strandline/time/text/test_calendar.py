"""The calendar of all 64-bit microseconds: against Python's dates where Python has them, and against itself everywhere else."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from strandline.time.text.calendar import DAY, days_of, format_micros, month_length
from strandline.time.text.grammar import read_moment

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@given(st.dates())
def test_days_are_pythons(day: date) -> None:
    assert days_of(day.year, day.month, day.day) == day.toordinal() - EPOCH.toordinal()


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_text_is_that_of_python(moment: datetime) -> None:
    assert format_micros((moment - EPOCH) // timedelta(microseconds=1)) == moment.isoformat().replace("+00:00", "Z")


@given(st.integers(-300_000, 300_000), st.integers(1, 12), st.data())
def test_the_day_after_a_day_is_the_next_of_the_calendar(year: int, month: int, data: st.DataObject) -> None:
    day = data.draw(st.integers(1, month_length(year, month)))
    if day < month_length(year, month):
        after = (year, month, day + 1)
    else:
        after = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
    assert days_of(*after) == days_of(year, month, day) + 1
    assert days_of(year + 400, month, day) == days_of(year, month, day) + 146_097


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-719_600, -719_000).map(DAY.__mul__))
def test_what_is_printed_is_read_again(micros: int) -> None:
    assert read_moment(format_micros(micros)) == micros
