"""The errors of sinks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pyspark.sql.types import DataType

from strandline.errors import ChannelError, ProducerError, StorageError, StrandlineError, TimeError
from strandline.time.domain import Time, TimeDomain

_AS_WRITE_OUTPUTS = "Write several outputs with pyspark_strandline.write_outputs or route, which make these columns."


def loop_open(name: str, paths: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_OPEN",
        f"The query reads the feedback channel {name}, but does not write it. It writes {', '.join(paths)}.",
        "Write every feedback channel in the query, with the method write or route of the loop.",
    )


def loop_summary_differs(name: str, found: object, declared: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_SUMMARY_DIFFERS",
        f"The rows of feedback {name} take the steps {json.dumps(found)} from the times that the loop reads, but it is "
        f"declared with {json.dumps(declared)}.",
        "Do not move times in the loop's body: the feedback advances them. Declare the advance with feedback=….",
    )


def loop_times_unknown(path: str, most: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_TIMES_UNKNOWN",
        f"The rows of one batch for the feedback channel {path} have more than {most} different times.",
        "Begin the loop again, with a new checkpoint and new feedback channels, because Spark repeats this batch. Truncate the "
        "outer coordinates of the times before they enter the loop, or set maxFilesPerTrigger.",
    )


def loop_times_unknown_instants(path: str, most: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_TIMES_UNKNOWN",
        f"The rows of one batch for the link {path} come round at more than {most} instants, or a task has too many.",
        "Begin the loop again, with a new checkpoint and new feedback channels, because Spark repeats this batch. Set "
        "maxFilesPerTrigger, and let rows come from outside in smaller commits.",
    )


def loop_undeclared(path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_UNDECLARED",
        f"The query writes the channel {path}, which it or another query of its loop reads, so its "
        "frontier would wait for itself.",
        "Read it with pyspark_strandline.read_loop as a feedback, which advances times. In a loop of several queries, "
        "name it in what the query writes. Or write another channel.",
    )


def _not_a_stream(what: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_NOT_A_STREAM",
        f"The DataFrame{what} is not a stream, so it does not state which rows may still come.",
        "Read it with spark.readStream, or write it with strandline.channel.Channel.producer(…).send(…).",
    )


def not_a_stream() -> StrandlineError:
    return _not_a_stream("")


def not_a_stream_output(name: str) -> StrandlineError:
    return _not_a_stream(f" of output {name}")


def option_invalid_replay() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        "The option acceptReplay is given for a query of a loop. What goes round depends on what went round before.",
        "Leave it out. Bring back what the loop depends on, or start it anew, with new channels and new checkpoints.",
    )


def output_behind(
    batch: int, path: str, version: int, frontier: str, newest: int, now: str, has: int | None, *, may_repeat: bool
) -> StrandlineError:
    """Say that a channel has lost batches of its query.

    Args:
        batch: The newest batch that the query has committed.
        path: The path of the channel.
        version: The channel's version then.
        frontier: The channel's frontier then.
        newest: The channel's version now.
        now: The channel's frontier now.
        has: The newest batch of the query that the channel has; ``None`` if it has none.
        may_repeat: Whether the query may repeat the batches that are missing.
    """
    first = 0 if has is None else has + 1
    again = f" Or let the query repeat these batches: remove {first} and later from commits and offsets of its checkpoint."
    return StrandlineError(
        "STRANDLINE_OUTPUT_BEHIND",
        f"The query has committed batch {batch} to {path}, whose version was {version} then, with the "
        f"frontier {frontier}. Now the channel has version {newest} with the frontier "
        f"{now}, and {'no batch' if has is None else f'only the batches up to {has}'} of "
        f"this query. It was restored to an earlier state, or commits were removed from its log. What the query wrote "
        f"from batch {first} on is missing. With this batch the frontier would close times whose rows are missing.",
        f"Restore the channel to its newest commit.{again if may_repeat else ''} Or start the query with a new "
        "checkpointLocation and channel.",
    )


def output_missing_begun(batch: int, have: str, path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUT_MISSING",
        f"The query's checkpoint states that it has written {batch} batch(es) before this one, but {have} at "
        f"{path}. With this batch the frontier would close times whose rows are missing.",
        "Restore the channel at that path to its newest commit. Or start the query with a new checkpointLocation and a "
        "new channel, which gets all rows, and let the readers change to it. Or, if the channel is there, with a new "
        "checkpointLocation and the option resume, to go on with what it has (docs/lost-checkpoint.md). A query that "
        "writes to another path needs a new checkpointLocation too.",
    )


def output_missing_committed(batch: int, path: str, frontier: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUT_MISSING",
        f"The query has committed batch {batch} to {path}, with the frontier {frontier}, but there is no "
        "channel there any more. With this batch the frontier would close times whose rows are missing.",
        "Restore the channel at that path to its newest commit, or start the query with a new checkpointLocation.",
    )


def output_unknown(shown: str, outputs: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUT_UNKNOWN",
        f"A row goes to the output {shown}, but the query's outputs are {', '.join(outputs)}.",
        "Name one of these outputs. A row with an empty array goes to none.",
    )


def outputs_changed(before: Iterable[str], now: Iterable[str]) -> StrandlineError:
    had, has = (", ".join(names) or "one without a name" for names in (before, now))
    return StrandlineError(
        "STRANDLINE_OUTPUTS_CHANGED",
        f"The query's checkpoint was begun with the outputs {had}, but the query now has {has}. Spark finds the state of "
        "an operator by its place in the plan, so operators would continue with the state of others.",
        "Write the same outputs under the same names, or start the query with a new checkpoint and new channels.",
    )


def outputs_invalid_column(columns: list[str], by: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUTS_INVALID",
        f"The stream has the columns {columns}, without {by!r}.",
        "Name the column that says where a row goes.",
    )


def outputs_invalid_columns(name: str, taken: Iterable[str], columns: list[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUTS_INVALID",
        f"Output {name} takes the columns {list(taken)}, but the stream has {columns}.",
        "Name columns of the stream, with its time column.",
    )


def outputs_invalid_fields(name: str, columns: list[str], absent: list[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUTS_INVALID",
        f"The rows of output {name} have the columns {columns}, without {absent}.",
        _AS_WRITE_OUTPUTS,
    )


def outputs_invalid_names(outputs: Iterable[object]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUTS_INVALID",
        f"The names of the outputs are {list(outputs)}.",
        "Give at least one, as a non-empty text.",
    )


def outputs_invalid_rows(columns: list[str], names: str, column: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUTS_INVALID",
        f"The rows to write have the columns {columns}, without {names} and {column}.",
        _AS_WRITE_OUTPUTS,
    )


def outputs_invalid_type(by: str, kind: DataType) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUTS_INVALID",
        f"Column {by!r} has the type {kind.simpleString()}.",
        "It must be a string or an array of strings: the names of the channels that the row goes to.",
    )


def partition_column_invalid(name: str, collation: str, binary: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_PARTITION_COLUMN_INVALID",
        f"The partition column {name!r} has the collation {collation}. Names of partitions are compared byte by "
        "byte, so texts that are equal by this collation would be several partitions.",
        f'Compare it byte by byte: df.withColumn("{name}", F.expr("{binary}")). If case shall not matter, fold it '
        f'too: F.expr("lower({binary})").',
    )


def producer_exists(query: str, other: object, producer: str, path: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_EXISTS",
        f"This is the first batch of query {query}, but {other} has written as producer {producer!r} of "
        f"{path}. Rows at open times would be written twice.",
        "Start the query with the checkpoint that it had. If that is lost, set the option resume, at the sink and at "
        "each source (docs/lost-checkpoint.md). If the query reads only what the other one has not read, set "
        "takeOver.",
    )


def producer_fenced(writer: str, producer: str, path: str, query: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_FENCED",
        f"Query {writer} goes on with the producer {producer!r} of {path}, and writes what query {query} would write.",
        "Stop this query, and do not start it again. If it is to go on, start it with a new checkpoint and the option "
        "resume (docs/lost-checkpoint.md).",
    )


def producer_unknown(query: str, path: str, producer: str, wrote: Sequence[str]) -> ProducerError:
    """Say that a sealed channel does not have the producer. ``wrote`` has the queries that have written the channel."""
    lost = f" The query {wrote[0]} has written it: was its checkpoint lost or changed?" if len(wrote) == 1 else ""
    return ProducerError(
        "STRANDLINE_PRODUCER_UNKNOWN",
        f"This is the first batch of query {query}, but the channel {path} is sealed, and none of its producers is "
        f"{producer!r}.{lost}",
        "Start the query with the checkpoint that it had. If that is lost, a query with one output may go on after the rows "
        "that the channel has: set the option resume, at the sink to true and at each source to this path "
        "(docs/lost-checkpoint.md). Or write into a new channel, which gets all rows, and let the readers change to it. The "
        "option producer names one of the channel's producers.",
    )


def replay_differs_reads(batch: int, query: str, path: str, newest: int, why: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_REPLAY_DIFFERS",
        f"Batch {batch} of query {query} was committed to {path} before. The channel has the query's batches "
        f"up to {newest}. But {why}. The query's checkpoint may have been restored to an earlier state, or be a copy. Nothing of "
        "the batch was written.",
        "Restore the newest state of the checkpoint. Or start the query with a new checkpointLocation and the option resume: "
        "then it goes on after the rows that the channel has (docs/lost-checkpoint.md). Or with a new checkpointLocation and "
        "a new channel, which gets all rows, and let the readers change to it.",
    )


def replay_differs_rows(batch: int, query: str, path: str, where: str, why: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_REPLAY_DIFFERS",
        f"Batch {batch} of query {query} was committed to {path} before. Repeated, it has read the same "
        f"and wrote other rows for {where}. What differs is {why}. "
        "So the query depends on something that has changed: a table without a version, a function that gives "
        "another value each time, the order in which rows come (a sketch, a large rounding), or the program. Nothing of the "
        "batch was written.",
        "Bring back what the query depends on, and start it again with the same checkpoint. Or, if the committed rows are as "
        f"good as the others, set the option acceptReplay to {batch} at the sink: the channels that have the batch keep "
        "their rows. Or, if its operators keep no state, start it with a new checkpointLocation and the option resume, set "
        "to changed at the sink and to this path at each source (docs/lost-checkpoint.md). Or start it with a new "
        "checkpointLocation and a new channel, which gets all rows, and let the readers change to it. "
        "docs/repeated-batches.md says what a repeated batch sees.",
    )


def resume_impossible_loop() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        "The option resume is given for a query of a loop. What goes round in a loop depends on the state of its "
        "operators, which is lost.",
        "Start the loop anew: new channels for its feedback and its results, and new checkpoints for all its queries.",
    )


def schema_mismatch_columns(path: str, different: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The query's rows and {path} differ in the columns {different}.",
        "Select and cast the query's columns to the channel's. With the option mergeSchema, the sink adds columns that "
        "the channel lacks, and writes null where the rows lack a column. Types of columns do not change.",
    )


def schema_mismatch_time(want: str, domain: TimeDomain, path: str, have: str, other: TimeDomain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The query's time column is {want!r} of {domain}, but the time column of {path} is {have!r} of {other}.",
        "Rename the column, or write into another channel.",
    )


def storage_failed(checkpoint: str, why: str) -> StorageError:
    return StorageError(
        "STRANDLINE_STORAGE_FAILED", f"The store of {checkpoint[:300]!r} did not answer before: {why}.", "Check the storage."
    )


def _time_overflow(what: str) -> TimeError:
    return TimeError(
        "STRANDLINE_TIME_OVERFLOW",
        what,
        "Do not send rows at the loop's last time round. At that time, a processor may only write results.",
    )


def time_overflow_beyond(name: str, domain: TimeDomain) -> TimeError:
    return _time_overflow(f"A row for {name} has no time there: the feedback advances its time beyond the last time of {domain}.")


def time_overflow_last(name: str, domain: TimeDomain, last: Time) -> TimeError:
    return _time_overflow(f"A row for {name} is at {domain.format(last)}, from which no way around the loop leads on.")


def not_a_stream_recorded() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_NOT_A_STREAM",
        "record() got a DataFrame that is no stream.",
        "Record what readStream reads. Rows of a table have no order in which they come.",
    )


def option_invalid_nodes(node: str, nodes: Sequence[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The node is {node!r}, and the nodes are {', '.join(map(repr, nodes))}.",
        "Name each node of the channel once, and this query's among them.",
    )


def column_reserved_recorded(time: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_RESERVED",
        f"The rows have a column {time!r}, in which a recording keeps its own times.",
        "Give another name as time=, or rename the column.",
    )


def option_invalid_order(nodes: Sequence[str], joined: Sequence[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The nodes are to be in the order {', '.join(nodes)}, and have joined the channel as {', '.join(joined)}.",
        "Name them in the order in which they have joined. It never changes.",
    )
