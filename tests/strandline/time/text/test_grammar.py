"""The grammar of times in text: what each form means, and that everything else means nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.time.text.grammar import Wrong, has_zone, read_integer, read_moment

TEN = 1_767_261_600_000_000  # 2026-01-01T10:00:00Z

GOOD = {
    "2026-01-01T10:00:00Z": 0,
    "2026-01-01T10:00:00.5Z": 500_000,
    "2026-01-01T10:00:00.123Z": 123_000,
    "2026-01-01T10:00:00.1234567Z": 123_456,
    "2026-01-01T10:00:00.123456999999999999Z": 123_456,
    "2026-01-01T10:00:00+0000": 0,
    "2026-01-01T10:00:00-00:00": 0,
    "2026-01-01T11:00:00+01": 0,
    "2026-01-01T05:00:00-05:00": 0,
    "2026-01-01T15:30:00+0530": 0,
    "2026-01-02T04:00:00+18:00": 0,
    "2026-01-01 10:00:00": 0,
    "2026-01-01T10:00": 0,
    "2026-01-01T10:00Z": 0,
    " 2026-01-01T10:00:00Z\r\n": 0,
    "2026-01-01t10:00:00z": 0,
    "+2026-01-01T10:00Z": 0,
    "+002026-01-01T10:00Z": 0,
    "2026-01-01": -36_000_000_000,
}
UNPARSABLE = [
    "",
    " ",
    "null",
    "10:00",
    "2026-01",
    "2026-1-1",
    "2026-13-01T00:00:00Z",
    "2026-02-29",
    "2026-04-31",
    "2026-00-01",
    "2026-01-00",
    "0000-00-00",
    "-0000-01-01",
    "12026-01-01",
    "+1000000-01-01",
    "2026-01-01T",
    "2026-01-01T10",
    "2026-01-01T24:00",
    "2026-01-01T24:00:00Z",
    "2026-01-01T23:59:60Z",
    "2026-01-01T10:60Z",
    "2026-01-01T10:00:00.Z",
    "2026-01-01T10:00:00,5Z",
    "2026-01-01T10:00:00 Z",
    "2026-01-01T10:00:00 UTC",
    "2026-01-01T10:00:00+01:00[Europe/Paris]",
    "2026-01-01T10:00:00 Europe/Paris",
    "2026-01-01T10:00:00+1",
    "2026-01-01T10:00:00+01:00:30",
    "2026-01-01T10:00:00+18:01",
    "2026-01-01T10:00:00+01:60",
    "2026-01-01Z",
    "2026-01-01  10:00",
    "2026-01-01_10:00",
    "2026/01/01",
    "01.01.2026 10:00",
    "20260101T100000Z",
    "2026-W01-1",
    "2026-001",
    "Thu, 01 Jan 2026 10:00:00 GMT",
    "2026-01-01T10:00:00Z\x00",
    "\u00a02026-01-01",
    "٢٠٢٦-٠١-٠١",
    "０２０２-01-01",
    "0x1F",
    "1_795_010_112",
]
NUMBERS = ["1795010112345", "1795012300000", "1712013012345", "1795123100", "1712013012", "17120130123", "20260101"]
NUMBERS += ["0", "-5", "+5", " 7 ", "1712013012.5", "1.795010112345E12", "1795010112345000000"]


@pytest.mark.parametrize("text", GOOD)
def test_a_moment_has_one_meaning(text: str) -> None:
    assert read_moment(text) == TEN + GOOD[text]


@pytest.mark.parametrize("text", UNPARSABLE)
def test_everything_else_is_no_moment(text: str) -> None:
    assert read_moment(text) is Wrong.UNPARSABLE


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_is_no_moment_and_is_named_as_one(text: str) -> None:
    assert read_moment(text) is Wrong.EPOCH


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("0000-06-01", -62_154_086_400_000_000),
        ("-0001-12-31T23:59:59.999999Z", -62_167_219_200_000_001),
        ("+10000-01-01", 253_402_300_800_000_000),
        ("9999-12-31T23:59:59.9999999Z", 253_402_300_799_999_999),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("-290308-12-21T19:59:05.224192Z", -(1 << 63)),
        ("-290308-12-21T19:59:05.224191Z", Wrong.BEYOND),
        ("+294247-01-10T04:00:54.775807Z", (1 << 63) - 1),
        ("+294247-01-10T04:00:54.775808Z", Wrong.BEYOND),
        ("+294247-01-10T05:00:54.775807+01:00", (1 << 63) - 1),
        ("+999999-12-31", Wrong.BEYOND),
        ("-999999-12-31", Wrong.BEYOND),
    ],
)
def test_years_below_1_and_beyond_9999(text: str, micros: int) -> None:
    assert read_moment(text) == micros


@given(st.datetimes(), st.sampled_from(["", "Z", "z"]) | st.integers(-1080, 1080), st.sampled_from("T t"))
def test_what_python_prints_means_what_python_means(moment: datetime, zone: str | int, between: str) -> None:
    text, offset = moment.isoformat(between), 0
    if isinstance(zone, int):
        offset, (hours, minutes) = zone, divmod(abs(zone), 60)
        zone = f"{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}"
    micros = (moment - datetime(1970, 1, 1) - timedelta(minutes=offset)) // timedelta(microseconds=1)
    assert read_moment(text + zone) == micros
    assert has_zone(text + zone) == bool(zone)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+007", 7),
        (" 5\n", 5),
        ("-128", -128),
        ("127", 127),
        ("128", Wrong.BEYOND),
        ("-129", Wrong.BEYOND),
        ("0" * 5000 + "1", 1),
        ("9" * 5000, Wrong.BEYOND),
        *(
            (text, Wrong.UNPARSABLE)
            for text in ["", "-", "--5", "0x1F", "0b1", "1_0", "5.0", "1e3", "٣", "\u00a05", "5 5", "NaN", "true"]
        ),
    ],
)
def test_integers(text: str, number: int) -> None:
    assert read_integer(text, -128, 127) == number


def test_the_same_form_means_the_same_in_all_zones_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    assert read_moment("2026-01-01 10:00") == TEN
    assert datetime.fromtimestamp(TEN / 1e6, timezone.utc).hour == 10
