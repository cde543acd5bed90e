"""The errors of ingests. Those of policies, of late tables and of parked rows are in their packages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from glob import escape

from strandline.errors import ChannelError, IngestError, PolicyError, ProducerError
from strandline.shell_words import command

_REMEDY = "Correct the class, then start the query again: it repeats the batch. Nothing of the batch was written."


def cancel_impossible(path: str, why: str) -> IngestError:
    return IngestError(
        "STRANDLINE_CANCEL_IMPOSSIBLE",
        f"No announced rows of {path} can be cancelled from here: {why}. Nothing was written.",
        "Count the rows in the manifest's column cancelled, and start the query: its next batch goes by that.",
    )


def cancel_impossible_unjoined(name: str, path: str) -> IngestError:
    return IngestError(
        "STRANDLINE_CANCEL_IMPOSSIBLE",
        f"Partition {name!r} of {path} is announced in a manifest that is a channel, but has not joined. Nothing was written.",
        "Run the ingest: with its next batch the partition joins. Then cancel the rows.",
    )


def _cancel_invalid(what: str, remedy: str) -> IngestError:
    return IngestError("STRANDLINE_CANCEL_INVALID", f"{what} Nothing was written.", remedy)


def cancel_invalid_back(number: int, time: str, name: str, cancelled: int) -> IngestError:
    what = f"{cancelled} rows for {time} of {name!r} are cancelled already, so there cannot be {number} in all."
    return _cancel_invalid(what, "The number is that of all cancelled rows of the time. It never goes back.")


def cancel_invalid_more(number: int, time: str, name: str, rows: int, cancelled: int, missing: int) -> IngestError:
    what = (
        f"For {time} of {name!r} {rows} rows are announced, {cancelled} are cancelled, and {missing} are missing. "
        f"So {number} cannot be cancelled in all."
    )
    return _cancel_invalid(what, f"Cancel at most {cancelled + missing} in all.")


def cancel_invalid_number(number: object) -> IngestError:
    return _cancel_invalid(f"{number!r} is no number of rows.", "Give a whole number, at least 0.")


def cancel_invalid_partition(name: str, path: str, known: Sequence[str]) -> IngestError:
    shown = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    return _cancel_invalid(
        f"No manifest of an ingest of {path} judges a partition {name!r}. It has: {shown or 'none'}.", "Name one of these."
    )


def cancel_invalid_time(time: str, name: str, manifest: str, times: Sequence[str]) -> IngestError:
    shown = ", ".join(times[:10]) + (f" and {len(times) - 10} more" if len(times) > 10 else "")
    return _cancel_invalid(
        f"The manifest {manifest} announces nothing for {time} of {name!r}. It has: {shown or 'none'}.", "Name one of these."
    )


def _some(names: Iterable[str]) -> str:
    """Return the first names in order, and how many more there are."""
    known = sorted(names)
    return ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "") or "none"


def _line(value: object) -> str:
    """Return what a policy returned, in one line."""
    return " ".join(repr(value).split())[:200]


def _short(value: object) -> str:
    """Return a value of a state, cut where it is long."""
    result = repr(value)
    return result if len(result) <= 100 else f"{result[:100]}…"


def channel_sealed(name: str, path: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_CHANNEL_SEALED",
        f"Partition {name!r} cannot join, because the channel {path} is sealed. Nothing of the batch was written.",
        "Leave the rows of this partition out of the stream, with a filter, and its name out of partitions. Ingest the rows into "
        "another channel. A sealed channel stays sealed.",
    )


def column_reserved(columns: Sequence[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_COLUMN_RESERVED",
        f"The rows have the columns {columns}, which are reserved for the late table.",
        "Rename them.",
    )


def column_unknown(argument: str, name: str, count: int, columns: Sequence[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_COLUMN_UNKNOWN",
        f"The argument {argument} names the column {name!r}, which occurs {count} times in the rows. Their columns are "
        f"{columns}.",
        "Name a column that occurs once.",
    )


def column_unknown_field(argument: str, name: str, outer: str, fields: Sequence[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_COLUMN_UNKNOWN",
        f"The argument {argument} names {name!r}, but {outer!r} has {fields or 'no fields'}.",
        "Name a column of the rows, or select a field of a struct as a column first.",
    )


def column_unknown_struct(argument: str, name: str, struct: str, field: str, own: str, then: str) -> IngestError:
    return IngestError(
        "STRANDLINE_COLUMN_UNKNOWN",
        f"The argument {argument} names {name!r}, which is a field of the struct {struct!r}, not a column.",
        f'Select the field as a column first: df = df.selectExpr("*", "{field} AS {own}"). Then give {then}.',
    )


def ingest_fenced(query: str, path: str, by: object) -> IngestError:
    return IngestError(
        "STRANDLINE_INGEST_FENCED",
        f"Query {query} was taken over in {path} by {by}. Nothing of the batch was written.",
        "Only one query may write a partition. Stop this query, or start it with takeOver, which fences the other one.",
    )


def _ingest_overtaken(what: str) -> IngestError:
    return IngestError(
        "STRANDLINE_INGEST_OVERTAKEN",
        f"While a batch ran, {what}. Nothing of the batch was written.",
        "Start the query again. It plans the batch again.",
    )


def ingest_overtaken(version: int, path: str, partition: str) -> IngestError:
    return _ingest_overtaken(f"commit {version} of {path} changed what partition {partition!r} may write")


def ingest_overtaken_by_restore(path: str) -> IngestError:
    return _ingest_overtaken(f"{path} was recreated or restored: it had this batch when the batch was planned")


def _ingest_state_invalid(problem: str) -> IngestError:
    return IngestError(
        "STRANDLINE_INGEST_STATE_INVALID",
        f"What the channel's log states for ingests cannot be used: {problem} Nothing was written.",
        "The log is damaged, or something other than an ingest wrote this state. Restore the log from a backup, or ingest into a "
        "new channel. If a newer release of Strandline wrote it, use that release.",
    )


def ingest_state_invalid(what: str, value: object, key: object) -> IngestError:
    return _ingest_state_invalid(f"{what} has {_short(value)} for {key!r}.")


def ingest_state_invalid_lacking(what: str, key: str) -> IngestError:
    return _ingest_state_invalid(f"{what} has nothing for {key!r}.")


def ingest_state_invalid_list(path: str) -> IngestError:
    return _ingest_state_invalid(f"the file {path!r} is not a list of parked rows.")


def ingest_state_invalid_name(key: object) -> IngestError:
    return _ingest_state_invalid(f"the registrar's state has the name {_short(key)}, which is not text.")


def ingest_state_invalid_object(what: str, value: object) -> IngestError:
    return _ingest_state_invalid(f"{what} is {_short(value)}, which is not an object.")


def ingest_state_invalid_twice() -> IngestError:
    return _ingest_state_invalid("a parked file is named twice.")


def late_file_missing_in_batch(file: str, rows: int, path: str, batch: int) -> IngestError:
    return IngestError(
        "STRANDLINE_LATE_FILE_MISSING",
        f"The file {file!r} with {rows} late rows was removed from {path} while "
        f"batch {batch} ran. Nothing of the batch was written.",
        "Start the query again. It plans the batch again.",
    )


def late_column_invalid(name: str, role: str) -> IngestError:
    return IngestError(
        "STRANDLINE_LATE_COLUMN_INVALID",
        f"lateColumns has {name!r}, which {role}.",
        "Name columns of the rows that only the late table is to have, such as the raw record of a message broker.",
    )


def max_future_invalid(bound: object, domain: object) -> IngestError:
    return IngestError(
        "STRANDLINE_MAX_FUTURE_INVALID",
        f"maxFuture is {bound}, but times are of {domain}, which has no timestamp to compare with the clock.",
        "Remove maxFuture, or use times with a timestamp coordinate.",
    )


def not_a_table_late(path: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_NOT_A_TABLE", f"There is no late table at {path}.", "Give the current path of the late table."
    )


def option_invalid_max_set_aside(value: object) -> IngestError:
    return IngestError(
        "STRANDLINE_OPTION_INVALID",
        f"maxSetAside is {value!r}.",
        "Give a share of a batch's rows, such as '1%', or a number of rows, such as '100 rows'.",
    )


def option_invalid_on_late(value: str) -> IngestError:
    return IngestError("STRANDLINE_OPTION_INVALID", f"onLate is {value!r}, not setAside or fail.", "Give setAside or fail.")


def partition_column_invalid(name: str, kind: object) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_COLUMN_INVALID",
        f"The partition column {name!r} has the type {kind}, which cannot be a name.",
        "Cast the column to a string.",
    )


def partition_name_invalid(name: object, problem: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_NAME_INVALID",
        f"The argument partitions names {name!r}, which {problem}.",
        "Remove this name.",
    )


def partition_name_invalid_in_policy(policy: object, name: object, problem: str) -> PolicyError:
    return PolicyError(
        "STRANDLINE_PARTITION_NAME_INVALID",
        f"The policy {policy} names the partition {name!r}, which {problem}.",
        "Remove this name from the policy.",
    )


def partition_not_ahead(name: str, path: str, holds: str, joins: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_NOT_AHEAD",
        f"Partition {name!r} of {path} holds {holds}, and would join at {joins}, which is not before that. Nothing was written.",
        f"Name a partition that is ahead of the others. To see what each holds, type {command('inspect', path)}. If this one "
        f"never delivers again, type {command('drop', path, name)}.",
    )


def partition_not_dead(name: str, path: str, why: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_NOT_DEAD",
        f"The partition {name!r} of {path} cannot be forgotten, because it {why}. Nothing was written.",
        f"If it never delivers again, drop it first: {command('drop', path, name)}. A partition that a manifest counts stays.",
    )


def partition_of_another_query(partition: str, path: str, donor: str, query: str, anew: str | None) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_OF_ANOTHER_QUERY",
        f"The batch has rows of partition {partition!r} of {path}, which query {donor} has "
        f"written. That query has ended. Query {query} may read again what it has read, and then each row "
        "would come twice. Nothing of the batch was written.",
        "Start the ingest with the checkpoint that it had. If that is lost, ingest into a new channel, and let the "
        f"readers change to it. {_begins_where_it_ended(anew)}",
    )


def partition_is_hold(name: str, path: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_IS_HOLD",
        f"The ingest has a partition {name!r}, and in {path} this is the name of a producer that holds a time (strandline hold). "
        "Nothing of the batch was written.",
        f"Release the time, and free the name: type {command('drop', path, name)}, then {command('forget', path, name)}. "
        "Then start the query again: the partition joins. To hold the time again, leave --as out.",
    )


def partition_unknown(path: str, name: str, partitions: Iterable[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_UNKNOWN",
        f"{path} has no partition {name!r}. Its partitions: {_some(partitions)}.",
        "Name one of its partitions.",
    )


def partition_unknown_in_ingest(name: str, partitions: Iterable[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_UNKNOWN",
        f"Partition {name!r} does not belong to this ingest. Its partitions: {_some(partitions)}. Nothing of the batch "
        "was written.",
        "Add the partition to partitions, add a pattern such as 'kafka-*', or leave partitions out.",
    )


def partition_unknown_in_sealed(name: str, partitions: Iterable[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_UNKNOWN",
        f"Partition {name!r} cannot join, because the channel is sealed. Its partitions: {_some(partitions)}. Nothing of the "
        "batch was written.",
        "Leave the rows of this partition out of the stream, with a filter, and ingest them into another channel. A sealed "
        "channel stays sealed.",
    )


def partition_unknown_owner(path: str, name: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_UNKNOWN",
        f"No ingest has written {name!r} of {path} yet: it is a producer that the channel was made with, or one of a program or "
        "another query.",
        "Only partitions of ingests can rejoin. Start the ingest first, and deliver rows of the partition.",
    )


def partition_unknown_pattern(name: str) -> IngestError:
    return IngestError(
        "STRANDLINE_PARTITION_UNKNOWN",
        f"Partition {name!r} does not belong to this ingest. The entry {name!r} of partitions is a pattern "
        "that does not match this name. Nothing of the batch was written.",
        f"To name the partition, write {escape(name)!r} in partitions, as Python's glob.escape does.",
    )


def policy_failed(method: str, policy: str, error: Exception, partition: str | None) -> PolicyError:
    whose = "" if partition is None else f" for partition {partition!r}"
    said = (str(error) or "no message").removesuffix(".")[:300]
    return PolicyError(
        "STRANDLINE_POLICY_FAILED", f"{method} of the policy {policy} raised {type(error).__name__}{whose}: {said}.", _REMEDY
    )


def _policy_failed_promise(policy: str, what: str, partition: str, wanted: str) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_FAILED",
        f"promise of the policy {policy} returned {what} for partition {partition!r}, not {wanted}.",
        _REMEDY,
    )


def policy_failed_bound(policy: str, bound: object, partition: str, domain: object, kind: str) -> PolicyError:
    return _policy_failed_promise(policy, f"the lower bound {_line(bound)}", partition, f"times of {domain}: {kind}")


def policy_failed_bounds(policy: str, bounds: object, partition: str) -> PolicyError:
    wanted = "a list of times, such as [seen.greatest], or None"
    return _policy_failed_promise(policy, f"the lower bounds {_line(bounds)}", partition, wanted)


def policy_failed_names(method: str, policy: str, names: object) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_FAILED", f"{method} of the policy {policy} returned {_line(names)}, not a list of names.", _REMEDY
    )


def policy_failed_promise_all(policy: str, promised: object, times: int, domain: object) -> PolicyError:
    return PolicyError(
        "STRANDLINE_POLICY_FAILED",
        f"promise_all of the policy {policy} returned {_line(promised)}, not an array of "
        f"{times} times of {domain}, which are integers.",
        _REMEDY,
    )


def policy_failed_result(policy: str, result: object, partition: str) -> PolicyError:
    wanted = "a pair of lower bounds and state, such as ([seen.greatest], state)"
    return _policy_failed_promise(policy, f"{_line(result)}", partition, wanted)


def policy_failed_state(policy: str, state: object, partition: str, error: Exception) -> PolicyError:
    return _policy_failed_promise(policy, f"the state {_line(state)}", partition, f"a state that is a JSON value ({error})")


def policy_missing_pattern(name: str) -> IngestError:
    return IngestError(
        "STRANDLINE_POLICY_MISSING",
        f"The policy has the pattern {name!r}, which does not match the partition of that name: letters in brackets "
        "are alternatives. Nothing of the batch was written.",
        f"To name the partition in the policy, write {escape(name)!r}, as Python's glob.escape does.",
    )


def producer_live_parked(path: str, owner: object) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_LIVE",
        f"Rows of {path} are parked for {owner}, which may still be running.",
        "Stop that query, or start it without maxAhead. If it has ended for good, type "
        f"{command('release-parked', path, options=['--take-over'])}.",
    )


def producer_live_to_ingest(error: ProducerError, anew: str | None) -> ProducerError:
    """Return the error of a channel with what a restart of an ingest must keep: its process may have ended the other query."""
    return ProducerError(
        "STRANDLINE_PRODUCER_LIVE",
        error.what,
        "Stop the query there. If it has ended, start the ingest with the checkpoint that it had: with another one it "
        f"may read again what the channel has, and then each row would come twice. {_begins_where_it_ended(anew)}",
    )


def take_over_reads_again(path: str, donor: str, sources: str) -> IngestError:
    return IngestError(
        "STRANDLINE_TAKE_OVER_READS_AGAIN",
        f"This query is to take over the partitions of {path} from query {donor}, and reads its source from the beginning "
        f"({sources}). Each row that is still there and that query {donor} has taken in would come twice. Nothing was written.",
        f"Start the ingest with the checkpoint that query {donor} had. If that is lost: {_BEGIN_LATER}; or, if the source has "
        "none of these rows any more, take over with takeOver=fromBeginning.",
    )


_BEGIN_LATER = (
    "let the source begin where the other one ended (files: move what was read to another folder, and set "
    "takeOver=fromBeginning; Kafka: startingOffsets; Delta: startingVersion)"
)


def _begins_where_it_ended(sources: str | None) -> str:
    """Return what a query may do about rows of another one. ``sources``: those that it is known to read from their beginning."""
    if sources is None:
        return "If this query's source begins where the other one ended, set takeOver."
    return f"This query reads its source from the beginning ({sources}): {_BEGIN_LATER}, and then set takeOver."


def query_unknown(query: str, path: str, queries: Iterable[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_QUERY_UNKNOWN",
        f"Query {query!r} has not written to {path}. Queries that have: {', '.join(sorted(queries)) or 'none'}.",
        "Give the query id that the error message names.",
    )


def _rejoin_impossible(name: str, path: str, holds: str, what: str, remedy: str) -> IngestError:
    return IngestError(
        "STRANDLINE_REJOIN_IMPOSSIBLE",
        f"Partition {name!r} of {path} holds {holds}, and no other partition of its ingest holds an earlier time.{what} A "
        "partition rejoins where those are, and not before them. Nothing was written.",
        remedy,
    )


def rejoin_impossible(name: str, path: str, holds: str) -> IngestError:
    return _rejoin_impossible(
        name,
        path,
        holds,
        "",
        f"If the channel has corrections, readmit({path!r}, where=…) adds the rows that were set aside. Otherwise ingest the "
        "stream into a new channel, and let the readers change to it.",
    )


def rejoin_impossible_beside_hold(name: str, path: str, holds: str, hold: str, held: str) -> IngestError:
    """Name a hold, which keeps an earlier time open. It may be dropped before the next batch, so no partition joins at it."""
    return _rejoin_impossible(
        name,
        path,
        holds,
        f" The producer {hold!r} holds {held} (strandline hold), and is no partition: it may be dropped at any time.",
        f"Before you drop {hold!r}, it can add the rows that were set aside, as any producer does: "
        f"Channel.open({path!r}).producer({hold!r}).send(rows), with times at or after {held}. Later rows of the partition need "
        "a new channel, unless the channel has corrections.",
    )


def replay_differs(batch: int, query: str, path: str, rows: int, replayed: int, newest: int) -> IngestError:
    older = f" The channel has the query's batches up to {newest}, so its checkpoint was restored to an earlier state."
    return IngestError(
        "STRANDLINE_REPLAY_DIFFERS",
        f"Batch {batch} of query {query} was committed to {path} with {rows} rows, but its replay has "
        f"{replayed} rows that are not the same.{older if batch < newest else ''} Nothing of the replay was written.",
        "If the checkpoint was restored, restore its newest state, or ingest into a new channel with a new checkpoint. Two "
        "queries with the same id (a copied checkpoint) cannot write to one channel: give the second query its own "
        "checkpoint. If the source does not repeat its rows, or a column is computed anew (uuid(), rand()), call "
        f"accept_replay({path!r}, {query!r}) to keep the committed rows.",
    )


def set_aside_limit_exceeded(path: str, batch: int, rows: int, read: int, limit: object, which: str) -> IngestError:
    return IngestError(
        "STRANDLINE_SET_ASIDE_LIMIT",
        f"Of the {read} rows of batch {batch} for {path}, {rows} would be set aside, and maxSetAside is {limit}. {which}. "
        "Nothing of the batch was written.",
        "Repair what sends these rows. The batch comes again with the same rows: to let it pass, start the query with a greater "
        "maxSetAside (max_set_aside in ingest), or without it.",
    )


def row_in_future(partition: str, time: str, bound: object, clock: str, reason: str) -> IngestError:
    return IngestError(
        "STRANDLINE_ROW_IN_FUTURE",
        f"A row of partition {partition!r} with the time {time} is more than {bound} ahead of the clock, which "
        f"showed {clock} ({reason}), and onLate is fail. Nothing of the batch was written.",
        "Correct the row at the source, or set onLate to setAside. If such times are right, as those of bookings, set "
        "maxFuture to a longer time or to off.",
    )


def row_invalid(partition: object, column: str, value: str, reason: str) -> IngestError:
    return IngestError(
        "STRANDLINE_ROW_INVALID",
        f"A row of partition {partition!r} with {column} = {value} is invalid ({reason}), and "
        "onLate is fail. Nothing of the batch was written.",
        "Correct the row at the source, or set onLate to setAside.",
    )


def row_late(partition: object, column: str, time: str, holds: str) -> IngestError:
    return IngestError(
        "STRANDLINE_ROW_LATE",
        f"A row of partition {partition!r} with {column} = {time} is late, because the partition "
        f"holds {holds}, and onLate is fail. Nothing of the batch was written.",
        "Use a policy that promises less (a greater delay, a manifest), or set onLate to setAside.",
    )


def schema_mismatch(path: str, columns: Sequence[str]) -> IngestError:
    return IngestError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The rows and {path} differ in the columns {columns}.",
        "Select and cast the rows to the channel's columns. With the option mergeSchema, the ingest adds columns that "
        "the channel lacks, and columns that the rows lack are null there. Types of columns do not change.",
    )


def schema_mismatch_time(time: str, domain: object, path: str, channel_time: str, channel_domain: object) -> IngestError:
    return IngestError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The ingest's time column is {time!r} of {domain}, "
        f"but the time column of {path} is {channel_time!r} of {channel_domain}.",
        "Rename the column, or write into another channel.",
    )


def snapshot_end_unknown(query: str, batch: int) -> IngestError:
    return IngestError(
        "STRANDLINE_SNAPSHOT_END_UNKNOWN",
        f"The source of query {query} is in its first snapshot. Whether batch {batch} is still in it could not "
        f"be read from the file offsets/{batch} of the query's checkpoint. The rows of a snapshot are in no order, and "
        "those to come would be taken for late ones. Nothing of the batch was written.",
        "Check that the checkpoint's storage answers, then start the query again: it repeats the batch. Until the "
        "snapshot has ended, checkpointLocation and storage.* must stay options of the query.",
    )


def _time_column_invalid(name: str, what: str, remedy: str) -> IngestError:
    return IngestError("STRANDLINE_TIME_COLUMN_INVALID", f"The time column {name!r} {what}.", remedy)


def time_column_invalid_coordinates(name: str, kind: object, domain: object, names: Sequence[str]) -> IngestError:
    return _time_column_invalid(name, f"has the type {kind}, but times are of {domain}", f"Give a struct of {names}.")


def time_column_invalid_scalar(name: str, kind: object, domain: object, wanted: object) -> IngestError:
    return _time_column_invalid(name, f"has the type {kind}, but times are of {domain}", f"Cast it to {wanted} or text.")


def time_column_invalid_struct(name: str) -> IngestError:
    return _time_column_invalid(name, "is a struct without a domain", "Give its domain, such as 'product(a timestamp, b int64)'.")


def time_column_invalid_type(name: str, kind: object) -> IngestError:
    return _time_column_invalid(
        name,
        f"has the type {kind}, which no domain has",
        "Name a timestamp, date, integer or text column, or a struct with a domain.",
    )


def time_column_invalid_zone(name: str) -> IngestError:
    return _time_column_invalid(name, "has no time zone", "Cast it to TIMESTAMP: df.withColumn(…, F.col(…).cast('timestamp')).")
