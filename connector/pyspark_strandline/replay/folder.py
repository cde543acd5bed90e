"""The folder of a replay: its channels, its checkpoints, and what it is a replay of."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark_strandline.replay import errors
from strandline.delta.storage import location_of

__all__ = ["ReplayFolder"]

_MARK = "replay.json"


class ReplayFolder:
    """A folder in which a replay writes, and nowhere else.

    Args:
        path: The folder. It is new, empty, or of this replay.
        originals: The locations of the channels that the replay must not touch.
    """

    def __init__(self, path: str | os.PathLike[str], originals: Iterable[str] = ()) -> None:
        text = os.fspath(path)
        if "://" in text:
            raise errors.replay_folder_taken(Path(text), "is no folder of this machine")
        self.path = Path(text).resolve()
        self.check_apart(originals)

    def check_apart(self, originals: Iterable[str]) -> None:
        """Raise if the folder is in an original, or has one in it."""
        for original in originals:
            if "://" in original:
                continue
            other = Path(original).resolve()
            if other == self.path or other in self.path.parents or self.path in other.parents:
                raise errors.replay_folder_taken(self.path, f"is not apart from the channel {original}")

    def begin(self, what: Mapping[str, Any], *, resume: bool = True) -> None:
        """State what this is a replay of, unless it was stated before.

        Args:
            what: What it is, as JSON.
            resume: Whether a replay goes on that has been :meth:`started`.

        Raises:
            StrandlineError: ``STRANDLINE_REPLAY_FOLDER`` if the folder has another replay, or anything else; or one that was
                started, without ``resume``.
        """
        wanted = json.loads(json.dumps(what))
        if (self.path / _MARK).exists():
            known = self._known()
            for field in wanted:
                if known.get(field) != wanted.get(field):
                    raise errors.replay_folder_other(self.path, field, known.get(field), wanted.get(field))
            if not resume and "started" in known:
                raise errors.replay_folder_started(self.path, known["started"], known.get("ended"))
            return
        if self.path.exists() and (not self.path.is_dir() or any(each.name != f"{_MARK}.new" for each in self.path.iterdir())):
            raise errors.replay_folder_taken(self.path, "is not empty, and has no replay")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write(wanted)
        except OSError as error:
            raise errors.replay_folder_taken(self.path, f"cannot be made: {error.strerror}") from None

    def started(self) -> None:
        """State when the replay was started, unless it was stated before. It has not ended from now on."""
        known = self._known()
        known.pop("ended", None)
        self._write({"started": _now(), **known})

    def ended(self) -> None:
        """State when the replay has ended."""
        self._write(self._known() | {"ended": _now()})

    def kept(self, field: str, value: Any) -> Any:
        """State a value of the replay, as JSON, unless one was stated before. Return the one that is stated."""
        known = {field: value} | self._known()
        self._write(known)
        return known[field]

    def _known(self) -> dict[str, Any]:
        try:
            known = json.loads((self.path / _MARK).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = None
        if not isinstance(known, dict):
            raise errors.replay_folder_taken(self.path, f"has a {_MARK} that is damaged")
        return known

    def _write(self, known: Mapping[str, Any]) -> None:
        mark = self.path / _MARK
        new = mark.with_name(f"{_MARK}.new")
        new.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
        new.replace(mark)

    def channel(self, side: str, output: str) -> str:
        """Return the path of an output's channel."""
        return location_of(self.path / side / output)

    def checkpoint(self, side: str, output: str) -> str:
        """Return the path of its query's checkpoint."""
        return str(self.path / "checkpoints" / side / output)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
