"""``iterate``: rows go round through a body until nothing new comes, for each outer time by itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pyspark_strandline.loops import errors
from pyspark_strandline.loops.best import BEST, improvements
from pyspark_strandline.loops.body import Followed, followed
from pyspark_strandline.loops.loop import ROUTED_TIME, read_loop
from pyspark_strandline.operators.completion import hold
from pyspark_strandline.operators.operator_marker import MARK
from pyspark_strandline.operators.time_functions import project
from pyspark_strandline.read.several.streams import read_channels
from pyspark_strandline.schema import quoted
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import Product, TimeDomain, product

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["iterate", "loop_domain"]

_ROUNDS, _RESULT, _OUTER, _TO = "rounds", "result", "_outer", "_to"
_FEW_ROUNDS, _MOST_GROWTH = 500, 1000
"""The bounds of a loop that may have no end: see ``_bounds``."""
_MANY_ROUNDS = 2**31


def iterate(
    spark: SparkSession,
    seed: str | os.PathLike[str],
    body: Callable[..., DataFrame],
    path: str | os.PathLike[str],
    *,
    streams: Mapping[str, str | os.PathLike[str]] | None = None,
    at: str = "iter",
    until: int | str | Column | None = None,
    best: Mapping[str, str] | None = None,
    distinct: bool = True,
    storage: Mapping[str, str] | None = None,
    **options: Any,
) -> DataStreamWriter:
    """Let the rows of a channel go round through ``body`` until nothing new comes: SQL's ``WITH RECURSIVE``, as a stream.

    Each outer time is a recursion of its own: its seed, and all rows that follow from it. Only what is new goes round (semi-naive
    evaluation): a row that its outer time has had already is dropped. With ``best``, only a row that improves on its key goes
    round. Several outer times go round at once. The result of an outer time is complete when its channel has closed the time.

    The body's plan is checked at the call (docs/loops.md): rows follow from each row by itself, and with ``distinct=False``
    also from all rows of a round. A column that the seed's channel gets later is left out.

    Args:
        spark: The session.
        seed: The path of the channel with the first rows.
        body: A function of a stream with the columns of ``seed``. It returns the rows that follow from them, with the same
            columns and at the same times. It may join tables, and with :func:`pyspark_strandline.meet` its own rows and other
            streams, within an outer time (``within="outer"``). It is called twice, first to look at its plan.
        path: A folder. The loop's own channel becomes ``rounds`` in it, and the results ``result``, with the columns of ``seed``.
        streams: The paths of other channels by name, whose times are of the seed's domain. The body gets their streams by name
            as its second argument: ``lambda rows, streams: meet(rows, streams["edges"], …)``.
        at: The name of the coordinate that counts the rounds.
        until: How many rounds an outer time goes at most, or a condition on rows that do not go round any more. The rounds of an
            outer time then begin when its seeds are complete, and come one after the other.
        best: The columns of which a key keeps the best value, each with ``min`` or ``max``, the first one first. All other
            columns are the key. The result has the best row of each key.
        distinct: Whether a row that its outer time has had already is dropped (SQL's ``UNION``). Otherwise every row goes
            round, also an equal one (``UNION ALL``): use this where rows are added up. It ends only if the body does.
        storage: Options of the object store.
        options: Options of the source (docs/options.md), such as ``maxRounds``. A loop that may have no end is bounded early.

    Returns:
        A writer with format and options set. Give it a checkpoint and start it.

    Raises:
        StrandlineError: ``STRANDLINE_LOOP_BODY_UNSUPPORTED`` if the body's rows depend on which rows come together, or it moves
            times (for its plan, as an ``AnalysisException``); ``STRANDLINE_SCHEMA_MISMATCH`` if it returns other columns; an
            argument is invalid.

    ``iterate(spark, parts, lambda rows: rows.join(uses, rows.part == uses.whole).select("time", uses.part), folder)``
    """
    if best is not None and not distinct:
        raise errors.option_conflict_distinct(best)
    plain = {name.removeprefix("storage."): value for name, value in (storage or {}).items()} or None
    source = Channel.open(seed, plain)
    domain = loop_domain(source.domain, at)
    folder = os.fspath(path).rstrip("/")
    begun = Channel.exists(f"{folder}/{_ROUNDS}", plain)
    entered = _entered(source, domain, Channel.open(f"{folder}/{_ROUNDS}", plain) if begun else None)
    time, columns = source.time_column, [name for name in entered.names if name != source.time_column]
    _check_names(entered.names)
    if until is not None:
        _check_until(until)
    by_round = best is None and not distinct

    others = _other_streams(streams)

    def followed_by(of: Mapping[str, DataFrame], name: str, paths: Mapping[str, str | os.PathLike[str]]) -> Followed:
        stream, also = of[name], {other: of[other] for other in others}
        channels = json.dumps({each: os.fspath(where) for each, where in paths.items()})
        ends = not by_round or isinstance(until, int)
        in_rounds = by_round or until is not None
        return followed(
            stream, body, time, streams=also, channels=channels, stream=name, by_round=by_round, in_rounds=in_rounds, ends=ends
        )

    # The body is called with rows of the seed first: what it returns says how the loop is bounded, and if it is refused, no
    # channel has been made.
    outside = {f"storage.{name}": value for name, value in (plain or {}).items()}
    first = read_channels(spark, {"seed": seed, **others}, domain=domain, **outside)
    seeds = first["seed"].select(*map(F.col, map(quoted, entered.names)))
    computed = followed_by({**first.all, "seed": seeds}, "seed", {"seed": seed, **others}).computed
    Channel.create(f"{folder}/{_ROUNDS}", entered, time=time, producers=["loop"], storage_options=plain, exist_ok=True)
    loop = read_loop(
        spark,
        paths := {"seed": seed, **others, _ROUNDS: f"{folder}/{_ROUNDS}"},
        feedback={_ROUNDS: {at: 1}},
        domain=domain,
        storage=storage,
        **{**_bounds(options, until, best, distinct, computed), **options, "form": _form(until, best, distinct)},
    )
    follow = followed_by(loop.streams.all, _ROUNDS, paths).rows
    at_once = [F.col(quoted(name)) for name in (time, *columns)]
    rows = loop["seed"].select(*at_once).unionByName(follow.select(*at_once))
    outer = [name for name, _ in domain.coordinates[:-1]] if len(domain.coordinates) > 2 else domain.coordinates[0][0]
    routed = _routed(rows, until, best, distinct, time=time, columns=columns, outer=outer, at=at)
    return loop.route(routed, _TO, {_ROUNDS: None, _RESULT: f"{folder}/{_RESULT}"}, leave={_RESULT: outer})


def _other_streams(streams: Mapping[str, str | os.PathLike[str]] | None) -> dict[str, str | os.PathLike[str]]:
    """Return the other channels of the loop. Raises if one has the name of the loop's own."""
    if taken := [name for name in streams or {} if name.lower() in ("seed", _ROUNDS)]:
        raise errors.option_invalid_streams(taken)
    return dict(streams or {})


def _check_names(names: Sequence[str]) -> None:
    """Raise if a column has the name of one of the loop's own."""
    own = {_OUTER, _TO, BEST}
    reserved = [name for name in names if name.lower() in own or name.lower().startswith((MARK, ROUTED_TIME))]
    if reserved:
        raise errors.column_reserved_by_iterate(reserved)


def _routed(
    rows: DataFrame,
    until: int | str | Column | None,
    best: Mapping[str, str] | None,
    distinct: bool,
    *,
    time: str,
    columns: Sequence[str],
    outer: str | Sequence[str],
    at: str,
) -> DataFrame:
    """Drop the rows that do not go on, and return the others with the column ``_TO``: into the result, around, or both."""
    ends = F.lit(False) if until is None else _ended(until, rows, F.col(quoted(time))[at])
    around = F.when(ends, F.array().cast("array<string>")).otherwise(F.array(F.lit(_ROUNDS)))
    if until is not None and (distinct or best is not None):
        # A row may come by several ways. Only in the order of the rounds is the shortest one the first.
        rows = hold(rows, by=columns)
    if best is not None:
        new = improvements(rows, time, best)
        return new.withColumn(_TO, F.when(F.col(BEST), F.array(F.lit(_RESULT))).otherwise(around)).drop(BEST)
    if distinct:
        whole = project(rows.select("*", F.col(quoted(time)).alias(_OUTER)), outer, column=_OUTER)
        rows = whole.dropDuplicates([_OUTER, *columns]).drop(_OUTER)
    return rows.withColumn(_TO, F.concat(F.array(F.lit(_RESULT)), around))


def _form(until: int | str | Column | None, best: Mapping[str, str] | None, distinct: bool) -> str:
    """Return what makes the query: a checkpoint of one form is no checkpoint of another."""
    return json.dumps(
        {
            "until": None if until is None else str(until),
            "best": None if best is None else {"order": dict(best), "state": "rows"},  # once a processor's, of another form
            "distinct": distinct,
        }
    )


def loop_domain(outer: TimeDomain, at: str) -> TimeDomain:
    """Return the domain inside a loop: the coordinates of the outer times, and one that counts rounds.

    >>> from strandline.time.domain import int64
    >>> str(loop_domain(int64, "iter")), str(loop_domain(product(day="timestamp", i="int64"), "j"))
    ('product(outer int64, iter int64)', 'product(day timestamp, i int64, j int64)')
    """
    if isinstance(outer, Product) and len(outer.coordinates) > 1 and at not in dict(outer.coordinates):
        return product(**dict(outer.coordinates), **{at: "int64"})
    inner: dict[str, TimeDomain | str] = {"outer" if at != "outer" else "time": outer, at: "int64"}
    return product(**inner)


def _entered(source: Channel, domain: TimeDomain, begun: Channel | None) -> pa.Schema:
    """Return the schema of the rows that go round: the seed's columns. A loop that has begun keeps those that it began with."""
    time = source.time_column
    entered = source.schema.set(source.schema.get_field_index(time), time_field(time, domain))
    if begun is None:
        return entered
    kept = begun.schema
    fits = all(name in entered.names and entered.field(name).equals(kept.field(name)) for name in kept.names if name != time)
    if not fits or begun.time_column != time or begun.domain != domain:
        raise errors.schema_mismatch_seed(begun.path, kept.names, begun.domain, source.path, source.schema.names, domain)
    return pa.schema([entered.field(name) for name in kept.names])


def _bounds(
    options: Mapping[str, Any],
    until: int | str | Column | None,
    best: Mapping[str, str] | None,
    distinct: bool,
    computed: list[str],
) -> dict[str, int]:
    """Return the bounds of a loop whose caller names none: early ones, unless it has an end whatever the data are.

    It has one if there are finitely many rows, and each goes round once. With ``best``, there are finitely many keys.
    """
    given = {name.lower() for name in options}
    keys = [name for name in computed if name not in (best or {})]
    if isinstance(until, int):
        bounds = {"maxRounds": max(until, _MANY_ROUNDS)}
    elif not distinct or keys:
        bounds = {"maxRounds": _FEW_ROUNDS, "maxLoopGrowth": _MOST_GROWTH}
    else:
        bounds = {} if computed else {"maxRounds": _MANY_ROUNDS}
    if "maxlooprows" in given:
        bounds.pop("maxLoopGrowth", None)
    return {name: bound for name, bound in bounds.items() if name.lower() not in given}


def _check_until(until: int | str | Column) -> None:
    if isinstance(until, bool) or (isinstance(until, int) and until < 1):
        raise errors.option_invalid_until(until)


def _ended(until: int | str | Column, rows: DataFrame, round_: Column) -> Column:
    if isinstance(until, int):
        return round_ >= until
    condition = F.expr(until) if isinstance(until, str) else until
    try:
        _ = rows.where(condition).schema
    except AnalysisException as error:
        raise errors.option_invalid_until_condition(until, rows.columns, error) from error
    return condition
