"""The events of Nexmark: persons, auctions and bids, as the reference generators draw them.

Of 50 events one is a new person, three are new auctions, and 46 are bids. The distributions are those of the generators in Rust
(``nexmark`` on crates.io) and in Java (``nexmark/nexmark``): who sells, who bids, on what, for how much, and how long an auction
lasts. The random numbers are NumPy's, so the same seed gives the same events here, and others there.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["BASE_TIME", "nexmark"]

BASE_TIME = 1_436_918_400_000
"""The time of the first event, 2015-07-15 00:00 UTC, in milliseconds since 1970."""

_PERSONS, _AUCTIONS, _BIDS = 1, 3, 46
_CYCLE = _PERSONS + _AUCTIONS + _BIDS
_FIRST_ID = 1000  # of persons and of auctions
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_ACTIVE_PERSONS, _AUCTIONS_IN_FLIGHT = 1000, 100
_LEAD = 10  # so many persons and auctions that do not exist yet may be named
_HOT_SELLERS, _HOT_AUCTIONS, _HOT_BIDDERS, _HOT_CHANNELS = 4, 2, 4, 2  # all but one of so many are hot
_HOT_EVERY = 100  # one of so many persons or auctions is hot
_PERSON_BYTES, _AUCTION_BYTES, _BID_BYTES = 200, 500, 100

_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
_FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_NAMED_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
_OTHER_CHANNELS = 10_000

_Integers = npt.NDArray[np.int64]


def nexmark(events: int, rate: int = 1000, seed: int = 0) -> dict[str, pa.Table]:
    """Return the tables ``person``, ``auction`` and ``bid`` of the first ``events`` events, ``rate`` a second, in their order.

    >>> tables = nexmark(5000)
    >>> {name: table.num_rows for name, table in tables.items()}
    {'person': 100, 'auction': 300, 'bid': 4600}
    >>> tables["person"]["id"][0].as_py(), tables["bid"]["dateTime"][-1].as_py().isoformat()
    (1000, '2015-07-15T00:00:04.999000+00:00')
    """
    random = np.random.default_rng(seed)
    number = np.arange(events, dtype=np.int64)
    place = number % _CYCLE
    persons = number[place < _PERSONS]
    auctions = number[(place >= _PERSONS) & (place < _PERSONS + _AUCTIONS)]
    bids = number[place >= _PERSONS + _AUCTIONS]
    return {
        "person": _person(persons, rate, random),
        "auction": _auction(auctions, rate, random),
        "bid": _bid(bids, rate, random),
    }


def _person(number: _Integers, rate: int, random: np.random.Generator) -> pa.Table:
    size = len(number)
    cards = random.integers(0, 10_000, (size, 4))
    columns = {
        "name": [f"{a} {b}" for a, b in zip(random.choice(_FIRST_NAMES, size), random.choice(_LAST_NAMES, size), strict=True)],
        "emailAddress": [f"{a}@{b}.com" for a, b in zip(_texts(7, size, random), _texts(5, size, random), strict=True)],
        "creditCard": [" ".join(f"{part:04}" for part in card) for card in cards.tolist()],
        "city": random.choice(_CITIES, size).tolist(),
        "state": random.choice(_STATES, size).tolist(),
    }
    used = 8 + np.array([[len(text) for text in texts] for texts in columns.values()]).sum(axis=0)
    return pa.table(
        {
            "id": _last_person(number) + _FIRST_ID,
            **columns,
            "dateTime": _times(number, rate),
            "extra": _extra(used, _PERSON_BYTES, random),
        }
    )


def _auction(number: _Integers, rate: int, random: np.random.Generator) -> pa.Table:
    size = len(number)
    initial = _prices(size, random)
    begins = _milliseconds(number, rate)
    horizon = _milliseconds(number + _AUCTIONS_IN_FLIGHT * _CYCLE // _AUCTIONS, rate) - begins
    lasts = 1 + random.integers(0, np.maximum(2 * horizon, 1))
    hot = random.integers(0, _HOT_SELLERS, size) > 0
    seller = np.where(hot, _last_person(number) // _HOT_EVERY * _HOT_EVERY, _any_person(number, random))
    used = np.full(size, 8 + 20 + 100 + 5 * 8)
    return pa.table(
        {
            "id": _last_auction(number) + _FIRST_ID,
            "itemName": _texts(20, size, random),
            "description": _texts(100, size, random),
            "initialBid": initial,
            "reserve": initial + _prices(size, random),
            "dateTime": _times(number, rate),
            "expires": _timestamps(begins + lasts),
            "seller": seller + _FIRST_ID,
            "category": _FIRST_CATEGORY + random.integers(0, _CATEGORIES, size),
            "extra": _extra(used, _AUCTION_BYTES, random),
        }
    )


def _bid(number: _Integers, rate: int, random: np.random.Generator) -> pa.Table:
    size = len(number)
    last = _last_auction(number)
    least = np.maximum(last - _AUCTIONS_IN_FLIGHT, 0)
    hot_auction = random.integers(0, _HOT_AUCTIONS, size) > 0
    any_auction = least + random.integers(0, last - least + 1 + _LEAD)
    hot_bidder = random.integers(0, _HOT_BIDDERS, size) > 0
    # The second person of a hundred, so that hot bidders are not the hot sellers.
    bidder = np.where(hot_bidder, _last_person(number) // _HOT_EVERY * _HOT_EVERY + 1, _any_person(number, random))
    channels, urls = _channels(random)
    named = random.integers(0, _HOT_CHANNELS, size) > 0
    channel = np.where(
        named,
        random.integers(0, len(_NAMED_CHANNELS), size),
        len(_NAMED_CHANNELS) + random.integers(0, _OTHER_CHANNELS, size),
    )
    return pa.table(
        {
            "auction": np.where(hot_auction, last // _HOT_EVERY * _HOT_EVERY, any_auction) + _FIRST_ID,
            "bidder": bidder + _FIRST_ID,
            "price": _prices(size, random),
            "channel": pa.array(channels).take(channel),
            "url": pa.array(urls).take(channel),
            "dateTime": _times(number, rate),
            "extra": _extra(np.full(size, 4 * 8), _BID_BYTES, random),
        }
    )


def _last_person(number: _Integers) -> _Integers:
    """Return the newest person at an event, from 0 on."""
    return number // _CYCLE * _PERSONS + np.minimum(number % _CYCLE, _PERSONS - 1)


def _any_person(number: _Integers, random: np.random.Generator) -> _Integers:
    """Return one of the active persons, or one of the next that will come."""
    persons = _last_person(number) + 1
    active = np.minimum(persons, _ACTIVE_PERSONS)
    return persons - active + random.integers(0, active + _LEAD)


def _last_auction(number: _Integers) -> _Integers:
    """Return the newest auction at an auction or a bid, from 0 on."""
    return number // _CYCLE * _AUCTIONS + np.clip(number % _CYCLE - _PERSONS, 0, _AUCTIONS - 1)


def _milliseconds(number: _Integers, rate: int) -> _Integers:
    return number * 1000 // rate


def _times(number: _Integers, rate: int) -> pa.Array:
    return _timestamps(_milliseconds(number, rate))


def _timestamps(milliseconds: _Integers) -> pa.Array:
    return pa.array((BASE_TIME + milliseconds) * 1000).cast(pa.timestamp("us", "UTC"))


def _prices(size: int, random: np.random.Generator) -> _Integers:
    """Return prices in cents: from one dollar to a million, each order of magnitude as often as any other."""
    return np.round(10 ** (6 * random.random(size)) * 100).astype(np.int64)


def _texts(length: int, size: int, random: np.random.Generator) -> list[str]:
    text = _letters(length * size, random)
    return [text[at : at + length] for at in range(0, length * size, length)]


def _letters(length: int, random: np.random.Generator) -> str:
    return (random.integers(0, 26, length, dtype=np.uint8) + ord("a")).tobytes().decode()


def _extra(used: _Integers, bytes_on_average: int, random: np.random.Generator) -> list[str]:
    """Return texts that fill rows up to a size on average, a fifth more or less. They are cut from one long text."""
    missing = np.maximum(bytes_on_average - used, 0)
    spread = (missing + 2) // 5
    lengths = missing - spread + random.integers(0, np.maximum(2 * spread, 1))
    text = _letters(1 << 20, random)
    starts = random.integers(0, len(text) - int(lengths.max(initial=0)), len(lengths))
    return [text[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]


def _channels(random: np.random.Generator) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of all channels through which bids come, the four that have names first, and their pages' addresses."""
    letters = np.array(list(string.ascii_lowercase))

    def part() -> str:
        drawn = random.choice(letters, random.integers(3, 5))
        return "".join(np.where(random.integers(0, 13, len(drawn)) == 0, "_", drawn))

    urls = [f"https://www.nexmark.com/{part()}/{part()}/{part()}/item.htm?query=1" for _ in range(_OTHER_CHANNELS + 4)]
    for i in np.flatnonzero(random.integers(0, 10, _OTHER_CHANNELS) > 0).tolist():
        reverse = int(f"{i:032b}"[::-1], 2)  # as a signed number of 32 bits, without its sign
        urls[len(_NAMED_CHANNELS) + i] += f"&channel_id={min(reverse, (1 << 32) - reverse)}"
    return [*_NAMED_CHANNELS, *(f"channel-{i}" for i in range(_OTHER_CHANNELS))], urls
