"""``composed(pattern: policy, …)``: each partition has the policy of the first pattern that matches its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from strandline.ingest.policies import errors
from strandline.ingest.policies.arguments import quote, split, unquote
from strandline.ingest.policies.parser import parse_policy
from strandline.ingest.policies.policy import IngestColumns, Observation, Policy
from strandline.time.domain import Time, TimeDomain

__all__ = ["Composed"]


class Composed(Policy):
    """Different partitions have different policies. Patterns are shell patterns: ``*``, ``?``, ``[abc]``. Case matters.

    Law: a partition is judged by the policy of the first pattern that matches its name, as if there were no other policy. A
    partition that matches no pattern is refused by name, and nothing of its batch is written.

    >>> from strandline.ingest import bounded, ordered
    >>> policy = Composed({"kafka-*": bounded("5 minutes"), "*": ordered()})
    >>> policy.for_partition("kafka-7"), policy.for_partition("files")
    (bounded(5 minutes), ordered())
    """

    kind = "composed"

    def __init__(self, policies: Mapping[str, Policy | str]) -> None:
        if not policies:
            raise errors.policy_invalid_composed_empty()
        self.policies = {p: parse_policy(policy) if isinstance(policy, str) else policy for p, policy in policies.items()}
        for pattern, policy in self.policies.items():
            if not pattern:
                raise errors.policy_invalid_composed_pattern()
            if len(policy.by_pattern()) > 1:
                raise errors.policy_invalid_composed_nested(policy, pattern)

    def bind(self, domain: TimeDomain) -> None:
        super().bind(domain)
        for policy in self.policies.values():
            policy.bind(domain)

    def save(self, path: str, settings: IngestColumns) -> None:
        for i, policy in enumerate(self.policies.values()):
            policy.save(f"{path}_{i}" if i else path, settings)

    def open(self, settings: IngestColumns) -> None:
        for policy in self.policies.values():
            policy.open(settings)

    def refresh(self) -> None:
        for policy in self.policies.values():
            policy.refresh()

    def partitions(self) -> Iterable[str] | None:
        known = [(policy, policy.partitions()) for policy in self.policies.values()]
        if any(names is None for _, names in known):
            return None
        return [name for policy, names in known for name in names or () if self._judges(policy, name)]

    def changed(self) -> Iterable[str] | None:
        changed = [(policy, policy.changed()) for policy in self.policies.values()]
        if any(names is None for _, names in changed):
            return None
        return [name for policy, names in changed for name in names or () if self._judges(policy, name)]

    def announced(self) -> Iterable[str]:
        return [name for policy in self.policies.values() for name in policy.announced() if self._judges(policy, name)]

    def ends(self) -> bool:
        return all(policy.ends() for policy in self.policies.values())

    def _judges(self, policy: Policy, name: str) -> bool:
        return next((p for pattern, p in self.policies.items() if fnmatchcase(name, pattern)), None) is policy

    def by_pattern(self) -> list[tuple[str, Policy]]:
        return list(self.policies.items())

    def for_partition(self, partition: str) -> Policy:
        for pattern, policy in self.policies.items():
            if fnmatchcase(partition, pattern):
                return policy
        raise errors.policy_missing(partition, self.policies)

    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        return self.for_partition(seen.partition).promise(seen, state)

    def arguments(self) -> list[str]:
        return [f"{quote(pattern)}: {policy}" for pattern, policy in self.policies.items()]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> Policy:
        policies: dict[str, Policy | str] = {}
        for argument in arguments:
            parts = split(argument, ":", 1)
            if len(parts) < 2:
                raise errors.policy_invalid_argument(argument)
            pattern = unquote(parts[0])
            if pattern in policies:
                raise errors.policy_invalid_composed_twice(pattern)
            policies[pattern] = parse_policy(parts[1])
        return cls(policies)
