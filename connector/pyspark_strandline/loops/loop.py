"""``read_loop`` and ``read_scope``: the channels of a loop as streams, and the writers that close it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F

from pyspark_strandline.loops import errors
from pyspark_strandline.operators.summary_steps import By, around, distances
from pyspark_strandline.operators.time_functions import fed_back, project
from pyspark_strandline.read.several.streams import Streams, read_channels
from pyspark_strandline.schema import quoted, schema_above, time_field_of
from pyspark_strandline.write.outputs import route_restamped, write_outputs_restamped
from strandline.channel import Channel
from strandline.loop import LoopQuery
from strandline.replay.clock import CLOCK
from strandline.replay.restamp import ORIGINAL
from strandline.scope import Scope
from strandline.time.domain import TimeDomain, parse_domain
from strandline.time.path.summary import advance_each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["ROUTED_TIME", "Loop", "read_loop", "read_scope"]

ROUTED_TIME = "_time_"
"""How the columns begin that :meth:`Loop.route` makes, one for the time of each channel."""
_ORIGINAL_TIME = "_original_"
"""And those with the times from before the rows of recorded links come round."""


class Loop:
    """The streams of a loop, and what closes it. :func:`read_loop` makes it.

    ``loop["name"]`` is the stream of a channel, at times of the loop's domain. :meth:`write` or :meth:`route` writes the feedback
    channels, whose rows come round, and any other channels.

    Attributes:
        streams: The streams by name.
        domain: The domain of times inside the loop.
    """

    def __init__(
        self,
        streams: Streams,
        channels: Mapping[str, Channel],
        feedback: Mapping[str, Mapping[str, int]],
        domain: TimeDomain,
        storage: Mapping[str, str] | None,
        restamps: Mapping[str, str] | None = None,
    ) -> None:
        self.streams, self._channels, self._feedback, self.domain = streams, channels, feedback, domain
        self._storage, self._restamps = storage, dict(restamps or {})

    def __getitem__(self, name: str) -> DataFrame:
        """Return the stream of a channel. Raises :class:`StrandlineError` for an unknown name.

        That of a recorded link is without the column with the original times; ``streams[name]`` has it.
        """
        return self.streams[name].drop(ORIGINAL) if self._is_recorded(name) else self.streams[name]

    def write(
        self,
        outputs: Mapping[str, DataFrame | tuple[DataFrame, str | os.PathLike[str]]],
        *,
        producer: str | None = None,
        take_over: bool = False,
    ) -> DataStreamWriter:
        """Write the feedback channels and other channels, by one query. Each stream is evaluated by itself.

        Args:
            outputs: By name, the stream of a feedback channel, or the stream and the path of another channel. The rows of a
                feedback are at times of the loop's domain: they leave it to the domain of the channel, and advance there.
            producer: The name of the query's producer in each channel (default: the only producer of the feedback channels).
            take_over: Whether to fence another session of the producer.

        Returns:
            A writer with format and options set. Give it a checkpoint and start it.

        Raises:
            StrandlineError: ``STRANDLINE_LOOP_OPEN`` if a feedback channel is missing; as for
                :func:`pyspark_strandline.write_outputs`.
        """
        self._check_closed(outputs)
        given: dict[str, tuple[DataFrame, str | os.PathLike[str]]] = {}
        for name, output in outputs.items():
            frame, path = output if isinstance(output, tuple) else (output, self._path_of(name))
            given[name] = (self._fed_back(name, frame), path) if name in self._feedback else (frame, path)
        return write_outputs_restamped(
            given,
            restamped=self._restamps,
            producer=producer or self._producer(),
            take_over=take_over,
            storage=self._storage,
        )

    def route(
        self,
        df: DataFrame,
        by: str,
        channels: Mapping[str, str | os.PathLike[str] | None],
        *,
        columns: Mapping[str, Mapping[str, str]] | None = None,
        leave: Mapping[str, str | list[str]] | None = None,
        producer: str | None = None,
        take_over: bool = False,
    ) -> DataStreamWriter:
        """Write the rows of one stream into the feedback channels and others, each row into those that it names.

        The plan is evaluated once. Use it where an operator is expensive, such as a processor.

        Args:
            df: The stream, at times of the loop's domain.
            by: The column with the names, as for :func:`pyspark_strandline.route`.
            channels: By name, the path of another channel, or ``None`` for a feedback channel, which gets its columns.
            columns: For a channel, which column of ``df`` becomes which of its columns, without the time. By default a feedback
                channel gets its own columns by name, and another channel gets all columns.
            leave: For other channels, the coordinates of the time that they keep. By default they keep all of them.
            producer: As for :meth:`write`.
            take_over: As for :meth:`write`.

        Returns:
            A writer with format and options set.

        Raises:
            StrandlineError: As for :meth:`write` and :func:`pyspark_strandline.route`.
        """
        self._check_closed(channels)
        time, _ = time_field_of(schema_above(df))
        for begin in (ROUTED_TIME, _ORIGINAL_TIME):
            reserved = [column for column in df.columns if column.lower().startswith(begin)]
            if reserved:
                raise errors.column_reserved_by_route(reserved, begin)
        rest = {column: column for column in df.columns if column not in (by, time)}
        given = dict(columns or {})
        targets: dict[str, tuple[str | os.PathLike[str], Mapping[str, str]]] = {}
        for number, (name, path) in enumerate(channels.items()):
            own = f"{ROUTED_TIME}{number}"
            df = df.select("*", F.col(quoted(time)).alias(own))  # in Connect, withColumn would make a column that is no time
            if name in self._feedback:
                channel, original = self._channels[name], f"{_ORIGINAL_TIME}{number}"
                df = self._fed_back(name, df, own, original)
                absent = (channel.time_column, ORIGINAL) if self._is_recorded(name) else (channel.time_column,)
                fields = {column: column for column in channel.schema.names if column not in absent}
                kept = {ORIGINAL: original} if self._is_recorded(name) else {}
                targets[name] = (channel.path, {channel.time_column: own, **given.get(name, fields), **kept})
            else:
                if leave and name in leave:
                    df = project(df, leave[name], column=own)
                targets[name] = (path or self._path_of(name), {time: own, **given.get(name, rest)})
        return route_restamped(
            df.drop(time),
            by,
            targets,
            restamped=self._restamps,
            producer=producer or self._producer(),
            take_over=take_over,
            storage=self._storage,
        )

    def _is_recorded(self, name: str) -> bool:
        """Whether a channel keeps the times from before its rows came round."""
        return self._restamps.get(name, "event") != "event"

    def _fed_back(self, name: str, frame: DataFrame, column: str | None = None, original: str = ORIGINAL) -> DataFrame:
        """Return the rows at the times at which they come round, and for a recorded link with those from before."""
        time = time_field_of(schema_above(frame))[0] if column is None else column
        outer, by = self._channels[name].domain, self._feedback[name]
        if self._is_recorded(name):
            if original in frame.columns:
                raise errors.column_reserved_by_link(original)
            leaves = [F.col(quoted(time)).getField(leaf).alias(leaf) for leaf, _ in CLOCK.coordinates]
            frame = frame.select("*", F.struct(*leaves).alias(original))  # a new struct, which is no time column
        # The rows are at times of the loop's domain, or have left it to the channel's already.
        return fed_back(frame, lambda domain: around(domain, outer, by), time)

    def _check_closed(self, outputs: Mapping[str, Any]) -> None:
        missing = [name for name in self._feedback if name not in outputs]
        if missing:
            raise errors.loop_open(self._feedback, missing)

    def _path_of(self, name: str) -> str:
        if name not in self._feedback:
            raise errors.outputs_invalid(name, self._feedback)
        return self._channels[name].path

    def _producer(self) -> str:
        """Return the only producer of the feedback channels."""
        found = {name: sorted(self._channels[name].progress.producers) for name in self._feedback}
        names = {producer for producers in found.values() for producer in producers}
        if len(names) != 1:
            raise errors.loop_two_writers(found)
        return names.pop()


def read_loop(
    spark: SparkSession,
    channels: Mapping[str, str | os.PathLike[str]],
    *,
    feedback: Mapping[str, Mapping[str, By] | By] | None = None,
    domain: TimeDomain | str,
    record: bool | Literal["clock", "earliest"] = False,
    events: Mapping[str, str] | None = None,
    queries: Mapping[str, LoopQuery] | None = None,
    query: str | None = None,
    storage: Mapping[str, str] | None = None,
    **options: Any,
) -> Loop:
    """Read the channels of a loop as one source.

    A query that reads a channel and writes it has a loop. Its frontier counts what may still come round: what outside producers
    hold, rows that the query has not read yet, and times that it has read and not yet closed. So each operator closes a time
    exactly when no row can come to it any more. When nothing comes round, the query makes no more batches.

    Args:
        spark: The session.
        channels: The paths of all channels that the query reads, by name. The feedback channels exist, have one producer, and
            have no rows when the query begins.
        feedback: For each feedback channel, by how much its times advance on the way around, as for
            :func:`pyspark_strandline.advance`: ``{"labels": {"iter": 1}}``, ``{"late": {"instant": "100 milliseconds"}}``.
        domain: The domain of times inside the loop. The times of each channel enter it: they are of this domain, or its first
            coordinates.
        record: Whether what comes round gets new times, and the feedback channels keep both. ``True`` or ``"clock"``: by the
            receiving clock. ``"earliest"``: at most the advance of ``feedback`` later, and just before the next record from
            outside if that is earlier. The times are those of a clock (:data:`strandline.replay.CLOCK`), and the feedback
            channels have the schema :func:`strandline.replay.recorded`. :func:`pyspark_strandline.replay.replay_loop` runs such
            a loop again. Source: seed 5 (Triceps), cases 1 and 2; without ``record``, a loop over such times is its case 3.
        events: For feedback channels that carry events: the column with the instant at which each is due. It is delivered at
            that instant, before what comes round or from outside then, or later by the advance of ``feedback`` if it is due
            earlier than that. The channel's state counts these as ``rounded``.
        queries: Instead of ``feedback``, for a loop that goes through several queries: what each of them reads, and which
            channels of the loop it writes, with the advance of their times. Each may run in a driver of its own. Each is
            started with the same channels, queries and domain.
        query: The name of this query among them.
        storage: Options of the object store.
        options: Options of the source (docs/options.md), such as ``maxRounds``.

    Returns:
        The loop.

    Raises:
        StrandlineError: An option is invalid, a channel is missing, a feedback advances nothing; ``STRANDLINE_CLOCK_DOMAIN`` and
            ``STRANDLINE_COLUMN_MISSING`` for channels that are not as ``record`` and ``events`` need them.

    ``loop = read_loop(spark, {"edges": edges, "labels": labels}, feedback={"labels": {"iter": 1}}, domain=domain)
    loop.write({"labels": smaller(loop["edges"], loop["labels"]), "result": (…, path)})``
    """
    domain = parse_domain(domain) if isinstance(domain, str) else domain
    plain = {name.removeprefix("storage."): value for name, value in (storage or {}).items()}
    if queries is None:
        own, writers = feedback or {}, {"": feedback or {}}
    elif query is None or query not in queries or feedback is not None:
        raise errors.option_invalid_query(query, queries, feedback)
    else:
        own, writers = queries[query].writes, {name: each.writes for name, each in queries.items()}
    moves = {of: {name: by if isinstance(by, Mapping) else {"": by} for name, by in each.items()} for of, each in writers.items()}
    unknown = [name for each in writers.values() for name in each if name not in channels]
    if unknown or not own:
        raise errors.option_invalid_feedback(unknown, channels)
    opened = {name: Channel.open(channels[name], plain or None) for each in moves.values() for name in each}
    units = {
        of: {name: _in_units(opened[name].domain, by, numbers=queries is not None) for name, by in each.items()}
        for of, each in moves.items()
    }
    if queries is None or query is None:
        options["feedback"] = json.dumps(units[""])
    else:
        each_query = {name: {"reads": list(each.reads), "writes": units[name]} for name, each in queries.items()}
        options |= {"queries": json.dumps(each_query), "query": query}
    restamps = _restamps(own, record, events or {}, one_query=queries is None)
    clocks = [name for name in restamps if opened[name].domain == CLOCK]
    if timeless := [name for name in clocks if not units[query or ""][name].get("instant")]:
        raise errors.option_invalid_lag(timeless[0])
    if restamps:
        options["restamp"] = json.dumps(restamps)
    options |= {f"storage.{name}": value for name, value in plain.items()}
    streams = read_channels(spark, channels, domain=domain, **options)
    ways = {name: by for name, (by, _) in restamps.items()}
    return Loop(streams, {name: opened[name] for name in own}, units[query or ""], domain, plain or None, ways)


def _restamps(
    own: Iterable[str], record: bool | str, events: Mapping[str, str], *, one_query: bool
) -> dict[str, tuple[str, str]]:
    """Return how feedback channels give their rows new times, each with the column of an event's instant."""
    way = ("clock" if record else "") if isinstance(record, bool) else record
    if way not in ("", "clock", "earliest"):
        raise errors.option_invalid_record(record)
    unknown = [name for name in events if name not in own]
    if unknown or ((way or events) and not one_query):
        raise errors.option_invalid_events(unknown, own)
    ways = {name: ("event", events[name]) if name in events else (way, "") for name in own}
    return {name: each for name, each in ways.items() if each[0]}


