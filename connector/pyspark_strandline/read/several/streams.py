"""``read_channels``: several channels as streams that are always at one consistent cut."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pyspark_strandline.options import CHANNEL
from pyspark_strandline.read import errors
from pyspark_strandline.read.several.inputs import TIME_OF_CHANNEL
from pyspark_strandline.schema import domain_metadata, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.time.domain import TimeDomain

__all__ = ["Streams", "read_channels"]


class Streams:
    """The streams of one source. ``streams["name"]`` is the stream of a channel, with the channel's own columns.

    A query may unite and join them. It still has one source, so every batch is at one position in each channel.
    """

    def __init__(self, rows: DataFrame, names: list[str]) -> None:
        self._rows, self._names = rows, names

    def __getitem__(self, name: str) -> DataFrame:
        """Return the stream of a channel. Raises :class:`StrandlineError` for an unknown name."""
        if name not in self._names:
            raise errors.channels_invalid_unknown(name, self._names)
        columns = self._rows.schema[name].dataType
        assert isinstance(columns, StructType)  # noqa: S101 - Inputs.schema made it
        rows = self._rows.where(F.col(CHANNEL) == name)
        selected = []
        for field in columns.fields:
            column = F.col(quoted(name)).getField(field.name)
            entered = (field.metadata or {}).get(TIME_OF_CHANNEL)
            # Every column gets a name of its own plan. Otherwise a join of two streams would make a second source of the rows.
            selected.append(
                column.alias(field.name, **({} if entered is None else {"metadata": domain_metadata(json.loads(entered)[1])}))
            )
        return rows.select(*selected)

    @property
    def all(self) -> dict[str, DataFrame]:
        """All streams by name."""
        return {name: self[name] for name in self._names}

    def __iter__(self) -> Any:
        return iter(self._names)


def read_channels(
    spark: SparkSession, channels: Mapping[str, str | os.PathLike[str]], *, domain: TimeDomain | str | None = None, **options: Any
) -> Streams:
    """Read several channels as one source.

    All channels are read at one consistent cut, whatever the limits of a batch. In a query over them, each operator and each
    output closes a time when the channels that lead to it have closed it.

    Args:
        spark: The session.
        channels: The paths of the channels by name.
        domain: The domain of all times. The times of a channel are of it, or are its first coordinates; then the other
            coordinates begin at 0, as in timely's ``enter``. By default all channels have times of one domain.
        options: Options of the source (docs/options.md). Limits hold for all channels together.

    Returns:
        The streams, by name.

    Raises:
        StrandlineError: An option is invalid, a channel is missing, or the channels have different domains.

    ``streams = read_channels(spark, {"orders": "/lake/orders", "payments": "/lake/payments"})
    streams["orders"].join(streams["payments"], ["time", "id"])``
    """
    paths = {name: os.fspath(path) for name, path in channels.items()}
    reader = spark.readStream.format("strandline").options(**options).option("channels", json.dumps(paths))
    if domain is not None:
        reader = reader.option("domain", str(domain))
    rows = reader.load()
    return Streams(rows, [name for name in rows.columns if name != CHANNEL])
