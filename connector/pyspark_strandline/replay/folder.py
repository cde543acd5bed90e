"""The folder of a replay: its channels, its checkpoints, and what it is a replay of."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
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

    def begin(self, what: Mapping[str, Any]) -> None:
        """State what this is a replay of, unless it was stated before.

        Raises:
            StrandlineError: ``STRANDLINE_REPLAY_FOLDER`` if the folder has another replay, or anything else.
        """
        mark = self.path / _MARK
        wanted = json.loads(json.dumps(what))
        if mark.exists():
            try:
                known = json.loads(mark.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                known = None
            if not isinstance(known, dict):
                raise errors.replay_folder_taken(self.path, f"has a {_MARK} that is damaged")
            for field in wanted:
                if known.get(field) != wanted.get(field):
                    raise errors.replay_folder_other(self.path, field, known.get(field), wanted.get(field))
            return
        if self.path.exists() and (not self.path.is_dir() or any(each.name != f"{_MARK}.new" for each in self.path.iterdir())):
            raise errors.replay_folder_taken(self.path, "is not empty, and has no replay")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            new = mark.with_name(f"{_MARK}.new")
            new.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
            new.replace(mark)
        except OSError as error:
            raise errors.replay_folder_taken(self.path, f"cannot be made: {error.strerror}") from None

    def agree(self, field: str, value: Any) -> None:
        """State more of what this is a replay of, after :meth:`begin`.

        Raises:
            StrandlineError: ``STRANDLINE_REPLAY_FOLDER`` if something else was stated.
        """
        mark = self.path / _MARK
        known = json.loads(mark.read_text(encoding="utf-8"))
        if known.setdefault(field, value) != value:
            raise errors.replay_folder_other(self.path, field, known[field], value)
        new = mark.with_name(f"{_MARK}.new")
        new.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
        new.replace(mark)

    def channel(self, side: str, output: str) -> str:
        """Return the path of an output's channel."""
        return location_of(self.path / side / output)

    def checkpoint(self, side: str, output: str) -> str:
        """Return the path of its query's checkpoint."""
        return str(self.path / "checkpoints" / side / output)
