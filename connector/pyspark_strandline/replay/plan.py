"""What the plan of a stream shows: which streams it reads, and what may make two runs differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StreamLeaf", "stream_leaves", "varying_parts"]


class StreamLeaf(NamedTuple):
    """A stream that a plan reads: its format, its path where it has one, and whether it is replayed."""

    format: str
    path: str
    is_replayed: bool


def stream_leaves(df: DataFrame) -> list[StreamLeaf]:
    """Return the streams that a DataFrame reads."""
    leaves = []
    for node in _nodes(_analyzed(df)):
        match node.getClass().getSimpleName():
            case "StreamingRelation":
                source = node.dataSource()
                leaves.append(StreamLeaf(source.className(), _option(source.options(), "path"), False))
            case "StreamingRelationV2":
                options = node.extraOptions().asCaseSensitiveMap()
                at = options.get("path") or options.get("channels") or options.get("subscribe") or ""
                leaves.append(StreamLeaf(node.sourceName(), str(at), options.get("replay") is not None))
            case name if not node.children().size() and node.isStreaming():
                leaves.append(StreamLeaf(name, "", False))
    return leaves


def varying_parts(df: DataFrame) -> list[str]:
    """Return what in the plan of a DataFrame may make two runs differ, such as ``rand()``, each once.

    Python functions count if they are marked with ``asNondeterministic``. What the plan does not show is not found: a function
    that reads a clock and is not marked, or code behind ``mapInPandas`` and its like.
    """
    found: dict[str, None] = {}
    like_now = df.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()  # type: ignore[union-attr]
    for node in _nodes(_analyzed(df)):
        if node.getClass().getSimpleName() == "Sample":
            found["sample()"] = None
        expressions = node.expressions()
        for i in range(expressions.size()):
            for name in _varying(expressions.apply(i), like_now):
                found[name] = None
    return list(found)


def _varying(expression: Any, like_now: Any) -> Iterator[str]:
    now = bool(expression.containsPattern(like_now))
    if expression.deterministic() and not now:
        return
    children = expression.children()
    inner = [name for i in range(children.size()) for name in _varying(children.apply(i), like_now)]
    if inner:
        yield from inner
    elif expression.getClass().getSimpleName() in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
        yield f"{expression.name()}()"
    else:
        yield f"{expression.prettyName()}()"


def _analyzed(df: DataFrame) -> Any:
    return df._jdf.queryExecution().analyzed()


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for inner in (plan.children(), plan.subqueries()):
        for i in range(inner.size()):
            yield from _nodes(inner.apply(i))


def _option(options: Any, name: str) -> str:
    found = options.get(name)
    return str(found.get()) if found.isDefined() else ""
