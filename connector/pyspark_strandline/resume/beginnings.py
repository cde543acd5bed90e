"""Whether a new query has read its inputs from where the query before did, so that its operators have the same state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark_strandline.resume import errors
from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.inputs import Input

__all__ = ["check_beginnings"]


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
            raise errors.resume_differs_beginning(query, path, new, output, was)
        if trusted:
            continue
        if was is None or new is None:
            raise errors.resume_impossible_unstated(output, path)
        if was.lossy or new.lossy:
            raise errors.resume_impossible_lossy(output, path)
        _check_removed(output, path, was, new)


def _check_removed(output: str, path: str, was: Beginning, new: Beginning) -> None:
    removed = max((each.removed for each in (was, new) if each.removed is not None), default=None)
    if removed is None:
        return
    is_before = was.snapshot is not None and removed <= was.snapshot
    raise errors.resume_impossible_removed(removed, path, output, was, new, is_before=is_before)


def _pairs(had: Sequence[Input], has: Sequence[Input]) -> Iterator[tuple[Input, Input]]:
    """Yield what to compare. Sources of one channel are in the order of the plan, which is the same in every run."""
    for table in dict.fromkeys(each.table for each in has):
        before, now = ([each for each in reads if each.table == table] for reads in (had, has))
        if len(before) == len(now):
            yield from zip(before, now, strict=True)
        else:
            yield from ((one, other) for one in before for other in now)
