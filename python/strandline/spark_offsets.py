"""The text of Spark's log of offsets, in a checkpoint."""

from __future__ import annotations

__all__ = ["offset_lines"]


def offset_lines(text: bytes) -> list[str] | None:
    """Return the lines of a file of Spark's offset log: one of metadata, then one for each source.

    Spark writes the version of the log's form before them. In version 2 each source's line begins with the source's id. The
    result is ``None`` for another version.

    >>> offset_lines(b'v1\\n{}\\n{"commit": 3}'), offset_lines(b'v2\\n{}\\n0:{"commit": 3}'), offset_lines(b"v9")
    (['{}', '{"commit": 3}'], ['{}', '{"commit": 3}'], None)
    """
    version, *lines = text.decode("utf-8", "replace").rstrip("\n").split("\n")
    if version == "v1":
        return lines
    return [*lines[:1], *(line.partition(":")[2] for line in lines[1:])] if version == "v2" else None
