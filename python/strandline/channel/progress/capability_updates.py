"""Bulk updates of producers' capabilities and states, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import NamedTuple

from strandline.channel.statements.nullable_int64 import Ints, Mask, NullableInt64
from strandline.json_value import JsonObject
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain

__all__ = ["CapabilityUpdates"]


class CapabilityUpdates(NamedTuple):
    """New capabilities and states of some producers: each holds exactly one time from now on.

    ``state`` has one column of numbers for each key. A producer's new state is an object with its numbers.

    >>> import numpy as np
    >>> from strandline.time.domain import int64
    >>> moves = CapabilityUpdates(["a", "b"], np.array([5, 7]), {"at": NullableInt64.of([3, None])})
    >>> moves.holds(int64)["a"], moves.states()
    (Antichain(int64, [5]), {'a': {'at': 3}, 'b': None})
    """

    names: list[str]
    times: Ints
    state: Mapping[str, NullableInt64]

    def where(self, chosen: Mask) -> CapabilityUpdates:
        """Return the updates at the chosen positions."""
        if chosen.all():
            return self
        state = {key: numbers.where(chosen) for key, numbers in self.state.items()}
        return CapabilityUpdates(list(compress(self.names, chosen.tolist())), self.times[chosen], state)

    def holds(self, domain: TimeDomain) -> dict[str, Antichain]:
        """Return what each producer holds, by name."""
        return {name: Antichain(domain, [time]) for name, time in zip(self.names, self.times.tolist(), strict=True)}

    def states(self) -> JsonObject:
        """Return each producer's state, by name."""
        kept = {key: (numbers.values.tolist(), numbers.valid.tolist()) for key, numbers in self.state.items()}
        result: JsonObject = {}
        for i, name in enumerate(self.names):
            result[name] = {key: values[i] for key, (values, valid) in kept.items() if valid[i]} or None
        return result
