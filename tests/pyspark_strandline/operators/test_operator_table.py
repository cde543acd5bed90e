"""The tables in docs/operators.md, cell by cell.

What is called exact gives what Spark's batch evaluation of the same rows gives, and what is called by a condition is refused with
it. When each result comes is for the random plans (test_plans.py) to judge.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from by_batch import as_json, at, flat, refusal, run, united
from helpers import ROOT, make_channel, say
from plans.completion import Notified
from plans.moving import Moved
from pyspark_strandline import hold, on_complete
from strandline.time.domain import int64, lex, product, timestamp

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not find what the tests import
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
EXACT, SPARKS = "exact", "Spark's own"
"""Of the second, where Spark or a user's code may choose, it is only seen that they run."""

DOMAINS: dict[str, tuple[Any, list[Any]]] = {
    "timestamp": (timestamp, [at(1), at(5), at(12)]),
    "int64": (int64, [1, 2, 7]),
    "product": (product(event="timestamp", iter="int64"), [(at(1), 0), (at(5), 1), (at(12), 1)]),
    "lex": (lex(tick="int64", iter="int64"), [(1, 3), (2, 0), (2, 5)]),
}
MODES = ("append", "update", "complete")


class Rows(StatefulProcessor):
    """A processor that counts a batch's rows."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        yield pd.DataFrame({"key": [key[0]], "n": [sum(map(len, rows))]})

    def close(self) -> None:
        pass


def counted(key: Any, rows: Any, state: Any) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"key": [key[0]], "n": [sum(map(len, rows))]})


def best(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.nlargest(1, "n")


def either(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return left if len(left) else right


def joined(how: str, on: str = "l.time = r.time AND l.key = r.key") -> Callable[[Any, Any], Any]:
    def join(left: Any, right: Any) -> Any:
        both = left.alias("l").join(right.alias("r"), F.expr(on), how)
        return both.select("l.*") if how == "left_semi" else both.select(F.struct("l.*").alias("l"), F.struct("r.*").alias("r"))

    return join


def near(left: Any) -> str:
    step = "INTERVAL 2 SECONDS" if left.schema["time"].dataType.typeName() == "timestamp" else "2"
    return f"l.key = r.key AND l.time BETWEEN r.time - {step} AND r.time + {step}"


def summed(rows: Any, *keys: Any) -> Any:
    return rows.groupBy(*keys).agg(F.sum("n").alias("n"))


def with_rows(mode: str) -> Callable[[Any, Any], Any]:
    return lambda left, _: left.groupBy("key").transformWithStateInPandas(Rows(), "key string, n long", "append", mode)


def with_state(timeout: str) -> Callable[[Any, Any], Any]:
    return lambda left, _: left.groupBy("key").applyInPandasWithState(counted, "key string, n long", "n long", "append", timeout)


def moved(how: str, rows: Any) -> Any:
    """By two, in the first coordinate where there are several."""
    composite = rows.schema["time"].dataType.typeName() == "struct"
    return Moved(how, 0 if composite else None, 2).frame(rows)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "`groupBy` with the time": lambda left, _: summed(left, "time", "key"),
    "`groupBy` without the time": lambda left, _: summed(left, "key"),
    "`window`, tumbling or sliding": lambda left, _: summed(left, F.window("time", "10 seconds", "5 seconds")),
    "`window` of a coordinate": lambda left, _: summed(left, F.window("time.event", "10 seconds")),
    "aggregations in a chain": lambda left, _: summed(summed(left, "time", "key"), "time"),
    "`session_window`": lambda left, _: summed(left, F.session_window("time", "3 seconds"), "key"),
    "`dropDuplicates` with the time": lambda left, _: left.dropDuplicates(["time", "key"]).select("time", "key"),
    "`dropDuplicates` without the time": lambda left, _: left.dropDuplicates(["key"]).select("key"),
    "`dropDuplicatesWithinWatermark`": lambda left, _: left.dropDuplicatesWithinWatermark(["key"]),
    "join on equal times, inner": joined("inner"),
    "join on equal times, left or right outer": joined("left_outer"),
    "join on equal times, full outer": joined("full_outer"),
    "join on equal times, left semi": joined("left_semi"),
    "join on a distance, inner": lambda left, right: joined("inner", near(left))(left, right),
    "join on a distance, outer": lambda left, right: joined("full_outer", near(left))(left, right),
    "join on neither": joined("inner", "l.key = r.key"),
    "join with a table": lambda left, _: left.join(left.sparkSession.range(3).toDF("n"), "n", "left"),
    "self-join": lambda left, _: joined("inner")(left, left),
    "union": lambda left, right: left.union(right),
    "`select`, `where`, `mapInArrow`": lambda left, _: left.where("n > 1").mapInArrow(lambda batches: batches, left.schema),
    "`limit`": lambda left, _: left.limit(2),
    "`transformWithState` with timers": with_rows("eventTime"),
    "`transformWithState` without timers": with_rows("none"),
    "`applyInPandasWithState`": with_state("NoTimeout"),
    "`applyInPandasWithState`, event-time timeout": with_state("EventTimeTimeout"),
    "`groupBy(…).applyInPandas`, `.applyInArrow`": lambda left, _: left.groupBy("time").applyInPandas(best, left.schema),
    "`cogroup`": lambda left, right: left.groupBy("time").cogroup(right.groupBy("time")).applyInPandas(either, left.schema),
    "`hold`, then `groupBy` with the time and `applyInPandas`": lambda left, _: (
        hold(left).groupBy("time").applyInPandas(best, left.schema)
    ),
    "`hold`": lambda left, _: hold(left, by="key"),
    "`on_complete`": lambda left, _: on_complete(left, lambda time, key, rows: rows.sort_by("n").slice(0, 1), left.schema, "key"),
    "a processor": lambda left, _: Notified().frame(left),
    "`advance`, `truncate`": lambda left, _: moved("truncate", moved("advance", left)),
}


AGGREGATIONS = [o for o in OPERATORS if "groupBy" in o or "window`" in o or o.startswith("aggregations")]
WITHOUT_BATCH = ["`dropDuplicatesWithinWatermark`", "a processor"]
"""Exact, but with no batch evaluation."""


def tables() -> dict[str, dict[tuple[str, str], str]]:
    """What the page says: by output mode, of each operator and domain."""
    text = (ROOT / "docs" / "operators.md").read_text()
    found = {}
    for mode in MODES:
        section = re.split(r"^## ", text.split(f"## Output mode {mode}\n")[1], flags=re.MULTILINE)[0]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
        found[mode] = {(row[0], domain): cell for row in rows[2:] for domain, cell in zip(rows[0][1:], row[1:], strict=True)}
    return found


@pytest.fixture(scope="module")
def streams(spark: Any, tmp_path_factory: Any) -> Callable[[str, bool], tuple[Any, Any]]:
    """Two channels of a domain, as streams or as they are in the end."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    folder = tmp_path_factory.mktemp("channels")
    made: dict[Any, Any] = {}
    for name, (domain, (first, second, third)) in DOMAINS.items():
        for side, rows in (("l", [first, first, second]), ("r", [first, second])):
            channel = make_channel(folder / f"{name}-{side}", domain, ("a",), at=first)
            say(channel, "a", *((t, n) for n, t in enumerate(rows)), then=[second])
            say(channel, "a", (second, 5), (third, 6), then=[])

    def both(name: str, streaming: bool) -> tuple[Any, Any]:
        if (name, streaming) not in made:
            reader = (spark.readStream if streaming else spark.read).format("strandline")
            if streaming:
                reader = reader.option("maxFilesPerTrigger", "1")
            made[name, streaming] = tuple(reader.load(str(folder / f"{name}-{side}")) for side in "lr")
        return made[name, streaming]  # type: ignore[no-any-return]

    return both


