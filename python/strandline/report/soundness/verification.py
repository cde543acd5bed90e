"""The result of verifying a channel: that it is sound, or the first place where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from strandline.errors import StrandlineError, printable

__all__ = ["DATA_FILE_MISSING", "Verification", "Violated", "Violation", "refused", "violated"]

DATA_FILE_MISSING = "STRANDLINE_DATA_FILE_MISSING"
"""The condition with which streaming readers refuse a data file that is gone."""

_MOST_SHOWN = 500


@dataclass(frozen=True)
class Violation:
    """The first place where a channel is not what the protocol says.

    Attributes:
        version: The version of the commit; ``None`` if it concerns no single commit.
        field: The field of the commit, the file or the part of the table.
        found: What is there.
        expected: What the protocol says.
        condition: The condition of the error with which a reader refuses it; ``None`` if no reader notices.
    """

    version: int | None
    field: str
    found: str
    expected: str
    condition: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return asdict(self)

    def __str__(self) -> str:
        where = "the table" if self.version is None else f"version {self.version}"
        refused = "no reader notices" if self.condition is None else f"readers refuse it: {self.condition}"
        text = f"{where}, {self.field}: found {self.found}; expected {self.expected} ({refused})"
        return printable(text).replace("\n", "\\n")


@dataclass(frozen=True)
class Verification:
    """What was verified, and the first violation.

    Attributes:
        path: The channel.
        version: The newest version; -1 if that is not known.
        commits: How many commits were read.
        sums: How many of them have a checksum. Commits of other writers have none: of these some damages are not found.
        files: How many data files were read.
        rows: How many rows they have.
        violation: The first violation, or ``None``.
        unchecked: What could not be checked, with the reason: this release does not know its form, a file that a later commit has
            replaced was vacuumed, or spans overlap in a partial order.
    """

    path: str
    version: int
    commits: int
    sums: int
    files: int
    rows: int
    violation: Violation | None = None
    unchecked: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return self.violation is None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "channel": self.path,
            "version": self.version,
            "sound": self.sound,
            "commits": self.commits,
            "sums": self.sums,
            "files": self.files,
            "rows": self.rows,
            "violation": None if self.violation is None else self.violation.to_json(),
            "unchecked": list(self.unchecked),
        }

    def __str__(self) -> str:
        if self.violation is not None:
            return f"{printable(self.path)} is not sound: {self.violation}"
        return (
            f"{printable(self.path)} is sound at version {self.version}: {self.commits} commits ({self.sums} with a checksum), "
            f"{self.files} data files, {self.rows} rows"
            + (f"; {len(self.unchecked)} could not be checked, first {printable(self.unchecked[0])}" if self.unchecked else "")
        )


class Violated(Exception):  # noqa: N818 - it ends a verification, and is no error of it
    """Ends a verification with its first violation."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


def violated(version: int | None, field: str, found: object, expected: object, condition: str | None = None) -> NoReturn:
    """End the verification with a violation. Without a condition, no reader notices it."""
    raise Violated(Violation(version, field, _shown(found), _shown(expected), condition))


@contextmanager
def refused(version: int | None, field: str, expected: str, missing: str | None = None) -> Iterator[None]:
    """End the verification where a reader's own check refuses something, or a file is gone.

    ``missing`` is the condition with which readers refuse a file that is gone.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise Violated(Violation(version, field, "no file", expected, missing)) from error
    except StrandlineError as error:
        if error.condition == "STRANDLINE_STORAGE_FAILED":
            raise
        raise Violated(Violation(version, field, _shown(error.what), expected, error.condition)) from error


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
