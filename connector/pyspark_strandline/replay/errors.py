"""The errors of replayed pipelines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from strandline.errors import StrandlineError

_CONDITION = re.compile(r"\[(STRANDLINE_[A-Z_]+)\] ([^\n]*)")
_FORM = "A pipeline is a function pipeline(spark, read) that returns streams by the names of their outputs (docs/replay.md)."


def stated(error: Exception, where: str) -> StrandlineError | None:
    """Return the error of Strandline whose text an error of Spark has, or ``None``."""
    found = _CONDITION.search(str(error))
    return None if found is None else StrandlineError(found[1], f"{where}: {found[2]}")


def input_unrecorded(pipeline: str, what: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_INPUT_UNRECORDED",
        f"{pipeline} reads {what}, which is no channel, so nothing of it is recorded.",
        "Ingest it into a channel with pyspark_strandline.ingest(…), and read that channel with read(path).",
    )


def input_unrecorded_unread(pipeline: str, what: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_INPUT_UNRECORDED",
        f"{pipeline} reads the channel {what} as a stream of its own, so it would not be replayed.",
        "Read it with read(path), or read.together(paths), that the function gets.",
    )


def original_changed(path: str, version: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_ORIGINAL_CHANGED",
        f"While the replay ran, version {version} of {path} changed rows, and no stream or producer wrote it.",
        "If the pipeline has written it, take that out of the pipeline; else run the replay again.",
    )


def pipeline_invalid(pipeline: str, problem: str) -> StrandlineError:
    return StrandlineError("STRANDLINE_PIPELINE_INVALID", f"{pipeline} {problem}.", _FORM)


def pipeline_writes(pipeline: str, how: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_PIPELINE_WRITES",
        f"{pipeline} writes by itself, with {how}. Nothing was written.",
        "Return the streams by name. A replay writes them into channels of its own, and start(…) into those of production.",
    )


def pipeline_writes_queries(pipeline: str, queries: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_PIPELINE_WRITES",
        f"{pipeline} has started queries by itself: {', '.join(queries)}. They were stopped.",
        "Return the streams by name. A replay writes them into channels of its own, and start(…) into those of production.",
    )


def replay_failed(output: str, problem: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_REPLAY_FAILED",
        f"The query of output {output} has failed: {problem}",
        "Mend what has failed. The same command goes on where it has stopped, and replay_loop does with resume=True. What is "
        "changed needs another folder.",
    )


def replay_folder_other(folder: Path, field: str, before: object, now: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_REPLAY_FOLDER",
        f"{folder} has a replay with another {field}: {before!s:.300}, and now {now!s:.300}.",
        "Give another folder, or remove this one.",
    )


def replay_folder_started(folder: Path, started: object, ended: object) -> StrandlineError:
    end = "has not ended" if ended is None else f"has ended at {ended!s:.40}"
    return StrandlineError(
        "STRANDLINE_REPLAY_FOLDER",
        f"{folder} has a replay that was started at {started!s:.40} and {end}.",
        "If the function and all that it uses are as they were then, give resume=True to go on. Else give another folder.",
    )


def compare_by_spark(column: str, problem: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_COMPARE_BY_SPARK",
        f"Spark cannot compare the column {column!r}: {problem}.",
        "Compare by Arrow, which is the default (strandline.replay.compare), or name the columns to compare without it.",
    )


def replay_folder_taken(folder: Path, problem: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_REPLAY_FOLDER", f"{folder} {problem}.", "Give a folder that is new or empty, apart from all channels."
    )


def replay_outputs(name: str, where: str, known: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_REPLAY_OUTPUTS",
        f"{where} has no output {name!r}. Those that it has: {', '.join(sorted(known)) or 'none'}.",
        "Compare outputs that both sides have, by their names.",
    )


def option_invalid_divergence(value: object) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"on_divergence is {value!r}.",
        "Use 'abort', 'report' or 'restamp'.",
    )


def replay_diverged(link: str, time: str, path: str, text: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_REPLAY_DIVERGED",
        f"What came round the link {link} in the replay is not what {path} has, first at {time}. In the following, a is the "
        f"recording, and b the replay.\n{text}",
        "Look at what has changed since then: the program, a table that it reads, or the recording. on_divergence='report' shows "
        "all differences, and 'restamp' goes on with what comes round now.",
    )


def recording_damaged(link: str, path: str, violation: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RECORDING_DAMAGED",
        f"The recording of the link {link} is not what was committed to {path}: {violation}.",
        "Restore the channel from a copy. verified=False replays what is there.",
    )
