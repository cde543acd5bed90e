"""The errors of sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark_strandline.resume.errors import as_before
from strandline.channel.statements.inputs import Input
from strandline.errors import LogError, StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

_ANOTHER_LOOP = (
    "Start all queries of a loop with the same channels, queries and domain. A loop with another definition needs "
    "new channels and new checkpoints."
)


def channel_replaced_log(version: int, path: str, newest: int) -> LogError:
    return LogError(
        "STRANDLINE_CHANNEL_REPLACED",
        f"The query has read commit {version} of {path}, whose newest commit is now {newest}. The "
        "log was restored to an earlier state, or lost commits in a power failure.",
        "Restore the newest state of the log. Or start the query with a new checkpoint and a new output, because its "
        "output has results of rows that are gone.",
    )


def channel_replaced_table(path: str) -> LogError:
    return LogError(
        "STRANDLINE_CHANNEL_REPLACED",
        f"The table {path} has another id or time column than when the query began to read it.",
        "Start the query again with a new checkpoint, or restore the former table.",
    )


def channels_invalid_same(other: str, name: str, path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHANNELS_INVALID",
        f"The channels {other} and {name} are both the table {path}.",
        "Name each channel once. Its stream may be used several times.",
    )


def channels_invalid_unknown(name: str, names: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHANNELS_INVALID",
        f"The source has no channel {name!r}. Its channels are {', '.join(names)}.",
        "Use one of these names.",
    )


def channels_missing_schema(schema: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHANNELS_MISSING",
        f"No table of the schema {schema} is a channel.",
        "Check the name. Tables count that were made with USING strandline, or by toTable.",
    )


def checkpoint_mismatch_channel(had: object, path: str, channel: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHECKPOINT_MISMATCH",
        f"The checkpoint belongs to the channel {had}, but {path} now holds the channel {channel}.",
        "The table was replaced. Use a new checkpoint, or restore the former table.",
    )


def checkpoint_mismatch_channels(had: Iterable[str], has: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHECKPOINT_MISMATCH",
        f"The checkpoint has the channels {', '.join(had)}, but the query reads {', '.join(has)}.",
        "Read the same channels, in the same order and by the same names, or use a new checkpoint.",
    )


def checkpoint_mismatch_end(path: str, had: str | None, asked: str | None) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHECKPOINT_MISMATCH",
        f"The checkpoint is of a query that reads {path} until {had or 'it is stopped'}, but the options now say "
        f"{asked or 'nothing of an end'}.",
        "Give the same end as before, or use a new checkpoint.",
    )


def checkpoint_mismatch_since(path: str, had: str | None, asked: str | None) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHECKPOINT_MISMATCH",
        f"The checkpoint is of a query that reads {path} with startingFrontier = {had}, but the option is now {asked}.",
        "Give the option as before, or use a new checkpoint.",
    )


def checkpoint_mismatch_loop(queries: Iterable[str], *, had_several: bool) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHECKPOINT_MISMATCH",
        f"The checkpoint is of a loop of {'several queries' if had_several else 'one query'}, but the loop now has "
        f"the queries {', '.join(queries)}. A loop has one definition for its whole life, because each "
        "query counts what may come from the others.",
        "Start it with the queries as before, or use new channels and new checkpoints.",
    )


def checkpoint_mismatch_query(had: object, had_definition: object, query: str, definition: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHECKPOINT_MISMATCH",
        f"The checkpoint is of query {had} of a loop with the definition {had_definition}, but this is query "
        f"{query} of a loop with the definition {definition}.",
        "Start the query with the channels, queries and domain as before, or use new channels and new checkpoints.",
    )


def checkpoint_mismatch_source(what: str, had: object, has: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHECKPOINT_MISMATCH",
        f"The checkpoint has {what} {had}, but the query has {has}.",
        "Read the channels as before, or use a new checkpoint.",
    )


def checkpoint_mismatch_times(had: object, path: str, domain: TimeDomain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CHECKPOINT_MISMATCH",
        f"The checkpoint has times of {had}, but {path} has times of {domain}.",
        "Use a new checkpoint.",
    )


def data_file_missing(path: str, location: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_DATA_FILE_MISSING",
        f"The data file {path!r} of {location} does not exist. The channel's newest version does not name it any more.",
        "VACUUM may have removed it. Restore the file, start with startingVersion=snapshot and a new checkpoint, or set "
        "failOnDataLoss to false to skip its rows.",
    )


def data_file_missing_newest(path: str, location: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_DATA_FILE_MISSING",
        f"The data file {path!r} of {location} does not exist. The channel's newest version names it, so every reader misses it.",
        "Restore the file from a backup. If there is none, set failOnDataLoss to false to skip its rows.",
    )


def loop_channel_used_commits(name: str, path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_CHANNEL_USED",
        f"The feedback channel {name} at {path} has commits of a query, but this one begins with a new "
        "checkpoint. They are those of an earlier query, whose operators had the state that belongs to them.",
        "Start the query with its former checkpoint. Or create new channels for the feedback and the results.",
    )


def loop_channel_used_frontier(name: str, path: str, frontier: Antichain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_CHANNEL_USED",
        f"The feedback channel {name} at {path} has the frontier {frontier.format()} before the query "
        "begins, so rows of earlier times could not come round.",
        "Create it without at: Channel.create(path, schema, producers=[name]).",
    )


def loop_query_differs(name: str, had: object, had_definition: object, query: str, definition: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_QUERY_DIFFERS",
        f"The channel {name} is written by query {had!r} of a loop with the definition "
        f"{had_definition}. Here its writer is {query!r}, and the definition is "
        f"{definition}.",
        _ANOTHER_LOOP,
    )


def loop_query_differs_alone(version: int, name: str, query: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_QUERY_DIFFERS",
        f"Commit {version} of the channel {name} has rows, but query {query!r} states nothing about a "
        "loop of several queries. It was started as the only query of its loop.",
        _ANOTHER_LOOP,
    )


def loop_state_invalid(writer: str, path: str, why: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_STATE_INVALID",
        f"What the writer {writer} of the channel at {path} states about the loop cannot be true: {why}.",
        "Its log was changed by hand, or by another release. Restore it, or use new channels for the loop.",
    )


def loop_times_unknown(name: str, path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_TIMES_UNKNOWN",
        f"Channel {name} at {path} can be read from a snapshot only, because its log was "
        "cleaned up or its first files were vacuumed. A snapshot does not state the times of its rows, which a loop "
        "counts.",
        "Copy the rows into a new channel by a query of its own, and read that one.",
    )


def loop_two_writers(version: int, name: str, query: str, known: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_TWO_WRITERS",
        f"Commit {version} of the channel {name} is of {query}, but the rows before are of query {known}.",
        "Only one query, with one checkpoint, may write a channel of a loop. Stop the other one, create new channels "
        "for the loop, and start its queries with new checkpoints.",
    )


def loop_two_writers_feedback(version: int, name: str, query: str, known: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_TWO_WRITERS",
        f"Commit {version} of the feedback channel {name} is of {query}, but the rows that came round "
        f"before are of query {known}.",
        "Only one query, with one checkpoint, may write a feedback channel. Stop the other one, create new "
        "channels for the loop, and start one query with a new checkpoint.",
    )


def loop_two_writers_producers(path: str, names: list[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_TWO_WRITERS",
        f"The channel {path} has the producers {names}, but one query writes it, and nobody else.",
        "Create each channel of the loop with Channel.create(…, producers=[name]).",
    )


def _loop_unbounded(what: str, bound: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_UNBOUNDED",
        what,
        "Let the body return only rows that change something: look for a cycle in the data, or for values that grow for "
        f"ever. Or give iterate, pregel or read_loop a greater {bound}=…, and start the query again: it continues.",
    )


def loop_unbounded_growth(rows: int, outside: int, most: int, few: int, domain: TimeDomain, times: str) -> StrandlineError:
    return _loop_unbounded(
        f"{rows} rows have come round without a pause after {outside} rows from outside, but maxLoopGrowth is "
        f"{most} for each of them (fewer than {few} count as so many). These times of {domain} "
        f"still go round: {times}.",
        "maxLoopGrowth",
    )


def loop_unbounded_rounds(name: str, most: int, rows: int, times: str, by: Mapping[str, object]) -> StrandlineError:
    return _loop_unbounded(
        f"Rows of the feedback channel {name} have come round more than {most} times since they "
        f"entered the loop (maxRounds), {rows} rows without a pause. These times still go round: "
        f"{times}. They advance by {dict(by)}.",
        "maxRounds",
    )


def loop_unbounded_rows(rows: int, most: int, domain: TimeDomain, times: str) -> StrandlineError:
    return _loop_unbounded(
        f"{rows} rows have come round without a pause, but maxLoopRows is {most}. These "
        f"times of {domain} still go round: {times}.",
        "maxLoopRows",
    )


def native_scan_refused(path: str, reason: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_NATIVE_SCAN_REFUSED",
        f"Option nativeScan is on, but the JVM cannot read this batch of {path}: {reason}.",
        "Set nativeScan to auto, so that Python reads such a batch.",
    )


def _offset_invalid(value: object, where: str, rule: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OFFSET_INVALID",
        f"The checkpoint's offset {str(value)[:300]} is not a position in {where}: {rule}.",
        "The checkpoint was damaged or changed by hand. Restore it from a backup, or use a new checkpoint.",
    )


def offset_invalid(value: object, rule: str) -> StrandlineError:
    return _offset_invalid(value, "the channel's log", rule)


def offset_invalid_several(value: object, rule: str) -> StrandlineError:
    return _offset_invalid(value, "several channels", rule)


def offset_version(value: object, version: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OFFSET_VERSION",
        f"The checkpoint's offset {str(value)[:200]} does not have version {version} of strandline's offsets.",
        "Use the strandline release that wrote the checkpoint, or a new checkpoint.",
    )


def option_conflict_rounds(most: int, names: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"maxRounds is {most}, but rows of the feedback {', '.join(names)} may enter the loop in "
        "another query, at any value of the coordinates that it advances. So their rounds are not counted.",
        "Bound it with maxLoopRows.",
    )


def option_invalid_frontier(name: str, value: str, why: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"Option {name} is {value[:300]!r}, which is no frontier: {why}",
        'Give a time, or a JSON list of several as text, such as ["(epoch=1, iter=3)", "(epoch=2, iter=0)"].',
    )


def option_invalid_end_future(moment_ms: int, path: str, newest: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"Option endingTimestamp is {moment_ms} ms since 1970, which is in the future: commits may still come to {path} "
        f"before it, after version {newest}.",
        "Give a moment that has passed. Without an end, a query with the trigger availableNow ends with the newest commit.",
    )


def recording_empty(begins: Mapping[str, int], ends: Mapping[str, int]) -> StrandlineError:
    """For each path, the version with which the replay begins, and that with which it ends."""
    parts = [f"in {path} it begins with version {begin} and ends with version {ends[path]}" for path, begin in begins.items()]
    return StrandlineError(
        "STRANDLINE_RECORDING_EMPTY",
        f"The replay has no commit: {'; '.join(parts)}.",
        "Begin earlier, or end later. DESCRIBE HISTORY shows the versions of a table. strandline inspect shows its frontier.",
    )


def recording_end_missing(asked: str, path: str, reached: Antichain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RECORDING_END_MISSING",
        f"The replay shall end with {asked}, but {path} has not closed all times before: its frontier is {reached.format()}.",
        "Give an earlier frontier, or wait until the channel has closed these times.",
    )


def recording_incomplete(path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RECORDING_INCOMPLETE",
        f"The log of {path} was cleaned, or files of its commits were removed by VACUUM, so not all commits can be played.",
        "Give startingVersion or startingTimestamp, from which on the commits and their files are there.",
    )


def _resume_impossible(path: str, read: Input, does: str, remedy: str) -> StrandlineError:
    had = f"file {read.file} of commit {read.commit}" if read.file else f"commit {read.commit}"
    if read.snapshot is not None:
        had = f"file {read.file} of the snapshot of version {read.snapshot}"
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"The query that wrote the output had read {path} up to {had}, but the new query {does}. So its first "
        "batch cannot end there.",
        f"{remedy} Or write into a new channel, which gets all rows, and let the readers change to it.",
    )


def resume_impossible_begun(path: str, read: Input, commit: int) -> StrandlineError:
    return _resume_impossible(path, read, f"begins at commit {commit}", as_before(read.began))


def resume_impossible_cleaned(path: str, read: Input) -> StrandlineError:
    why = "cannot read it there any more, because its log was cleaned up"
    return _resume_impossible(path, read, why, "Restore its log.")


def resume_impossible_commits(path: str, read: Input) -> StrandlineError:
    return _resume_impossible(path, read, "reads commit by commit", "Set startingVersion to snapshot, as it was.")


def resume_impossible_snapshot(path: str, read: Input) -> StrandlineError:
    why = "reads its rows from a snapshot, which ends between two commits"
    return _resume_impossible(path, read, why, as_before(read.began))


def _row_behind_frontier(
    name: str, time: Time, frontier: Antichain, whose: str, paths: Sequence[str], remedy: str
) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_ROW_BEHIND_FRONTIER",
        f"A row of channel {name} has the time {frontier.domain.format(time)}, but the frontier {frontier.format()} of "
        f"{whose} had closed it before this batch. It is in one of the files {paths[:8]}.",
        remedy,
    )


def row_behind_frontier_own(name: str, time: Time, frontier: Antichain, path: str, paths: Sequence[str]) -> StrandlineError:
    remedy = (
        "A writer other than Strandline wrote the row. Remove it, and start with a new checkpoint, in a loop with new "
        "channels for its feedback and its results."
    )
    return _row_behind_frontier(name, time, frontier, path, paths, remedy)


def row_behind_frontier_together(name: str, time: Time, frontier: Antichain, paths: Sequence[str]) -> StrandlineError:
    remedy = "In a loop, an operator may only emit rows at times of rows that it has taken in (docs/loops.md)."
    return _row_behind_frontier(name, time, frontier, "all channels together", paths, remedy)


def time_domain_mismatch(channels: Mapping[str, str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_TIME_DOMAIN_MISMATCH",
        f"The channels have times of different domains: {', '.join(f'{n} of {d}' for n, d in channels.items())}.",
        "Give domain=…, whose first coordinates are the times of each channel. Or move the times of the others "
        "in a query of their own first.",
    )


def version_missing(name: str, version: int, path: str, newest: int) -> StrandlineError:
    starts = name == "startingVersion"
    return StrandlineError(
        "STRANDLINE_VERSION_MISSING",
        f"{name} is {version}, but the newest version of {path} is {newest}.",
        f"Give a version up to {newest + 1}, or latest." if starts else f"Give a version up to {newest}, or leave it out.",
    )


def clock_domain(name: str, what: str, domain: object, clock: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_CLOCK_DOMAIN",
        f"The link {name} gives new times, but {what} has times of {domain}.",
        f"Create the channels of the loop with the domain strandline.replay.CLOCK, which is {clock}, and give it to read_loop.",
    )


def column_missing_restamp(name: str, path: str, column: str, kind: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COLUMN_MISSING",
        f"The link {name} needs a column {column!r} of {kind}, and its channel {path} has none.",
        "Create the channel of a recorded link with the schema strandline.replay.recorded(schema), and that of events with a "
        "column of timestamps, which events names.",
    )


def loop_unbounded_waiting(name: str, rows: int, most: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_LOOP_UNBOUNDED",
        f"{rows} rows wait on the link {name}, and at most {most} may (maxLoopWaiting).",
        "Let fewer rows come round, let them come round sooner, or give a higher maxLoopWaiting. What waits for an outside input "
        "that stands still goes on when this input does.",
    )


def loop_behind(lags: Mapping[str, int], behind: int, most: int) -> StrandlineError:
    least = min(lags.values())
    enough = least + behind
    short = ", ".join(f"{name} ({_seconds(lag)})" for name, lag in sorted(lags.items()) if lag < enough)
    return StrandlineError(
        "STRANDLINE_LOOP_BEHIND",
        f"The loop is {_seconds(behind)} behind what comes from outside, and may be {_seconds(most)} (maxLoopLag). A batch "
        f"advances by {_seconds(least)} at most, because of how soon rows come round. With {_seconds(enough)} for {short} it "
        "would not be behind.",
        "Begin a new loop in which these links come round later, make batches faster, or give a higher maxLoopLag.",
    )


def _seconds(microseconds: int) -> str:
    return f"{microseconds / 1_000_000:g} s"
