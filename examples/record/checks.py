"""What the examples say at their end."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["exit_status"]


def exit_status(holds: Mapping[str, bool]) -> int:
    """Print whether each sentence holds. Return the exit status.

    >>> exit_status({"one is one": True, "one is two": False})
    one is one: yes
    one is two: NO
    1
    """
    for what, is_so in holds.items():
        print(f"{what}: {'yes' if is_so else 'NO'}")
    return 0 if all(holds.values()) else 1
