"""``strandline timeline``: how far each producer has come, as a picture of characters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.channel import Channel
from strandline.cli import errors
from strandline.cli.arguments import AsJson, ChannelPath, Most, StorageOptions, storage_of
from strandline.cli.output import clean, line, print_json
from strandline.report.history import newest_commits
from strandline.time.domain import Lex, Scalar, Time

__all__ = ["timeline"]

_WIDTH = 60
_BARS = " ▁▂▃▄▅▆▇█"


def timeline(
    path: ChannelPath,
    coordinate: Annotated[str | None, typer.Option(help="Of times with several coordinates: the one that is shown.")] = None,
    commits: Annotated[int, typer.Option(min=1, help="How many of the newest commits give the rows.")] = 200,
    most: Most = 20,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Draw rows by time, and how far each producer has passed: █ passed, ░ still open."""
    channel = Channel.open(path, storage_of(storage))
    place = _place(channel, coordinate)
    rows = _rows(channel, place, commits)
    holding = {
        name: min(_scalar(time, place) for time in state.holds)
        for name, state in channel.progress.producers.items()
        if state.holds
    }
    ended = sorted(name for name, state in channel.progress.producers.items() if not state.holds)
    front = min((_scalar(time, place) for time in channel.frontier), default=None)
    known = [number for number in (*rows, *holding.values()) if abs(number) < 1 << 62]
    low, high = (min(known), max(known) + 1) if known else (0, 1)
    first = sorted(holding.items(), key=lambda entry: (entry[1], entry[0]))[:most]
    if as_json:
        print_json(
            {
                "channel": channel.path,
                "coordinate": coordinate,
                "from": low,
                "to": high,
                "rows": sorted([number, count] for number, count in rows.items()),
                "frontier": front,
                "holds": dict(first),
                "ended": ended[:most],
            }
        )
        return
    scale = _leaf(channel, place)
    names = {name: clean(name)[:24] for name, _ in first}
    wide = max([len("closed"), *map(len, names.values())])
    line(f"{channel.path}, version {channel.version}: {scale.format(low)} to {scale.format(high - 1)}")
    line(f"{'rows'.rjust(wide)} {_heights(rows, low, high)}")
    line(f"{'closed'.rjust(wide)} {_bar(front, low, high)} {'everything' if front is None else 'before ' + scale.format(front)}")
    for name, held in first:
        line(f"{names[name].rjust(wide)} {_bar(held, low, high)} {scale.format(held)}")
    hidden = len(holding) - len(first)
    if hidden or ended:
        line(f"{'and ' + str(hidden) + ' more; ' if hidden else ''}{len(ended)} producers hold nothing any more")


def _place(channel: Channel, coordinate: str | None) -> int | None:
    """Return the place of the coordinate that is shown; ``None`` for times that are numbers."""
    parts = channel.domain.coordinates
    if isinstance(channel.domain, Lex):  # each later first coordinate has all values of the others again, so these never close
        parts = parts[:1]
    names = [name for name, part in parts if isinstance(part, Scalar)]
    if isinstance(channel.domain, Scalar) and coordinate is None:
        return None
    if coordinate not in names:
        raise errors.timeline_coordinate(channel.path, channel.domain, coordinate, names)
    return [name for name, _ in channel.domain.coordinates].index(coordinate)


def _leaf(channel: Channel, place: int | None) -> Any:
    return channel.domain if place is None else channel.domain.coordinates[place][1]


def _scalar(time: Time, place: int | None) -> int:
    return int(time if place is None else time[place])


def _rows(channel: Channel, place: int | None, commits: int) -> dict[int, int]:
    """Return the number of rows by time, in the newest commits. Rows of a span count at its least time."""
    found: dict[int, int] = {}
    for commit in newest_commits(channel, commits):
        statement = commit.statement
        if statement is None:
            continue
        for time, count in (*statement.times, *((span.low, span.rows) for span in statement.spans)):
            number = _scalar(time, place)
            found[number] = found.get(number, 0) + count
    return found


def _column(number: int, low: int, high: int) -> int:
    return (number - low) * _WIDTH // (high - low)


def _bar(held: int | None, low: int, high: int) -> str:
    passed = _WIDTH if held is None else max(0, min(_WIDTH, _column(held, low, high)))
    return "█" * passed + "░" * (_WIDTH - passed)


def _heights(rows: dict[int, int], low: int, high: int) -> str:
    counts = [0] * _WIDTH
    for number, count in rows.items():
        if low <= number < high:
            counts[_column(number, low, high)] += count
    most = max(counts) or 1
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] for count in counts)
