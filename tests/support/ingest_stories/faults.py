"""A store that fails: at a chosen call it errs before the effect or after it, denies what it did, or lets others act."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from strandline.delta import table as channel_table
from strandline.delta.storage import LocalStore
from strandline.delta.table import Table

__all__ = ["KINDS", "Fault", "Faults", "InjectedError"]

KINDS = ("error", "lost", "denied", "slow", "slow answer")
"""``error``: nothing happens, and the caller gets an I/O error. ``lost``: it happens, and the caller gets an I/O error.
``denied``: a commit happens, and its writer is told that somebody else was faster, as after a retry by the client of an object
store. ``slow``: others act before it happens, ``slow answer``: after it."""
_METHODS = ("size", "read", "open_output", "open_input", "list", "delete")


class InjectedError(OSError):
    """The store does not answer."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EIO, f"the store gave no answer to {what}")


class Fault(NamedTuple):
    """What goes wrong at the call ``at``, counted from 0 within one operation; ``where``: of ``any`` call, or of a ``commit``."""

    at: int
    kind: str
    where: str = "commit"


class Faults:
    """Counts the calls of every store in this process, and spoils the one that is armed."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.meanwhile: Callable[[], None] | None = None
        self.calls: list[str] = []
        self.struck: str | None = None

    @contextmanager
    def installed(self) -> Iterator[Faults]:
        """Every local store goes through this."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _METHODS:
                patch.setattr(LocalStore, name, self._wrapped(getattr(LocalStore, name), name))
            patch.setattr(Table, "commit", self._wrapped(Table.commit, "commit"))
            patch.setattr(channel_table, "open_delta", self._wrapped(channel_table.open_delta, "open"))
            yield self

    @contextmanager
    def armed(self, fault: Fault | None, meanwhile: Callable[[], None] | None = None) -> Iterator[None]:
        """One operation, in which ``fault`` strikes; ``meanwhile`` is what others do while the store is slow."""
        before = (self.fault, self.meanwhile, self.calls, self.struck)
        self.fault, self.meanwhile, self.calls, self.struck = fault, meanwhile, [], None
        try:
            yield
        finally:
            struck = self.struck
            self.fault, self.meanwhile, self.calls, self.struck = before
            self.last = struck

    last: str | None = None
    """What the fault of the last operation struck; ``None``: it did not."""

    def _wrapped(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.fault is None:
                return real(*args, **kwargs)
            of_interest = [c for c in self.calls if self.fault.where in ("any", c)]
            self.calls.append(name)
            if self.struck is not None or len(of_interest) != self.fault.at or self.fault.where not in ("any", name):
                return real(*args, **kwargs)
            self.struck = name
            return self._spoiled(self.fault.kind, name, lambda: real(*args, **kwargs))

        return call

    def _spoiled(self, kind: str, name: str, do: Callable[[], Any]) -> Any:
        if kind == "error":
            raise InjectedError(name)
        if kind == "slow":
            self._others()
            return do()
        answer = do()
        if kind == "slow answer":
            self._others()
            return answer
        if kind == "denied":
            return False if name == "commit" else answer
        if hasattr(answer, "close"):
            answer.close()
        raise InjectedError(name)

    def _others(self) -> None:
        meanwhile, fault = self.meanwhile, self.fault
        self.meanwhile = self.fault = None
        try:
            if meanwhile is not None:
                meanwhile()
        finally:
            self.fault = fault
