"""What became of a commit: it was made, it had been made before, or there was nothing to make."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Committed", "Conflict", "Outcome", "Replay", "Unchanged"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call that commits ended with: :class:`Committed`, :class:`Replay` or :class:`Unchanged`.

    >>> [outcome.committed for outcome in (Committed(7), Replay(7), Unchanged(7))]
    [7, None, None]
    """

    version: int

    @property
    def committed(self) -> int | None:
        """The version that was made, or ``None``."""
        return None


@dataclass(frozen=True, slots=True)
class Committed(Outcome):
    """The log has what the caller asked for, as ``version``.

    This call made it, or an earlier call that asked for the same and ended by an error.
    """

    @property
    def committed(self) -> int | None:
        return self.version


@dataclass(frozen=True, slots=True)
class Replay(Outcome):
    """The log had the transaction already, in ``version`` or before. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Unchanged(Outcome):
    """There was nothing to commit as of ``version``. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another writer made ``version`` first, so the commit must be decided again."""

    version: int
