"""A new channel: the table, and the founding statement in its first commit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from deltalake.exceptions import DeltaError

from strandline.channel import errors
from strandline.channel.commit.acceptance import check_founding
from strandline.channel.progress.attempts import Attempt
from strandline.channel.progress.snapshot import Snapshot
from strandline.channel.statements.checksum import metadata_entry, with_checksum
from strandline.channel.statements.log import Log
from strandline.channel.write.create import (
    channel_schema,
    check_new_path,
    checked_names,
    founding_statement,
    table_properties,
)
from strandline.delta.storage import commit_name
from strandline.delta.table import Table, create_table, open_delta, schema_text, stored_schema
from strandline.errors import StorageError
from strandline.time.domain import Time, TimeDomain, parse_domain

__all__ = ["NewChannel"]


@dataclass(frozen=True)
class NewChannel:
    """What :meth:`Channel.create` is to make.

    Attributes:
        path: The table's path as it was given.
        log: The log that it will have, or has.
        schema: The columns, in the form of a channel.
        domain: The domain of the times.
        properties: The properties of the table.
        text: The founding statement, with its checksum.
        id: The id of that statement. This process recognises its own commit by it.
    """

    path: str | os.PathLike[str]
    log: Log
    schema: pa.Schema
    domain: TimeDomain
    properties: Mapping[str, str]
    text: str
    id: str

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None,
        schema: pa.Schema,
        time: str | None,
        domain: TimeDomain | str | None,
        producers: Iterable[str],
        *,
        sealed: bool | None,
        at: Time | None,
        configuration: Mapping[str, str] | None,
    ) -> NewChannel:
        """Check the arguments of :meth:`Channel.create`, and raise its errors."""
        log = Log(path, storage_options)
        check_new_path(log.path)
        schema, domain = channel_schema(schema, time, parse_domain(domain) if isinstance(domain, str) else domain)
        names = checked_names(producers)
        least = domain.minimum if at is None else domain.time(at, "at")
        id = Attempt(None).id  # noqa: A001
        statement = founding_statement(names, least, sealed=bool(names) if sealed is None else sealed, id=id)
        properties = table_properties(configuration)
        text = with_checksum(statement.to_user_metadata(), [metadata_entry(schema_text(schema), properties)])
        return cls(path, log, schema, domain, properties, text, id)

    def create(self, storage_options: Mapping[str, str] | None, *, exist_ok: bool) -> Snapshot:
        """Create the channel, or open the one that is there."""
        log = self.log
        check_founding(log.path, self.text)
        if log.exists(0) or log.store.last_checkpoint():
            return self._existing(storage_options, exist_ok)
        try:
            create_table(log, self.schema, self.text, self.properties, storage_options)
        except (DeltaError, StorageError) as error:
            if not log.exists(0):
                raise
            open_delta(log, storage_options)  # raises if the table that is there cannot be opened
            made = log.require(0).statement
            if made is None or made.id != self.id:
                if isinstance(error, StorageError):
                    raise
                return self._existing(storage_options, exist_ok)  # another process was faster
            if log.store.unsettled:
                raise
            log.store.sync_commit(commit_name(0))  # only the answer was lost
        return Snapshot(Table(self.path, storage_options))

    def _existing(self, storage_options: Mapping[str, str] | None, exist_ok: bool) -> Snapshot:
        log = self.log
        if not exist_ok:
            raise errors.channel_exists(log.path)
        log.store.settle()
        snapshot = Snapshot(Table(log.path, storage_options))
        have = snapshot.table.schema
        if not have.equals(stored_schema(self.schema)) or snapshot.domain != self.domain:
            raise errors.schema_mismatch_of_channel(log.path, _columns(have), snapshot.domain, _columns(self.schema), self.domain)
        return snapshot


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)
