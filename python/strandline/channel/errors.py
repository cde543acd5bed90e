"""The errors of channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.errors import (
    CapabilityError,
    ChannelError,
    LogError,
    ProducerError,
    StatementError,
    StorageError,
    TimeDomainError,
    TimeError,
)
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

_COPY = "A Strandline writer does not write this. Copy the rows of the previous version into a new channel."


def _channel_sealed(what: str, path: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_CHANNEL_SEALED",
        f"{what}, because the channel {path} is sealed.",
        "Name every producer when you create the channel, or seal the channel later.",
    )


def _column_name_invalid(name: str, why: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COLUMN_NAME_INVALID",
        f"The name of column {name!r}, or of a field in it, {why}. Delta does not allow this.",
        "Rename the column.",
    )


def _statement_contradiction(version: int, what: str) -> StatementError:
    return StatementError(
        "STRANDLINE_STATEMENT_CONTRADICTION",
        f"The progress statement of commit {version} {what}",
        _COPY,
    )


def _statement_invalid(version: int, what: str) -> StatementError:
    return StatementError(
        "STRANDLINE_STATEMENT_INVALID",
        f"The progress statement of commit {version} {what}.",
        "A writer other than Strandline wrote it. Copy the rows of the previous version into a new channel.",
    )


def _time_not_held(name: str, what: str, holds: Antichain) -> CapabilityError:
    held = holds.format() if holds else "nothing: it was dropped, or has itself dropped all that it held"
    return CapabilityError(
        "STRANDLINE_TIME_NOT_HELD",
        f"Producer {name!r} {what}, because it holds {held}.",
        "Keep a capability at or before a time for as long as rows at that time may come. What is dropped does not come back: "
        "then open a producer with another name, if the channel is not sealed.",
    )


def capability_backwards(producer: str, domain: TimeDomain, held: str, time: Time) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_CAPABILITY_BACKWARDS",
        f"Producer {producer!r} holds {held} and cannot move to {domain.format(time)}, which is not at or after a held time.",
        "Move capabilities only to later times: readers may treat the earlier times as closed.",
    )


def capability_dropped(time: Time) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_CAPABILITY_DROPPED",
        f"The capability at {time!r} was dropped, so it cannot be used.",
        "Create another capability with Producer.hold while the producer still holds one.",
    )


def channel_exists(path: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_CHANNEL_EXISTS",
        f"A Delta table already exists at {path}.",
        "Open it with Channel.open, or pass exist_ok=True.",
    )


def channel_replaced(version: int, path: str, table_id: str) -> LogError:
    return LogError(
        "STRANDLINE_CHANNEL_REPLACED",
        f"Commit {version} of {path} is no longer that of table {table_id}: the table was deleted, or another one took "
        "its place.",
        "Open the channel again, and start its readers with new checkpoints.",
    )


def channel_replaced_commit(version: int, path: str, was: str, now: str) -> LogError:
    return LogError(
        "STRANDLINE_CHANNEL_REPLACED",
        f"Commit {version} of {path} is not the one that was read before: that was {was}, and this is "
        f"{now}. The log was restored to an earlier state, or lost commits in a power "
        "failure, and was written on. So rows that were read are no longer in the channel, and others are there that "
        "were not read.",
        "Restore the newest state of the log. Or open the channel again: a reader with a checkpoint needs a new "
        "checkpoint and a new output, because its output has results of rows that are gone.",
    )


def channel_replaced_table(version: int, table: str, table_id: str) -> LogError:
    return LogError(
        "STRANDLINE_CHANNEL_REPLACED",
        f"Commit {version} belongs to table {table}, but the commits before it belong to table "
        f"{table_id}: the table was deleted and recreated, or its log was changed.",
        "Open the channel again, and start its readers with new checkpoints.",
    )


def channel_replaced_time(
    version: int, path: str, was: tuple[str, object, str], column: str, domain: object, table: str
) -> ChannelError:
    return ChannelError(
        "STRANDLINE_CHANNEL_REPLACED",
        f"Commit {version} of {path} changed the table's id or its time column: column {was[0]!r} of "
        f"{was[1]} in table {was[2]} became column {column!r} of {domain} in table {table}.",
        "Open the channel again, and start its readers with new checkpoints.",
    )


def channel_sealed(path: str) -> ProducerError:
    return _channel_sealed("The registrar's capability cannot move", path)


def channel_sealed_to_new(name: str, path: str) -> ProducerError:
    return _channel_sealed(f"The producer {name!r} cannot join", path)


def column_name_invalid_case(name: str, other: str) -> ChannelError:
    return _column_name_invalid(name, f"differs from that of {other!r} only in case")


def column_name_invalid_characters(name: str, bad: Sequence[str]) -> ChannelError:
    return _column_name_invalid(name, f"contains {bad[0]!r}" if bad else "is empty")


def column_name_invalid_text(name: str) -> ChannelError:
    return _column_name_invalid(name, "is not a text in UTF-8")


def column_name_invalid_twice(name: str, other: str) -> ChannelError:
    return _column_name_invalid(name, f"differs from that of {other!r} only in case" if other != name else "is there twice")


def column_name_invalid_zero(name: str) -> ChannelError:
    return _column_name_invalid(name, "contains '\\x00'")


def column_type_unsupported(kind: object, path: str, problem: str, remedy: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COLUMN_TYPE_UNSUPPORTED",
        f"The type {kind} of column {path!r} is not supported: {problem}.",
        remedy,
    )


def column_unknown(path: str, name: object, names: Iterable[str]) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COLUMN_UNKNOWN",
        f"The channel {path} has no column {str(name)[:80]!r}.",
        f"Name some of its columns: {', '.join(names)}.",
    )


def commit_refused(path: str, why: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COMMIT_REFUSED",
        f"Readers of {path} would refuse this commit: {why}. Nothing was written.",
        "Correct the files, times, capabilities, names or transaction that this commit was to have. If it is too large, commit "
        "less at a time.",
    )


def commit_refused_inputs(path: str) -> ChannelError:
    return commit_refused(path, "what the query has read are not all Inputs")


def commit_refused_json(path: str, error: Exception) -> ChannelError:
    return commit_refused(path, f"it cannot be written as JSON in UTF-8 ({error})")


def commit_refused_list(path: str, name: str, given: object) -> ChannelError:
    return commit_refused(path, f"{name} are {ascii(given)[:200]}, not a list")


def commit_refused_mapping(path: str, name: str, given: object) -> ChannelError:
    return commit_refused(path, f"{name} are {ascii(given)[:200]}, not a mapping by producers' names")


def commit_refused_moves(path: str, moves: object) -> ChannelError:
    return commit_refused(path, f"moves are {ascii(moves)[:200]}, not CapabilityUpdates")


def commit_refused_rows(path: str) -> ChannelError:
    return commit_refused(path, "a file has -1 or more rows, and together they have fewer than 2^63")


def commit_refused_times(path: str, error: Exception) -> ChannelError:
    return commit_refused(path, f"the times are not pairs of a time and a number of rows, or the files no data files ({error})")


def commit_refused_transaction(path: str, transaction: object) -> ChannelError:
    return commit_refused(
        path, f"{str(transaction)[:200]!r} is not a transaction, which is a text and a whole number from 0 to 2^63 - 1"
    )


def commit_unreadable(version: int, path: str) -> LogError:
    return LogError(
        "STRANDLINE_COMMIT_UNREADABLE",
        f"The file of commit {version} of {path} exists, but it cannot be read, so no commit can follow it.",
        "Examine the file in _delta_log. If it is a broken link, remove it.",
    )


def commit_was_made(name: str, path: str, rows: int, versions: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_COMMIT_WAS_MADE",
        f"What producer {name!r} of {path} committed when it was told of an error is in the "
        f"channel all the same: {rows} row(s), in version {versions}. Rows that were sent later are thrown away.",
        "Do not send the rows of that commit again. The session goes on after it, with its capabilities and its state: "
        "send the rows that came later.",
    )


def commit_was_made_of_append(path: str, version: int, files: int) -> ChannelError:
    return ChannelError(
        "STRANDLINE_COMMIT_WAS_MADE",
        f"An earlier append to {path} that ended by an error was made all the same, as "
        f"version {version} with {files} file(s). This append has other files, or a transaction, and "
        "nothing of it was written.",
        "Do not send the rows of the earlier append again. If these are other rows, repeat this call. Pass a transaction: "
        "then a replay is recognised.",
    )


def contention(path: str, attempts: int, seconds: float) -> LogError:
    return LogError(
        "STRANDLINE_CONTENTION",
        f"Other writers of {path} committed first in each of {attempts} attempts within {seconds:.0f} s.",
        "Let fewer processes write to the channel, or commit less often.",
    )


def not_a_channel(path: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_NOT_A_CHANNEL",
        f"{path} is a Delta table with a time domain, but none of its commits has a progress statement.",
        "Create a channel with Channel.create, and write the rows into it.",
    )


def producer_closed(name: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_CLOSED",
        f"The session of producer {name!r} is closed.",
        "Open the producer again with Channel.producer.",
    )


def producer_exists(path: str, old: Sequence[str]) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_EXISTS",
        f"{path} already has the producer {old[0]!r}"
        + (f" and {len(old) - 1} more of the given names." if len(old) > 1 else "."),
        "Register only new names, or pass exist_ok=True.",
    )


def producer_fenced(name: str, path: str, other: object) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_FENCED",
        f"Producer {name!r} of {path} was taken over by "
        f"{other or 'a session that has ended since'}. Nothing of this commit was written.",
        "Only one session may write under a producer's name: stop this one.",
    )


def producer_fenced_at_opening(name: str, path: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_FENCED",
        f"Another session took over producer {name!r} of {path} while this session opened it.",
        "Two sessions compete for the producer: stop one of them.",
    )


def producer_live(name: str, path: str, other: object) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_LIVE",
        f"Producer {name!r} of {path} is open in {other}.",
        "Close it there. If that session has ended for good, pass take_over, which fences it.",
    )


def producer_name_invalid(name: object, problem: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_NAME_INVALID", f"The producer name {str(name)[:2000]!r} {problem}.", "Choose another name."
    )


def producer_unknown(path: str, name: str, known: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_PRODUCER_UNKNOWN",
        f"The channel {path} is sealed and has no producer {name!r}. Its producers: {known or 'none'}.",
        "Use one of its producers, or name this one when you create the channel.",
    )


def protocol_newer(version: int, protocol: int, newest: int) -> StatementError:
    return StatementError(
        "STRANDLINE_PROTOCOL_NEWER",
        f"Commit {version} has a statement of protocol version {protocol}, but this release reads versions 1 to {newest} only.",
        "Upgrade Strandline to the release that wrote the commit.",
    )


def retention_invalid(path: str, age: object) -> ChannelError:
    return ChannelError(
        "STRANDLINE_RETENTION_INVALID",
        f"Commits of {path} cannot be older than {ascii(age)[:80]}, which is not a timedelta.",
        "Give an age, for example timedelta(days=30).",
    )


def rows_changed(version: int, operation: str, what: str, removed: Sequence[str], option: str) -> LogError:
    return LogError(
        "STRANDLINE_ROWS_CHANGED",
        f"Commit {version} ({operation or 'unnamed operation'}) {what}: it removes {len(removed)} "
        f"file(s), {removed[0]!r} first. A stream cannot take back rows that it has read.",
        f"Set {option} to skip such commits. Or start with a new checkpoint and a new output: startingVersion=snapshot "
        f"reads the rows that are left, and startingVersion={version + 1} reads what came after this commit.",
    )


def rows_thrown_away(location: str, failure: object) -> StorageError:
    return StorageError(
        "STRANDLINE_ROWS_THROWN_AWAY",
        f"Writing rows to {location} failed, so all rows since the last commit were discarded: {failure}",
        "Call abort, then send the rows since the last commit again.",
    )


def rows_thrown_away_by_interrupt(location: str, counted: int, written: int) -> StorageError:
    return StorageError(
        "STRANDLINE_ROWS_THROWN_AWAY",
        f"An interrupt came while rows were written to {location}: {counted} rows were counted, but the "
        f"files have {written}. All rows since the last commit were discarded.",
        "Call abort, then send the rows since the last commit again.",
    )


def schema_mismatch_of_channel(path: str, have: str, domain: object, wanted: str, times: object) -> ChannelError:
    return ChannelError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The channel {path} has the columns {have} and times of {domain}, but the "
        f"columns {wanted} and times of {times} were requested.",
        "Create the channel at another path, or request the columns of the existing channel.",
    )


def schema_mismatch_of_column(name: str, have: object, want: object, error: Exception) -> ChannelError:
    return ChannelError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"Column {name!r} has the type {have}, which cannot be converted to {want}: {error}.",
        "Cast the column before you send the rows.",
    )


def schema_mismatch_of_fields(path: str, columns: object, wrong: object) -> ChannelError:
    return ChannelError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The columns of {path} cannot be {ascii(columns)[:200]}: {ascii(wrong)[:200]} is not a field of Arrow.",
        "Give a schema of pyarrow, or its fields.",
    )


def schema_mismatch_of_kind(rows: object) -> ChannelError:
    return ChannelError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The rows are of the type {type(rows).__name__}, not a pyarrow RecordBatch or Table.",
        "Convert them with pyarrow.Table.from_pandas or pyarrow.table.",
    )


def schema_mismatch_of_names(parts: Sequence[str], names: Sequence[str]) -> ChannelError:
    return ChannelError(
        "STRANDLINE_SCHEMA_MISMATCH",
        f"The rows {' and '.join(parts) or 'have a column twice'}. The channel's columns are {names}.",
        "Send exactly the channel's columns.",
    )


def schema_mismatch_of_new(problem: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_SCHEMA_MISMATCH", problem, "Add nullable columns with new names. Types of columns do not change."
    )


def state_invalid(name: str, problem: str) -> ProducerError:
    return ProducerError(
        "STRANDLINE_STATE_INVALID",
        f"The state of producer {name!r} {problem}. Nothing was written.",
        "Use only what JSON has: objects, lists, texts, finite numbers, true, false and null.",
    )


def state_invalid_depth() -> ProducerError:
    return ProducerError(
        "STRANDLINE_STATE_INVALID",
        "A producer's state is nested too deep for a call from here. Nothing was written.",
        "Keep flatter states.",
    )


def statement_contradiction_next(version: int, seq: int, name: str, newest: str, before: int) -> StatementError:
    return _statement_contradiction(version, f"has statement {seq} of {name!r}, but {newest}; the next one is {before + 1}.")


def statement_contradiction_of_seq(version: int, name: str, seq: int, first: int, key: str) -> StatementError:
    return _statement_contradiction(
        version,
        f"removes the producer {name!r}, whose newest statement is {seq}, but producers join with {first} "
        f"({key}), not with more.",
    )


def statement_contradiction_removed(version: int, name: str, what: str) -> StatementError:
    return _statement_contradiction(version, f"removes the producer {name!r}, which {what}.")


def statement_contradiction_repeated(version: int, name: str, repeated: str, known: str) -> StatementError:
    return _statement_contradiction(
        version,
        f"repeats a statement of {name!r} that differs from the log. It repeats {repeated}; the log has {known}.",
    )


def statement_invalid(version: int, error: Exception) -> StatementError:
    return _statement_invalid(version, f"is malformed: {error}")


def statement_invalid_domain(version: int, domain: object, what: str) -> StatementError:
    return _statement_invalid(version, f"has a time that is not of the channel's domain {domain}: {what}")


def statement_invalid_json(version: int, error: Exception) -> StatementError:
    return _statement_invalid(version, f"is not JSON ({error})")


def statement_invalid_protocol(version: int) -> StatementError:
    return _statement_invalid(version, "has no protocol version")


def statement_invalid_size(version: int, characters: int, most: int) -> StatementError:
    return _statement_invalid(version, f"has {characters} characters, but at most {most} are allowed")


def statement_invalid_span(version: int, low: str, high: str) -> StatementError:
    return _statement_invalid(version, f"has a span from {low} back to {high}")


def statement_missing(version: int, operation: str, files: int, first: str) -> LogError:
    return LogError(
        "STRANDLINE_STATEMENT_MISSING",
        f"Commit {version} ({operation or 'unnamed operation'}) appends {files} file(s), "
        f"{first!r} first, without a progress statement. So no producer stated these rows.",
        "Write to channels only through producers or the strandline sink. To continue, RESTORE the table to version "
        f"{version - 1}, and start the reader with startingVersion=snapshot, a new checkpoint and a new output.",
    )


def statement_regression(version: int, name: str, held: str, time: str) -> StatementError:
    return StatementError(
        "STRANDLINE_STATEMENT_REGRESSION",
        f"The progress statement of commit {version} moves the capability of {name!r} back from {held} to {time}.",
        _COPY,
    )


def statement_regression_of_new(version: int, name: str, held: str, time: str) -> StatementError:
    return StatementError(
        "STRANDLINE_STATEMENT_REGRESSION",
        f"The progress statement of commit {version} adds the producer {name!r} at {time}, but producers may join only at "
        f"{held}.",
        _COPY,
    )


def statement_too_large(characters: int, most: int) -> ChannelError:
    return ChannelError(
        "STRANDLINE_STATEMENT_TOO_LARGE",
        f"The commit's statements and their checksum have {characters} characters, but readers accept at most {most}.",
        "Register or state fewer producers in one commit.",
    )


def storage_url_invalid(path: str, part: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_STORAGE_URL_INVALID",
        f"The path {path[:300]!r} has {part!r} in it, which Delta's library reads as one character of a URL.",
        "Choose a path without it.",
    )


def time_domain_invalid(domain: object) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_INVALID",
        f"{ascii(domain)[:200]} is not a time domain.",
        "Give a TimeDomain, or its text, for example int64.",
    )


def time_domain_mismatch(time: str, kind: object, domain: object, stored: object) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_MISMATCH",
        f"Column {time!r} has the type {kind}, but times of {domain} are stored as {stored}.",
        "Change the domain or the type so that they agree.",
    )


def time_domain_mismatch_of_holds(name: str, have: object, domain: object) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_MISMATCH",
        f"The capabilities of producer {name!r} are times of {have}, but the channel's times are of {domain}.",
        "Convert the capabilities to the channel's domain.",
    )


def time_domain_unstorable(domain: object, kind: str) -> TimeDomainError:
    return TimeDomainError(
        "STRANDLINE_TIME_DOMAIN_UNSTORABLE",
        f"Times of {domain} cannot be stored, because Delta has no type {kind}.",
        "Use int64.",
    )


def time_invalid_holds(name: object, holds: object) -> TimeError:
    return TimeError(
        "STRANDLINE_TIME_INVALID",
        f"The capabilities of producer {str(name)[:200]!r} are {str(holds)[:200]}, not a list of times.",
        "Give a list of times, or an Antichain.",
    )


def time_not_held(name: str, time: str, holds: Antichain) -> CapabilityError:
    return _time_not_held(name, f"cannot create a capability at {time}", holds)


def time_not_held_by(time: str, who: str, held: str) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_TIME_NOT_HELD",
        f"Rows at {time} cannot be committed, because {who} held {held}. No held capability is at or before their time.",
        "Keep a capability at or before a time for as long as rows at that time may come.",
    )


def time_not_held_to_join(time: str, why: str) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_TIME_NOT_HELD",
        f"Producers cannot join at {time}, because {why}.",
        "Choose a time at or after one of these.",
    )


def time_not_held_of_row(name: str, column: str, time: str, holds: Antichain) -> CapabilityError:
    return _time_not_held(name, f"cannot send a row at {column} = {time}", holds)


def times_incomplete(files: int, rows: int, counted: int) -> ChannelError:
    return ChannelError(
        "STRANDLINE_TIMES_INCOMPLETE",
        f"The {files} file(s) have {rows} rows, but their message times count {counted} rows.",
        "Pass the times that FileWriter.finish returned together with the files, and FileWriter.spans.",
    )


def version_unknown(path: str, version: int, latest: int) -> LogError:
    return LogError(
        "STRANDLINE_VERSION_UNKNOWN",
        f"{path} has no version {version}; its newest version is {latest}.",
        f"Request a version that the log still has, at most {latest}.",
    )


def version_unknown_number(path: str, version: object) -> LogError:
    return LogError(
        "STRANDLINE_VERSION_UNKNOWN",
        f"{path} has no version {str(version)[:40]}.",
        "Request a version that the log has.",
    )
