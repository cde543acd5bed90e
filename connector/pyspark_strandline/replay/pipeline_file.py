"""A pipeline file: a file of Python with a function ``pipeline(spark, read)``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from pyspark_strandline.replay import errors
from pyspark_strandline.replay.guard import writes_refused
from pyspark_strandline.replay.inputs import Inputs
from pyspark_strandline.replay.plan import stream_leaves
from strandline.delta.storage import location_of
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PipelineFile", "checked_outputs"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class PipelineFile:
    """A pipeline file.

    Args:
        path: The file.

    Raises:
        StrandlineError: ``STRANDLINE_PIPELINE_INVALID`` if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._source = path.read_bytes()
        except OSError as error:
            raise errors.pipeline_invalid(str(path), f"cannot be read: {error.strerror}") from None
        self.digest = sha256(self._source).hexdigest()

    def outputs(self, spark: SparkSession, read: Inputs) -> dict[str, DataFrame]:
        """Run the file and its function. Nothing of it may write.

        Returns:
            The streams by the names of their outputs. All that they read is replayed.

        Raises:
            StrandlineError: ``STRANDLINE_PIPELINE_INVALID``, ``STRANDLINE_PIPELINE_WRITES`` or ``STRANDLINE_INPUT_UNRECORDED``.
        """
        name = str(self.path)
        with writes_refused(spark, name), _beside(self.path.parent):
            module = ModuleType(f"strandline_pipeline_{self.digest[:12]}")
            module.__file__ = name
            try:
                exec(compile(self._source, name, "exec"), vars(module))  # noqa: S102 - to run it is what the user asks for
                function = vars(module).get("pipeline")
                made = function(spark, read) if callable(function) else None
            except StrandlineError:
                raise
            except Exception as error:
                raised = errors.pipeline_invalid(name, f"has raised {type(error).__name__}: {str(error)[:1000]}")
                raise errors.stated(error, name) or raised from error
        if not callable(function):
            raise errors.pipeline_invalid(name, "has no function pipeline")
        found = checked_outputs(name, made)
        for frame in found.values():
            for leaf in stream_leaves(frame):
                if leaf.format != "strandline":
                    raise errors.input_unrecorded(name, f"a stream of the format {leaf.format} {leaf.path}".rstrip())
                if not leaf.is_replayed or (leaf.path[:1] != "{" and location_of(leaf.path) not in read.channels):
                    raise errors.input_unrecorded_unread(name, leaf.path)
        return found


def checked_outputs(pipeline: str, made: Any) -> dict[str, DataFrame]:
    """Return what a pipeline has made, if it is streams by names that can be those of folders.

    Raises:
        StrandlineError: ``STRANDLINE_PIPELINE_INVALID``.
    """
    if not isinstance(made, Mapping) or not made:
        raise errors.pipeline_invalid(pipeline, f"has returned {type(made).__name__}, and not streams by name")
    for name, frame in made.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise errors.pipeline_invalid(pipeline, f"has an output with the name {name!r:.120}, which is no name of a folder")
        if not isinstance(frame, DataFrame) or not frame.isStreaming:
            raise errors.pipeline_invalid(pipeline, f"has returned for the output {name} something else than a stream")
    return dict(made)


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let the file import modules beside it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
