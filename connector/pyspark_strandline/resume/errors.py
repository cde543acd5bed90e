"""The errors of queries that go on with an output."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.channel.statements.beginning import Beginning
from strandline.errors import ProducerError, StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import Time, TimeDomain

_ANEW = "Write into a new channel, which gets all rows, and let the readers change to it."
_OR_ANEW = "Or write into a new channel, which gets all rows, and let the readers change to it."
_ANSWER = (
    "If the first batch reads the rows that the query before had read, set the sink's option resume to stateful: you answer for "
    f"that (docs/lost-checkpoint.md). {_OR_ANEW}"
)
_SAME = f"Start it with the plan, the sources and the startingVersion that wrote the output. {_OR_ANEW}"


def as_before(began: Beginning | None) -> str:
    """Return how a new query begins where the query before began.

    >>> as_before(Beginning(commit=3))
    'Begin with commit 3, by startingVersion or startingTimestamp, as that query did.'
    """
    if began is None:
        return "Set startingVersion to the version with which that query began."
    if began.since is not None:
        return "A query that began with startingFrontier cannot go on by resume."
    if began.commit == 0:
        return "Leave startingVersion out, so that the query begins with all rows."
    if began.commit is None:
        return "Set startingVersion to snapshot, as that query had it."
    return f"Begin with commit {began.commit}, by startingVersion or startingTimestamp, as that query did."


def producer_live(error: ProducerError) -> ProducerError:
    """Say the remedy in the words of a query's options."""
    return ProducerError(
        "STRANDLINE_PRODUCER_LIVE",
        error.what,
        "Stop the query that runs there, and start this one again with the same checkpoint. If that process is gone for "
        "good, set the option takeOver at the sink.",
    )


def resume_differs_beginning(query: str, path: str, new: Beginning, output: str, was: Beginning) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_DIFFERS",
        f"Query {query} begins to read {path} {new}, but the query that wrote {output} began {was}. So its operators "
        "would have another state. Nothing was written.",
        f"{as_before(was)} {_OR_ANEW}",
    )


def resume_differs_frontier(producer: str, path: str, held: Antichain, query: str, holds: Antichain) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_DIFFERS",
        f"After the inputs that producer {producer!r} of {path} has read, its frontier is {held.format()}, "
        f"but that of query {query} is {holds.format()}. Nothing was written.",
        _SAME,
    )


def resume_differs_rows(producer: str, path: str, has: int, query: str, makes: int) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_DIFFERS",
        f"Producer {producer!r} of {path} has written {has} rows, but query {query} makes "
        f"{makes} rows of the same inputs. Nothing was written.",
        _SAME,
    )


def resume_differs_time(
    producer: str, path: str, has: int, domain: TimeDomain, time: Time, query: str, makes: int
) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_DIFFERS",
        f"Producer {producer!r} of {path} has written {has} rows at "
        f"{domain.format(time)}, but query {query} makes {makes} rows there of the same "
        "inputs. Nothing was written.",
        _SAME,
    )


def resume_impossible_batches() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        "The query has an operator whose state depends on how rows are cut into batches (dropDuplicatesWithinWatermark, "
        "applyInPandasWithState, transformWithState). The first batch has all rows up to now, so it would have another "
        "state.",
        _ANEW,
    )


def resume_impossible_changed() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        "The sink's option resume is changed, but the query has operators that keep state. Their state would not fit the "
        "rows that the channel has.",
        _ANEW,
    )


def resume_impossible_data_loss() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        "The source has the options resume and failOnDataLoss = false. The rows of files that are missing would be "
        "missing in the state of the operators too, without an error.",
        "Leave failOnDataLoss out until the query has begun.",
    )


def resume_impossible_lossy(output: str, path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"The query that wrote {output} has read {path} with failOnDataLoss = false. So its state may lack the rows of "
        "files that were missing, which the first batch reads if they are there again.",
        _ANSWER,
    )


def resume_impossible_output(path: str, *, is_name: bool) -> StrandlineError:
    what = f"There is no channel at the path {path}, so there is nothing that a query could go on with."
    otherwise = "leave out the option resume, at the sources and at the sink: then the query writes a new channel."
    if is_name:
        return StrandlineError(
            "STRANDLINE_RESUME_IMPOSSIBLE",
            what,
            f"If {path} is the name of a table, give its path: DESCRIBE EXTENDED {path} shows it. Or {otherwise}",
        )
    return StrandlineError("STRANDLINE_RESUME_IMPOSSIBLE", what, f"Give the path of the query's output. Or {otherwise}")


