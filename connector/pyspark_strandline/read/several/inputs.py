"""The channels of a source of several: opened, with one domain that all their times enter, and the loop that they are part of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_strandline.operators.summary_steps import around
from pyspark_strandline.options import CHANNEL, ReadOptions
from pyspark_strandline.read import errors
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel
from strandline.loop import LoopGraph, LoopQuery
from strandline.replay.clock import CLOCK
from strandline.replay.restamp import ORIGINAL, Restamp, start_of_instant
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import Time, TimeDomain, parse_domain
from strandline.time.path.entry import Entry

__all__ = ["TIME_OF_CHANNEL", "Inputs"]

TIME_OF_CHANNEL = "strandline.channelTime"
"""The metadata key of a struct field that is the time of its channel: as JSON, the channel's domain, and the one that it enters.
It is not the key of a time column, because a field of a struct has no frontier of its own. ``Streams`` makes a time column."""

_INPUT = "strandline.input"
"""The metadata key of such a field that has the channel's name, outside of loops. The shim begins the time's path summary there
(TagRule.scala). In a loop, everything follows the frontier of all channels together."""

_ONLY = "query"
"""The name of the query of a loop that has one."""


class Inputs:
    """The channels of a source of several.

    Attributes:
        all: All channels by name, opened. In a loop through several queries there are some that the query does not read.
        channels: The channels that the query reads, by name.
        domain: The domain that the times of all channels enter.
        entries: How the times of each channel enter it.
        graph: The queries and channels of the loop that the query is part of; ``None`` if it is part of none.
        query: The name of the query in the graph.
        form: What else makes the query what it is, as text. A checkpoint belongs to one form.
        passing: The channels whose rows no operator keeps to emit something later, if operators keep nothing at moved times. The
            shim checks it (LoopRule.scala). ``None`` if neither is known.

    Raises:
        StrandlineError: A channel is missing; two names are one channel (``STRANDLINE_CHANNELS_INVALID``); the channels have
            times of different domains, and no domain is given that all enter (``STRANDLINE_TIME_DOMAIN_MISMATCH``); a way around
            the loop advances no time (``STRANDLINE_SUMMARY_INVALID``, ``STRANDLINE_GRAPH_CYCLE``); the queries do not fit the
            channels (see :class:`strandline.loop.LoopGraph`).
    """

    def __init__(self, options: ReadOptions) -> None:
        self.all = {name: Channel.open(path, options.storage) for name, path in (options.channels or {}).items()}
        self._check_names()
        self.domain = self._domain(options.domain)
        self.entries = {name: Entry(channel.domain, self.domain) for name, channel in self.all.items()}
        self.query = options.query or _ONLY
        self.form = options.form
        self.passing = None if options.passing is None else frozenset(options.passing)
        self.has_others = len(options.queries) > 1
        queries = options.queries
        if options.feedback:
            queries = {_ONLY: LoopQuery(self.all, options.feedback)}
        domains = {name: channel.domain for name, channel in self.all.items()}
        self.graph = LoopGraph(self.domain, domains, queries) if queries else None
        reads = self.all if self.graph is None else self.graph.queries[self.query].reads
        self.channels = {name: self.all[name] for name in reads}
        self.restamps = _restamps(options.restamp)
        """How links give their rows new times, by feedback channel. How often these come round cannot be counted."""
        self._check_clocks()
        uncounted = [name for name in self.rounds_come_by if not self.counting(name)]
        if uncounted and "maxRounds" in options.given:
            raise errors.option_conflict_rounds(options.max_rounds, uncounted)

    @cached_property
    def rounds_come_by(self) -> dict[str, Mapping[str, int]]:
        """The channels of the loop that the query reads, each with the advance of its times."""
        if self.graph is None:
            return {}
        advances = {channel: by for query in self.graph.queries.values() for channel, by in query.writes.items()}
        return {name: advances[name] for name in self.channels if name in advances}

    @cached_property
    def written(self) -> dict[str, Channel]:
        """The channels of the loop that the query writes."""
        return {} if self.graph is None else {name: self.all[name] for name in self.graph.ways(self.query)}

    @cached_property
    def between(self) -> dict[str, Channel]:
        """All channels of the loop that some query of it writes."""
        return {} if self.graph is None else {name: self.all[name] for name in self.graph.writer}

    def outside(self, frontiers: Mapping[str, Antichain]) -> list[Time]:
        """Return what may still come from outside the loop, from the frontiers of all channels that the query reads.

        If what comes round goes just before the next record from outside, no instant is closed in part: it may go there.
        """
        whole = any(how.is_recorded for how in self.restamps.values())
        return [
            start_of_instant(time) if whole else time
            for name, frontier in frontiers.items()
            if name not in self.rounds_come_by
            for time in self.entries[name].antichain(frontier)
        ]

    def frontier(self, frontiers: Mapping[str, Antichain]) -> Antichain:
        """Return the frontier of all channels together, when there is no loop."""
        return Antichain(self.domain, self.outside(frontiers))

    def counting(self, name: str) -> dict[int, int]:
        """Return the coordinates of the loop that count the rounds of a channel of it, each with its advance in a round.

        Each is given by its number among the leaves of the domain. Rows begin at 0 in it, or enter the loop in this query.
        """
        if name in self.restamps:
            return {}
        others = (entry for other, entry in self.entries.items() if self._enters_elsewhere(other))
        begin_elsewhere = max((len(entry.outer.leaves()) for entry in others), default=0)
        places = {".".join(path): at for at, (path, _) in enumerate(self.entries[name].outer.leaves())}
        moved = dict(self.rounds_come_by[name])
        if not any(moved.values()):  # another channel of the loop advances them
            for query in {} if self.graph is None else self.graph.queries.values():
                for each in query.writes.values():
                    moved |= {path: by for path, by in each.items() if path in places and by < moved.get(path, by + 1)}
        return {places[path]: by for path, by in moved.items() if by and places[path] >= begin_elsewhere}

    def enters_anywhere(self, name: str) -> bool:
        """Whether rows of a channel from outside may enter the loop at any value of a coordinate that a way around changes."""
        if all(each in self.restamps for each in self.rounds_come_by):
            return False  # nothing is counted
        moved = frozenset() if self.graph is None else self.graph.moved
        return name not in self.between and any(leaf < len(self.entries[name].outer.leaves()) for leaf in moved)

    def _enters_elsewhere(self, name: str) -> bool:
        """Whether another query of the loop reads a channel from outside."""
        queries = {} if self.graph is None else self.graph.queries
        return name not in self.between and any(name in each.reads for query, each in queries.items() if query != self.query)

    def feedback_to_json(self) -> dict[str, dict[str, object]]:
        """Return for each channel of the loop that the query writes its id, and the steps that the rows must take to it."""
        writes = {} if self.graph is None else self.graph.queries[self.query].writes
        result: dict[str, dict[str, object]] = {}
        for name, channel in self.written.items():
            result[name] = {"channel": channel.table_id, "summary": around(self.domain, channel.domain, writes[name]).to_json()}
            if name in self.restamps:
                result[name]["restamp"] = self.restamps[name]._asdict()
        return result

    @cached_property
    def definition(self) -> str:
        """A digest of all that the queries of a loop must agree on: its domain, its channels, and what each query does."""
        queries = {} if self.graph is None else self.graph.queries
        body = {
            "domain": str(self.domain),
            "channels": {name: channel.table_id for name, channel in self.all.items()},
            "queries": {name: [list(query.reads), query.writes] for name, query in queries.items()},
        }
        return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]

    def schema(self) -> StructType:
        """Return the source's schema: the channel's name, and for each channel a struct, null in others' rows."""
        fields = [StructField(CHANNEL, StringType())]
        for name, channel in self.channels.items():
            at = channel.schema.get_field_index(channel.time_column)
            entered = channel.schema.set(at, time_field(channel.time_column, self.domain))
            marked = {TIME_OF_CHANNEL: json.dumps([str(channel.domain), str(self.domain)])}
            if self.graph is None:
                marked[_INPUT] = name
            columns = [
                StructField(each.name, each.dataType, True, marked if each.name == channel.time_column else {})
                for each in spark_schema(entered, channel.time_column, self.domain).fields
            ]
            fields.append(StructField(name, StructType(columns)))
        return StructType(fields)

    def _check_clocks(self) -> None:
        """Raise unless the times of links that give new ones, and of their loop, are a clock's."""
        for name, how in self.restamps.items():
            channel = self.all[name]
            for what, domain in ((channel.path, channel.domain), ("The loop", self.domain)):
                if domain != CLOCK:
                    raise errors.clock_domain(name, what, domain, CLOCK)
            column = ORIGINAL if how.is_recorded else how.at
            wanted = pa.types.is_struct if how.is_recorded else pa.types.is_timestamp
            if column not in channel.schema.names or not wanted(channel.schema.field(column).type):
                raise errors.column_missing_restamp(name, channel.path, column, "times" if how.is_recorded else "timestamps")

    def _check_names(self) -> None:
        names: dict[str, str] = {}
        for name, channel in self.all.items():
            other = names.setdefault(channel.table_id, name)
            if other != name:
                raise errors.channels_invalid_same(other, name, channel.path)

    def _domain(self, given: str | None) -> TimeDomain:
        if given is not None:
            return parse_domain(given)
        domains = {str(channel.domain): name for name, channel in self.all.items()}
        if len(domains) > 1:
            raise errors.time_domain_mismatch({name: domain for domain, name in domains.items()})
        return next(iter(self.all.values())).domain


def _restamps(given: Mapping[str, tuple[str, str]]) -> dict[str, Restamp]:
    """Return how links give their rows new times. Events have places of their own: a replay has them without recorded links."""
    result: dict[str, Restamp] = {}
    for events in (False, True):
        alike = sorted(name for name, (by, _) in given.items() if (by == "event") == events)
        result |= {name: Restamp.of(given[name][0], place, given[name][1]) for place, name in enumerate(alike)}
    return result
