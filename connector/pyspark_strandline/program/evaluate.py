"""``evaluate``: a program as one streaming query, whose rules are a loop."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F

from pyspark_strandline.loops.loop import Loop, read_loop
from pyspark_strandline.operators.completion import hold
from pyspark_strandline.operators.meet import Keep, distinct_for_good
from pyspark_strandline.operators.operator_marker import MARK
from pyspark_strandline.operators.time_functions import project
from pyspark_strandline.program import errors
from pyspark_strandline.program.bodies import Bodies, Rows
from pyspark_strandline.program.slots import RELATION, RESERVED, TIME, Slots
from pyspark_strandline.program.wiring import NEXT, ROUND, TICKS, Wiring
from pyspark_strandline.schema import quoted
from strandline.channel import Channel
from strandline.program import Program
from strandline.program.plan import Node, ProgramPlan, RulePlan, Union
from strandline.time.domain import Lex, int64, parse_domain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Buffering", "evaluate"]

Buffering = Literal["none", "stratum", "tick"]
_TICK = "tick"
_OUTER, _TO = "_outer", "_to"
_PROGRAM = "strandline.program"
"""The property of the loop's channels that says which program they are of."""


def evaluate(
    spark: SparkSession,
    program: Program,
    inputs: Mapping[str, str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    buffering: Buffering = "none",
    storage: Mapping[str, str] | None = None,
    **options: Any,
) -> DataStreamWriter:
    """Run a program as one streaming query.

    Each relation becomes a channel below ``path``, whose times are the ticks. A tick of it is complete when the program has
    passed the tick. A relation that is kept for good has each row at the tick at which it holds first.

    Args:
        spark: The session. Its ``spark.sql.ansi.enabled`` is true, so that integers do not wrap around.
        program: The program.
        inputs: The paths of the inputs' channels, by the inputs' names. Those of the program itself may be left out.
        path: A folder. The program's own channels become ``_round``, ``_next`` and so on in it, and the results the names of the
            relations.
        buffering: When work begins that needs no complete set. ``none``: with each row. ``stratum``: with each complete round, in
            the order of ticks and strata. ``tick``: when the inputs of a tick are complete. The results are the same.
        storage: Options of the object store.
        options: Options of the source (docs/options.md), such as ``maxRounds``.

    Returns:
        A writer with format and options set. Give it a checkpoint and start it. A checkpoint belongs to one program.

    Raises:
        ProgramError: As for :meth:`strandline.program.Program.plan`; an input has no channel, or one with other columns; the
            folder has the channels of another program (``STRANDLINE_PROGRAM_DIFFERS``).

    ``evaluate(spark, program, {"edge": "/lake/edge"}, "/lake/reach")``
    """
    plan = program.plan()
    plain = {name.removeprefix("storage."): value for name, value in (storage or {}).items()} or None
    if buffering not in ("none", "stratum", "tick"):
        raise errors.option_invalid_buffering(buffering)
    if str(spark.conf.get("spark.sql.ansi.enabled")).lower() != "true":
        raise errors.program_session_invalid()
    _check(plan)
    opened = _opened(plan, inputs, plain)
    paths = {name: channel.path for name, channel in opened.items()}
    folder = os.fspath(path).rstrip("/")
    wiring = Wiring(plan, at_once=buffering == "none")
    domain = Lex(((_TICK, parse_domain(plan.tick)), ("stratum", int64), ("iter", int64)))
    feedback = wiring.feedback(domain)
    slots = Slots(wiring.schemas)
    form = _form(plan, buffering)
    _check_folder(f"{folder}/{ROUND}", form, plain)
    for name, (own, _) in feedback.items():
        Channel.create(
            f"{folder}/{name}",
            slots.schema(own),
            time=TIME,
            producers=["loop"],
            storage_options=plain,
            exist_ok=True,
            configuration={_PROGRAM: form},
        )
        paths[name] = f"{folder}/{name}"
    loop = read_loop(
        spark,
        paths,
        feedback={name: by for name, (_, by) in feedback.items()},
        domain=domain,
        storage=storage,
        **options,
        form=form,
        passing=json.dumps(wiring.passing() if buffering != "stratum" else []),
    )
    rows = _Query(wiring, slots, loop, {name: opened[name].time_column for name in opened}, buffering).routed()
    results = [relation.name for relation in plan.relations.values() if not relation.is_input]
    targets: dict[str, str | None] = {**dict.fromkeys(feedback), **{name: f"{folder}/{name}" for name in results}}
    columns = {name: slots.of[name] for name in results}
    return loop.route(rows, _TO, targets, columns=columns, leave=dict.fromkeys(results, _TICK))


class _Query:
    """The DataFrame of a program: what its rules give, each row once, and where it goes."""

    def __init__(self, wiring: Wiring, slots: Slots, loop: Loop, times: Mapping[str, str], buffering: Buffering) -> None:
        self._wiring, self._slots, self._loop, self._times, self._buffering = wiring, slots, loop, times, buffering

    def routed(self) -> DataFrame:
        """Return all new rows of all relations, with the names of the channels that get them in the column ``_to``."""
        wiring = self._wiring
        once: list[DataFrame] = []
        for_good: list[DataFrame] = []
        for name, relation in wiring.relations.items():
            if wiring.is_outside(name) and wiring.ways(name):
                rows = self._slots.pack(self._from_outside(name), name)
                rows = hold(rows) if self._buffering == "tick" else rows
                (for_good if relation.keep == "always" else once).append(rows)
        for rule in wiring.rules:
            is_kept = not rule.next_tick and wiring.relations[rule.head].keep == "always"
            (for_good if is_kept else once).extend(self._of_rule(rule, is_kept=is_kept))
        found = []
        if once:
            found.append(self._once_in_tick(_united(once)))
        if for_good:
            found.append(distinct_for_good(hold(_united(for_good))))
        return _united(found).withColumn(_TO, self._targets())

    def _of_rule(self, rule: RulePlan, *, is_kept: bool) -> list[DataFrame]:
        wiring = self._wiring

        def read(name: str) -> Rows:
            keep: Keep = "always" if wiring.relations[name].keep == "always" else "within"
            return Rows(self._read(name, rule.stratum), keep, is_set=not wiring.is_read_at_once(name, rule.stratum))

        bodies = Bodies(read, lambda: self._read(TICKS, rule.stratum), rule.place)
        each = [bodies.of(node) for node in _branches(rule.body)]
        # Of a relation that is kept for good, a row belongs to the tick at which it holds first.
        frames = [rows.df if is_kept else bodies.in_tick(rows) for rows in each]
        return [self._slots.pack(frame, rule.head, wiring.tag(rule)) for frame in frames]

    def _read(self, name: str, stratum: int) -> DataFrame:
        """Return a relation's rows as the rules of a stratum read them."""
        if self._wiring.is_read_at_once(name, stratum):
            return self._from_outside(name)
        return self._slots.unpack(self._loop[self._wiring.way(name, stratum)], name)

    def _from_outside(self, name: str) -> DataFrame:
        """Return the rows that come into a tick: of an input, of what was carried into it, or one for each tick with any."""
        if name == TICKS:
            each = [
                self._from_outside(other) for other in self._wiring.relations if other != TICKS and self._wiring.is_outside(other)
            ]
            return _united([rows.select(TIME) for rows in each])
        if (carried := self._wiring.carried.get(name)) is not None:
            return self._slots.unpack(self._loop[NEXT], name, tag=carried)
        columns = (F.col(quoted(column)) for column in self._wiring.schemas[name].names)
        return self._loop[name].select(F.col(quoted(self._times[name])).alias(TIME), *columns)

    def _once_in_tick(self, rows: DataFrame) -> DataFrame:
        """Return each row once in its tick and stratum."""
        rows = hold(rows) if self._buffering == "stratum" else rows
        whole = project(rows.select("*", F.col(TIME).alias(_OUTER)), [_TICK, "stratum"], column=_OUTER)
        return whole.dropDuplicates([_OUTER, RELATION, *self._slots.names]).drop(_OUTER)

    def _targets(self) -> Column:
        """Return the names of the channels that get a row."""
        ways = self._wiring.targets()
        empty = F.array().cast("array<string>")
        return reduce(
            lambda rest, tag: F.when(F.col(RELATION) == tag, F.array(*map(F.lit, ways[tag]))).otherwise(rest), ways, empty
        )


def _branches(body: Node) -> list[Node]:
    """Return the nodes whose rows a body has together."""
    return [each for child in body.children for each in _branches(child)] if isinstance(body, Union) else [body]


def _united(several: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda a, b: a.unionByName(b), several)


def _opened(
    plan: ProgramPlan, inputs: Mapping[str, str | os.PathLike[str]], storage: Mapping[str, str] | None
) -> dict[str, Channel]:
    """Return the channels of the inputs."""
    known = [relation for relation in plan.relations.values() if relation.is_input]
    unknown = [name for name in inputs if name not in {relation.name for relation in known}]
    if unknown:
        raise errors.program_rows_invalid_channel_unknown(unknown, [relation.name for relation in known])
    found: dict[str, Channel] = {}
    for relation in known:
        path = inputs.get(relation.name, relation.path)
        if path is None:
            raise errors.program_rows_invalid_channel_missing(relation.name)
        channel = Channel.open(path, storage)
        if str(channel.domain) != plan.tick:
            raise errors.program_rows_invalid_channel_ticks(relation.name, channel.path, channel.domain, plan.tick)
        have = {field.name: field.type for field in channel.schema}
        wrong = {f.name: (f.type, have.get(f.name)) for f in relation.schema if have.get(f.name) != f.type}
        if wrong:
            raise errors.program_rows_invalid_channel_columns(relation.name, channel.path, wrong)
        for name, other in found.items():
            if other.table_id == channel.table_id:
                raise errors.program_rows_invalid_channel_twice(name, relation.name, channel.path)
        found[relation.name] = channel
    return found


def _check(plan: ProgramPlan) -> None:
    """Raise for a program without rules, and for names that channels and columns cannot have. Spark does not look at the case."""
    for relation in plan.relations.values():
        if relation.name.startswith("_"):
            raise errors.column_reserved_by_program_channel(relation.name)
        for name in relation.schema.names:
            if name.lower() == TIME or name.lower().startswith((RESERVED, MARK)):
                raise errors.column_reserved_by_program(relation.name, name)
    if not plan.rules:
        raise errors.program_rows_invalid_no_rules(plan.name)


def _check_folder(path: str, form: str, storage: Mapping[str, str] | None) -> None:
    """Raise if the channels of a folder are of another program, or of another form of this one."""
    if not Channel.exists(path, storage):
        return
    had, now = json.loads(Channel.open(path, storage).properties.get(_PROGRAM, "{}")), json.loads(form)
    differs = [what for what in now if had.get(what) != now[what]]
    if differs:
        raise errors.program_differs(os.path.dirname(path), differs[0], had.get(differs[0]), now[differs[0]])


def _form(plan: ProgramPlan, buffering: Buffering) -> str:
    """Return what makes the query: a checkpoint belongs to one program. A function is not looked into."""
    rules = [[rule.head, rule.next_tick, repr(rule.body)] for rule in plan.rules]
    relations = [[r.name, str(r.schema), r.keep, r.is_input] for r in plan.relations.values()]
    return json.dumps({"program": plan.name, "step": plan.step, "relations": relations, "rules": rules, "buffering": buffering})
