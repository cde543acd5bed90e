"""What the model says of a stream: its rows with the batch in which each comes, and which times are closed when."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from plans.environment import Environment
from plans.history import Row
from plans.times import Domain, Time


@dataclass(frozen=True)
class Stream:
    """Rows with their batches. ``closed(batch, time)``: no row at ``time`` comes after ``batch`` any more."""

    domain: Domain
    batches: int
    rows: tuple[tuple[Row, int], ...]
    closed: Callable[[int, Time], bool]
    phases: tuple[int, ...] = ()
    """Which start of the query ran each batch."""

    def closing(self, time: Time, at_least: int = 0) -> int | None:
        """The first batch, from ``at_least`` on, whose end closes ``time``; ``None`` when none does."""
        return next((i for i in range(at_least, self.batches) if self.closed(i, time)), None)

    def by_batch(self) -> list[Counter[Row]]:
        """The rows of each batch."""
        found: list[Counter[Row]] = [Counter() for _ in range(self.batches)]
        for row, batch in self.rows:
            found[batch][row] += 1
        return found

    def with_rows(self, rows: Iterable[tuple[Row, int | None]]) -> Stream:
        """The same times, with other rows; those whose batch is ``None`` never come."""
        return replace(self, rows=tuple((row, batch) for row, batch in rows if batch is not None))

    def derived(self, domain: Domain, closed: Callable[[int, Time], bool]) -> Stream:
        """Other times, closed otherwise, in the same batches; no rows yet."""
        return replace(self, domain=domain, rows=(), closed=closed)


class Operator(ABC):
    """One operator of a plan: how to build it in Spark, and its rows by definition.

    Streams have the columns ``time``, ``key`` and ``n`` before and after every operator, so any may follow any. To add one,
    make a frozen dataclass of this, and put it into ``plans.plan.OPERATORS``, or ``plans.forms.FORMS``; its fields, which are
    its parameters, are what is printed of a plan.
    """

    domains: tuple[Domain, ...] = ()
    """Those that it takes."""
    inputs = 1
    stateful = True
    last = False
    """Whether nothing stateful, and no channel, may follow it."""
    modes: tuple[str, ...] = ("append",)
    chooses = False
    """Whether Spark may take other rows when a batch is run again."""

    @classmethod
    @abstractmethod
    def draw(cls, r: Any, domain: Domain) -> Operator:
        """One with random parameters."""

    def output(self, domain: Domain) -> Domain:
        """The domain of the times that it gives."""
        return domain

    def mode_in(self, phase: int) -> str:
        """The output mode in which a plan that ends in it is started for the ``phase``-th time."""
        return "append"

    def refusals(self, environment: Environment, domain: Domain) -> frozenset[str]:
        """By which conditions a query with it, over times of ``domain``, may be refused; what is documented to work has none."""
        return frozenset()

    @abstractmethod
    def frame(self, *inputs: Any) -> Any:
        """The operator in Spark."""

    @abstractmethod
    def stream(self, *inputs: Stream) -> Stream:
        """The operator by its definition, evaluated on all rows at once."""

    def check(self, got: list[Counter[Row]], *inputs: Stream) -> None:
        """Hold what each batch gave to the definition. Operators that may choose among rows have a check of their own."""
        for batch, (have, want) in enumerate(zip(got, self.stream(*inputs).by_batch(), strict=True)):
            assert have == want, f"batch {batch} gave {ordered(have)}, but by definition {ordered(want)}"


def ordered(rows: Counter[Row]) -> list[Row]:
    """Rows in an order to be read."""
    return sorted(rows.elements(), key=repr)


def grouped(stream: Stream, key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """The rows by a key, whenever they come."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row, _ in stream.rows:
        groups[key(row)].append(row)
    return groups
