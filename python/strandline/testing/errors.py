"""The errors of recorded traces."""

from __future__ import annotations

from pathlib import Path

from strandline.errors import TraceError


def _trace_unreadable(path: str | Path, what: str) -> TraceError:
    return TraceError(
        "STRANDLINE_TRACE_UNREADABLE", f"The trace {path} cannot be read: {what}.", "Check the path, or record the trace again."
    )


def trace_unreadable_case(path: str | Path, line: int, error: Exception) -> TraceError:
    return _trace_unreadable(path, f"line {line} is not a valid case: {type(error).__name__}: {error}")


def trace_unreadable_content(path: str | Path, error: Exception) -> TraceError:
    return _trace_unreadable(path, f"{type(error).__name__}: {error}")


def trace_unreadable_empty(path: str | Path) -> TraceError:
    return _trace_unreadable(path, "it contains no case")


def trace_unreadable_file(path: str | Path, error: OSError) -> TraceError:
    return _trace_unreadable(path, error.strerror or str(error))


def trace_unreadable_gzip(path: str | Path, error: Exception) -> TraceError:
    return _trace_unreadable(path, f"damaged gzip: {error}")


def trace_unreadable_line(path: str | Path, line: int) -> TraceError:
    return _trace_unreadable(path, f"line {line} is not a JSON object")
