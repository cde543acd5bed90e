"""What to do about an error in a loop: it refuses options that help others, and a new checkpoint alone does not help it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.errors import StrandlineError

__all__ = ["loop_remedies"]

_ANEW = "Or start the loop anew: new channels for its feedback and its results, and a new checkpoint for each of its queries."
_COPY = (
    "If the channel comes from outside, copy it first into a new channel by a query of its own, which may skip such commits "
    "(skipChangeCommits) or begin with what is left (startingVersion=snapshot), and let the loop read the copy."
)
_REMEDIES = {
    "STRANDLINE_CHANNEL_REPLACED": f"Restore the former table. {_ANEW}",
    "STRANDLINE_CHECKPOINT_MISMATCH": f"Start the query as before: with the same channels, queries, domain and form. {_ANEW}",
    "STRANDLINE_DATA_FILE_MISSING": (
        f"VACUUM may have removed it. Restore the file, or set failOnDataLoss to false to skip its rows. {_ANEW} {_COPY}"
    ),
    "STRANDLINE_LOG_TRUNCATED": f"The loop has not read all of it yet. Restore the log from a copy. {_ANEW} {_COPY}",
    "STRANDLINE_OFFSET_INVALID": f"The checkpoint was damaged or changed by hand. Restore it from a backup. {_ANEW}",
    "STRANDLINE_OFFSET_VERSION": f"Use the strandline release that wrote the checkpoint. {_ANEW}",
    "STRANDLINE_OUTPUT_BEHIND": f"Restore the channel to its newest commit. {_ANEW}",
    "STRANDLINE_OUTPUT_MISSING": f"Restore the channel at that path to its newest commit. {_ANEW}",
    "STRANDLINE_PRODUCER_UNKNOWN": f"Start the query with the checkpoint that it had. {_ANEW}",
    "STRANDLINE_REPLAY_DIFFERS": f"Restore the newest state of the checkpoint. {_ANEW}",
    "STRANDLINE_ROWS_CHANGED": (
        f"A loop skips no commit, because it counts the times of all rows. Restore the log from a copy. {_ANEW} {_COPY}"
    ),
    "STRANDLINE_STATEMENT_MISSING": (
        "Write to channels only through producers or the strandline sink. A loop skips no commit, because it counts the times of "
        f"all rows. Restore the log from a copy. {_ANEW} {_COPY}"
    ),
}
"""By condition: of the errors that other queries have too, those whose own remedy a loop does not accept."""


@contextmanager
def loop_remedies(in_loop: bool) -> Iterator[None]:
    """Give the errors of this block the remedies that a loop accepts.

    Args:
        in_loop: Whether the query has a loop. Otherwise errors stay as they are.

    >>> with loop_remedies(True):
    ...     raise StrandlineError("STRANDLINE_OFFSET_VERSION", "The offset is of version 9.", "Use a new checkpoint.")
    Traceback (most recent call last):
    strandline.errors.StrandlineError: [STRANDLINE_OFFSET_VERSION] The offset is of version 9. Use the strandline release that ...
    """
    try:
        yield
    except StrandlineError as error:
        remedy = _REMEDIES.get(error.condition) if in_loop else None
        if remedy is None:
            raise
        raise type(error)(error.condition, error.what, remedy) from error
