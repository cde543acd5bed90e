"""The network between in-process workers: an ordered mailbox from each worker to each, with delays that a seed decides."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any

from strandline.time.change_batch import ChangeBatch
from strandline.tracker.subgraph import Pointstamp

__all__ = ["Mailbox", "Network"]


class Network:
    """Carries messages between ``workers`` in one process.

    The messages from one sender to one receiver arrive in order. Other messages arrive in any order. Without a ``seed``
    everything arrives at once. With a ``seed``, its random numbers decide how long messages are in transit, and the same seed
    gives the same run.

    >>> network = Network(2)
    >>> sender, receiver = network.mailbox("numbers", 0), network.mailbox("numbers", 1)
    >>> sender.post(1, "hello")
    >>> receiver.receive()
    >>> list(receiver.take())
    ['hello']
    """

    def __init__(self, workers: int, seed: int | None = None) -> None:
        self.workers = workers
        self.moves = 0
        """The number of times a message was sent, arrived or was taken. It shows whether anything happens at all."""
        self._random = None if seed is None else random.Random(seed)  # noqa: S311  # reproducible, not secret
        self._queues: dict[tuple[Hashable, int, int], deque[Any]] = {}

    def mailbox(self, channel: Hashable, worker: int) -> Mailbox:
        """Return one worker's end of a channel. Every worker knows the channel by the same name."""
        return Mailbox(self, channel, worker)

    def empty(self) -> bool:
        """Whether nothing is in transit. A message that has arrived and was not taken is no longer in transit."""
        return not any(self._queues.values())

    def queue(self, channel: Hashable, sender: int, receiver: int) -> deque[Any]:
        """Return the messages in transit from one worker to another."""
        return self._queues.setdefault((channel, sender, receiver), deque())

    def arrived(self, waiting: int) -> int:
        """Return how many of ``waiting`` messages in transit have arrived."""
        return waiting if self._random is None else self._random.randint(0, waiting)

    def shuffle(self, items: list[int]) -> None:
        """Put the items in an order that the seed decides. Without a seed they keep their order."""
        if self._random is not None:
            self._random.shuffle(items)


class Mailbox:
    """One worker's end of a channel. For change batches it is also the :class:`~strandline.tracker.subgraph.Peers`."""

    def __init__(self, network: Network, channel: Hashable, worker: int) -> None:
        self._network, self._channel, self._worker = network, channel, worker
        self.waiting: deque[Any] = deque()
        """The messages that have arrived and were not taken."""

    def post(self, to: int, message: Any) -> None:
        """Send a message to one worker."""
        self._network.moves += 1
        self._network.queue(self._channel, self._worker, to).append(message)

    def receive(self) -> None:
        """Let messages that were in transit arrive."""
        for sender in range(self._network.workers):
            queue = self._network.queue(self._channel, sender, self._worker)
            arrived = self._network.arrived(len(queue))
            self.waiting.extend(queue.popleft() for _ in range(arrived))
            self._network.moves += arrived

    def take(self) -> Iterator[Any]:
        """Yield the messages that have arrived. Each is taken when it is requested; the others stay."""
        while self.waiting:
            self._network.moves += 1
            yield self.waiting.popleft()

    def coming(self) -> list[Any]:
        """Return the messages that wait here or are in transit to here."""
        senders = range(self._network.workers)
        return [*self.waiting, *(m for sender in senders for m in self._network.queue(self._channel, sender, self._worker))]

    def send(self, changes: ChangeBatch[Pointstamp]) -> None:
        """Send a whole change batch to every worker."""
        batch = changes.drain()
        if batch:
            for worker in range(self._network.workers):
                self.post(worker, batch)

    def recv(self, into: ChangeBatch[Pointstamp]) -> None:
        """Add the change batches that have arrived."""
        self.receive()
        for batch in self.take():
            into.extend(batch)
