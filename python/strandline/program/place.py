"""Where in a user's file something was written."""

from __future__ import annotations

import os
import sys
from types import FrameType

__all__ = ["caller"]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGE = __name__.rpartition(".")[0] + "."


def caller() -> str:
    """Return the place of the innermost call from outside this package, like ``file.py:12``.

    >>> caller().startswith("<doctest")
    True
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _is_ours(frame: FrameType) -> bool:
    """Return whether a frame is of this package: of a file, or of a method that dataclasses made."""
    file = frame.f_code.co_filename
    made = file == "<string>" and str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE)
    return made or os.path.abspath(file).startswith(_HERE)
