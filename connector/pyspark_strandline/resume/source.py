"""Where a new query that goes on with an output ends its first batch in an input: where the query before had stopped."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.resume import errors
from pyspark_strandline.resume.written import open_output, written
from strandline.channel.statements.inputs import Input

__all__ = ["Resumption"]


class Resumption:
    """Tells a source when it plans the first batch of a new query, and where this batch ends.

    Spark asks a source for its initial offset only if the checkpoint has no offset of it. It does so before it plans the first
    batch, and again when it runs it. A query that has begun, or repeats its first batch, has an offset.

    Args:
        options: The source's options.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._is_new = False
        self._has_begun = False

    def asked_for_initial(self) -> None:
        """Note that Spark asks for the initial offset."""
        self._is_new = True

    def begin(self) -> None:
        """Note that the first batch was planned, or that a batch runs."""
        self._has_begun = True

    @property
    def is_due(self) -> bool:
        """Whether the batch that is planned now is the first one of a query that goes on with an output."""
        return self._options.resume is not None and self._is_new and not self._has_begun

    def positions(self, channels: Mapping[str, str]) -> dict[str, Input]:
        """Return by table where the first batch ends.

        Args:
            channels: The source's channels: the ids of their tables, with their paths.

        Raises:
            StrandlineError: ``STRANDLINE_RESUME_IMPOSSIBLE``.
        """
        assert self._options.resume is not None  # noqa: S101 - is_due
        if not self._options.fail_on_data_loss:
            raise errors.resume_impossible_data_loss()
        output = open_output(self._options.resume, self._options.storage)
        found = written(output, channels, self._options.producer)
        return {table: found.position(table, path) for table, path in channels.items()}
