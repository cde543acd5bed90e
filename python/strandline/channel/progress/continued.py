"""Which query writes as a producer: the one in whose name it is, or one that goes on with it because a checkpoint was lost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from strandline.channel.statements.statement import ProducerState

__all__ = ["CONTINUED_BY", "NEWEST_BATCH", "NEWEST_DIGEST", "continued_by", "is_query", "producer_of"]

CONTINUED_BY = "continuedBy"
"""In a producer's state: the ids of the queries that have gone on with it. The last one writes as this producer now."""

NEWEST_BATCH = "strandline:batch"
"""In a producer's state: the number and the digest of a query's newest batch that made a commit. It outlives that commit."""
NEWEST_DIGEST = "strandline:wrote"
"""In a producer's state: the digest of what that batch wrote."""
_BATCH_ID = re.compile("[0-9]{1,19}:[0-9a-f]{16}")


def continued_by(state: Any) -> list[str]:
    """Return the queries that have gone on with a producer, from the state that the producer keeps. The last one writes now.

    >>> continued_by({"continuedBy": ["5b1", "77a"]}), continued_by({"at": 3}), continued_by(None)
    (['5b1', '77a'], [], [])
    """
    found = state.get(CONTINUED_BY) if isinstance(state, dict) else None
    return [query for query in found if isinstance(query, str)] if isinstance(found, list) else []


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
    batch = state.state.get(NEWEST_BATCH) if isinstance(state.state, dict) else None
    if isinstance(batch, str) and _BATCH_ID.fullmatch(batch):
        return True
    return name == f"query-{state.owner.id}" or state.owner.id in continued_by(state.state)


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
    return next((name for name, known in producers.items() if query in continued_by(known.state)), own)
