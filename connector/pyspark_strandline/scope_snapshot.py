"""Batch DataFrames of a scope's channels at one consistent cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.scope import Cut, Scope
from strandline.time.antichain import Antichain
from strandline.time.domain import Lex, Product, Time, TimeDomain, timestamp

__all__ = ["Snapshot", "snapshot"]


@dataclass(frozen=True)
class Snapshot:
    """A scope's channels at one consistent cut.

    Attributes:
        cut: The version of each channel, for time travel with Delta's own readers, and the frontier of the cut.
        frames: For each channel, the rows whose times are closed in the cut, as a batch DataFrame.
    """

    cut: Cut
    frames: Mapping[str, DataFrame]

    def __getitem__(self, name: str) -> DataFrame:
        return self.frames[name]


def snapshot(spark: SparkSession, scope: Scope, cut: Cut | None = None) -> Snapshot:
    """Read every channel of a scope at one consistent cut.

    Each channel has all its rows of every closed time, so reports over several channels agree with each other. A later snapshot
    has the same rows of these times, and those of more times. No query needs to run.

    Args:
        spark: The session.
        scope: The scope. Its storage options must also suit delta-rs in the session's processes.
        cut: The cut (default: the newest, ``scope.cut()``).

    Raises:
        ScopeError: A channel of the scope was made anew.
        ChannelError: A channel cannot be read.
    """
    cut = scope.cut() if cut is None else cut
    frames = {}
    for name, version in cut.versions.items():
        channel = scope.channel(name)
        reader = spark.read.format("strandline").option("asOfVersion", version)
        for key, value in (scope.storage_options or {}).items():
            reader = reader.option(f"storage.{key}", value)
        frame = reader.load(channel.path)
        time = entered(frame[channel.time_column], channel.domain, scope.domain)
        frames[name] = frame.where(closed(time, cut.frontier))
    return Snapshot(cut, frames)


def entered(time: Column, outer: TimeDomain, inner: TimeDomain) -> Column:
    """Return a time in the scope, whose added coordinates are 0 (:class:`strandline.time.path.entry.Entry`)."""
    if outer == inner:
        return time
    parts, mine = inner.coordinates, outer.coordinates
    if type(outer) is type(inner) and parts[: len(mine)] == mine:
        first, rest = [time[name].alias(name) for name, _ in mine], parts[len(mine) :]
    else:
        first, rest = [entered(time, outer, parts[0][1]).alias(parts[0][0])], parts[1:]
    return F.struct(*first, *(_begin(part).alias(name) for name, part in rest))


def _begin(domain: TimeDomain) -> Column:
    return F.struct(*(_begin(part).alias(name) for name, part in domain.coordinates)) if domain.coordinates else F.lit(0)


def closed(time: Column, frontier: Antichain) -> Column:
    """Return the condition that the frontier closes a row's time: none of its elements is ≤ the time."""
    open_ = F.lit(False)
    for element in frontier:
        open_ = open_ | _at_least(time, frontier.domain, element)
    return ~open_


def _at_least(time: Column, domain: TimeDomain, element: Time) -> Column:
    """Return the condition that ``element`` ≤ the time."""
    if not isinstance(domain, Product | Lex):
        return time >= _literal(domain, element)
    parts = [(time[name], part, value) for (name, part), value in zip(domain.parts, element, strict=True)]
    if isinstance(domain, Product):
        result = F.lit(True)
        for part in parts:
            result = result & _at_least(*part)
        return result
    # From the last coordinate to the first: this coordinate is greater, or it is equal and the rest is at least the element's.
    result = F.lit(True)
    for part in reversed(parts):
        same = _equal(*part)
        result = (_at_least(*part) & ~same) | (same & result)
    return result


def _equal(time: Column, domain: TimeDomain, element: Time) -> Column:
    if not isinstance(domain, Product | Lex):
        return time == _literal(domain, element)
    result = F.lit(True)
    for (name, part), value in zip(domain.parts, element, strict=True):
        result = result & _equal(time[name], part, value)
    return result


def _literal(domain: TimeDomain, value: int) -> Column:
    return F.timestamp_micros(F.lit(value)) if domain == timestamp else F.lit(value)
