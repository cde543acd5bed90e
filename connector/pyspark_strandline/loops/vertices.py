"""``pregel``: vertex-centric computations over graphs that grow, in supersteps of a loop."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from pyspark_strandline.column_types import check_exchanged_types, check_stored_types
from pyspark_strandline.loops import errors
from pyspark_strandline.loops.aggregators import AGGREGATED, Aggregator, aggregators_of, given_schema, with_aggregated
from pyspark_strandline.loops.loop import ROUTED_TIME, read_loop
from pyspark_strandline.operators.errors import result_invalid_at_vertex
from pyspark_strandline.operators.operator_marker import MARK
from pyspark_strandline.operators.processor import Processor, process
from pyspark_strandline.operators.results.rules import MisfitError, Rule, rule
from pyspark_strandline.read.several.streams import Streams, read_channels
from pyspark_strandline.schema import arrow_schema, quoted, schema_above, time_field_of
from strandline.channel import Channel
from strandline.time.arrow import time_field
from strandline.time.domain import Lex, Time, TimeDomain, lex

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["VertexProgram", "pregel"]

_MESSAGES, _AGGREGATES, _RESULT = "messages", "aggregates", "result"
_INPUT, _MESSAGE, _TO, _KIND, _OUT, _IS, _GIVEN = "_input", "_message", "_to", "_kind", "_out", "_is", "_given"
_SENT, _RESULTS, _VALUES = "_m_", "_r_", "_a_"
_LAST = 2**63 - 1


class VertexProgram(ABC):
    """What each vertex of a graph does in a superstep (:func:`pregel`). A task makes one copy and passes it vertex after vertex.

    Within the methods, :attr:`vertex` is the vertex's id, and :attr:`state` a dict of ``state_schema``, or ``None`` for a vertex
    without state. A value assigned to it is kept until the next assignment, over all outer times. :attr:`time` is the outer
    time, and :attr:`step` the superstep, from 0 on.

    ``aggregators`` are values over all vertices of a superstep: for each name a function (``sum``, ``min``, ``max``, ``count``)
    and the type of what vertices give, such as ``{"change": "sum double"}``. :attr:`aggregated` has the values of the superstep
    before, each ``None`` where no vertex gave one. So all vertices can stop at the same superstep. A sum of numbers with a
    fraction depends on their order in its last digits, as in Spark.

    Source: Pregel (Malewicz et al., 2010). A vertex that gets no message sleeps. An outer time ends when all sleep.

    >>> class Smallest(VertexProgram):
    ...     state_schema = "label bigint, neighbours array<bigint>"
    ...     message_schema = "label bigint"
    ...     schema = "label bigint"
    ...
    ...     def compute(self, inputs, messages):
    ...         known = self.state or {"label": self.vertex, "neighbours": []}
    ...         new = [row["other"] for row in inputs if row["other"] not in known["neighbours"]]
    ...         label = min([known["label"], *(message["label"] for message in messages)])
    ...         all_ = known["neighbours"] + new
    ...         for other in all_ if label < known["label"] else new:
    ...             self.send(other, label=label)
    ...         self.state = {"label": label, "neighbours": all_}
    ...
    ...     def result(self):
    ...         return {"label": self.state["label"]}
    """

    state_schema: StructType | str
    message_schema: StructType | str
    schema: StructType | str
    aggregators: Mapping[str, str] = MappingProxyType({})

    vertex: Any
    state: dict[str, Any] | None
    time: Time
    step: int
    aggregated: dict[str, Any]

    @abstractmethod
    def compute(self, inputs: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
        """Do the work of one superstep. It is called once for each vertex that has inputs or messages in it.

        Args:
            inputs: The vertex's rows from outside, in superstep 0: dicts of their columns, without the vertex and the time.
            messages: The messages that were sent to the vertex in the superstep before: dicts of ``message_schema``.
        """

    @abstractmethod
    def result(self) -> dict[str, Any] | None:
        """Return the vertex's result at the end of an outer time in which it was active: a dict of ``schema``, or ``None``.

        It may assign the state. It may not send messages.
        """

    def send(self, to: Any, **message: Any) -> None:
        """Send a message. The vertex ``to`` gets it in the next superstep.

        Args:
            to: The id of a vertex. It need not exist yet. Ids are equal as in Spark's ``groupBy``: null is an id, and ``-0.0``
                is ``0.0``.
            message: The fields of ``message_schema``, all of them.

        Raises:
            StrandlineError: ``STRANDLINE_RESULT_INVALID`` if the id or the message does not fit its type.
        """
        self._sent.append(self._check.message(to, message))

    def aggregate(self, **values: Any) -> None:
        """Give values to aggregators. The vertices of the next superstep read the values over all vertices of this one.

        Args:
            values: For each aggregator a value of its type. Those that are left out get nothing.

        Raises:
            StrandlineError: ``STRANDLINE_RESULT_INVALID`` if a value does not fit its type, or there is no such aggregator.
        """
        self._given.append(self._check.given(values))

    _sent: list[dict[str, Any]]
    _given: list[dict[str, Any]]
    _check: _Checks


def pregel(
    spark: SparkSession,
    channels: Mapping[str, str | os.PathLike[str]],
    program: VertexProgram,
    inputs: Callable[[Streams], DataFrame],
    path: str | os.PathLike[str],
    *,
    vertex: str = "vertex",
    at: str = "step",
    storage: Mapping[str, str] | None = None,
    **options: Any,
) -> DataStreamWriter:
    """Run a vertex program over a graph that grows: for each outer time, supersteps until no message is sent.

    The supersteps of an outer time begin when the outer time before it is at rest and its own rows are complete. The states
    stay, so each outer time goes on from the graph before it, and only vertices with inputs or messages do anything. So the
    outer times must have an order: they have one coordinate, or are ``lex``.

    Args:
        spark: The session.
        channels: The paths of the channels with the graph's rows, by name. Their times are the outer times.
        program: The program.
        inputs: A function of the streams, ``streams["name"]``, that returns the rows for vertices: the column ``vertex``,
            the time, and any others. To tell both ends of an edge, return it twice.
        path: A folder. The messages become the channel ``messages`` in it, and the results ``result``: for each outer time and
            each vertex that was active in it, the result at its end.
        vertex: The name of the column with the vertex's id.
        at: The name of the coordinate that counts supersteps.
        storage: Options of the object store.
        options: Options of the source (docs/options.md), such as ``maxRounds``.

    Returns:
        A writer with format and options set. Give it a checkpoint and start it.

    Raises:
        StrandlineError: The inputs have no column ``vertex``; an argument is invalid; ``STRANDLINE_LOOP_UNSUPPORTED`` if the
            outer times are partially ordered.

    ``pregel(spark, {"edges": edges}, Smallest(), lambda streams: both_ends(streams["edges"]), folder)``
    """
    plain = {name.removeprefix("storage."): value for name, value in (storage or {}).items()} or None
    outer = _outer_domain(channels, plain)
    domain = _inner_domain(outer, at)
    folder = os.fspath(path).rstrip("/")
    # The type of a vertex's id is known only from the inputs, and the message channel must exist before they are read together.
    kind = _vertex_type(spark, channels, inputs, vertex, domain, storage)
    message = _struct(program.message_schema)
    result = _struct(program.schema)
    _check_names(vertex, message.names, result.names)
    columns = StructType([StructField(vertex, kind), *message.fields])
    check_stored_types(columns, "The messages")
    check_stored_types(result, "The results")
    check_exchanged_types(_struct(program.state_schema), "The states")
    schema = pa.schema([time_field("time", domain), *arrow_schema(columns)])
    aggregators = aggregators_of(program.aggregators)
    schemas = {_MESSAGES: schema, **_aggregates(aggregators, domain)}
    for name, each in schemas.items():
        Channel.create(f"{folder}/{name}", each, time="time", producers=["loop"], storage_options=plain, exist_ok=True)
    loop = read_loop(
        spark,
        {**channels, **{name: f"{folder}/{name}" for name in schemas}},
        feedback={name: {at: 1} for name in schemas},
        domain=domain,
        storage=storage,
        **{**options, "form": _form(program, vertex)},
    )
    given = inputs(loop.streams)
    time = _checked_inputs(given, vertex)
    rows = _for_vertices(given, loop[_MESSAGES], message, vertex=vertex, time=time)
    if aggregators:
        rows = with_aggregated(rows, loop[_AGGREGATES], aggregators, vertex=vertex)
    processor = _Vertices(program, rows.schema[_INPUT].dataType, message, kind)
    out = process(rows, processor, key=vertex)
    flat, places = _flat(out, vertex, message, result, list(aggregators))
    leave = [name for name, _ in domain.coordinates[:-1]]
    return loop.route(
        flat,
        _KIND,
        {**dict.fromkeys(schemas), _RESULT: f"{folder}/{_RESULT}"},
        columns=places,
        leave={_RESULT: leave if len(leave) > 1 else leave[0]},
    )


def _aggregates(aggregators: Mapping[str, Aggregator], domain: TimeDomain) -> dict[str, pa.Schema]:
    """Return the schema of the channel of what vertices give to aggregators, if there are any."""
    values = given_schema(aggregators)
    check_stored_types(values, "The values of aggregators")
    return {_AGGREGATES: pa.schema([time_field("time", domain), *arrow_schema(values)])} if aggregators else {}


def _flat(
    out: DataFrame, vertex: str, message: StructType, result: StructType, aggregators: list[str]
) -> tuple[DataFrame, dict[str, dict[str, str]]]:
    """Return what vertices emit with a column for each field, and which column becomes which of each channel."""
    columns = [
        *(F.col(f"{_MESSAGE}.{quoted(name)}").alias(f"{_SENT}{name}") for name in message.names),
        *(F.col(f"{_OUT}.{quoted(name)}").alias(f"{_RESULTS}{name}") for name in result.names),
        *(F.col(f"{_GIVEN}.{quoted(name)}").alias(f"{_VALUES}{name}") for name in aggregators),
    ]
    places = {
        _MESSAGES: {vertex: _TO, **{name: f"{_SENT}{name}" for name in message.names}},
        _RESULT: {vertex: vertex, **{name: f"{_RESULTS}{name}" for name in result.names}},
        **({_AGGREGATES: {name: f"{_VALUES}{name}" for name in aggregators}} if aggregators else {}),
    }
    return out.select("time", _KIND, F.col(quoted(vertex)), _TO, *columns), places


def _for_vertices(given: DataFrame, sent: DataFrame, message: StructType, *, vertex: str, time: str) -> DataFrame:
    """Return the rows for vertices: inputs, and the messages that were sent to them. Each has one of the two columns."""
    outside = [column for column in given.columns if column not in (vertex, time)]
    inputs = given.select(
        F.col(quoted(time)).alias("time"),
        F.col(quoted(vertex)),
        F.struct(F.lit(True).alias(_IS), *_columns(outside)).alias(_INPUT),
        F.lit(None).cast(message).alias(_MESSAGE),
    )
    messages = sent.select(
        "time",
        F.col(quoted(vertex)),
        F.lit(None).cast(inputs.schema[_INPUT].dataType).alias(_INPUT),
        F.struct(*_columns(message.names)).alias(_MESSAGE),
    )
    return inputs.unionByName(messages)


class _Checks:
    """What a program returns, checked against its schemas, in words of the program."""

    def __init__(self, program: VertexProgram, fields: Sequence[pa.Field]) -> None:
        self._program = program
        self._to, self._state, self._message, self._result, *given = map(rule, fields)
        self._values = dict(zip(program.aggregators, given, strict=True))

    def message(self, to: Any, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message as a row."""
        vertex = self._checked(self._to, to, "The vertex to which", "sends a message", "of the type of a vertex's id")
        return {_TO: vertex, _MESSAGE: self._checked(self._message, message, "The message that", "sends", "of message_schema")}

    def given(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return values for aggregators as a row."""
        for name in values:
            if name not in self._values:
                raise errors.result_invalid_aggregator(type(self._program).__name__, name, self._values)
        checked = {
            name: self._checked(check, values.get(name), f"The value for {name} that", "gives", "of its aggregator")
            for name, check in self._values.items()
        }
        return {_GIVEN: checked}

    def state(self, state: Any) -> Any:
        """Return the state of a vertex."""
        return self._checked(self._state, state, "The state that", "leaves", "of state_schema")

    def result(self, result: Any) -> Any:
        """Return the result of a vertex."""
        return self._checked(self._result, result, "The result that", "returns", "of schema")

    def _checked(self, check: Rule, value: Any, what: str, does: str, of: str) -> Any:
        try:
            return check(value)
        except MisfitError as misfit:
            program = self._program
            place = f"at vertex {program.vertex!r}, time {program.time}"
            raise result_invalid_at_vertex(
                f"{what} {type(program).__name__} {does} {place}, {_step(program.step)},", of, misfit
            ) from None


def _step(step: int) -> str:
    return "after the last superstep" if step == _LAST else f"superstep {step}"


class _Vertices(Processor):
    """Collects what comes to a vertex in a superstep, and runs the program when the superstep is complete."""

    def __init__(self, program: VertexProgram, inputs: Any, message: StructType, kind: Any) -> None:
        self._program = program
        # Here, because a task has no session that reads a schema's text.
        values = given_schema(aggregators_of(program.aggregators))
        of = (kind, _struct(program.state_schema), message, _struct(program.schema), *(field.dataType for field in values))
        self._fields = [arrow_schema(StructType([StructField("it", each)])).field(0) for each in of]
        self.schema = StructType(
            [
                StructField(_KIND, StringType()),
                StructField(_TO, kind),
                StructField(_MESSAGE, message),
                StructField(_OUT, _struct(program.schema)),
                *([StructField(_GIVEN, values)] if program.aggregators else []),
            ]
        )
        known = StructType([StructField(name, each.result) for name, each in aggregators_of(program.aggregators).items()])
        self._came = [_INPUT, _MESSAGE, *([AGGREGATED] if program.aggregators else [])]
        kinds = dict(zip(self._came, (inputs, message, known), strict=False))
        entry = StructType([StructField("time", StringType()), *(StructField(name, each) for name, each in kinds.items())])
        self.state_schema = StructType(
            [StructField("value", _struct(program.state_schema)), StructField("inbox", ArrayType(entry))]
        )

    def on_rows(self, time: Time, rows: pa.Table) -> None:
        state = self.state or {"value": None, "inbox": []}
        came = [{"time": repr(time), **row} for row in rows.select(self._came).to_pylist()]
        self.state = {"value": state["value"], "inbox": [*state["inbox"], *came]}
        self.notify_at(time)

    def on_notify(self, time: Time) -> None:
        state = self.state or {"value": None, "inbox": []}
        program = self._program
        *outer, step = time
        program.vertex, program.state, program._sent, program._given = self.key[0], state["value"], [], []
        program.time, program.step = outer[0] if len(outer) == 1 else tuple(outer), step
        check = program._check = self._checks()
        if step == _LAST:
            result = check.result(program.result())
            if program._sent or program._given:
                raise errors.loop_unsupported_message(self.key[0], len(program._sent) + len(program._given))
            self.state = self._kept(program.state, state["inbox"])
            if result is not None:
                given = {_GIVEN: None} if program.aggregators else {}
                self.emit(time, [{_KIND: _RESULT, _TO: None, _MESSAGE: None, _OUT: result, **given}])
            return
        mine = [entry for entry in state["inbox"] if entry["time"] == repr(time)]
        inputs = [{name: value for name, value in entry[_INPUT].items() if name != _IS} for entry in mine if entry[_INPUT]]
        program.aggregated = (mine[0].get(AGGREGATED) or dict.fromkeys(program.aggregators)) if mine else {}
        program.compute(inputs, [entry[_MESSAGE] for entry in mine if entry[_INPUT] is None])
        left = [entry for entry in state["inbox"] if entry["time"] != repr(time)]
        self.state = self._kept(program.state, left)
        nothing = {_TO: None, _MESSAGE: None, _OUT: None, **({_GIVEN: None} if program.aggregators else {})}
        rows = [{**nothing, _KIND: _MESSAGES, **sent} for sent in program._sent]
        rows += [{**nothing, _KIND: _AGGREGATES, **given} for given in program._given]
        if rows:
            self.emit(time, rows)
        self.notify_at((*outer, _LAST))

    def _kept(self, value: dict[str, Any] | None, inbox: list[Any]) -> dict[str, Any] | None:
        value = self._checks().state(value)
        return {"value": value, "inbox": inbox} if value is not None or inbox else None

    def _checks(self) -> _Checks:
        """Return the checks of the program, made once in a task."""
        if self._made is None:
            self._made = _Checks(self._program, self._fields)
        return self._made

    _made: _Checks | None = None

    def _name_of(self, call: str) -> str:
        return f"{type(self._program).__name__}.{'result' if getattr(self._program, 'step', 0) == _LAST else 'compute'}"


def _form(program: VertexProgram, vertex: str) -> str:
    """Return what makes the query: the states and messages of one program are none of another."""
    schemas = {"state": program.state_schema, "message": program.message_schema, "result": program.schema}
    form = {"vertex": vertex, **{name: _struct(schema).simpleString() for name, schema in schemas.items()}}
    return json.dumps({**form, **({"aggregators": dict(program.aggregators)} if program.aggregators else {})})


def _struct(schema: StructType | str) -> StructType:
    parsed = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    assert isinstance(parsed, StructType)  # noqa: S101 - fromDDL of several fields
    return parsed


def _outer_domain(channels: Mapping[str, str | os.PathLike[str]], storage: dict[str, str] | None) -> TimeDomain:
    domains = {str(domain): domain for domain in (Channel.open(path, storage).domain for path in channels.values())}
    if len(domains) != 1:
        raise errors.time_domain_mismatch(domains)
    domain = next(iter(domains.values()))
    if not domain.is_total:
        raise errors.loop_unsupported_order(domain)
    return domain


def _inner_domain(outer: TimeDomain, at: str) -> TimeDomain:
    """Return the domain of supersteps: those of an outer time come after all of the outer times before it."""
    if isinstance(outer, Lex) and at not in dict(outer.coordinates):
        return lex(**dict(outer.coordinates), **{at: "int64"})
    inner: dict[str, TimeDomain | str] = {"outer" if at != "outer" else "time": outer, at: "int64"}
    return lex(**inner)


def _vertex_type(
    spark: SparkSession,
    channels: Mapping[str, str | os.PathLike[str]],
    inputs: Callable[[Streams], DataFrame],
    vertex: str,
    domain: TimeDomain,
    storage: Mapping[str, str] | None,
) -> Any:
    options = {f"storage.{name.removeprefix('storage.')}": value for name, value in (storage or {}).items()}
    given = inputs(read_channels(spark, channels, domain=domain, **options))
    _checked_inputs(given, vertex)
    return given.schema[vertex].dataType


def _check_names(vertex: str, messages: list[str], results: list[str]) -> None:
    """Raise for names that the channels and the columns of the plan cannot have. Spark and Delta do not look at the case."""
    own = vertex.lower() in {_INPUT, _MESSAGE, _TO, _KIND, _OUT, _GIVEN, AGGREGATED, "_part", "time"}
    if own or vertex.lower().startswith((MARK, ROUTED_TIME, _SENT, _RESULTS, _VALUES)):
        raise errors.column_reserved_vertex(vertex)
    for of, names in (("messages", messages), ("results", results)):
        lower = ["time", vertex.lower(), *map(str.lower, names)]
        clash = [name for name in names if lower.count(name.lower()) > 1]
        if clash:
            raise errors.key_invalid_fields(of, clash)


def _columns(names: Iterable[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


def _checked_inputs(given: DataFrame, vertex: str) -> str:
    if vertex not in given.columns:
        raise errors.key_invalid_inputs(given.columns, vertex)
    if _IS in given.columns:
        raise errors.column_reserved_inputs(_IS)
    return time_field_of(schema_above(given))[0]
