"""An attempt to write a commit, recognised by its id wherever and whenever it arrives."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

__all__ = ["Attempt"]


@dataclass(eq=False)
class Attempt:
    """One request to write one version. The version's statement has the id.

    A request may take effect after its writer was told of an error, or was told nothing. But versions are written only once.
    So the attempt is over when the log has its version, and then it is known whether the version is this attempt's.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    version: int | None = None
    """The version that was made, once the log was seen to have it."""
    open: bool = False
    """Whether the commit may still arrive."""
