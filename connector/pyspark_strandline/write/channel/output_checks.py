"""What is checked before a query writes into a channel: that it has the query's batches, and that nobody else writes for it."""

from __future__ import annotations

import pyarrow as pa

from pyspark_strandline.resume.written import Writer, writer_of
from pyspark_strandline.write.channel.open_channel import OpenChannel
from strandline.channel import Channel
from strandline.channel.progress.query_producer_state import QueryProducerState
from strandline.channel.write.create import new_columns
from strandline.delta.table import different_columns
from strandline.errors import ProducerError, StrandlineError
from strandline.time.domain import TimeDomain

__all__ = ["check_begun", "check_may_join", "check_not_continued", "check_outputs", "check_schema"]


def check_begun(output: OpenChannel | None, path: str, query: str, batch: int) -> None:
    """Raise unless the channel has the earlier batches of a query that continues.

    Otherwise the channel would promise rows that are not in it.
    """
    if batch > 0 and (output is None or not output.has_batch_of(query)):
        have = "there is no channel" if output is None else "the channel has no batch of this query"
        raise StrandlineError(
            "STRANDLINE_OUTPUT_MISSING",
            f"The query's checkpoint states that it has written {batch} batch(es) before this one, but {have} at "
            f"{path}. With this batch the frontier would close times whose rows are missing.",
            "Restore the channel at that path to its newest commit. Or start the query with a new checkpointLocation and a "
            "new channel, which gets all rows, and let the readers change to it. Or, if the channel is there, with a new "
            "checkpointLocation and the option resume, to go on with what it has (docs/lost-checkpoint.md). A query that "
            "writes to another path needs a new checkpointLocation too.",
        )


def check_may_join(channel: Channel, path: str, producer: str, query: str, *, take_over: bool) -> None:
    """Raise if a query with a new checkpoint would write a channel that is sealed for others."""
    if channel.progress.get(producer) is not None:
        other = None if take_over else writer_of(channel, producer)
        if other not in (None, Writer(query)):
            raise ProducerError(
                "STRANDLINE_PRODUCER_EXISTS",
                f"This is the first batch of query {query}, but {other} has written as producer {producer!r} of "
                f"{path}. Rows at open times would be written twice.",
                "Start the query with the checkpoint that it had. If that is lost, set the option resume, at the sink and at "
                "each source (docs/lost-checkpoint.md). If the query reads only what the other one has not read, set "
                "takeOver.",
            )
        return
    if not channel.sealed:
        return
    queries = sorted(name.removeprefix("query-") for name in channel.producers if name.startswith("query-"))
    wrote = f" The query {queries[0]} has written it: was its checkpoint lost or changed?" if len(queries) == 1 else ""
    raise ProducerError(
        "STRANDLINE_PRODUCER_UNKNOWN",
        f"This is the first batch of query {query}, but the channel {path} is sealed, and none of its producers is "
        f"{producer!r}.{wrote}",
        "Start the query with the checkpoint that it had. If that is lost, a query with one output may go on after the rows "
        "that the channel has: set the option resume, at the sink to true and at each source to this path "
        "(docs/lost-checkpoint.md). Or write into a new channel, which gets all rows, and let the readers change to it. The "
        "option producer names one of the channel's producers.",
    )


def check_not_continued(channel: Channel, producer: str, state: QueryProducerState, query: str) -> None:
    """Raise if another query goes on with the producer: the rows of both would be in the channel."""
    if state.writer not in (None, query):
        raise ProducerError(
            "STRANDLINE_PRODUCER_FENCED",
            f"Query {state.writer} goes on with the producer {producer!r} of {channel.path}, and writes what query {query} "
            "would write.",
            "Stop this query, and do not start it again. If it is to go on, start it with a new checkpoint and the option "
            "resume (docs/lost-checkpoint.md).",
        )


def check_outputs(before: tuple[str, ...], now: tuple[str, ...]) -> None:
    """Raise if the query had other outputs before: Spark would give its operators the states of others."""
    if before != now:
        had, has = (", ".join(names) or "one without a name" for names in (before, now))
        raise StrandlineError(
            "STRANDLINE_OUTPUTS_CHANGED",
            f"The query's checkpoint was begun with the outputs {had}, but the query now has {has}. Spark finds the state of "
            "an operator by its place in the plan, so operators would continue with the state of others.",
            "Write the same outputs under the same names, or start the query with a new checkpoint and new channels.",
        )


def check_schema(channel: Channel, time_column: str, domain: TimeDomain, schema: pa.Schema, *, merge: bool) -> None:
    """Raise unless the channel has the query's time column and columns.

    Args:
        channel: The channel.
        time_column: The query's time column.
        domain: The domain of its times.
        schema: The query's columns.
        merge: Whether each of the two may have columns that the other one lacks.
    """
    if (channel.time_column, channel.domain) != (time_column, domain):
        raise StrandlineError(
            "STRANDLINE_SCHEMA_MISMATCH",
            f"The query's time column is {time_column!r} of {domain}, "
            f"but the time column of {channel.path} is {channel.time_column!r} of {channel.domain}.",
            "Rename the column, or write into another channel.",
        )
    have, want = channel.schema, schema
    if merge:
        new_columns(channel.path, have, want)
        want = pa.schema([*want, *(field for field in have if field.name not in want.names)])
        have = pa.schema([*have, *(field for field in want if field.name not in have.names)])
    different = different_columns(have, want)
    if different is not None:
        raise StrandlineError(
            "STRANDLINE_SCHEMA_MISMATCH",
            f"The query's rows and {channel.path} differ in the columns {different}.",
            "Select and cast the query's columns to the channel's. With the option mergeSchema, the sink adds columns that "
            "the channel lacks, and writes null where the rows lack a column. Types of columns do not change.",
        )