def resume_impossible_positions(query: str, reads: str, producer: str, path: str, had: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"The first batch of query {query} reads {reads}, but what producer {producer!r} of {path} has written comes from {had}.",
        "Set the option resume on every source of the query, to the path of the output, and start it with a new "
        "checkpoint. It must have the sources that it had before.",
    )


def resume_impossible_removed(
    removed: int, path: str, output: str, was: Beginning, new: Beginning, *, is_before: bool
) -> StrandlineError:
    what = (
        f"Commit {removed} of {path} has deleted or rewritten rows, and the query keeps state. The query that wrote {output} "
        f"began {was}, and the new query begins {new}. So the first batch may have other rows than the query before had read."
    )
    if is_before:
        return StrandlineError("STRANDLINE_RESUME_IMPOSSIBLE", what, f"{as_before(was)} {_OR_ANEW}")
    return StrandlineError("STRANDLINE_RESUME_IMPOSSIBLE", what, _ANSWER)


def resume_impossible_session(path: str, producer: str, query: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"Another session has written to {path} as {producer!r} while query {query} looked at its commits.",
        "Stop the query that writes the channel, and start this one with a new checkpoint.",
    )


def resume_impossible_several(path: str, inputs: str, producers: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"Several producers of {path} have read {inputs}: "
        f"{', '.join(sorted(repr(producer) for producer in producers))}. So it is not known which of them is to go on.",
        "Name it with the option producer, at the sources and at the sink.",
    )


def resume_impossible_sources(others: int, path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"{others} of the query's sources are not channels, so the output {path} does not say how far they were read.",
        f"Ingest these streams into channels first. {_OR_ANEW}",
    )


def resume_impossible_twice(producer: str, path: str, positions: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"The query that wrote {producer!r} had two sources of the channel {path}, which stood at different "
        f"positions: {positions}. So it is not known where each of them is to go on.",
        f"{_ANEW} Read a channel by one source only: pyspark_strandline.read_channels has one for any number of uses.",
    )


def _resume_impossible_unread(inputs: str, why: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"The query reads {inputs}. {why}",
        f"Read the channels that the query read before. {_OR_ANEW}",
    )


def resume_impossible_unread(inputs: str, path: str, had: str) -> StrandlineError:
    return _resume_impossible_unread(inputs, f"No producer of {path} has read all of them: {had}.")


def resume_impossible_unread_empty(inputs: str, path: str, name: str) -> StrandlineError:
    return _resume_impossible_unread(
        inputs, f"The log of {path} has no commit of {name}: nothing was written yet, or the log was cleaned up."
    )


def resume_impossible_unread_producer(inputs: str, path: str, producer: str, known: Iterable[str]) -> StrandlineError:
    producers = ", ".join(sorted(map(repr, known))[:10]) or "none"
    return _resume_impossible_unread(inputs, f"The channel {path} has no producer {producer!r}. Its producers: {producers}.")


def resume_impossible_unread_silent(inputs: str, producers: Iterable[str], path: str) -> StrandlineError:
    names = ", ".join(sorted(map(repr, producers))[:10])
    return _resume_impossible_unread(
        inputs,
        f"The newest commit of producer {names} of {path} does not say what it had read: it is of an ingest or of a program.",
    )


def resume_impossible_unread_table(inputs: str, producer: str, path: str, table: str, place: str) -> StrandlineError:
    return _resume_impossible_unread(
        inputs,
        f"Producer {producer!r} of {path} had read the table {table} at {place}, but now another table is there: it was made "
        "anew.",
    )


def resume_impossible_unstated(output: str, path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"The query keeps state for times that are open. The commits of {output} do not say where the query before began "
        f"to read {path}. So it is not known whether the first batch fills the same state.",
        "If every source begins where it began before (startingVersion), and no rows of the inputs were deleted since, "
        f"set the sink's option resume to stateful: you answer for that (docs/lost-checkpoint.md). {_OR_ANEW}",
    )
