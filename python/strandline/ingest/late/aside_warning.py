"""What the log says of a batch whose rows were set aside."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import nsmallest
from types import MappingProxyType

from strandline.errors import printable
from strandline.ingest.late.lateness import LATE, REASONS
from strandline.shell_words import command

__all__ = ["aside_warning", "rows_by_reason"]

_SHOWN = 10


def aside_warning(
    path: str,
    late_path: str,
    by: Mapping[tuple[str | None, str], int],
    examples: Mapping[tuple[str | None, str], str],
    read: int,
    rejoin: Mapping[str, str] = MappingProxyType({}),
    idle: Collection[str] = (),
) -> str:
    """Return the text. A row that was set aside is in no result, so the log must say so.

    Args:
        path: The channel's path.
        late_path: The late table's path.
        by: How many rows there are, by partition (``None``: no valid one) and reason.
        examples: For these, the time of a row as it came.
        read: How many rows the batch has.
        rejoin: For partitions whose rows are all late and that may join again, the command for it.
        idle: Partitions that the ingest does not wait for.

    >>> text = aside_warning("/a", "/a_late", {("b", "unparsable time"): 3}, {("b", "unparsable time"): "'soon'"}, 20)
    >>> text.partition(" Repair")[0]
    "/a: 3 of 20 rows were set aside in /a_late, and are in no result. 3 of partition b: unparsable time, such as 'soon'."
    """
    shown = rows_by_reason(by, examples)
    advice = " ".join(_advice(path, late_path, by, rejoin, idle))
    rows = sum(by.values())
    are, is_in = ("was", "is") if rows == 1 else ("were", "are")
    return printable(f"{path}: {rows} of {read} rows {are} set aside in {late_path}, and {is_in} in no result. {shown}. {advice}")


def _advice(
    path: str, late_path: str, by: Mapping[tuple[str | None, str], int], rejoin: Mapping[str, str], idle: Collection[str]
) -> Iterator[str]:
    """Yield what to do, in sentences: for each reason its own."""
    late = {partition for partition, reason in by if reason == REASONS[LATE] and partition is not None}
    others = sorted({reason for _, reason in by if reason != REASONS[LATE]})
    if others:
        yield f"Repair what sends them ({', '.join(others)})."
    for name in sorted(late & rejoin.keys())[:_SHOWN]:
        yield (
            f"All rows of partition {name} are behind what it has promised. If its clock was ahead, or it was dropped, and its "
            f"rows are right now, let it join where the others are: {rejoin[name]}."
        )
    given_up = sorted(late & {*idle} - rejoin.keys())
    if given_up:
        names = ", ".join(given_up[:_SHOWN])
        yield f"The ingest had stopped waiting for {names}: give idle(…) a longer time if that happens often."
    if late - rejoin.keys() - {*given_up}:
        yield "Give the policy a longer delay if they are often late."
    ways = []
    if late:
        ways.append(f"add the late ones with: {command('readmit', path, options=['--late-path', late_path])}")
    if others:
        ways.append(
            f"readmit({path!r}, {late_path!r}, where=…) in Python adds those that were not late, with their times corrected"
        )
    yield f"If the channel has corrections, {'. '.join(ways)}."


def rows_by_reason(by: Mapping[tuple[str | None, str], int], examples: Mapping[tuple[str | None, str], str]) -> str:
    """Return in words how many rows of which partition were set aside, and why, the most first. See :func:`aside_warning`."""
    most = nsmallest(_SHOWN, by.items(), key=lambda entry: (-entry[1], str(entry[0])))
    shown = "; ".join(_one(key, rows, examples.get(key)) for key, rows in most)
    return shown + (f"; and {len(by) - _SHOWN} more partitions or reasons" if len(by) > _SHOWN else "")


def _one(key: tuple[str | None, str], rows: int, example: str | None) -> str:
    partition, reason = key
    of = "without a valid partition" if partition is None else f"of partition {partition}"
    return f"{rows} {of}: {reason}" + ("" if example is None else f", such as {example}")
