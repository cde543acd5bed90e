"""The registrar's state: an entry for each query, and what is not of one query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from strandline.channel import Commit, Progress
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.write.registrar import HOLD, hold_of
from strandline.ingest import errors
from strandline.ingest.names import BY_KEYS, CORRECTIONS, NAMES_KEY, PARKED
from strandline.ingest.state.query_entry import QueryEntry
from strandline.json_value import JsonObject

__all__ = ["RegistrarState", "held_names", "own_names"]


@dataclass(frozen=True)
class RegistrarState:
    """What the ingests of a channel share.

    Attributes:
        values: The entry of each query by its id, and other values by their keys, in the order of the state.
    """

    values: Mapping[str, QueryEntry | Any] = field(default_factory=dict)

    @classmethod
    def of(cls, progress: Progress) -> RegistrarState:
        """Read a channel's state. Raises :class:`IngestError` ``STRANDLINE_INGEST_STATE_INVALID``."""
        registrar = progress.get(REGISTRAR)
        return cls.from_json(registrar.state if registrar is not None else None)

    @classmethod
    def in_commit(cls, commit: Commit) -> RegistrarState:
        """Read the state that a commit states; one without entries if it states none. Raises as :meth:`of`."""
        statement = None if commit.statement is None else commit.statement.statements.get(REGISTRAR)
        return cls() if statement is None else cls.from_json(statement.state)

    @classmethod
    def from_json(cls, value: Any) -> RegistrarState:
        """Read the state. Raises as :meth:`of`."""
        if value is None:
            return cls()
        if not isinstance(value, dict):
            raise errors.ingest_state_invalid_object("the registrar's state", value)
        values = {}
        for key, each in value.items():
            if key.encode("utf-8", "replace").decode() != key:
                raise errors.ingest_state_invalid_name(key)
            if key == NAMES_KEY and each != BY_KEYS:
                raise errors.ingest_state_invalid("the registrar's state", each, key)
            is_entry = isinstance(each, dict)
            values[key] = QueryEntry.from_json(each, f"the entry of query {key!r}") if is_entry else each
        return cls(values)

    def to_json(self) -> JsonObject:
        """Return the state."""
        return {key: each.to_json() if isinstance(each, QueryEntry) else each for key, each in self.values.items()}

    @cached_property
    def entries(self) -> Mapping[str, QueryEntry]:
        """The entries by query."""
        return {query: entry for query, entry in self.values.items() if isinstance(entry, QueryEntry)}

    def entry(self, query: str) -> QueryEntry:
        """Return the entry of a query, or an empty one."""
        return self.entries.get(query) or QueryEntry()

    def changed(self, values: Mapping[str, Any]) -> RegistrarState:
        """Return the state with other entries or values. New ones come last."""
        return RegistrarState({**self.values, **values})


def own_names(progress: Progress) -> list[str]:
    """Return the producers that are not partitions: those that ingests have in addition, and those of ``strandline hold``."""
    names = [CORRECTIONS, PARKED, *(f"{PARKED}:{query}" for query in RegistrarState.of(progress).values)]
    return [*(name for name in names if progress.get(name) is not None), *held_names(progress)]


def held_names(progress: Progress) -> list[str]:
    """Return the producers that :meth:`Channel.hold` has made."""
    names = [name for name, _ in progress.remembering(HOLD)]
    return [name for name in names if (known := progress.get(name)) is not None and hold_of(known.state) is not None]
