"""Where a query began to read a channel. Its offsets and its commits carry it, because no log of the channel says it."""

from __future__ import annotations

from typing import Any, NamedTuple

from strandline.json_value import JsonObject

__all__ = ["Beginning"]

_FIELDS = ("commit", "snapshot", "removed", "lossy", "since")


class Beginning(NamedTuple):
    """Where a query began to read a channel, and what may since keep a later reading from being the same.

    Attributes:
        commit: The first commit that the query reads; ``None`` if it began with a snapshot.
        snapshot: The version of the table whose rows it read first; ``None`` if it began with a commit.
        removed: The newest commit behind the beginning that deleted or rewrote rows and that the query has passed over.
        lossy: Whether the query has read with ``failOnDataLoss`` = ``false``, so it may lack the rows of files that were missing.
        since: The frontier of the option ``startingFrontier`` as text: the query has read no rows at times that it closes.

    >>> Beginning(commit=0, removed=7).to_json(), str(Beginning(commit=3)), str(Beginning(snapshot=3))
    ({'commit': 0, 'removed': 7}, 'with commit 3', 'with the snapshot of version 3')
    >>> str(Beginning(commit=3, since="{5}"))
    'with commit 3, by startingFrontier {5}'
    """

    commit: int | None = None
    snapshot: int | None = None
    removed: int | None = None
    lossy: bool = False
    since: str | None = None

    def __str__(self) -> str:
        since = "" if self.since is None else f", by startingFrontier {self.since}"
        return (
            f"with commit {self.commit}" if self.snapshot is None else f"with the snapshot of version {self.snapshot}"
        ) + since

    @property
    def has_all(self) -> bool:
        """Whether the query has read every row that the table had."""
        return self.since is None and (self.snapshot is not None or self.commit == 0)

    def is_at(self, other: Beginning) -> bool:
        """Whether both are the same place.

        >>> Beginning(commit=3, removed=7).is_at(Beginning(commit=3)), Beginning(commit=0).is_at(Beginning(snapshot=4))
        (True, False)
        >>> Beginning(commit=3, since="{5}").is_at(Beginning(commit=3))
        False
        """
        return (self.commit, self.snapshot, self.since) == (other.commit, other.snapshot, other.since)

    def reads_as(self, other: Beginning) -> bool:
        """Whether a query that begins here reads the same rows up to any position, if no commit has removed rows.

        >>> Beginning(commit=0).reads_as(Beginning(snapshot=4)), Beginning(commit=3).reads_as(Beginning(snapshot=4))
        (True, False)
        """
        return self.is_at(other) or (self.has_all and other.has_all)

    def to_json(self) -> JsonObject:
        """Return the JSON object of an offset or a statement."""
        return {name: value for name, value in zip(_FIELDS, self, strict=True) if value is not None and value is not False}

    @classmethod
    def from_json(cls, value: Any) -> Beginning | None:
        """Read the field ``began`` of an offset or a statement.

        Args:
            value: The JSON object, or ``None`` where there is none.

        Returns:
            ``None`` if it is not known. An object with further fields, of a later release, may mean something else: it is as if
            there were none.

        Raises:
            ValueError: It is nothing that a writer of ours makes.

        >>> Beginning.from_json({"commit": 0, "removed": 7}), Beginning.from_json({"commit": 0, "later": 3})
        (Beginning(commit=0, snapshot=None, removed=7, lossy=False, since=None), None)
        """
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError("began is not an object")
        if value.keys() - set(_FIELDS):
            return None
        commit, snapshot, removed = (value.get(name) for name in _FIELDS[:3])
        lossy, since = value.get("lossy", False), value.get("since")
        if any(n is not None and (type(n) is not int or n < 0) for n in (commit, snapshot, removed)) or type(lossy) is not bool:
            raise ValueError("began has something else than numbers of commits")
        if since is not None and not isinstance(since, str):
            raise ValueError("since of began is not the text of a frontier")
        if (commit is None) == (snapshot is None):
            raise ValueError("began must have a commit or a snapshot")
        first = commit if snapshot is None else snapshot + 1
        if removed is not None and removed < (first or 0):
            raise ValueError("removed must not be before the beginning")
        return cls(commit, snapshot, removed, lossy, since)
