"""A recorded link by the times that its rows had before they came round: what a replay is compared with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from strandline.channel import Channel
from strandline.replay import errors
from strandline.replay.clock import CLOCK
from strandline.replay.restamp import ORIGINAL
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain

__all__ = ["Compared", "Originals"]


class Originals:
    """Reads a recorded link without its new times. :func:`strandline.replay.compare` takes it like a channel.

    The link's frontier holds for the times from before too: after a commit, the query emits nothing at a time that the loop's
    frontier has closed, and this is the frontier that the commit states.

    Args:
        path: The path of the link's channel.
        storage_options: Options of the object store.

    Raises:
        StrandlineError: ``STRANDLINE_COLUMN_MISSING`` if it is not recorded.
    """

    time_column = ORIGINAL

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> None:
        self._channel = Channel.open(path, storage_options)
        if self._channel.domain != CLOCK or ORIGINAL not in self._channel.schema.names:
            raise errors.column_missing_original(self._channel.path, ORIGINAL)

    @property
    def path(self) -> str:
        """The path of the channel."""
        return self._channel.path

    @property
    def version(self) -> int:
        """Its version."""
        return self._channel.version

    @property
    def domain(self) -> TimeDomain:
        """The domain of the times."""
        return CLOCK

    @property
    def frontier(self) -> Antichain:
        """The frontier of the times from before."""
        return self._channel.frontier

    @property
    def schema(self) -> pa.Schema:
        """The columns, without the new times."""
        schema = self._channel.schema
        return schema.remove(schema.get_field_index(self._channel.time_column))

    def snapshot_files(self, version: int) -> Any:
        """Return the data files of a version, as :meth:`Channel.snapshot_files`."""
        return self._channel.snapshot_files(version)

    def read_files(self, files: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """Read data files, as :meth:`Channel.read_files`."""
        return self._channel.read_files(files, self.schema.names if columns is None else columns)


Compared: TypeAlias = Channel | Originals
"""What a comparison reads."""
