"""The options of the source and the sink. Their names are as in Delta. They are checked where they are given."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.delta.storage import location_of
from strandline.delta.store_errors import shown_json
from strandline.errors import StrandlineError
from strandline.loop import LoopQuery
from strandline.time.errors import wrong_moment
from strandline.time.text.grammar import Wrong, read_moment

__all__ = ["CHANNEL", "EXTENSION", "IngestOptions", "OutputPlace", "ReadOptions", "WriteOptions"]

EXTENSION = "strandline.extension"
"""The shim sets this option. It shows the Python reader that the session has the extension."""

CHANNEL = "_channel"
"""The column of a source of several channels that names the channel of a row."""

_STORAGE = "storage."
_TABLE = "provider"
"""A property that every table of a catalog has. Spark gives all of a table's properties as options when it creates one."""
_BYTES = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def _invalid(name: str, value: str, expected: str) -> StrandlineError:
    shown = shown_json(value) if value.lstrip()[:1] in ("{", "[") else value
    return StrandlineError("STRANDLINE_OPTION_INVALID", f"Option {name} is {shown[:300]!r}, not {expected}.", f"Give {expected}.")


def _boolean(name: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise _invalid(name, value, "true or false")
    return value.strip().lower() == "true"


def _count(name: str, value: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", value.strip()) or int(value) < 1:
        raise _invalid(name, value, "a whole number of at least 1")
    return int(value)


def _version(name: str, value: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", value.strip()):
        raise _invalid(name, value, "a version of the table (0, 1, …)")
    return int(value)


def _batch(name: str, value: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", value.strip()):
        raise _invalid(name, value, "the number of a batch (0, 1, …)")
    return int(value)


def _starting_version(name: str, value: str) -> int | str:
    word = value.strip().lower()
    if word in ("latest", "snapshot"):
        return word
    if not re.fullmatch("[0-9]{1,18}", word):
        raise _invalid(name, value, "a version of the table (0, 1, …), latest or snapshot")
    return int(word)


def _timestamp_ms(name: str, value: str) -> int:
    """Return the first millisecond at or after a moment (UTC unless it has a zone)."""
    micros = read_moment(value)
    if isinstance(micros, Wrong):
        what, remedy = wrong_moment(value, micros)
        raise StrandlineError(
            "STRANDLINE_OPTION_INVALID",
            f"Option {name} is no date and no timestamp: {what}.",
            remedy,
        )
    return -(-micros // 1000)


def _size(name: str, value: str) -> int:
    match = _BYTES.fullmatch(value.strip())
    size = int(match.group(1)) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match.group(2).lower()] if match else 0
    if size < 1:
        raise _invalid(name, value, "a size in bytes, or such as 512m or 10g")
    return size


def _names(name: str, value: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise _invalid(name, value, "a comma-separated list of different names")
    return names


def _listed(name: str, value: str) -> tuple[str, ...]:
    """Read names as JSON, ``["a", "b"]``, or separated by commas if no name contains one."""
    if value.lstrip().startswith("["):
        try:
            names = json.loads(value)
        except ValueError:
            names = None
        if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names) or len(set(names)) != len(names):
            raise _invalid(name, value, "a JSON list of different names")
        return tuple(names)
    return _names(name, value) if value.strip() else ()


def _on_late(name: str, value: str) -> str:
    proper = {"setaside": "setAside", "fail": "fail"}.get(value.strip().lower())
    if proper is None:
        raise _invalid(name, value, "setAside or fail")
    return proper


def _show(name: str, value: str) -> str:
    if value.strip().lower() not in ("rows", "progress"):
        raise _invalid(name, value, "rows or progress")
    return value.strip().lower()


def _native_scan(name: str, value: str) -> str:
    if value.strip().lower() not in ("auto", "on", "off"):
        raise _invalid(name, value, "auto, on or off")
    return value.strip().lower()


_RESUME = ("true", "false", "stateful", "changed")


def _resume(name: str, value: str) -> str | None:
    word = value.strip().lower()
    if word not in _RESUME:
        raise _invalid(name, value, "true, stateful, changed or false")
    return None if word == "false" else word


def _resumed_output(name: str, value: str) -> str:
    """Return the path of the output that a source resumes. The words of the sink's option of the same name are no paths."""
    if value.strip().lower() in _RESUME:
        raise StrandlineError(
            "STRANDLINE_OPTION_INVALID",
            f"The source has the option resume = {value}, which is a value of the sink's option. At a source, resume is the path "
            "of the output that the query goes on with.",
            "Give the output's path at each source, and true, stateful or changed at the sink (docs/lost-checkpoint.md). Without "
            "resume, the query begins anew.",
        )
    return _text(name, value)


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise _invalid(name, value, "a name")
    return value.strip()


@dataclass(frozen=True)
class OutputPlace:
    """One of several outputs.

    Attributes:
        path: The path of its channel.
        column: The column of the query with its rows, which is a struct.
        fields: For each column of the channel, the field of the struct.
        time: The channel's time column.
        domain: The domain of its times.
    """

    path: str
    column: str
    fields: dict[str, str]
    time: str
    domain: str


def _object(name: str, value: str, rule: str) -> dict[str, Any]:
    """Read a JSON object that is not empty and has no empty name."""
    try:
        body = json.loads(value)
    except (ValueError, RecursionError):
        raise _invalid(name, value, rule) from None
    if not isinstance(body, dict) or not body or not all(body):
        raise _invalid(name, value, rule)
    return body


def _outputs(name: str, value: str) -> dict[str, OutputPlace]:
    rule = "a JSON object with path, column, fields, time and domain for each output's name"
    body = _object(name, value, rule)
    texts = ("path", "column", "time", "domain")
    for entry in body.values():
        if not isinstance(entry, dict) or set(entry) != {*texts, "fields"} or not isinstance(entry["fields"], dict):
            raise _invalid(name, value[:300], rule)
        each = [*(entry[text] for text in texts), *entry["fields"].values()]
        if entry["time"] not in entry["fields"] or any(not isinstance(text, str) or not text for text in each):
            raise _invalid(name, value[:300], rule)
    places: dict[str, str] = {}
    for output, entry in body.items():
        path = entry["path"]
        location = location_of(path)
        other = places.setdefault(location if "://" in location else os.path.realpath(location), output)
        if other != output:
            raise StrandlineError(
                "STRANDLINE_OUTPUTS_INVALID",
                f"The outputs {other} and {output} are both {path}.",
                "Write each channel by one output. To unite rows, use unionByName before you write them.",
            )
    return {output: OutputPlace(**entry) for output, entry in body.items()}


def _channels(name: str, value: str) -> dict[str, str]:
    rule = "a JSON object with the path of each channel by its name"
    body = _object(name, value, rule)
    if any(not isinstance(path, str) or not path for path in body.values()):
        raise _invalid(name, value, rule)
    lower = [each.lower() for each in body]  # Spark's columns, which have these names, are the same in any case
    if CHANNEL in lower:
        raise _invalid(name, value, f"without the name {CHANNEL}, which is a column of the source")
    if len(set(lower)) < len(lower):
        raise _invalid(name, value, "with names that differ not only in case")
    return body


def _feedback(name: str, value: str) -> dict[str, dict[str, int]]:
    rule = "a JSON object: for each feedback channel, by how much each coordinate of its times advances"
    body = _object(name, value, rule)
    if any(not isinstance(by, dict) or any(type(distance) is not int for distance in by.values()) for by in body.values()):
        raise _invalid(name, value[:300], rule)
    return body


def _queries(name: str, value: str) -> dict[str, LoopQuery]:
    rule = "a JSON object: for each query of the loop, what it reads and writes"
    body = _object(name, value, rule)
    for query in body.values():
        if not isinstance(query, dict) or set(query) != {"reads", "writes"} or not isinstance(query["reads"], list):
            raise _invalid(name, value[:300], rule)
        by_channel = query["writes"].values() if isinstance(query["writes"], dict) else [None]
        if any(not isinstance(by, dict) or any(type(distance) is not int for distance in by.values()) for by in by_channel):
            raise _invalid(name, value[:300], rule)
        if any(not isinstance(channel, str) for channel in query["reads"]):
            raise _invalid(name, value[:300], rule)
    return {query: LoopQuery(each["reads"], each["writes"]) for query, each in body.items()}


_READ: dict[str, Callable[[str, str], Any]] = {
    "path": _text,
    "channels": _channels,
    "domain": _text,
    "feedback": _feedback,
    "form": _text,
    "maxLoopGrowth": _count,
    "maxLoopRows": _count,
    "maxRounds": _count,
    "queries": _queries,
    "query": _text,
    "asOfVersion": _version,
    "columns": _names,
    "failOnDataLoss": _boolean,
    "ignoreDeletes": _boolean,
    "maxBytesPerTrigger": _size,
    "maxFilesPerTrigger": _count,
    "maxPartitionBytes": _size,
    "minPartitions": _count,
    "nativeScan": _native_scan,
    "producer": _text,
    "resume": _resumed_output,
    "show": _show,
    "skipChangeCommits": _boolean,
    "startingTimestamp": _timestamp_ms,
    "startingVersion": _starting_version,
    EXTENSION: _text,
}
_LOOP_ONLY = ("form", "maxRounds", "maxLoopRows", "maxLoopGrowth")
_STREAM_ONLY = (
    "channels",
    "domain",
    "feedback",
    "queries",
    "query",
    "ignoreDeletes",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    *_LOOP_ONLY,
    "producer",
    "resume",
    "skipChangeCommits",
    "startingTimestamp",
    "startingVersion",
)
_BATCH_ONLY = ("asOfVersion", "show")
_WRITE: dict[str, Callable[[str, str], Any]] = {
    "path": _text,
    "outputs": _outputs,
    "checkpointLocation": _text,
    "mergeSchema": _boolean,
    "producer": _text,
    "queryName": _text,
    "resume": _resume,
    "acceptReplay": _batch,
    "takeOver": _boolean,
    EXTENSION: _text,
}
_INGEST: dict[str, Callable[[str, str], Any]] = {
    "path": _text,
    "checkpointLocation": _text,
    "corrections": _boolean,
    "domain": _text,
    "latePath": _text,
    "maxAhead": _text,
    "maxFuture": _text,
    "mergeSchema": _boolean,
    "onLate": _on_late,
    "partition": _listed,
    "partitions": _listed,
    "policy": _text,
    "queryName": _text,
    "readsToEnd": _boolean,
    "takeOver": _boolean,
    "time": _text,
    EXTENSION: _text,
}


def _parse(options: Mapping[str, str], known: Mapping[str, Callable[[str, str], Any]], what: str) -> dict[str, Any]:
    """Return the values by their proper names. Spark passes names in lower case, and accepts them in any case."""
    proper = {name.lower(): name for name in known}
    if any(key.lower() == _TABLE for key in options):
        options = {key: value for key, value in options.items() if key.lower() in proper or key.lower().startswith(_STORAGE)}
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key.lower().startswith(_STORAGE):
            continue
        name = proper.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), proper, n=1)
            hint = f"Did you mean {proper[near[0]]}? " if near else ""
            valid = ", ".join(sorted((n for n in known if n != EXTENSION), key=str.lower))
            raise StrandlineError(
                "STRANDLINE_OPTION_UNKNOWN",
                f"{key!r} is not an option of {what}.",
                f"{hint}The options are {valid}, and storage.*.",
            )
        values[name] = known[name](name, value)
    several = next((name for name in ("outputs", "channels") if name in values), None)
    if several is not None and "path" in values:
        raise StrandlineError(
            "STRANDLINE_OPTION_CONFLICT",
            f"The options path ({values['path']}) and {several} are both given.",
            f"Call load() or start() without a path: the option {several} has a path for each channel.",
        )
    if "path" not in values and several is None:
        raise StrandlineError(
            "STRANDLINE_PATH_MISSING",
            f"{what[0].upper()}{what[1:]} needs a path.",
            "Give it to load() or start(), or to CREATE TABLE as LOCATION '…'.",
        )
    return values


def _storage(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options ``storage.NAME`` for delta-rs. Its names are in upper case, and Spark may have lowered them."""
    found = {key[len(_STORAGE) :].upper(): value for key, value in options.items() if key.lower().startswith(_STORAGE)}
    return found or None


def _check_loop(values: Mapping[str, Any]) -> None:
    """Raise for options that do not go with a loop, which must know the times of all rows."""
    if ("query" in values) != ("queries" in values) or ("queries" in values and "feedback" in values):
        given = ", ".join(name for name in ("feedback", "queries", "query") if name in values)
        raise StrandlineError(
            "STRANDLINE_OPTION_CONFLICT",
            f"The options {given} are given together.",
            "Give queries and query for a loop through several queries, or feedback for a loop of one query.",
        )
    if "queries" in values and values["query"] not in values["queries"]:
        raise StrandlineError(
            "STRANDLINE_OPTION_INVALID",
            f"The option query is {values['query']!r}, but the loop's queries are {', '.join(values['queries'])}.",
            "Name one of the queries.",
        )
    if "queries" in values and not values["queries"][values["query"]].writes:
        raise StrandlineError(
            "STRANDLINE_OPTION_INVALID",
            f"Query {values['query']!r} writes no channel of the loop.",
            "Leave it out of queries, and read the channels with pyspark_strandline.read_channels.",
        )
    unknown = [name for name in values.get("feedback", {}) if name not in values.get("channels", {})]
    if unknown:
        raise StrandlineError(
            "STRANDLINE_OPTION_INVALID",
            f"The option feedback names {', '.join(unknown)}, but the channels are {', '.join(values.get('channels', {}))}.",
            "Name channels of the option channels.",
        )
    if "resume" in values:
        raise StrandlineError(
            "STRANDLINE_RESUME_IMPOSSIBLE",
            "The option resume is given for a loop. What goes round in a loop depends on the state of its operators, which is "
            "lost.",
            "Start the loop anew: new channels for its feedback and its results, and new checkpoints for all its queries.",
        )
    for name in ("startingVersion", "startingTimestamp", "skipChangeCommits", "ignoreDeletes"):
        if name in values:
            raise StrandlineError(
                "STRANDLINE_OPTION_CONFLICT",
                f"The option {name} is given for a loop.",
                "Leave it out: a loop reads each channel from its first commit on, because it counts the times of all rows.",
            )


@dataclass(frozen=True)
class ReadOptions:
    """The options of ``readStream`` and ``read``. Sizes are in bytes.

    >>> ReadOptions.parse({"path": "/data/flights", "maxfilespertrigger": "10"}).max_files
    10
    >>> ReadOptions.parse({"path": "/data/flights", "maxFilePerTrigger": "10"})
    Traceback (most recent call last):
    strandline.errors.StrandlineError: [STRANDLINE_OPTION_UNKNOWN] ... Did you mean maxFilesPerTrigger? ...
    """

    path: str
    storage: dict[str, str] | None = field(default=None, repr=False)
    channels: dict[str, str] | None = None
    """Several channels, their paths by name. Then ``path`` is empty."""
    domain: str | None = None
    """The domain that the times of several channels enter (default: their own, which all share)."""
    feedback: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each channel that closes a loop, by how much each coordinate of its times advances on the way around."""
    queries: dict[str, LoopQuery] = field(default_factory=dict)
    """The queries of a loop that goes through several, by name."""
    query: str | None = None
    """Which of them this one is."""
    form: str | None = None
    """What else makes the query what it is. A checkpoint belongs to one form."""
    max_rounds: int = 6_000
    max_loop_rows: int | None = None
    max_loop_growth: int | None = None
    """How many rows may come round without a pause for each row from outside."""
    extension: str | None = None
    as_of_version: int | None = None
    columns: tuple[str, ...] | None = None
    fail_on_data_loss: bool = True
    ignore_deletes: bool = False
    max_bytes: int | None = None
    max_files: int | None = None
    max_partition_bytes: int = 128 << 20
    min_partitions: int | None = None
    native_scan: str = "auto"
    producer: str | None = None
    """With ``resume``: the producer of that output."""
    resume: str | None = None
    """The path of the output with which a new query goes on."""
    show: str = "rows"
    skip_change_commits: bool = False
    starting_timestamp_ms: int | None = None
    starting_version: int | str | None = None
    given: tuple[str, ...] = ()

    @property
    def is_loop(self) -> bool:
        """Whether the query reads what it writes, or another query of its loop does."""
        return bool(self.feedback or self.queries)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Check and convert. Raises a :class:`StrandlineError` that names the option, its value and the valid values."""
        values = _parse(options, _READ, "the strandline source")
        if "startingVersion" in values and "startingTimestamp" in values:
            raise StrandlineError(
                "STRANDLINE_OPTION_CONFLICT",
                "The options startingVersion and startingTimestamp are both given.",
                "Give one of them.",
            )
        if "channels" in values and isinstance(values.get("startingVersion"), int):
            raise StrandlineError(
                "STRANDLINE_OPTION_CONFLICT",
                f"startingVersion is {values['startingVersion']}, but several channels do not count their versions together.",
                "Give latest, snapshot or startingTimestamp.",
            )
        if "producer" in values and "resume" not in values:
            raise StrandlineError(
                "STRANDLINE_OPTION_CONFLICT",
                f"The source has the option producer ({values['producer']}), but not the option resume.",
                "Give resume too: producer names a producer of that output. Or give producer to the sink, which writes under it.",
            )
        is_loop = any(name in values for name in ("feedback", "queries", "query"))
        for loops in ("domain", "feedback", *_LOOP_ONLY):
            if loops in values and not is_loop and (loops in _LOOP_ONLY or "channels" not in values):
                raise StrandlineError(
                    "STRANDLINE_OPTION_CONFLICT",
                    f"The option {loops} is for several channels{' in a loop' if loops in _LOOP_ONLY else ''}.",
                    "Read them with pyspark_strandline.read_channels.",
                )
        if is_loop:
            _check_loop(values)
        for unsupported in ("columns", "show"):
            if "channels" in values and unsupported in values:
                raise StrandlineError(
                    "STRANDLINE_OPTION_CONFLICT",
                    f"The option {unsupported} is for one channel, but the option channels names {len(values['channels'])}.",
                    "Leave it out, and select the columns of each stream.",
                )
        return cls(
            path=values.get("path", ""),
            channels=values.get("channels"),
            domain=values.get("domain"),
            feedback=values.get("feedback", {}),
            queries=values.get("queries", {}),
            query=values.get("query"),
            form=values.get("form"),
            max_rounds=values.get("maxRounds", 6_000),
            max_loop_rows=values.get("maxLoopRows"),
            max_loop_growth=values.get("maxLoopGrowth"),
            storage=_storage(options),
            extension=values.get(EXTENSION),
            as_of_version=values.get("asOfVersion"),
            columns=values.get("columns"),
            fail_on_data_loss=values.get("failOnDataLoss", True),
            ignore_deletes=values.get("ignoreDeletes", False),
            max_bytes=values.get("maxBytesPerTrigger"),
            max_files=values.get("maxFilesPerTrigger"),
            max_partition_bytes=values.get("maxPartitionBytes", 128 << 20),
            min_partitions=values.get("minPartitions"),
            native_scan=values.get("nativeScan", "auto"),
            producer=values.get("producer"),
            resume=values.get("resume"),
            show=values.get("show", "rows"),
            skip_change_commits=values.get("skipChangeCommits", False),
            starting_timestamp_ms=values.get("startingTimestamp"),
            starting_version=values.get("startingVersion"),
            given=tuple(values),
        )

    def for_stream(self) -> ReadOptions:
        """Return these options. Raises if one of them is for batch reads only."""
        return self._without(_BATCH_ONLY, "spark.readStream", "spark.read")

    def for_batch(self) -> ReadOptions:
        """Return these options. Raises if one of them is for streams only."""
        return self._without(_STREAM_ONLY, "spark.read", "spark.readStream")

    def _without(self, names: tuple[str, ...], method: str, other: str) -> ReadOptions:
        wrong = [name for name in names if name in self.given]
        if wrong:
            raise StrandlineError(
                "STRANDLINE_OPTION_UNKNOWN",
                f"{wrong[0]} is an option of {other}, not of {method}.",
                f"Remove it, or use {other}.",
            )
        return self


@dataclass(frozen=True)
class WriteOptions:
    """The options of ``writeStream``.

    >>> WriteOptions.parse({"path": "/data/hours", "producer": "hourly"}).producer
    'hourly'
    """

    path: str
    storage: dict[str, str] | None = field(default=None, repr=False)
    producer: str | None = None
    take_over: bool = False
    merge_schema: bool = False
    outputs: dict[str, OutputPlace] | None = None
    """Several outputs by name. Then ``path`` is empty."""
    checkpoint: str | None = None
    resume: str | None = None
    """Whether a new query goes on with the channel: ``true``, or with a permission. ``stateful``: the user answers for operators'
    state. ``changed``: the query may make other rows now of what it has read, and the channel keeps those that it has."""
    accept_replay: int | None = None
    """A batch whose committed rows are kept, although it makes other rows if it is repeated."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Check and convert. Raises a :class:`StrandlineError` that names the option, its value and the valid values."""
        values = _parse(options, _WRITE, "the strandline sink")
        path, outputs = values.get("path", ""), values.get("outputs")
        take_over, checkpoint = values.get("takeOver", False), values.get("checkpointLocation")
        merge, resume = values.get("mergeSchema", False), values.get("resume")
        if resume and outputs is not None:
            raise StrandlineError(
                "STRANDLINE_RESUME_IMPOSSIBLE",
                f"The option resume is given for a query with the outputs {', '.join(outputs)}. They may be complete up to "
                "different positions of the inputs.",
                "Start it with new channels, which get all rows, and let the readers change to them. Or write each channel by a "
                "query of its own, which can be resumed.",
            )
        accepts = values.get("acceptReplay")
        return cls(path, _storage(options), values.get("producer"), take_over, merge, outputs, checkpoint, resume, accepts)


@dataclass(frozen=True)
class IngestOptions:
    """The options of ``writeStream`` with the option ``policy``, which makes it an ingest.

    >>> IngestOptions.parse({"path": "/data/flights", "policy": "ordered()", "time": "hour", "partitions": "EWR, JFK"}).partitions
    ('EWR', 'JFK')
    """

    path: str
    policy: str
    time: str
    partition: tuple[str, ...] = ()
    partitions: tuple[str, ...] | None = None
    on_late: str = "setAside"
    late_path: str | None = None
    max_ahead: str | None = None
    max_future: str = "auto"
    domain: str | None = None
    corrections: bool = False
    reads_to_end: bool = False
    checkpoint: str | None = None
    take_over: bool = False
    merge_schema: bool = False
    storage: dict[str, str] | None = field(default=None, repr=False)

    @staticmethod
    def wanted(options: Mapping[str, str]) -> bool:
        """Whether the options are those of an ingest."""
        return any(key.lower() == "policy" for key in options)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> IngestOptions:
        """Check and convert. Raises a :class:`StrandlineError` that names the option, its value and the valid values."""
        if any(key.lower() == "resume" for key in options):
            raise StrandlineError(
                "STRANDLINE_RESUME_IMPOSSIBLE",
                "The option resume is given for an ingest. Where its outside stream had been read is only in the checkpoint.",
                "Start it with the checkpoint that it had. Or ingest into a new channel, and let the readers change to it.",
            )
        values = _parse(options, _INGEST, "the strandline ingest")
        if "time" not in values:
            raise StrandlineError(
                "STRANDLINE_OPTION_MISSING",
                "The strandline ingest needs the option time.",
                "Set it to the name of the rows' time column.",
            )
        return cls(
            path=values["path"],
            policy=values["policy"],
            time=values["time"],
            partition=values.get("partition", ()),
            partitions=values.get("partitions"),
            on_late=values.get("onLate", "setAside"),
            late_path=values.get("latePath"),
            max_ahead=values.get("maxAhead"),
            max_future=values.get("maxFuture", "auto"),
            domain=values.get("domain"),
            corrections=values.get("corrections", False),
            reads_to_end=values.get("readsToEnd", False),
            checkpoint=values.get("checkpointLocation"),
            take_over=values.get("takeOver", False),
            merge_schema=values.get("mergeSchema", False),
            storage=_storage(options),
        )
