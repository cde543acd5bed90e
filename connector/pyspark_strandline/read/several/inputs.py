"""The channels of a source of several: opened, with one domain that all their times enter, and the feedback among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pyspark.sql.types import StringType, StructField, StructType

from pyspark_strandline.operators.summary_steps import around
from pyspark_strandline.options import CHANNEL, ReadOptions
from pyspark_strandline.schema import spark_schema
from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.loop import Feedback
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import Time, TimeDomain, parse_domain
from strandline.time.entry import Entry
from strandline.time.summary import PathSummary

__all__ = ["TIME_OF_CHANNEL", "Inputs"]

TIME_OF_CHANNEL = "strandline.channelTime"
"""The metadata key of a struct field that is the time of its channel: as JSON, the channel's domain, and the one that it enters.
It is not the key of a time column, because a field of a struct has no frontier of its own. ``Streams`` makes a time column."""


class Inputs:
    """The channels of a source of several.

    Attributes:
        channels: The channels by name, opened.
        domain: The domain that the times of all channels enter.
        entries: How the times of each channel enter it.
        feedback: The channels that the query itself writes, by name.

    Raises:
        StrandlineError: A channel is missing; two names are one channel (``STRANDLINE_CHANNELS_INVALID``); the channels have
            times of different domains, and no domain is given that all enter (``STRANDLINE_TIME_DOMAIN_MISMATCH``); a feedback
            advances no time (``STRANDLINE_SUMMARY_INVALID``).
    """

    def __init__(self, options: ReadOptions) -> None:
        self.channels = {name: Channel.open(path, options.storage) for name, path in (options.channels or {}).items()}
        self._check_names()
        self.domain = self._domain(options.domain)
        self.entries = {name: Entry(channel.domain, self.domain) for name, channel in self.channels.items()}
        self.feedback = {name: Feedback(self.entries[name], by) for name, by in options.feedback.items()}
        _ = self.summaries  # raises
        uncounted = [name for name in self.feedback if not self.counting(name)]
        if uncounted and "maxRounds" in options.given:
            raise StrandlineError(
                "STRANDLINE_OPTION_CONFLICT",
                f"maxRounds is {options.max_rounds}, but the feedback {', '.join(uncounted)} advances no coordinate that begins "
                "at 0, so its rounds are not counted.",
                "Bound it with maxLoopRows.",
            )

    @cached_property
    def summaries(self) -> list[PathSummary]:
        """What each feedback does to a time inside the loop."""
        return [feedback.summary for feedback in self.feedback.values()]

    def outside(self, frontiers: Mapping[str, Antichain]) -> list[Time]:
        """Return what may still come from outside the loop, from the frontiers of all channels."""
        return [
            time
            for name, frontier in frontiers.items()
            if name not in self.feedback
            for time in self.entries[name].antichain(frontier)
        ]

    def frontier(self, frontiers: Mapping[str, Antichain]) -> Antichain:
        """Return the frontier of all channels together, when there is no loop."""
        return Antichain(self.domain, self.outside(frontiers))

    def counting(self, name: str) -> dict[str, int]:
        """Return the coordinates of the loop that count the rounds of a feedback, each with its advance.

        They begin at 0, because the times of no other channel have them.
        """
        inner = [".".join(path) for path, _ in self.domain.leaves()]
        others = (entry for other, entry in self.entries.items() if other not in self.feedback)
        begin_elsewhere = max((len(entry.outer.leaves()) for entry in others), default=0)
        own = self.feedback[name]
        places = {".".join(path): at for at, (path, _) in enumerate(own.entry.outer.leaves())}
        return {inner[places[path]]: by for path, by in own.by.items() if places[path] >= begin_elsewhere}

    def feedback_to_json(self) -> dict[str, Any]:
        """Return for each feedback the channel's id, and the steps that the query's rows must take to it."""
        return {
            name: {
                "channel": self.channels[name].table_id,
                "summary": list(around(self.domain, each.entry.outer, each.by).steps),
            }
            for name, each in self.feedback.items()
        }

    def schema(self) -> StructType:
        """Return the source's schema: the channel's name, and for each channel a struct, null in others' rows."""
        fields = [StructField(CHANNEL, StringType())]
        for name, channel in self.channels.items():
            at = channel.schema.get_field_index(channel.time_column)
            entered = channel.schema.set(at, time_field(channel.time_column, self.domain))
            marked = {TIME_OF_CHANNEL: json.dumps([str(channel.domain), str(self.domain)])}
            columns = [
                StructField(each.name, each.dataType, True, marked if each.name == channel.time_column else {})
                for each in spark_schema(entered, channel.time_column, self.domain).fields
            ]
            fields.append(StructField(name, StructType(columns)))
        return StructType(fields)

    def _check_names(self) -> None:
        names: dict[str, str] = {}
        for name, channel in self.channels.items():
            other = names.setdefault(channel.table_id, name)
            if other != name:
                raise StrandlineError(
                    "STRANDLINE_CHANNELS_INVALID",
                    f"The channels {other} and {name} are both the table {channel.path}.",
                    "Name each channel once. Its stream may be used several times.",
                )

    def _domain(self, given: str | None) -> TimeDomain:
        if given is not None:
            return parse_domain(given)
        domains = {str(channel.domain): name for name, channel in self.channels.items()}
        if len(domains) > 1:
            raise StrandlineError(
                "STRANDLINE_TIME_DOMAIN_MISMATCH",
                f"The channels have times of different domains: {', '.join(f'{n} of {d}' for d, n in domains.items())}.",
                "Give domain=…, whose first coordinates are the times of each channel. Or move the times of the others "
                "in a query of their own first.",
            )
        return next(iter(self.channels.values())).domain
