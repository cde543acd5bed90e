"""What an operator says of itself to the scope around it: its shape, what it does to times, and the progress it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time, TimeDomain
from strandline.time.summary import Connectivity, Summaries, identity

__all__ = ["Operate", "SharedProgress"]


@dataclass
class SharedProgress:
    """Progress that passes between an operator and its scope, one batch for each port (timely's ``SharedProgress``).

    The scope writes ``frontiers`` and the operator reads them; the operator writes the others and the scope reads them.
    """

    frontiers: list[ChangeBatch[Time]]
    """For each input: how its frontier changed. Counts are of frontier elements, not of messages."""
    consumeds: list[ChangeBatch[Time]]
    """For each input: how many messages were consumed at which time."""
    internals: list[ChangeBatch[Time]]
    """For each output: how the capabilities held changed."""
    produceds: list[ChangeBatch[Time]]
    """For each output: how many messages were produced at which time."""

    @classmethod
    def of(cls, inputs: int, outputs: int) -> SharedProgress:
        """Empty progress for so many ports."""
        return cls(batches(inputs), batches(inputs), batches(outputs), batches(outputs))


def batches(ports: int) -> list[ChangeBatch[Time]]:
    """An empty change batch for each port."""
    return [ChangeBatch() for _ in range(ports)]


class Operate(ABC):
    """The contract between an operator and its scope: all that progress tracking needs to know (timely's ``Operate``).

    Built once: :meth:`get_internal_summary`, then :meth:`set_external_summary`. From then on, again and again:
    :meth:`push_external_progress`, then :meth:`pull_internal_progress`. What one pull reports takes effect atomically; it must
    report the consumption of a message no earlier than the capabilities and messages that come of it.
    """

    name: str
    domain: TimeDomain

    local: bool = True
    """Whether the operator reports what it alone did, for the scope to tell its peers. A scope, which has heard from its own
    peers already, is not local."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """The number of inputs."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of outputs."""

    def get_internal_summary(self) -> tuple[Connectivity, list[ChangeBatch[Time]]]:
        """What happens to times between each input and output, and the capabilities held at each output at the start.

        Initial capabilities are counted for all workers together, so that no worker begins by believing that the others hold
        none. By default every input reaches every output, no time changes, and there are no capabilities.
        """
        unchanged = Summaries([identity(self.domain)])
        return [dict.fromkeys(range(self.outputs), unchanged) for _ in range(self.inputs)], batches(self.outputs)

    def set_external_summary(self, summaries: Connectivity, frontiers: Sequence[ChangeBatch[Time]]) -> None:  # noqa: B027
        """Hear of the surroundings: what happens to times from each *output* back to each input, and the inputs' first frontiers.

        The surroundings include what is around the scope: paths that leave it and enter it again. An operator that takes in the
        first frontiers here drains them; what it leaves comes with the first :meth:`push_external_progress`. By default the
        operator does not care.
        """

    def push_external_progress(self, frontiers: Sequence[ChangeBatch[Time]]) -> None:
        """Take in how each input's frontier changed, draining the batches. By default the operator does not care."""
        for changes in frontiers:
            changes.clear()

    @abstractmethod
    def pull_internal_progress(
        self,
        consumeds: Sequence[ChangeBatch[Time]],
        internals: Sequence[ChangeBatch[Time]],
        produceds: Sequence[ChangeBatch[Time]],
    ) -> bool:
        """Work, and add what was done to the batches. Returns whether the operator may act again without hearing anything new."""
