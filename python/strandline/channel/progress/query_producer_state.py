"""The state that a query keeps as a producer, and which query writes as a producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.channel.batch.batch_identity import BatchIdentity
from strandline.channel.statements.statement import ProducerState
from strandline.json_value import JsonObject

__all__ = ["QueryProducerState", "is_query", "named", "producer_of"]

_OUTPUTS, _LOOP, _CONTINUED_BY = "outputs", "loop", "continuedBy"
_BATCH, _WROTE = "strandline:batch", "strandline:wrote"
_NAME, _CHECKPOINT = "strandline:name", "strandline:checkpoint"
_KEYS = frozenset({_OUTPUTS, _LOOP, _CONTINUED_BY, _BATCH, _WROTE, _NAME, _CHECKPOINT})


@dataclass(frozen=True)
class QueryProducerState:
    """What a query keeps in a channel, as the state of its producer.

    Attributes:
        outputs: The names of all outputs of a query that has several, sorted.
        loop: What the query states to the other queries of its loop, which check it; ``None`` if there are none.
        continued_by: The ids of the queries that have gone on with the producer. The last one writes as this producer now.
        newest: The newest batch that made a commit. It outlives that commit.
        name: The name that the user has given the query (``queryName``); empty if there is none, or it is not known.
        checkpoint: Where the query's checkpoint is: an absolute path or a URL; empty if that is not known.
        damage: Why it is not known what that batch wrote; empty if it is known.
        stored: The JSON object that was read. Its other keys are kept.

    >>> state = QueryProducerState.from_json({"note": 1, "continuedBy": ["5b1"]})
    >>> state.continued("77a").to_json()
    {'note': 1, 'continuedBy': ['5b1', '77a']}
    """

    outputs: tuple[str, ...] = ()
    loop: Any = None
    continued_by: tuple[str, ...] = ()
    newest: BatchIdentity | None = None
    damage: str = ""
    name: str = ""
    checkpoint: str = ""
    stored: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_json(cls, value: Any) -> QueryProducerState:
        """Read the state of a producer. A program's state has none of a query's values.

        >>> QueryProducerState.from_json([1, 2, 3]) == QueryProducerState.from_json(None) == QueryProducerState()
        True
        """
        if not isinstance(value, dict):
            return cls()
        if _KEYS.isdisjoint(value):
            return cls(stored=value)
        newest, damage = None, ""
        try:
            newest = BatchIdentity.from_json(value.get(_BATCH), value.get(_WROTE))
        except ValueError as error:
            newest, damage = BatchIdentity.from_json(value.get(_BATCH), None), str(error)
        name, checkpoint = _text(value.get(_NAME)), _text(value.get(_CHECKPOINT))
        outputs, continued = _texts(value.get(_OUTPUTS)), _texts(value.get(_CONTINUED_BY))
        return cls(outputs, value.get(_LOOP), continued, newest, damage, name, checkpoint, stored=value)

    def to_json(self) -> JsonObject:
        """Return the JSON object."""
        own = {
            _OUTPUTS: list(self.outputs) or None,
            _LOOP: self.loop,
            _CONTINUED_BY: list(self.continued_by) or None,
            _BATCH: None if self.newest is None else self.newest.batch_to_json(),
            _WROTE: None if self.newest is None else self.newest.wrote_to_json(),
            _NAME: self.name or None,
            _CHECKPOINT: self.checkpoint or None,
        }
        for key in own.keys() & self.stored.keys():
            if own[key] is None and not self._had(key):
                own[key] = self.stored[key]  # a program's own value, which says nothing to us
        result = dict(self.stored) | own  # the keys that are there stay in their places
        return {key: value for key, value in result.items() if key not in own or value is not None}

    def _had(self, key: str) -> bool:
        """Return whether the value that was read under one of our keys was a query's."""
        if key in (_OUTPUTS, _CONTINUED_BY):
            return bool(_texts(self.stored[key]))
        if key in (_NAME, _CHECKPOINT):
            return bool(_text(self.stored[key]))
        return key in (_BATCH, _WROTE) and self.newest is not None and not self.damage

    @property
    def writer(self) -> str | None:
        """The query that has gone on with the producer last; ``None`` if none has."""
        return self.continued_by[-1] if self.continued_by else None

    def continued(self, query: str) -> QueryProducerState:
        """Return the state after a query has gone on with the producer."""
        return replace(self, continued_by=(*self.continued_by, query))

    def counted(self, values: Mapping[str, int], counts: Mapping[str, int]) -> QueryProducerState:
        """Return the state with other values in it: some as they are, and counts that are added to those there.

        The count ``n`` is that of all batches, and not added.

        >>> QueryProducerState(stored={"n": 3, "rounded": 2}).counted({"node": -5}, {"n": 9, "rounded": 1}).to_json()
        {'n': 9, 'rounded': 3, 'node': -5}
        """
        stored = {**self.stored, **values}
        for name, count in counts.items():
            had = stored.get(name, 0)
            stored[name] = max(had, count) if name == "n" else had + count
        return replace(self, stored=stored)

    def without_plan(self) -> QueryProducerState:
        """Return the state without what only the query before has: its outputs and its loop."""
        kept = {key: value for key, value in self.stored.items() if key not in (_OUTPUTS, _LOOP)}
        return replace(self, outputs=(), loop=None, stored=kept)


def is_query(name: str, state: ProducerState | None) -> bool:
    """Return whether a query writes as a producer, as the producer's state or its name says.

    A query stays its owner. Without one, a program has taken the producer over, and closed it; or it was dropped.

    >>> from strandline.channel.statements.statement import WriterSession
    >>> from strandline.time.antichain import Antichain
    >>> from strandline.time.domain import int64
    >>> state = {"strandline:batch": "7:9f86d081884c7d65"}
    >>> [is_query("hourly", ProducerState(3, Antichain(int64), owner, state)) for owner in (WriterSession.here("1"), None)]
    [True, False]
    """
    if state is None or state.owner is None:
        return False
    if name == f"query-{state.owner.id}":
        return True
    if not _is_querys(state.state):
        return False
    own = QueryProducerState.from_json(state.state)
    return own.newest is not None or state.owner.id in own.continued_by


def named(name: str, state: ProducerState | None) -> str | None:
    """Return the name that a user gave a query, as its producer's state or its producer's name says; ``None`` if it has none.

    >>> from strandline.channel.statements.statement import WriterSession
    >>> from strandline.time.antichain import Antichain
    >>> from strandline.time.domain import int64
    >>> state = ProducerState(3, Antichain(int64), WriterSession.here("1"), {"strandline:name": "hours"})
    >>> named("query-1", state), named("hourly", state._replace(state={"strandline:batch": "0:9f86d081884c7d65"}))
    ('hours', 'hourly')
    """
    if state is None or not is_query(name, state):
        return None
    given = QueryProducerState.from_json(state.state).name
    return given or (None if state.owner is not None and name == f"query-{state.owner.id}" else name)


def producer_of(producers: Mapping[str, ProducerState], query: str) -> str:
    """Return the name under which a query writes that was given none: the producer that it continues, or one of its own.

    Args:
        producers: The producers of the channel.
        query: The query's id.

    >>> producer_of({}, "5b1")
    'query-5b1'
    """
    own = f"query-{query}"
    if own in producers:
        return own
    continued = (
        name
        for name, known in producers.items()
        if _is_querys(known.state) and query in QueryProducerState.from_json(known.state).continued_by
    )
    return next(continued, own)


def _is_querys(state: Any) -> bool:
    return isinstance(state, dict) and not _KEYS.isdisjoint(state)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()
