"""The sink's check of a loop: the query writes what it reads only by a declared feedback, and moves times as declared."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_strandline.operators.published import PublishedOutput
from pyspark_strandline.write import errors
from pyspark_strandline.write.channel.channel_output import ChannelOutput

__all__ = ["check_loop", "has_late"]


def check_loop(published: PublishedOutput, outputs: Mapping[str, ChannelOutput]) -> set[str]:
    """Raise unless every channel that the query both reads and writes is a feedback, and its rows have moved as declared.

    The path summary of an output comes from the analysed plan of the whole query, and the feedback from the source's offset. So
    the rows and the frontier that the source computed for them cannot disagree.

    Args:
        published: What the shim has published of the batch.
        outputs: The query's outputs by name.

    Returns:
        The names of the outputs that are channels of the loop.

    Raises:
        StrandlineError: ``STRANDLINE_LOOP_UNDECLARED``, ``STRANDLINE_LOOP_OPEN`` or ``STRANDLINE_LOOP_SUMMARY_DIFFERS``.
    """
    reads, feedback = published.read_in_loop, published.feedback
    if not reads:
        return set()
    written = {table: name for name, output in outputs.items() if (table := output.table_id()) is not None}
    by_table = {each.channel: name for name, each in feedback.items()}
    for table, name in written.items():
        if table in reads and table not in by_table:
            raise errors.loop_undeclared(outputs[name].path)
    for table, name in by_table.items():
        if table not in written:
            raise errors.loop_open(name, [output.path for output in outputs.values()])
        output = written[table]
        found, declared = published.summaries[output], feedback[name].summary
        if found != declared:
            raise errors.loop_summary_differs(name, found, declared)
    return {written[table] for table in by_table}


def has_late(times: pa.Array) -> bool:
    """Whether a time has a coordinate that is near the last one: most batches need no look at each time.

    >>> has_late(pa.array([{"epoch": 3, "iter": 2**63 - 1}])), has_late(pa.array([{"epoch": 3, "iter": 7}]))
    (True, False)
    """
    if pa.types.is_struct(times.type):
        return any(has_late(part) for part in times.flatten())
    values = times.cast(pa.int64()) if pa.types.is_timestamp(times.type) else times
    greatest = pc.max(values).as_py()
    return greatest is not None and greatest >= 1 << (values.type.bit_width - 2)
