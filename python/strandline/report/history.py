"""Since when a producer holds what it holds, and what its newest commit says, found with a bounded number of reads."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.channel import Channel, Commit, LogError, Progress, StatementError
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain

__all__ = ["History", "Since"]

_PROBE = 100
"""About so many commits are read to know every producer's state at a version."""
_NEAR = 200


@dataclass(frozen=True)
class Since:
    """The commit with which a producer came to hold what it holds.

    Attributes:
        version: The commit. If it is not ``exact``, the producer held the same before it too.
        ms: When its writer made it, in milliseconds since 1970.
        exact: Whether the producer held something else, or was not there, before this commit.
    """

    version: int
    ms: int
    exact: bool


class History:
    """Looks back in a channel's log, for several producers, and reads at most about ``limit`` commits.

    A capability moves forward only, so the commit that changed it is found by halving. (A capability that was given up and came
    back as the same, as that of an idle partition may, counts as held all the time.)

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     channel = Channel.create(folder, pa.schema([time_field("time", int64)]), producers=["a", "b"], at=0)
    ...     for time in (3, 5):
    ...         with channel.producer("a", owner="a") as a:
    ...             a.delay([time])
    ...     history = History(channel)
    ...     history.since("a").version, history.since("b").version, channel.version
    (4, 0, 4)
    """

    def __init__(self, channel: Channel, limit: int = 2000) -> None:
        self._channel = channel
        self._left = limit
        self._commits: dict[int, Commit | None] = {}
        self._states: dict[int, Progress | None] = {channel.version: channel.progress}
        self._earliest: int | None = None

    def since(self, name: str) -> Since | None:
        """Return since when a producer, or ``$registrar``, holds what it holds; ``None`` if it is not known to the channel."""
        known = self._channel.progress.get(name)
        if known is None:
            return None
        return self._first(name, known.holds, None)

    def frontier_since(self) -> Since:
        """Return since when the channel's frontier is what it is. It moves forward only, so the commit is found by halving.

        >>> import tempfile
        >>> import pyarrow as pa
        >>> from strandline.time.arrow import time_field
        >>> from strandline.time.domain import int64
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     channel = Channel.create(folder, pa.schema([time_field("time", int64)]), producers=["a", "b"], at=0)
        ...     for name, time in (("a", 3), ("b", 2), ("a", 5)):
        ...         with channel.producer(name, owner=name) as producer:
        ...             producer.delay([time])
        ...     since = History(channel).frontier_since()
        ...     channel.frontier_at(since.version), channel.frontier_at(since.version - 1), since.exact
        (Antichain(int64, [2]), Antichain(int64, [0]), True)
        """
        if self._earliest is None:
            self._earliest = self._channel.log.earliest()
        frontier, high, step = self._channel.frontier, self._channel.version, 1
        low = self._earliest - 1
        while high - low > 1:
            middle = max((low + high) // 2, high - step)  # the newest commits first: a channel that lives has moved just now
            progress = self._state(middle)
            if progress is None:
                return self._at(high, exact=False)
            if progress.frontier == frontier:
                high, step = middle, step * 2
            else:
                low = middle
        return self._at(high, exact=high > self._earliest or self._earliest == 0)

    def newest(self, name: str) -> Commit | None:
        """Return the commit with a producer's newest statement, or ``None`` if the reads that are left do not find it."""
        known = self._channel.progress.get(name)
        found = None if known is None else self._first(name, None, known.seq)
        return self._commit(found.version) if found is not None and found.exact else None

    def _first(self, name: str, holds: Antichain | None, seq: int | None) -> Since:
        """Return the first version from which on a producer's state is the newest one: its capabilities, or its number."""
        version = candidate = self._channel.version
        for version in range(self._channel.version, max(-1, self._channel.version - _NEAR), -1):
            commit = self._commit(version)
            if commit is None:
                return self._at(candidate, exact=False)
            statement = None if commit.statement is None else commit.statement.statements.get(name)
            if statement is None:
                continue
            if seq is not None:
                return self._at(version, exact=True)
            if holds is not None and set(statement.holds) != set(holds):
                return self._at(candidate, exact=True)
            candidate = version
            if statement.seq == 0:
                return self._at(version, exact=True)
        if version == 0:
            return self._at(candidate, exact=True)
        return self._halve(name, holds, seq, min(candidate, version))

    def _halve(self, name: str, holds: Antichain | None, seq: int | None, high: int) -> Since:
        if self._earliest is None:
            self._earliest = self._channel.log.earliest()
        low = self._earliest - 1  # the state was another one at ``low``, and is the newest one at ``high``
        while high - low > 1:
            middle = (low + high) // 2
            progress = self._state(middle)
            if progress is None:
                return self._at(high, exact=False)
            known = progress.get(name)
            same = known is not None and (known.seq == seq if holds is None else known.holds == holds)
            low, high = (low, middle) if same else (middle, high)
        return self._at(high, exact=high > self._earliest or self._earliest == 0)

    def _at(self, version: int, *, exact: bool) -> Since:
        commit = self._commit(version, always=True)
        return Since(version, 0 if commit is None else commit.timestamp_ms, exact and commit is not None)

    def _commit(self, version: int, *, always: bool = False) -> Commit | None:
        if version not in self._commits:
            if self._left <= 0 and not always:
                return None
            self._left -= 1
            self._commits[version] = self._channel.log.read(version)
        return self._commits[version]

    def _state(self, version: int) -> Progress | None:
        if version not in self._states:
            if self._left < _PROBE:
                return None
            self._left -= _PROBE
            try:
                self._states[version] = self._channel.progress_at(version)
            except (LogError, StatementError, StrandlineError):  # cleaned up to a later commit
                self._states[version] = None
        return self._states[version]
