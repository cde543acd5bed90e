"""Programs: inputs, relations and rules."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

import pyarrow as pa

from strandline.channel import Channel
from strandline.errors import StrandlineError
from strandline.program import errors
from strandline.program.explanation import as_dot, as_text, strata
from strandline.program.local.run import run
from strandline.program.place import caller
from strandline.program.plan import Keep, Node, ProgramPlan, Read, RelationPlan, RulePlan, reads
from strandline.program.rows import Rows
from strandline.program.schema import Row, checked_schema, is_ddl, is_name, parse_ddl
from strandline.program.strata import in_strata
from strandline.time.domain import Scalar, TimeDomain, parse_domain
from strandline.time.duration import Duration

__all__ = ["Program"]

F = TypeVar("F", bound=Callable[..., Rows])


class Program:
    """Rules over sets of rows, which are evaluated tick after tick, and stratum after stratum in each tick.

    Args:
        name: The name of the program: letters, digits and ``_``.
        tick: The domain of the ticks: ``int64`` or another domain of integers, or ``timestamp``.
        step: By how much a rule with ``next_tick`` advances a tick: an integer of 1 or more, or a duration such as ``1 hour``.

    >>> p = Program("reachability")
    >>> edge = p.input("edge", "x long, y long", keep="always")
    >>> reach = p.relation("reach", "x long, y long", keep="always")
    >>> p.rule(reach, edge)
    >>> p.rule(reach, reach.meet(edge.select(y="x", z="y"), on="y").select("x", y="z"))
    >>> p.strata
    [['edge', 'reach']]
    """

    def __init__(self, name: str, *, tick: str = "int64", step: int | str = 1) -> None:
        if not isinstance(name, str) or not is_name(name):
            raise errors.program_invalid_name(caller(), name)
        self.name, self.tick = name, tick
        self._domain = _domain(tick)
        self.step = _step(step, self._domain)
        self._relations: dict[str, RelationPlan] = {}
        self._rules: list[RulePlan] = []

    def input(self, name: str, schema: pa.Schema | str | os.PathLike[str], keep: Keep = "tick") -> Rows:
        """Name an input, and return its rows.

        Args:
            name: The name: letters, digits and ``_``.
            schema: The columns: a schema, a text such as ``"a long, b string"``, or the path of a channel. A channel's times are
                the ticks, and its other columns are the input's.
            keep: ``tick``: the input holds the rows that came at this tick. ``always``: also those of all earlier ticks.

        Raises:
            ProgramError: The name is taken, a type is none of a program's, or the channel's times are of another domain.
        """
        if isinstance(schema, os.PathLike) or (isinstance(schema, str) and not is_ddl(schema)):
            path = os.fspath(schema)
            return self._add(name, self._channel_schema(path), keep, path)
        return self._add(name, schema, keep, None)

    def relation(self, name: str, schema: pa.Schema | str, keep: Keep = "tick") -> Rows:
        """Name a relation, and return its rows. Rules say what it holds.

        Args:
            name: The name: letters, digits and ``_``.
            schema: The columns: a schema, or a text such as ``"a long, b string"``.
            keep: ``tick``: at each tick the relation holds what the rules give in this tick. ``always``: it grows only. Then its
                rules are monotone, and read inputs and relations that are kept always.

        Raises:
            ProgramError: The name is taken, or a type is none of a program's.
        """
        return self._add(name, schema, keep, None, is_input=False)

    @overload
    def rule(self, head: str | Rows, rows: Rows, *, next_tick: bool = False) -> None: ...

    @overload
    def rule(self, head: str | Rows, rows: None = None, *, next_tick: bool = False) -> Callable[[F], F]: ...

    def rule(self, head: str | Rows, rows: Rows | None = None, *, next_tick: bool = False) -> Callable[[F], F] | None:
        """Add a rule: the relation ``head`` holds these rows.

        Without ``rows`` it is a decorator of a function that returns them. The function's parameters are names of relations.

        Args:
            head: A relation, or its name.
            rows: The rows, with the columns of the relation.
            next_tick: Whether the relation holds the rows at the next tick instead, one step after this one.

        Raises:
            ProgramError: A relation is unknown, an input or another program's; the columns differ from the relation's; or the
                relation is kept always, and the rule does not allow it.

        >>> p = Program("example")
        >>> edge, seen = p.input("edge", "x long, y long"), p.relation("seen", "x long")
        >>> @p.rule("seen")
        ... def ends(edge):
        ...     return edge.select(x="y")
        >>> p.strata
        [['edge', 'seen']]
        """
        place = caller()
        name = self._head(head, place)
        if rows is not None:
            self._add_rule(name, rows, next_tick, place)
            return None

        def decorate(function: F) -> F:
            self._add_rule(name, function(*self._arguments(function, place)), next_tick, place)
            return function

        return decorate

    @property
    def strata(self) -> list[list[str]]:
        """The names of the relations of each stratum, in the order of evaluation. Raises as :meth:`plan`."""
        return strata(self.plan())

    def plan(self) -> ProgramPlan:
        """Return the program as it is so far, checked and put into strata.

        Raises:
            ProgramError: ``STRANDLINE_PROGRAM_UNSTRATIFIABLE``: a relation needs the whole of itself in the same tick.
        """
        relations, rules = in_strata(self._relations, self._rules)
        return ProgramPlan(self.name, self.tick, self.step, relations, rules)

    def explain(self, form: Literal["text", "dot"] = "text") -> str:
        """Return the strata, what each rule reads and what it waits for, as text or as a graph for graphviz (``dot``).

        >>> p = Program("example")
        >>> node, down = p.input("node", "x long"), p.input("down", "x long", keep="always")
        >>> p.rule(p.relation("up", "x long"), node.subtract(down))
        >>> print(p.explain())
        program example: ticks of int64, step 1
        stratum 0
          input node(x int64), kept for the tick
          input down(x int64), kept always
        stratum 1
          relation up(x int64), kept for the tick
          up reads node, not down (<doctest...>:1); needs all of down, of earlier strata
        """
        if form not in ("text", "dot"):
            raise errors.program_invalid_form(caller(), form)
        return as_dot(self.plan()) if form == "dot" else as_text(self.plan())

    def run(
        self, facts: Mapping[str, Mapping[Any, Iterable[object] | pa.Table]], *, last: Any = None, seed: int | None = None
    ) -> dict[str, dict[int, set[Row]]]:
        """Run the program in this process, and return what its relations hold.

        Args:
            facts: For each input, rows for each tick: tuples or dicts, or a table. Inputs may be left out.
            last: The last tick that is evaluated; later facts are left out. Without it, the run ends when nothing is carried on.
            seed: Decides in which order messages arrive. The result is the same for each.

        Returns:
            For each relation the rows of each tick that has some. A relation that is kept always has each row at its least tick
            only.

        Raises:
            ProgramError: As :meth:`plan`; rows do not fit their input, or a computation exceeds 64 bits.

        >>> p = Program("reachability")
        >>> edge, reach = p.input("edge", "x long, y long"), p.relation("reach", "x long, y long")
        >>> p.rule(reach, edge)
        >>> p.rule(reach, reach.meet(edge.select(y="x", z="y"), on="y").select("x", y="z"))
        >>> found = p.run({"edge": {0: [(1, 2), (2, 3)], 1: [(1, 2)]}})["reach"]
        >>> {tick: sorted(rows) for tick, rows in found.items()}
        {0: [(1, 2), (1, 3), (2, 3)], 1: [(1, 2)]}
        """
        return run(self.plan(), facts, last=last, seed=seed)

    def _add(self, name: str, schema: pa.Schema | str, keep: Keep, path: str | None, *, is_input: bool = True) -> Rows:
        if not isinstance(name, str) or not is_name(name):
            raise errors.program_invalid_name(caller(), name)
        for other in self._relations:
            if other.lower() == name.lower():
                raise errors.program_name_twice(caller(), name, other)
        if keep not in ("tick", "always"):
            raise errors.program_invalid_keep(caller(), keep)
        columns = parse_ddl(schema) if isinstance(schema, str) else checked_schema(schema)
        self._relations[name] = RelationPlan(name, columns, keep, is_input, path, 0)
        return self._read(name)

    def _read(self, name: str) -> Rows:
        return Rows(self, Read(name, self._relations[name].schema))

    def _head(self, head: str | Rows, place: str) -> str:
        if isinstance(head, Rows):
            if head.program is not self:
                raise errors.program_foreign_relation(place, head.program.name, self.name)
            if not isinstance(head.node, Read):
                raise errors.program_invalid_head(place, head.node)
            head = head.node.relation
        if head not in self._relations:
            raise errors.program_unknown_relation(place, head, self._relations)
        if self._relations[head].is_input:
            raise errors.program_head_is_input(place, head)
        return head

    def _arguments(self, function: Callable[..., Rows], place: str) -> list[Rows]:
        found = []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
                raise errors.program_invalid_parameters(place, str(parameter))
            if name not in self._relations:
                raise errors.program_unknown_relation(place, name, self._relations)
            found.append(self._read(name))
        return found

    def _add_rule(self, head: str, rows: Rows, next_tick: bool, place: str) -> None:
        if not isinstance(rows, Rows):
            raise errors.program_invalid_rows(place, rows)
        if rows.program is not self:
            raise errors.program_foreign_relation(place, rows.program.name, self.name)
        relation = self._relations[head]
        if rows.schema != relation.schema:
            raise errors.program_columns_differ_from_head(place, head, relation.schema, rows.schema)
        if relation.keep == "always":
            self._check_always(head, rows.node, next_tick, place)
        self._rules.append(RulePlan(head, rows.node, bool(next_tick), 0, place))

    def _check_always(self, head: str, body: Node, next_tick: bool, place: str) -> None:
        """Refuse a rule that gives rows which may not hold at later ticks."""
        if next_tick:
            raise errors.program_always_invalid_next_tick(place, head)
        for name, word in reads(body):
            if word:
                raise errors.program_always_invalid_rule(place, head, word, name)
            if self._relations[name].keep == "tick" and not self._relations[name].is_input:
                raise errors.program_always_invalid_tick(place, head, name)

    def _channel_schema(self, path: str) -> pa.Schema:
        """Return the columns of a channel, without its time."""
        channel = Channel.open(path)
        if channel.domain != self._domain:
            raise errors.program_invalid_channel(caller(), path, channel.domain, self.tick)
        return pa.schema([pa.field(f.name, f.type) for f in channel.schema if f.name != channel.time_column])


def _domain(tick: str) -> Scalar:
    try:
        domain: TimeDomain = parse_domain(tick)
    except (StrandlineError, TypeError) as error:
        raise errors.program_invalid_tick(caller(), tick) from error
    if not isinstance(domain, Scalar):
        raise errors.program_invalid_tick(caller(), tick)
    return domain


def _step(step: int | str, domain: Scalar) -> int:
    try:
        amount = step if type(step) is int else Duration.of(step).within(domain, "The step")
    except StrandlineError as error:
        raise errors.program_invalid_step(caller(), step) from error
    if not 1 <= amount <= domain.maximum:
        raise errors.program_invalid_step(caller(), step)
    return amount
