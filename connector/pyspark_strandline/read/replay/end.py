"""Where a replay ends: the options ``endingVersion``, ``endingTimestamp`` and ``endingFrontier``."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import errors
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.replay.frontier import parse_frontier
from strandline.time.antichain import Antichain
from strandline.time.path.entry import Entry

__all__ = ["End", "asked_end", "end_of_replay"]


@dataclass(frozen=True)
class End:
    """The last commit of a replay. Every offset of the query has it, so that it is the same after each restart.

    Attributes:
        version: The version of that commit. It is before the first one if there is nothing to play.
        asked: The option that asked for it, as text.

    >>> End.from_json(End(7, "endingFrontier = 3").to_json())
    End(version=7, asked='endingFrontier = 3')
    """

    version: int
    asked: str

    def to_json(self) -> list[object]:
        """Return the JSON array."""
        return [self.version, self.asked]

    @classmethod
    def from_json(cls, value: object) -> End | None:
        """Read the array; ``None`` if there is none. Raises ``ValueError``."""
        match value:
            case None:
                return None
            case [int(version), str(asked)] if not isinstance(version, bool) and version >= -1:
                return cls(version, asked)
        raise ValueError(f"until must be a version and an option, but is {value!r}"[:300])


def asked_end(options: ReadOptions) -> str | None:
    """Return the option that asks for an end, as text; ``None`` if there is none."""
    if options.ending_version is not None:
        return f"endingVersion = {options.ending_version}"
    if options.ending_timestamp_ms is not None:
        return f"endingTimestamp = {options.ending_timestamp_ms} ms since 1970"
    return None if options.ending_frontier is None else f"endingFrontier = {options.ending_frontier}"


def end_of_replay(options: ReadOptions, cursor: LogCursor, entry: Entry | None, begin: int) -> End | None:
    """Decide where a replay ends that begins with a version; ``None`` if it has no end.

    Args:
        options: The source's options for this channel.
        cursor: The cursor in its log.
        entry: How its times enter the domain of a source of several channels, in which ``endingFrontier`` is.
        begin: The version of the first commit to play.

    Raises:
        StrandlineError: ``STRANDLINE_VERSION_MISSING``, ``STRANDLINE_OPTION_INVALID`` or ``STRANDLINE_RECORDING_END_MISSING``.
    """
    asked, newest = asked_end(options), cursor.newest()
    if asked is None:
        return None
    version = newest
    if options.ending_version is not None:
        version = options.ending_version
        if version > newest:
            raise errors.version_missing("endingVersion", version, cursor.channel.path, newest)
    elif options.ending_timestamp_ms is not None:
        version = _last_before(options.ending_timestamp_ms, cursor, begin)
    elif options.ending_frontier is not None:
        entry = entry or Entry(cursor.channel.domain, cursor.channel.domain)
        wanted = parse_frontier("endingFrontier", options.ending_frontier, entry.inner)
        version = _first_closing(wanted, cursor, entry, begin, asked)
    return End(version, asked)


def _last_before(moment_ms: int, cursor: LogCursor, begin: int) -> int:
    """Return the version before the first commit of the replay that was made later than a moment."""
    newest = cursor.newest()
    for version in range(begin, newest + 1):
        if (cursor.read(version) or cursor.require(version)).timestamp_ms > moment_ms:
            return version - 1
    if moment_ms > time.time() * 1000:
        raise errors.option_invalid_end_future(moment_ms, cursor.channel.path, newest)
    return newest


def _first_closing(wanted: Antichain, cursor: LogCursor, entry: Entry, begin: int, asked: str) -> int:
    """Return the first version, or the one before the replay, after which all times before a frontier are closed."""
    channel = cursor.channel

    def is_closed(version: int) -> bool:
        return wanted.dominates(
            entry.antichain(channel.frontier_at(version) if version >= 0 else Antichain.least(channel.domain))
        )

    low, high = begin - 1, cursor.newest()
    if not is_closed(high):
        raise errors.recording_end_missing(asked, channel.path, channel.frontier_at(high))
    while low < high:  # a frontier only advances
        middle = (low + high) // 2
        low, high = (low, middle) if is_closed(middle) else (middle + 1, high)
    return high