def refused_at_once(operator: str, inputs: tuple[Any, Any], mode: str) -> str | None:
    """The condition with which the frame cannot be made, or not be started."""
    try:
        frame = OPERATORS[operator](*inputs)
        frame._jdf.queryExecution().assertAnalyzed()
        checker = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        modes = frame.sparkSession._jvm.org.apache.spark.sql.streaming.OutputMode
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), getattr(modes, mode.capitalize())())
    except PySparkException as error:
        return refusal(error)
    return None


def outcome(operator: str, inputs: tuple[Any, Any], mode: str, checkpoint: Path) -> str:
    """How a cell by itself is refused; ``exact`` when it is not."""
    try:
        if (refused := refused_at_once(operator, inputs, mode)) is not None:
            return refused
        run(as_json(OPERATORS[operator](*inputs), operator), checkpoint, mode)
    except PySparkException as error:
        return refusal(error)
    return EXACT


def queries(operators: list[str], mode: str) -> list[list[str]]:
    """What may run in one query side by side: in append mode everything, in update mode one aggregation, else one at a time."""
    alone = {"append": [], "update": [o for o in operators if o in AGGREGATIONS], "complete": operators}[mode]
    together = [o for o in operators if o not in alone]
    return [[o] for o in alone] + [together] * bool(together)


ALL_DOMAINS = ["timestamp", *(pytest.param(d, marks=pytest.mark.soak) for d in ("int64", "product", "lex"))]


# A cell is a query of its own, so all of them take minutes: `make soak`.
CELLS = [
    pytest.param(domain, mode, marks=() if (domain, mode) == ("product", "append") else pytest.mark.soak)
    for domain in DOMAINS
    for mode in MODES
]


@pytest.mark.drawn
@pytest.mark.parametrize(("domain", "mode"), CELLS)
def test_what_is_exact_is_what_a_batch_evaluation_gives(spark: Any, streams: Any, tmp_path: Path, domain: str, mode: str) -> None:
    """In update mode the last that is said of each group, in complete mode the last batch."""
    cells = {operator: cell for (operator, d), cell in tables()[mode].items() if d == domain}
    assert cells.keys() == OPERATORS.keys()
    live, still = streams(domain, True), streams(domain, False)
    for i, together in enumerate(queries([o for o, cell in cells.items() if cell in (EXACT, SPARKS)], mode)):
        batches = run(united([as_json(OPERATORS[o](*live), o) for o in together]), tmp_path / str(i), mode)
        judged = [o for o in together if cells[o] == EXACT and o not in WITHOUT_BATCH]
        got = [row for row in (batches[-1] if mode == "complete" else flat(batches)) if row[0] in judged]
        batch = [as_json(OPERATORS[o](*still), o) for o in judged]
        expected = sorted(tuple(row) for row in united(batch).collect()) if batch else []
        if mode == "update" and together[0] in AGGREGATIONS:
            assert set(expected) <= set(got), together
        else:
            assert got == expected, together


@pytest.mark.drawn
@pytest.mark.parametrize("domain", ALL_DOMAINS)
def test_what_is_refused_is_refused_by_its_condition(spark: Any, streams: Any, tmp_path: Path, domain: str) -> None:
    live = streams(domain, True)
    cells = ((mode, o, cell) for mode, table in tables().items() for (o, d), cell in table.items() if d == domain)
    for i, (mode, operator, cell) in enumerate(cells):
        if cell not in (EXACT, SPARKS):
            assert outcome(operator, live, mode, tmp_path / str(i)) == cell, (operator, mode)
