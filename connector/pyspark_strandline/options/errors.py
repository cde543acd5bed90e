"""The errors of options."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import StrandlineError


def option_conflict_beginning(names: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The options {' and '.join(names)} are given together.",
        "Give one of them.",
    )


def option_conflict_end(name: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The option {name} is given without the option replay.",
        "Give replay too: max, realtime, or a speed such as 10x.",
    )


def option_conflict_ends(names: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The options {' and '.join(names)} are both given.",
        "Give one end of the replay.",
    )


def option_conflict_loop(name: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The option {name} is given for a loop.",
        "Leave it out: a loop reads each channel from its first commit on, because it counts the times of all rows.",
    )


def option_conflict_loops(given: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The options {given} are given together.",
        "Give queries and query for a loop through several queries, or feedback for a loop of one query.",
    )


def option_conflict_one(name: str, channels: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The option {name} is for one channel, but the option channels names {channels}.",
        "Leave it out, and select the columns of each stream.",
    )


def option_conflict_show(name: str, show: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The option {name} is for one channel, but show = {show} is of all channels at or below the path, as they are now.",
        "Leave it out, and select columns of the result. show = progress takes asOfVersion.",
    )


def option_conflict_path(path: object, several: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The options path ({path}) and {several} are both given.",
        f"Call load() or start() without a path: the option {several} has a path for each channel.",
    )


def option_conflict_producer(producer: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The source has the option producer ({producer}), but not the option resume.",
        "Give resume too: producer names a producer of that output. Or give producer to the sink, which writes under it.",
    )


def option_conflict_replay(start: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The option replay is given with startingVersion = {start}, which begins behind what is recorded.",
        "Give a version or startingTimestamp, or leave it out to begin with the first commit.",
    )


def option_conflict_resume(name: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The options {name} and resume are both given, but a resumed query goes on where another one has stopped.",
        "Give one of them.",
    )


def option_conflict_several(name: str, *, in_loop: bool) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The option {name} is for several channels{' in a loop' if in_loop else ''}.",
        "Read them with pyspark_strandline.read_channels.",
    )


def option_conflict_version(name: str, version: int) -> StrandlineError:
    starts = name == "startingVersion"
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"{name} is {version}, but several channels do not count their versions together.",
        "Give latest, snapshot or startingTimestamp." if starts else "Give endingTimestamp or endingFrontier.",
    )


def option_invalid(name: str, shown: str, expected: str) -> StrandlineError:
    return StrandlineError("STRANDLINE_OPTION_INVALID", f"Option {name} is {shown[:300]!r}, not {expected}.", f"Give {expected}.")


def option_invalid_feedback(unknown: Iterable[str], known: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The option feedback names {', '.join(unknown)}, but the channels are {', '.join(known)}.",
        "Name channels of the option channels.",
    )


def option_invalid_restamp(names: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The option restamp names {', '.join(names)}, and the option feedback does not.",
        "Name feedback channels of a loop that is one query.",
    )


def option_invalid_moment(name: str, what: str, remedy: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"Option {name} is no date and no timestamp: {what}.",
        remedy,
    )


def option_invalid_query(query: str, queries: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The option query is {query!r}, but the loop's queries are {', '.join(queries)}.",
        "Name one of the queries.",
    )


def option_invalid_query_silent(query: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"Query {query!r} writes no channel of the loop.",
        "Leave it out of queries, and read the channels with pyspark_strandline.read_channels.",
    )


def option_invalid_resume(value: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The source has the option resume = {value}, which is a value of the sink's option. At a source, resume is the path "
        "of the output that the query goes on with.",
        "Give the output's path at each source, and true, stateful or changed at the sink (docs/lost-checkpoint.md). Without "
        "resume, the query begins anew.",
    )


def option_missing_time() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_MISSING",
        "The strandline ingest needs the option time.",
        "Set it to the name of the rows' time column.",
    )


def option_unknown(key: str, what: str, hint: str, valid: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_UNKNOWN",
        f"{key!r} is not an option of {what}.",
        f"{hint}The options are {valid}, and storage.*.",
    )


def option_unknown_here(name: str, other: str, method: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_UNKNOWN",
        f"{name} is an option of {other}, not of {method}.",
        f"Remove it, or use {other}.",
    )


def outputs_invalid(other: str, output: str, path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUTS_INVALID",
        f"The outputs {other} and {output} are both {path}.",
        "Write each channel by one output. To unite rows, use unionByName before you write them.",
    )


def path_missing(what: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_PATH_MISSING",
        f"{what[0].upper()}{what[1:]} needs a path.",
        "Give it to load() or start(), or to CREATE TABLE as LOCATION '…'.",
    )


def resume_impossible_ingest() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        "The option resume is given for an ingest. Where its outside stream had been read is only in the checkpoint.",
        "Start it with the checkpoint that it had. Or ingest into a new channel, and let the readers change to it.",
    )


def resume_impossible_loop() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        "The option resume is given for a loop. What goes round in a loop depends on the state of its operators, which is lost.",
        "Start the loop anew: new channels for its feedback and its results, and new checkpoints for all its queries.",
    )


def resume_impossible_outputs(outputs: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"The option resume is given for a query with the outputs {', '.join(outputs)}. They may be complete up "
        "to different positions of the inputs.",
        "Start it with new channels, which get all rows, and let the readers change to them. Or write each channel by a "
        "query of its own, which can be resumed.",
    )
