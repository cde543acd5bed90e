"""Moving times: ``advance``, ``truncate``, ``project`` and ``enter`` change a DataFrame's time column and its frontier."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pyspark_strandline.errors import extension_missing_for_times
from pyspark_strandline.operators import errors
from pyspark_strandline.operators.summary_steps import (
    By,
    advancing,
    entering,
    projecting,
    truncating,
    with_coordinate,
)
from pyspark_strandline.schema import TIME_METADATA, domain_metadata, quoted, schema_above, time_fields
from strandline.time.domain import TimeDomain, parse_domain
from strandline.time.path.steps import Steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["advance", "enter", "fed_back", "project", "truncate"]

_FUNCTION = "strandline_move"  # of the session extension, which carries the steps into the column's metadata


def advance(df: DataFrame, by: By | Mapping[str, By], coordinate: str | None = None, *, column: str | None = None) -> DataFrame:
    """Advance every row's time by a path summary, and the frontier of ``df`` with it.

    In a ``lex`` time the coordinates after the one that moves get their least values, as in :func:`strandline.advance`. Later
    operators close exactly the times that the advanced frontier closes, and the strandline sink promises exactly this frontier.
    A row whose time would leave its domain stops the query with ``STRANDLINE_TIME_OVERFLOW``.

    Args:
        df: The DataFrame.
        by: A duration for a timestamp (``"1 day"``, ``"90 minutes"``, a ``timedelta``; a day has 24 hours), or a number for an
            integer. 0 changes nothing. A mapping moves several coordinates, one after the other:
            ``advance(df, {"epoch": 1, "iter": 2})``.
        coordinate: The coordinate that moves, in a ``product`` or ``lex`` time. Dots lead to a nested one (``"loop.iter"``).
        column: The time column, when there are several.

    Raises:
        StrandlineError: For a coordinate that the domain lacks (``STRANDLINE_SUMMARY_INVALID``), a distance that is negative or
            does not fit the kind of the times (``STRANDLINE_DELAY_INVALID``), a DataFrame without a time column
            (``STRANDLINE_TIME_COLUMN_MISSING``) or with several (``STRANDLINE_TIME_COLUMN_AMBIGUOUS``).

    ``tomorrow = advance(counts, "1 day")``, ``again = advance(rows, 1, "iter")``
    """
    return _moved(df, column, lambda domain: advancing(domain, by, coordinate))


def truncate(df: DataFrame, unit: By, coordinate: str | None = None, *, offset: By = 0, column: str | None = None) -> DataFrame:
    """Round every row's time down to a multiple of ``unit``, and the frontier of ``df`` with it.

    Multiples count from ``offset``, for timestamps after 1970-01-01 UTC, as in ``window``: a time becomes the start of its
    window. It closes when no time that is rounded down to it can come any more. In a ``lex`` time the coordinates after the
    rounded one get their least values.

    Args:
        df: The DataFrame.
        unit: The unit: a duration for a timestamp, or a number for an integer, as in :func:`advance`.
        coordinate: The coordinate that is rounded, in a ``product`` or ``lex`` time.
        offset: The distance of the first multiple from 0, for timestamps from 1970-01-01 UTC.
        column: The time column, when there are several.

    Returns:
        ``df`` with rounded times.

    Raises:
        StrandlineError: As for :func:`advance`.

    ``hourly = truncate(rows, "1 hour")``
    """
    return _moved(df, column, lambda domain: truncating(domain, unit, coordinate, offset))


def project(df: DataFrame, coordinates: str | Sequence[str], *, column: str | None = None) -> DataFrame:
    """Keep only the named coordinates of every row's time, and project the frontier of ``df``.

    In a ``product`` any coordinates can be kept. In a ``lex`` time only the first ones can, because later ones may go back. The
    coordinates keep their order. A projected time is closed when no open time is projected to it or below it: ``{(2, 5), (4,
    0)}`` becomes ``{2}`` in the first coordinate.

    Args:
        df: The DataFrame.
        coordinates: The coordinates to keep. A name with dots leads to a nested coordinate (``"loop.outer"``).
        column: The time column, when there are several.

    Returns:
        ``df`` with projected times. A single coordinate becomes the bare time.

    Raises:
        StrandlineError: As for :func:`advance`.

    ``by_event = project(rows, "event").groupBy(F.window("time", "1 hour")).count()``
    """
    return _moved(df, column, lambda domain: projecting(domain, coordinates))


def enter(
    df: DataFrame, coordinate: str | None = None, *, domain: TimeDomain | str | None = None, column: str | None = None
) -> DataFrame:
    """Give every row's time one more coordinate, or several, which begin at 0, and let the frontier of ``df`` enter with them.

    This is timely's ``enter``, and :func:`project` is its ``leave``. A time inside is closed when no open time enters at it or
    below it. The channels of :func:`~pyspark_strandline.read_loop` enter its ``domain`` when they are read.

    Args:
        df: The DataFrame.
        coordinate: The name of a new last coordinate, an ``int64``. A ``product`` or ``lex`` time gets it as one more. A scalar
            time becomes a ``product`` of itself, under the column's name, and the new one.
        domain: Instead of ``coordinate``: the domain inside, or its text. Its first coordinates are the times of ``df``. The
            coordinates after them are integers.
        column: The time column, when there are several.

    Returns:
        ``df`` with the times inside. They are unchanged if they are of ``domain`` already.

    Raises:
        StrandlineError: As for :func:`advance`; for a domain that the times do not enter (``STRANDLINE_SUMMARY_INVALID``), or a
            coordinate that they have already (``STRANDLINE_TIME_DOMAIN_INVALID``).
        TypeError: For both, or none, of ``coordinate`` and ``domain``.

    ``rounds = enter(seeds, "iter")``, ``ticks = enter(seeds, domain="lex(event timestamp, tick int64)")``
    """
    if (coordinate is None) == (domain is None):
        raise TypeError("enter() takes either a coordinate, such as enter(df, 'iter'), or domain=…")
    name, outer = _time_column(df, column)
    inner = parse_domain(domain) if isinstance(domain, str) else domain or with_coordinate(outer, str(coordinate), name)
    return _moved(df, name, lambda outer: entering(outer, inner))


def fed_back(df: DataFrame, steps: Callable[[TimeDomain], Steps], column: str) -> DataFrame:
    """Move a column of times on their way around a loop. A time from which the way does not lead on becomes null.

    Rows that do not come round may have such a time. The sink refuses the null for a row that does.
    """
    return _moved(df, column, steps, or_null=True)


def _moved(df: DataFrame, column: str | None, move_of: Callable[[TimeDomain], Steps], *, or_null: bool = False) -> DataFrame:
    name, domain = _time_column(df, column)
    move = move_of(domain)
    if not move.steps:
        return df
    # This tag is for a batch. In a stream the extension replaces it with its own tag, which has the summary.
    given = [F.col(quoted(name)), F.lit(str(domain)), F.lit(json.dumps(move.to_json())), *([F.lit(True)] if or_null else [])]
    time = F.call_function(_FUNCTION, *given)
    try:
        moved = df.withColumn(name, time.alias(name, metadata=domain_metadata(move.target(domain))))
        moved.schema  # noqa: B018 - Spark Connect raises only when the schema is requested
    except AnalysisException as error:
        if error.getCondition() != "UNRESOLVED_ROUTINE":
            raise
        raise extension_missing_for_times() from error
    return moved


def _time_column(df: DataFrame, column: str | None) -> tuple[str, TimeDomain]:
    schema = schema_above(df)
    if column is not None and column not in schema.names:
        raise errors.time_column_missing_name(column, schema.names)
    found = [(name, domain) for name, domain in time_fields(schema) if column in (None, name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise errors.time_column_ambiguous([name for name, _ in found])
    tagged = any(TIME_METADATA in (f.metadata or {}) or "strandline.window" in (f.metadata or {}) for f in schema.fields)
    raise errors.time_column_missing(column, schema.names, has_window=tagged)
