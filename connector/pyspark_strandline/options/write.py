"""The options of the sink, and of the ingest."""

# ruff: noqa: RUF009 - `option` declares a field, as `dataclasses.field` does
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_strandline.options import errors
from pyspark_strandline.options.json_values import OutputPlace, outputs
from pyspark_strandline.options.parsers import boolean, listed, one_of, resume, text, whole_number
from pyspark_strandline.options.table import EXTENSION, fields, option, parse, required, storage_options

__all__ = ["IngestOptions", "RecordOptions", "WriteOptions"]

_PASSED = ("queryName", EXTENSION)


@dataclass(frozen=True)
class WriteOptions:
    """The options of ``writeStream``. With ``outputs``, which has several paths, ``path`` is empty.

    >>> WriteOptions.parse({"path": "/data/hours", "producer": "hourly"}).producer
    'hourly'
    """

    path: str = option("path", text, "")
    checkpoint: str | None = option("checkpointLocation", text)
    query_name: str = option("queryName", text, "")
    producer: str | None = option(
        "producer",
        text,
        doc="the name that the query writes under; default `query-<its id>`. A name that you choose stays the same with a new "
        "checkpoint",
    )
    take_over: bool = option(
        "takeOver",
        boolean,
        False,
        doc="`true`: write on under the name of another query, and fence that query. For a query that reads only what the other "
        "one has not read",
    )
    resume: str | None = option(
        "resume",
        resume,
        doc="`true`: a new query goes on with the channel, after the rows that the query before has written. `changed`: also if "
        "the query would make other rows now of what it has read. The channel keeps the rows that it has; only for a query whose "
        "operators keep no state. `stateful`: also if it keeps state and it is not known whether the state is the same; you "
        "answer for what the page says ([when the checkpoint is lost](lost-checkpoint.md)). A query that has begun ignores it",
    )
    accept_replay: int | None = option(
        "acceptReplay",
        whole_number(0, "the number of a batch (0, 1, …)"),
        doc="the number of a batch, as the error `STRANDLINE_REPLAY_DIFFERS` names it: if that batch makes other rows when it is "
        "repeated, the channels keep the rows that they have, and a warning says so ([a batch must write the same rows "
        "again](repeated-batches.md#a-batch-must-write-the-same-rows-again)). Not in loops",
    )
    merge_schema: bool = option(
        "mergeSchema",
        boolean,
        False,
        doc="`true`: columns that the channel lacks are added to it, and columns that the rows lack are null in them ([columns "
        "that come later](columns.md))",
    )
    outputs: dict[str, OutputPlace] | None = option(
        "outputs", outputs, doc="set by `write_outputs` and `route` ([several outputs](outputs.md)), instead of a path"
    )
    storage: dict[str, str] | None = storage_options("as for the source")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Check and convert. Raises a :class:`StrandlineError` that names the option, its value and the valid values."""
        result = cls(**fields(cls, parse(cls, options, "the strandline sink", _PASSED), options))
        if result.resume and result.outputs is not None:
            raise errors.resume_impossible_outputs(result.outputs)
        return result


@dataclass(frozen=True)
class RecordOptions:
    """The options of ``writeStream`` with the option ``node``, which makes it a recording. ``record`` sets them.

    >>> RecordOptions.parse({"path": "/data/orders", "node": "orders", "time": "time"}).node
    'orders'
    """

    path: str = required("path", text)
    node: str = required("node", text)
    time: str = option("time", text, "time")
    checkpoint: str | None = option("checkpointLocation", text)
    take_over: bool = option("takeOver", boolean, False)
    storage: dict[str, str] | None = storage_options()

    @staticmethod
    def wanted(options: Mapping[str, str]) -> bool:
        """Whether the options are those of a recording."""
        return any(key.lower() == "node" for key in options)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> RecordOptions:
        """Check and convert. Raises a :class:`StrandlineError` that names the option, its value and the valid values."""
        return cls(**fields(cls, parse(cls, options, "the strandline recording", _PASSED), options))


FROM_BEGINNING = "fromBeginning"
"""The value of ``takeOver`` that takes over although the query's source is read from its beginning."""


@dataclass(frozen=True)
class IngestOptions:
    """The options of ``writeStream`` with the option ``policy``, which makes it an ingest (docs/ingest.md).

    >>> IngestOptions.parse({"path": "/data/flights", "policy": "ordered()", "time": "hour", "partitions": "EWR, JFK"}).partitions
    ('EWR', 'JFK')
    """

    path: str = required("path", text)
    policy: str = required("policy", text)
    time: str = required("time", text)
    partition: tuple[str, ...] = option("partition", listed, ())
    partitions: tuple[str, ...] | None = option("partitions", listed)
    on_late: str = option("onLate", one_of("setAside", "fail"), "setAside")
    late_path: str | None = option("latePath", text)
    max_ahead: str | None = option("maxAhead", text)
    late_columns: tuple[str, ...] = option("lateColumns", listed, ())
    late_retention: str | None = option("lateRetention", text)
    max_future: str = option("maxFuture", text, "auto")
    max_set_aside: str | None = option("maxSetAside", text)
    domain: str | None = option("domain", text)
    corrections: bool = option("corrections", boolean, False)
    reads_to_end: bool = option("readsToEnd", boolean, False)
    query_name: str = option("queryName", text, "")
    checkpoint: str | None = option("checkpointLocation", text)
    take_over: str = option("takeOver", one_of("true", "false", FROM_BEGINNING), "false")
    from_beginning: str | None = option(
        "readsFromBeginning", text, doc="set by `ingest`: the sources that a new checkpoint begins anew"
    )
    merge_schema: bool = option("mergeSchema", boolean, False)
    storage: dict[str, str] | None = storage_options()

    @staticmethod
    def wanted(options: Mapping[str, str]) -> bool:
        """Whether the options are those of an ingest."""
        return any(key.lower() == "policy" for key in options)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> IngestOptions:
        """Check and convert. Raises a :class:`StrandlineError` that names the option, its value and the valid values."""
        if any(key.lower() == "resume" for key in options):
            raise errors.resume_impossible_ingest()
        values = parse(cls, options, "the strandline ingest", _PASSED)
        if "time" not in values:
            raise errors.option_missing_time()
        return cls(**fields(cls, values, options))