def read_scope(spark: SparkSession, scope: Scope, query: str, **options: Any) -> Loop:
    """Read what one query of a scope reads, to run it in this driver. The scope may have cycles through any of its queries.

    It is :func:`read_loop` with the channels, the domain and the queries that the scope has recorded. The other queries run in
    drivers of their own, or in this one.

    Args:
        spark: The session.
        scope: The scope. Each query is recorded with the advance of the channels that it writes
            (``scope.add_query("spread", reads=…, writes={"labels": {"iter": 1}})``).
        query: The name of the query in the scope.
        options: As for :func:`read_loop`.

    Returns:
        The loop. Its method ``write`` writes the channels of the scope by name, and others with their paths.

    Raises:
        ScopeError: The query is not one that :meth:`strandline.scope.Scope.loop_queries` returns; a channel was made anew.
        StrandlineError: As for :func:`read_loop`.

    ``loop = read_scope(spark, Scope.open("/lake/components"), "spread")``
    """
    scope.refresh()
    paths = {name: scope.channel(name).path for name in scope.channels}
    storage = scope.storage_options
    return read_loop(spark, paths, queries=scope.loop_queries(), query=query, domain=scope.domain, storage=storage, **options)


def _in_units(domain: TimeDomain, by: Mapping[str, By], *, numbers: bool) -> dict[str, int]:
    """Return by how much each coordinate advances, in its own unit. A :class:`LoopQuery` has such ``numbers`` already."""
    given = {path: distance for path, distance in by.items() if numbers and type(distance) is int}
    advance_each(domain, given)  # raises if they do not fit
    others = distances(domain, {path: distance for path, distance in by.items() if path not in given})
    return others | {path: distance for path, distance in given.items() if distance}  # a checkpoint has no 0
