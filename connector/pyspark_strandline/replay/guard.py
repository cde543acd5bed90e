"""While the function of a pipeline runs, it can write nothing: each way to write is refused before it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import deltalake
import deltalake.writer
from deltalake import DeltaTable
from pyspark.sql import SparkSession as PlainSession
from pyspark.sql.classic.dataframe import DataFrame

from pyspark_strandline.replay import errors
from strandline.channel import Channel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["writes_refused"]

_WRITERS = ("write", "writeStream", "writeTo", "mergeInto", "foreach", "foreachPartition")
_CHANNEL_WRITERS = ("create", "append", "producer", "register", "seal", "add_columns", "delay_registrar")
_TABLE_WRITERS = ("create", "delete", "merge", "repair", "restore", "update", "vacuum")
_ONLY_HERE = ("CreateViewCommand", "CreateTempViewUsing", "SetCommand", "ExplainCommand", "CacheTable", "CacheTableAsSelect")
"""Commands of SQL that change nothing outside the session."""


@contextmanager
def writes_refused(spark: SparkSession, pipeline: str) -> Iterator[None]:
    """Refuse all writes of this process through DataFrames, SQL, channels and ``write_deltalake``, and queries that start.

    Raises:
        StrandlineError: ``STRANDLINE_PIPELINE_WRITES``.
    """

    def refusal(how: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            raise errors.pipeline_writes(pipeline, how)

        return refuse

    real_sql = PlainSession.sql

    def sql(self: SparkSession, text: str, *arguments: Any, **options: Any) -> Any:
        if (command := _writing(self, text)) is not None:
            raise errors.pipeline_writes(pipeline, f"spark.sql ({command})")
        return real_sql(self, text, *arguments, **options)

    before = {query.id for query in spark.streams.active}
    with ExitStack() as undo:
        for name in _WRITERS:
            is_property = isinstance(vars(DataFrame)[name], property)
            refuse = refusal(f"DataFrame.{name}")
            _replace(undo, DataFrame, name, property(refuse) if is_property else refuse)
        for name in _CHANNEL_WRITERS:
            _replace(undo, Channel, name, refusal(f"Channel.{name}"))
        for module in (deltalake, deltalake.writer):
            _replace(undo, module, "write_deltalake", refusal("write_deltalake"))
        for name in _TABLE_WRITERS:
            _replace(undo, DeltaTable, name, refusal(f"DeltaTable.{name}"))
        _replace(undo, PlainSession, "sql", sql)
        yield
    if started := [query for query in spark.streams.active if query.id not in before]:
        for query in started:
            query.stop()
        raise errors.pipeline_writes_queries(pipeline, [query.name or str(query.id) for query in started])


def _replace(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    undo.callback(setattr, owner, name, vars(owner)[name])
    setattr(owner, name, value)


def _writing(spark: SparkSession, text: str) -> str | None:
    """Return the command of a text of SQL that may write something; ``None`` if it is a query."""
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    command = spark._jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.plans.logical.Command")  # type: ignore[union-attr]
    pending = [plan]
    while pending:
        node = pending.pop()
        name = str(node.getClass().getSimpleName())
        writes = command.isInstance(node) or name.startswith(("Insert", "MultiInsert"))
        if writes and name not in _ONLY_HERE and not name.startswith(("Show", "Describe")):
            return name
        children = node.children()
        pending += [children.apply(i) for i in range(children.size())]
    return None
