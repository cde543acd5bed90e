"""Whether a new query has read its inputs from where the query before did, so that its operators have the same state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.inputs import Input
from strandline.errors import StrandlineError

__all__ = ["as_before", "check_beginnings"]

_REBUILD = "Or write into a new channel, which gets all rows, and let the readers change to it."
_ANSWER = (
    "If the first batch reads the rows that the query before had read, set the sink's option resume to stateful: you answer for "
    f"that (docs/lost-checkpoint.md). {_REBUILD}"
)


def as_before(began: Beginning | None) -> str:
    """Return how a new query begins where the query before began.

    >>> as_before(Beginning(commit=3))
    'Begin with commit 3, by startingVersion or startingTimestamp, as that query did.'
    """
    if began is None:
        return "Set startingVersion to the version with which that query began."
    if began.commit == 0:
        return "Leave startingVersion out, so that the query begins with all rows."
    if began.commit is None:
        return "Set startingVersion to snapshot, as that query had it."
    return f"Begin with commit {began.commit}, by startingVersion or startingTimestamp, as that query did."


def check_beginnings(output: str, query: str, had: Sequence[Input], has: Sequence[Input], *, trusted: bool) -> None:
    """Raise unless a new query's first batch has the rows that the query before had read.

    Up to one position, the same rows are read from one commit on. All rows are read from commit 0 on, or with a snapshot of any
    version. These are the same if no commit has removed rows. A snapshot has other files after OPTIMIZE, with the same rows.

    Args:
        output: The path of the output.
        query: The id of the new query.
        had: How far the query before had read its inputs.
        has: How far the first batch reads them. The positions are the same.
        trusted: Whether the user answers for what is not known.

    Raises:
        StrandlineError: ``STRANDLINE_RESUME_DIFFERS`` if they begin at different places. ``STRANDLINE_RESUME_IMPOSSIBLE`` if
            it is not known whether the rows are the same, and the user does not answer for it.
    """
    for before, now in _pairs(had, has):
        path, was, new = now.path or before.path or f"table {now.table}", before.began, now.began
        if was is not None and new is not None and not new.reads_as(was):
            raise StrandlineError(
                "STRANDLINE_RESUME_DIFFERS",
                f"Query {query} begins to read {path} {new}, but the query that wrote {output} began {was}. So its operators "
                "would have another state. Nothing was written.",
                f"{as_before(was)} {_REBUILD}",
            )
        if trusted:
            continue
        if was is None or new is None:
            raise StrandlineError(
                "STRANDLINE_RESUME_IMPOSSIBLE",
                f"The query keeps state for times that are open. The commits of {output} do not say where the query before began "
                f"to read {path}. So it is not known whether the first batch fills the same state.",
                "If every source begins where it began before (startingVersion), and no rows of the inputs were deleted since, "
                f"set the sink's option resume to stateful: you answer for that (docs/lost-checkpoint.md). {_REBUILD}",
            )
        if was.lossy or new.lossy:
            raise StrandlineError(
                "STRANDLINE_RESUME_IMPOSSIBLE",
                f"The query that wrote {output} has read {path} with failOnDataLoss = false. So its state may lack the rows of "
                "files that were missing, which the first batch reads if they are there again.",
                _ANSWER,
            )
        _check_removed(output, path, was, new)


def _check_removed(output: str, path: str, was: Beginning, new: Beginning) -> None:
    removed = max((each.removed for each in (was, new) if each.removed is not None), default=None)
    if removed is None:
        return
    is_before = was.snapshot is not None and removed <= was.snapshot
    raise StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"Commit {removed} of {path} has deleted or rewritten rows, and the query keeps state. The query that wrote {output} "
        f"began {was}, and the new query begins {new}. So the first batch may have other rows than the query before had read.",
        f"{as_before(was)} {_REBUILD}" if is_before else _ANSWER,
    )


def _pairs(had: Sequence[Input], has: Sequence[Input]) -> Iterator[tuple[Input, Input]]:
    """Yield what to compare. Sources of one channel are in the order of the plan, which is the same in every run."""
    for table in dict.fromkeys(each.table for each in has):
        before, now = ([each for each in reads if each.table == table] for reads in (had, has))
        if len(before) == len(now):
            yield from zip(before, now, strict=True)
        else:
            yield from ((one, other) for one in before for other in now)
