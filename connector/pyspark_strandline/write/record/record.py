"""``record(df, path, node=…)`` stamps the rows of any stream with the receiving clock, and keeps them in a channel."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark_strandline.column_types import check_stored_types
from pyspark_strandline.options import RecordOptions
from pyspark_strandline.write import errors
from pyspark_strandline.write.ingest import with_heartbeat
from pyspark_strandline.write.record.sink import recording_schema
from strandline.channel import Channel
from strandline.channel.write.create import check_column_names
from strandline.replay import add_node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["record"]


def record(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    node: str,
    nodes: Sequence[str] | None = None,
    time: str = "time",
    heartbeat: bool = False,
    take_over: bool = False,
    storage: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """Record a stream from outside: give each row a time of :data:`strandline.replay.CLOCK`, and keep the rows in a channel.

    The rows of a batch get the instant at which the batch begins, by the clock of the driver, and never one that the node has
    given before. Their numbers go on from those of the node's last batch: in the order of each task, and the tasks take turns.
    So some numbers are not used. The commit that takes the rows in decides their times. A batch that is repeated keeps them.

    Later instants are promised with each batch, so a query over the recording closes each batch's times at once. Without new
    rows Spark makes no batch, unless there is a ``heartbeat``.

    Source: seed 5 (Triceps), case 1. :func:`read_loop` records what comes round.

    Args:
        df: The stream. Its own times are data of the recording.
        path: The path of the channel. It is created with its nodes if it does not exist.
        node: The name of the node as which this query stamps.
        nodes: The names of all nodes of the channel, in their order at equal instants (default: this one). Each of them is
            recorded by a query of its own. No other node can join.
        time: The name of the column with the new times.
        heartbeat: Whether there are batches also while nothing comes, so that time goes on.
        take_over: Whether to fence another query of the node.
        storage: Options of the object store, as delta-rs names them, or as ``storage_options`` returns them.

    Returns:
        A writer with format and options set. Give it a checkpoint and start it.

    Raises:
        StrandlineError: ``df`` is not a stream, or has a column ``time``; the channel has other times
            (``STRANDLINE_CLOCK_DOMAIN``), other columns or other nodes.

    ``record(orders, "/lake/orders", node="orders").option("checkpointLocation", "/lake/checkpoints/orders").start()``
    """
    if not df.isStreaming:
        raise errors.not_a_stream_recorded()
    names = [node] if nodes is None else [nodes] if isinstance(nodes, str) else list(nodes)
    if node not in names or len(set(names)) < len(names):
        raise errors.option_invalid_nodes(node, names)
    if time.lower() in (column.lower() for column in df.columns):
        raise errors.column_reserved_recorded(time)
    check_column_names([time, *df.columns])
    check_stored_types(df.schema, "The rows to record")
    plain = {name.removeprefix("storage."): value for name, value in (storage or {}).items()}
    options = {"path": os.fspath(path), "node": node, "time": time}
    if take_over:
        options["takeOver"] = "true"
    options |= {f"storage.{name}": value for name, value in plain.items()}
    RecordOptions.parse(options)
    schema = recording_schema(df.schema, time)
    channel = Channel.create(options["path"], schema, time=time, storage_options=plain or None, exist_ok=True)
    ids = {name: add_node(channel, name) for name in names}
    if list(ids.values()) != sorted(ids.values()):
        raise errors.option_invalid_order(names, sorted(names, key=lambda name: ids[name]))
    channel.seal()
    return (with_heartbeat(df) if heartbeat else df).writeStream.format("strandline").options(**options)
