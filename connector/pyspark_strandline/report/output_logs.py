"""What the logs of a query's output channels say: the frontier of each output, and when it moved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from strandline.channel import Channel
from strandline.channel.progress.query_producer_state import producer_of
from strandline.errors import StrandlineError
from strandline.ingest.late.lateness import REASONS
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.ingest.status import only_aside_of
from strandline.report.history import History
from strandline.time.antichain import Antichain

__all__ = ["Moved", "OutputLogs"]


class Moved(NamedTuple):
    """A frontier, and when it came to be what it is, in seconds since 1970. It may have been earlier, but not later."""

    frontier: Antichain
    at: float


class OutputLogs:
    """The output channels of one query.

    The frontier of an output is what the query holds in its channel. An ingest writes for the partitions of its input, so the
    frontier of its output is the channel's.

    Args:
        query: The query's id.
        sink: What the shim says of the query's sink.
        storage: The options of the storage of the channels.

    Attributes:
        producer: The name under which the query writes, if a user has chosen one.
        paths: The path of each output.
        is_ingest: Whether the query is an ingest.
    """

    def __init__(self, query: str, sink: Mapping[str, Any], storage: Mapping[str, str] | None = None) -> None:
        options: Mapping[str, str] = sink.get("options") or {}
        self._query, self.producer = query, options.get("producer", options.get("node"))
        self.paths = {"rows": options["path"]} if "path" in options else {}
        if "outputs" in options:
            self.paths = {name: each["path"] for name, each in json.loads(options["outputs"]).items()}
        self.is_ingest = "policy" in options
        self._storage = storage
        self._channels: dict[str, Channel] = {}

    def frontiers(self) -> dict[str, Antichain]:
        """Return the present frontier of each output. One without a channel, or whose channel cannot be read, is left out."""
        return {output: frontier for output in self.paths if (frontier := self._frontier(output)) is not None}

    def set_aside(self) -> dict[str, int] | None:
        """Return how many rows an ingest has set aside, by each reason that there is; ``None`` if that is not known.

        This is as of the version at which :meth:`frontiers` was asked last.
        """
        channel = self._channels.get("rows")
        if not self.is_ingest or channel is None:
            return None
        try:
            by = RegistrarState.of(channel.progress).entry(self._query).aside_by or {}
        except StrandlineError:
            return None
        return {**dict.fromkeys(REASONS[1:], 0), **by}

    def only_aside(self) -> int | None:
        """Return of how many of an ingest's partitions all rows are set aside since some batch; ``None`` if it is not known.

        This is as of the same version as :meth:`set_aside`.
        """
        channel = self._channels.get("rows")
        if not self.is_ingest or channel is None:
            return None
        return only_aside_of(channel.progress, self._query)

    def moved(self) -> dict[str, Moved]:
        """Return the present frontier of each output, and when it moved. It reads further back in the logs."""
        found = {}
        for output, frontier in self.frontiers().items():
            with suppress(StrandlineError, OSError):
                history = History(self._channels[output])
                since = history.frontier_since() if self.is_ingest else history.since(self._name_in(self._channels[output]))
                if since is not None:
                    found[output] = Moved(frontier, since.ms / 1000)
        return found

    def _frontier(self, output: str) -> Antichain | None:
        try:
            channel = self._channels.get(output)
            if channel is None:
                channel = self._channels[output] = Channel.open(self.paths[output], self._storage)
            else:
                channel.refresh()
        except (StrandlineError, OSError):
            return None
        if self.is_ingest:
            return channel.frontier
        state = channel.producers.get(self._name_in(channel))
        return None if state is None else state.holds

    def _name_in(self, channel: Channel) -> str:
        return self.producer or producer_of(channel.progress.producers, self._query)
