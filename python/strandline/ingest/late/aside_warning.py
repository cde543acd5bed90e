"""What the log says of a batch whose rows were set aside."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest

from strandline.errors import printable
from strandline.shell_words import command

__all__ = ["aside_warning", "rows_by_reason"]

_SHOWN = 10


def aside_warning(
    path: str,
    late_path: str,
    by: Mapping[tuple[str | None, str], int],
    examples: Mapping[tuple[str | None, str], str],
    read: int,
) -> str:
    """Return the text. A row that was set aside is in no result, so the log must say so.

    Args:
        path: The channel's path.
        late_path: The late table's path.
        by: How many rows there are, by partition (``None``: no valid one) and reason.
        examples: For these, the time of a row as it came.
        read: How many rows the batch has.

    >>> text = aside_warning("/a", "/a_late", {("b", "unparsable time"): 3}, {("b", "unparsable time"): "'soon'"}, 20)
    >>> text.partition(" Repair")[0]
    "/a: 3 of 20 rows were set aside in /a_late, and are in no result. 3 of partition b: unparsable time, such as 'soon'."
    """
    shown = rows_by_reason(by, examples)
    late_only = all(reason == "late" for _, reason in by)
    remedy = "Give the policy a longer delay if they are often late." if late_only else "Repair what sends them."
    add = f"readmit({path!r}, {late_path!r}, where=…) adds them"
    if late_only:
        add = f"add them with: {command('readmit', path, options=['--late-path', late_path])}"
    rows = sum(by.values())
    are, is_in = ("was", "is") if rows == 1 else ("were", "are")
    return printable(
        f"{path}: {rows} of {read} rows {are} set aside in {late_path}, and {is_in} in no result. {shown}. "
        f"{remedy} If the channel has corrections, {add}."
    )


def rows_by_reason(by: Mapping[tuple[str | None, str], int], examples: Mapping[tuple[str | None, str], str]) -> str:
    """Return in words how many rows of which partition were set aside, and why, the most first. See :func:`aside_warning`."""
    most = nsmallest(_SHOWN, by.items(), key=lambda entry: (-entry[1], str(entry[0])))
    shown = "; ".join(_one(key, rows, examples.get(key)) for key, rows in most)
    return shown + (f"; and {len(by) - _SHOWN} more partitions or reasons" if len(by) > _SHOWN else "")


def _one(key: tuple[str | None, str], rows: int, example: str | None) -> str:
    partition, reason = key
    of = "without a valid partition" if partition is None else f"of partition {partition}"
    return f"{rows} {of}: {reason}" + ("" if example is None else f", such as {example}")
