"""``read`` of a pipeline: what gives it its inputs, live or replayed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from pyspark_strandline.read.several.streams import Streams, read_channels
from pyspark_strandline.replay import errors
from strandline.channel import Channel
from strandline.delta.storage import location_of
from strandline.errors import StrandlineError
from strandline.time.domain import TimeDomain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Inputs"]

_NO_CHANNEL = ("STRANDLINE_NOT_A_CHANNEL", "STRANDLINE_NOT_A_TABLE", "STRANDLINE_TIME_DOMAIN_MISSING")


class Inputs:
    """Reads channels for a pipeline: ``read(path)`` is a stream.

    Args:
        spark: The session.
        paths: Names for paths, so that a pipeline can say ``read("flights")``. What has no name is a path.
        options: Options of the source, such as those of a replay. None: the channels are read live.
        storage: Options of the object store.
        pipeline: What errors call the pipeline.

    ``start(spark, pipeline, ...)`` and ``replay(spark, "rule.py", ...)`` make one for the pipeline that they call.
    """

    def __init__(
        self,
        spark: SparkSession,
        paths: Mapping[str, str | os.PathLike[str]] | None = None,
        options: Mapping[str, str] | None = None,
        storage: Mapping[str, str] | None = None,
        pipeline: str = "The pipeline",
    ) -> None:
        self._spark, self._paths, self._pipeline = spark, dict(paths or {}), pipeline
        self._storage = dict(storage or {})
        self._options = dict(options or {}) | {f"storage.{name}": value for name, value in self._storage.items()}
        self.channels: dict[str, Channel] = {}
        """The channels that were read, by their locations."""

    def of(self, pipeline: str) -> Inputs:
        """Return the same for another pipeline. It adds to the same :attr:`channels`."""
        made = copy(self)
        made._pipeline = pipeline
        return made

    def __call__(self, channel: str | os.PathLike[str], **options: Any) -> DataFrame:
        """Return the stream of a channel.

        Args:
            channel: Its name, or its path.
            options: Further options of the source, such as ``maxFilesPerTrigger``.
        """
        path = self._opened(channel)
        return self._spark.readStream.format("strandline").options(**{**options, **self._options}).load(path)

    def together(
        self, channels: Mapping[str, str | os.PathLike[str]], *, domain: TimeDomain | str | None = None, **options: Any
    ) -> Streams:
        """Return the streams of several channels that are always at one cut, as :func:`pyspark_strandline.read_channels`.

        Args:
            channels: By the name of a stream, the name or the path of a channel.
            domain: The domain of all times.
            options: Further options of the source.
        """
        paths = {name: self._opened(channel) for name, channel in channels.items()}
        return read_channels(self._spark, paths, domain=domain, **{**options, **self._options})

    def _opened(self, channel: str | os.PathLike[str]) -> str:
        path = os.fspath(self._paths.get(os.fspath(channel), channel))
        try:
            opened = Channel.open(path, self._storage or None)
        except StrandlineError as error:
            if error.condition in _NO_CHANNEL:
                raise errors.input_unrecorded(self._pipeline, path) from error
            raise
        self.channels[location_of(path)] = opened
        return path
