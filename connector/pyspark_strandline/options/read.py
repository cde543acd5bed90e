"""The options of the source."""

# ruff: noqa: RUF009 - `option` declares a field, as `dataclasses.field` does
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_strandline.options import errors
from pyspark_strandline.options.json_values import channels, feedback, passing, queries, restamp
from pyspark_strandline.options.parsers import (
    boolean,
    duration,
    names,
    one_of,
    resumed_output,
    size,
    speed,
    starting_version,
    text,
    timestamp_ms,
    whole_number,
)
from pyspark_strandline.options.table import (
    ABOVE,
    EXTENSION,
    SINCE,
    Channels,
    Method,
    fields,
    option,
    parse,
    rows,
    storage_options,
)
from strandline.loop import LoopQuery

__all__ = ["ONE_CHANNEL", "ReadOptions"]

ONE_CHANNEL = ""
"""The name of the channel of a source of one."""

_COUNT = whole_number(1, "a whole number of at least 1")
_VERSION = whole_number(0, "a version of the table (0, 1, …)")


@dataclass(frozen=True)
class ReadOptions:
    """The options of ``readStream`` and ``read``. Sizes are in bytes.

    With ``channels``, which has several paths, ``path`` is empty.

    >>> ReadOptions.parse({"path": "/data/flights", "maxfilespertrigger": "10"}).max_files
    10
    >>> ReadOptions.parse({"path": "/data/flights", "maxFilePerTrigger": "10"})
    Traceback (most recent call last):
    strandline.errors.StrandlineError: [STRANDLINE_OPTION_UNKNOWN] ... Did you mean maxFilesPerTrigger? ...
    """

    path: str = option("path", text, "")
    extension: str | None = option(EXTENSION, text)
    since: str | None = option(SINCE, text)
    starting_version: int | str | None = option(
        "startingVersion",
        starting_version,
        method=Method.STREAM,
        channels=Channels.NO_LOOP,
        doc="a version, `latest` or `snapshot`. Default: from the first commit if every row can still be read that way, else "
        "from a snapshot",
    )
    starting_timestamp_ms: int | None = option(
        "startingTimestamp",
        timestamp_ms,
        method=Method.STREAM,
        channels=Channels.NO_LOOP,
        doc="from the first commit made at or after it: a date or a [timestamp](times.md) (UTC unless it has a time zone), no "
        "number since 1970",
    )
    starting_frontier: str | None = option(
        "startingFrontier",
        text,
        method=Method.STREAM,
        channels=Channels.ONE,
        doc="the rows at times that this frontier has not closed, and no others, whichever commits they came in: a time, or a "
        "JSON list of several as text",
    )
    replay: float | None = option(
        "replay",
        speed,
        method=Method.STREAM,
        channels=Channels.NO_LOOP,
        doc="play what is recorded, up to an end ([replay](replay.md)): `max` as fast as possible, `realtime` with the pauses "
        "between the commits as they were, `10x` ten times as fast",
    )
    """How many recorded seconds a second plays; infinity without any pause."""
    ending_version: int | None = option(
        "endingVersion",
        _VERSION,
        method=Method.STREAM,
        channels=Channels.NO_LOOP,
        doc="with `replay`, where it ends: with that commit; before the first one made later than a date or timestamp; with the "
        "first one that closes all times before a frontier, which is a time, or a JSON list of several as text",
    )
    ending_timestamp_ms: int | None = option(
        "endingTimestamp", timestamp_ms, method=Method.STREAM, channels=Channels.NO_LOOP, doc=ABOVE
    )
    ending_frontier: str | None = option("endingFrontier", text, method=Method.STREAM, channels=Channels.NO_LOOP, doc=ABOVE)
    max_files: int | None = option(
        "maxFilesPerTrigger",
        _COUNT,
        method=Method.STREAM,
        doc="limits of a batch (a batch reads at least one file); a commit's statement counts when all of the commit is read",
    )
    max_bytes: int | None = option("maxBytesPerTrigger", size, method=Method.STREAM, doc=ABOVE)
    ignore_deletes: bool = option(
        "ignoreDeletes",
        boolean,
        False,
        method=Method.STREAM,
        channels=Channels.NO_LOOP,
        doc="skip other writers' commits that delete or rewrite rows. Without these options such commits stop the query",
    )
    skip_change_commits: bool = option(
        "skipChangeCommits", boolean, False, method=Method.STREAM, channels=Channels.NO_LOOP, doc=ABOVE
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss", boolean, True, doc="`false`: skip the rows of data files that do not exist any more; default `true`"
    )
    columns: tuple[str, ...] | None = option(
        "columns",
        names,
        channels=Channels.ONE,
        doc="read these columns only (the time column is always read): names separated by commas, or a JSON list",
    )
    channels: dict[str, str] | None = option(
        "channels",
        channels,
        doc="set by `read_channels` ([several channels](several-channels.md)) and `show_schema` "
        "([looking with SQL](tables.md#looking-with-sql)), instead of a path",
    )
    domain: str | None = option(
        "domain",
        text,
        method=Method.STREAM,
        channels=Channels.SEVERAL,
        doc="set by `read_channels` and `read_loop`: the domain that the times of all channels enter",
    )
    feedback: dict[str, dict[str, int]] = option(
        "feedback", feedback, {}, method=Method.STREAM, doc="set by `read_loop` and `iterate` ([loops](loops.md))"
    )
    """For each channel that closes a loop, by how much each coordinate of its times advances on the way around."""
    restamp: dict[str, tuple[str, str]] = option("restamp", restamp, {}, method=Method.STREAM, channels=Channels.LOOP, doc=ABOVE)
    """For each of them whose rows get new times, in which way, and the column with the instant of an event."""
    passing: tuple[str, ...] | None = option("passing", passing, method=Method.STREAM, channels=Channels.LOOP, doc=ABOVE)
    """The channels of the loop whose rows no operator keeps to emit something later: their times count for one batch only. If it
    is given, operators keep nothing at times that were moved."""
    queries: dict[str, LoopQuery] = option("queries", queries, {}, method=Method.STREAM, doc=ABOVE)
    """The queries of a loop that goes through several, by name."""
    query: str | None = option("query", text, method=Method.STREAM, doc=ABOVE)
    """Which of them this one is."""
    form: str | None = option("form", text, method=Method.STREAM, channels=Channels.LOOP, doc=ABOVE)
    """What else makes the query what it is. A checkpoint belongs to one form."""
    max_rounds: int = option(
        "maxRounds",
        _COUNT,
        6_000,
        method=Method.STREAM,
        channels=Channels.LOOP,
        doc="bounds of a loop: how often a row comes round (default 6000), how many rows come round without a pause (no "
        "default), and how many of them for each row from outside (no default; fewer than 10 000 rows from outside count as "
        "10 000). `iterate` [chooses](loops.md#a-loop-without-an-end) by what its body can do",
    )
    max_loop_rows: int | None = option("maxLoopRows", _COUNT, method=Method.STREAM, channels=Channels.LOOP, doc=ABOVE)
    max_loop_growth: int | None = option("maxLoopGrowth", _COUNT, method=Method.STREAM, channels=Channels.LOOP, doc=ABOVE)
    max_loop_waiting: int | None = option(
        "maxLoopWaiting",
        _COUNT,
        method=Method.STREAM,
        channels=Channels.LOOP,
        doc="in a loop over the times of a clock: how many rows may wait on a link (no default; the state of the link's producer "
        "has their number as `waiting`), and by how much the loop may be behind what comes from outside, such as `10 seconds` "
        "(no default)",
    )
    max_loop_lag: int | None = option("maxLoopLag", duration, method=Method.STREAM, channels=Channels.LOOP, doc=ABOVE)
    resume: str | None = option(
        "resume",
        resumed_output,
        method=Method.STREAM,
        doc="the path of the query's output (not a table's name; `DESCRIBE EXTENDED` shows the path): a new query goes on where "
        "the output says that the query before had stopped ([when the checkpoint is lost](lost-checkpoint.md)). A query that has "
        "begun ignores it",
    )
    producer: str | None = option(
        "producer",
        text,
        method=Method.STREAM,
        doc="with `resume`: which producer of that output the query continues, if several have read the same channels",
    )
    native_scan: str = option(
        "nativeScan",
        one_of("auto", "on", "off"),
        "auto",
        doc="`auto` (default): Spark's own Parquet scan reads the files where it gives the same rows, else Python reads them; "
        "`on`, `off` ([native-scan.md](native-scan.md))",
    )
    min_partitions: int | None = option("minPartitions", _COUNT, doc="how files are packed into tasks when Python reads")
    max_partition_bytes: int = option("maxPartitionBytes", size, 128 << 20, doc=ABOVE)
    as_of_version: int | None = option("asOfVersion", _VERSION, method=Method.BATCH, doc="the table as of a version")
    show: str = option(
        "show",
        one_of("rows", "progress", "frontiers", "holds"),
        "rows",
        method=Method.BATCH,
        doc="`progress`: a row for each producer with the capabilities that it holds, and the frontier; `frontiers`, `holds`: "
        "of all channels at or below the path, a folder's or a scope's ([looking with SQL](tables.md#looking-with-sql)); "
        "default `rows`",
    )
    storage: dict[str, str] | None = storage_options(
        "an option of the object store, with the name that delta-rs uses ([examples](object-stores.md)). For a local path, "
        "`storage.durable` = `false` leaves out syncing to the disk. In a session with the extension, plans show no value of "
        "these options"
    )
    given: frozenset[str] = frozenset()
    """The names of the options that are given."""

    @property
    def is_loop(self) -> bool:
        """Whether the query reads what it writes, or another query of its loop does."""
        return bool(self.feedback or self.queries)

    def each(self) -> dict[str, ReadOptions]:
        """Return the options of each channel by name. The channel of a source of one is :data:`ONE_CHANNEL`."""
        if self.channels is None:
            return {ONE_CHANNEL: self}
        alone = replace(self, channels=None, feedback={}, restamp={}, queries={}, query=None, domain=None)
        return {name: replace(alone, path=path) for name, path in self.channels.items()}

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Check and convert. Raises a :class:`StrandlineError` that names the option, its value and the valid values."""
        values = parse(cls, options, "the strandline source")
        result = cls(**fields(cls, values, options), given=frozenset(values))
        result._check_beginning()
        result._check_replay()
        result._check_channels()
        return result

    def for_stream(self) -> ReadOptions:
        """Return these options. Raises if one of them is for batch reads only."""
        return self._without(Method.BATCH, "spark.readStream", "spark.read")

    def for_batch(self) -> ReadOptions:
        """Return these options. Raises if one of them is for streams only."""
        if self.channels is not None and self.show not in ("frontiers", "holds"):
            raise errors.option_unknown_here("channels", "spark.readStream", "spark.read")
        return self._without(Method.STREAM, "spark.read", "spark.readStream")

    def for_overview(self) -> ReadOptions:
        """Return these options of ``show`` = ``frontiers`` or ``holds``. Raises if one of them is for one channel only."""
        wrong = [name for name in ("asOfVersion", "columns") if name in self.given]
        if wrong:
            raise errors.option_conflict_show(wrong[0], self.show)
        return self

    def _without(self, only: Method, method: str, other: str) -> ReadOptions:
        wrong = [row.name for row in rows(type(self)) if row.method is only and row.name in self.given]
        if wrong:
            raise errors.option_unknown_here(wrong[0], other, method)
        return self

    def _given(self, channels: Channels) -> list[str]:
        """Return the given options that only sources of such channels have."""
        return [row.name for row in rows(type(self)) if row.channels is channels and row.name in self.given]

    def _check_beginning(self) -> None:
        """Raise for options that say in two ways where a query begins."""
        beginnings = [name for name in ("startingVersion", "startingTimestamp", "startingFrontier") if name in self.given]
        if len(beginnings) > 1:
            raise errors.option_conflict_beginning(beginnings)
        if self.starting_frontier is not None and self.resume is not None:
            raise errors.option_conflict_resume("startingFrontier")
        if self.channels is not None and isinstance(self.starting_version, int):
            raise errors.option_conflict_version("startingVersion", self.starting_version)
        if self.producer is not None and self.resume is None:
            raise errors.option_conflict_producer(self.producer)

    def _check_replay(self) -> None:
        """Raise for options of a replay that leave its beginning or its end unclear."""
        ends = [name for name in ("endingVersion", "endingTimestamp", "endingFrontier") if name in self.given]
        if ends and self.replay is None:
            raise errors.option_conflict_end(ends[0])
        if len(ends) > 1:
            raise errors.option_conflict_ends(ends)
        if self.replay is not None and self.starting_version in ("latest", "snapshot"):
            raise errors.option_conflict_replay(str(self.starting_version))
        if self.replay is not None and self.resume is not None:
            raise errors.option_conflict_resume("replay")
        if self.channels is not None and self.ending_version is not None:
            raise errors.option_conflict_version("endingVersion", self.ending_version)

    def _check_channels(self) -> None:
        """Raise for options that sources of other channels have."""
        if self.given & {"feedback", "queries", "query"}:
            self._check_loop()
        else:
            several = [] if self.channels is not None else self._given(Channels.SEVERAL)
            for name in [*several, *(in_loops := self._given(Channels.LOOP))]:
                raise errors.option_conflict_several(name, in_loop=name in in_loops)
        for name in [] if self.channels is None else self._given(Channels.ONE):
            raise errors.option_conflict_one(name, len(self.channels or ()))

    def _check_loop(self) -> None:
        """Raise for options that do not go with a loop, which must know the times of all rows."""
        if (self.query is None) != (not self.queries) or (self.queries and self.feedback):
            given = ", ".join(name for name in ("feedback", "queries", "query") if name in self.given)
            raise errors.option_conflict_loops(given)
        if self.query is not None and self.query not in self.queries:
            raise errors.option_invalid_query(self.query, self.queries)
        if self.query is not None and not self.queries[self.query].writes:
            raise errors.option_invalid_query_silent(self.query)
        known = self.channels or {}
        unknown = [name for name in self.feedback if name not in known]
        if unknown:
            raise errors.option_invalid_feedback(unknown, known)
        if any(name not in self.feedback for name in self.restamp):
            raise errors.option_invalid_restamp([name for name in self.restamp if name not in self.feedback])
        if self.resume is not None:
            raise errors.resume_impossible_loop()
        for name in self._given(Channels.NO_LOOP):
            raise errors.option_conflict_loop(name)
