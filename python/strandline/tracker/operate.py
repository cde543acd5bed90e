"""The interface of an operator to the scope around it: its shape, its effect on times, and its progress."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.time.change_batch import ChangeBatch
from strandline.time.domain import Time, TimeDomain
from strandline.time.path.summary import Connectivity, Summaries, identity

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
        """Return empty progress for these numbers of ports."""
        return cls(batches(inputs), batches(inputs), batches(outputs), batches(outputs))


def batches(ports: int) -> list[ChangeBatch[Time]]:
    """Return an empty change batch for each port."""
    return [ChangeBatch() for _ in range(ports)]


class Operate(ABC):
    """The contract between an operator and its scope: everything that progress tracking needs (timely's ``Operate``).

    The scope calls :meth:`get_internal_summary`, then :meth:`set_external_summary`, once at build time. After that it repeatedly
    calls :meth:`push_external_progress`, then :meth:`pull_internal_progress`. The reports of one pull take effect atomically. The
    operator must not report the consumption of a message before the capabilities and messages that result from it.
    """

    name: str
    domain: TimeDomain

    local: bool = True
    """Whether the operator reports only its own work, which the scope then sends to its peers. A scope is not local, because it
    has already received the work of its own peers."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """The number of inputs."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of outputs."""

    def get_internal_summary(self) -> tuple[Connectivity, list[ChangeBatch[Time]]]:
        """Return the path summaries from each input to each output, and the capabilities held at each output at the start.

        Initial capabilities are counted for all workers together, so that no worker starts with the belief that the others hold
        none. By default every input reaches every output, no time changes, and there are no capabilities.
        """
        unchanged = Summaries([identity(self.domain)])
        return [dict.fromkeys(range(self.outputs), unchanged) for _ in range(self.inputs)], batches(self.outputs)

    def set_external_summary(self, summaries: Connectivity, frontiers: Sequence[ChangeBatch[Time]]) -> None:  # noqa: B027
        """Receive the path summaries from each *output* back to each input, and the inputs' first frontiers.

        The summaries include paths that leave the scope and enter it again. An operator that applies the first frontiers here
        drains them. Frontiers that it does not drain come with the first :meth:`push_external_progress`. By default the operator
        ignores both.

        Args:
            summaries: For each output, the least summaries back to each input that it reaches.
            frontiers: For each input, its first frontier as changes.
        """

    def push_external_progress(self, frontiers: Sequence[ChangeBatch[Time]]) -> None:
        """Receive the changes of each input's frontier, and drain the batches. By default the operator ignores them."""
        for changes in frontiers:
            changes.clear()

    @abstractmethod
    def pull_internal_progress(
        self,
        consumeds: Sequence[ChangeBatch[Time]],
        internals: Sequence[ChangeBatch[Time]],
        produceds: Sequence[ChangeBatch[Time]],
    ) -> bool:
        """Work, and add the progress to the batches.

        Args:
            consumeds: For each input, the consumed messages by time.
            internals: For each output, the changes of the held capabilities.
            produceds: For each output, the produced messages by time.

        Returns:
            Whether the operator may act again without receiving anything.
        """
