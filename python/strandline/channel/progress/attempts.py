"""The ledger of attempts to write a commit. An attempt that ended by an error may have been made all the same."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

__all__ = ["Attempt", "Attempts"]

R = TypeVar("R")


@dataclass(eq=False)
class Attempt(Generic[R]):
    """One request to write one version. The version's statement has the id.

    A request may take effect after its writer was told of an error, or was told nothing. But versions are written only once.
    So the attempt is over when the log has its version, and then it is known whether the version is this attempt's.
    """

    request: R
    """What the caller asked for. Whoever asks for it again finds the attempt by it. Nobody asks for ``None``."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    version: int | None = None
    """The version that was made, once the log was seen to have it."""
    open: bool = False
    """Whether the commit may still arrive."""


class Attempts:
    """The attempts of one handle that are open, or that were made while the caller was not yet told so.

    All open attempts are at the version after the handle's.

    >>> attempts, lost = Attempts(), Attempt("rows")
    >>> attempts.begin(lost)  # and its answer is lost
    >>> attempts.end(8, lost.id)  # but the log has it
    >>> [attempt.version for attempt in attempts.of(str)]
    [8]
    >>> attempts.answer(8)
    >>> attempts.of(str)
    []
    """

    def __init__(self) -> None:
        self._kept: list[Attempt[Any]] = []

    def begin(self, attempt: Attempt[Any]) -> None:
        """Note that the next version is attempted."""
        attempt.open = True
        self._kept.append(attempt)

    def has(self, commit: str | None) -> bool:
        """Return whether the commit with an id is one of these attempts."""
        return any(attempt.id == commit for attempt in self._kept)

    def end(self, version: int, commit: str | None) -> None:
        """Note that the attempted version is the commit with an id. This may be repeated."""
        for attempt in self._kept:
            if attempt.id == commit:
                attempt.version = version
            attempt.open = False
        self._kept = [each for each in self._kept if each.version is not None and each.request is not None]

    def of(self, kind: type[R]) -> list[Attempt[R]]:
        """Return the attempts for requests of a kind, oldest first."""
        return [attempt for attempt in self._kept if isinstance(attempt.request, kind)]

    def forget(self, request: object) -> None:
        """Forget the attempts for a request, because it is fulfilled."""
        self._kept = [attempt for attempt in self._kept if attempt.request != request]

    def answer(self, version: int | None) -> None:
        """Forget the attempt that made a version, because its caller is told now."""
        self._kept = [attempt for attempt in self._kept if attempt.version is None or attempt.version != version]
