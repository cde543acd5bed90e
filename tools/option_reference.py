"""Writes ``docs/options.md`` from the tables of options in ``pyspark_strandline.options``.

    python tools/option_reference.py [--check]

``--check`` writes nothing, and exits with 1 when the page differs from the tables.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyspark_strandline.options import ReadOptions, WriteOptions
from pyspark_strandline.options.table import ABOVE, Method, rows

PAGE = Path(__file__).resolve().parent.parent / "docs" / "options.md"

_SOURCE = """# Options

## The source

`spark.readStream.format("strandline").load(path)`; `spark.read` gives the same rows as a batch. The end offset of every batch
contains the frontier, in the progress reports and in the checkpoint.

"""
_SINK = """
## The sink

`df.writeStream.format("strandline").option("checkpointLocation", …).start(path)`, in output mode append. Spark refuses update
mode for Python sinks; `foreachBatch` accepts it. Each batch is one Delta commit of rows, transaction and progress statement. A kill at any
moment neither loses nor duplicates a row. If there is no channel, the sink creates one. That channel is sealed, with the query as
its only producer.

"""  # noqa: E501 - as the page has its lines
_REST = """
The rows need a time column whose frontier is known. Such a column is the time column of their source, a bound of a `window()`
over it (`window.start`, `window.end`), or a time that `advance`, `truncate`, `project` or `enter` made of these ([moving
times](moving-times.md)). The sink refuses a time column that other expressions made.

## The ingest

[The ingest's page](ingest.md#the-call) lists the arguments of `ingest`, and the equivalent options for SQL, Scala and Spark
Connect.

## The session

| setting | meaning |
|---|---|
| `spark.strandline.stateStore.shared` | `false`: keep Spark's own in-memory state store; default `true` ([the shim](shim.md#state-by-time)) |
| `spark.strandline.taskRows.pages` | how much memory a task may use for rows that the same batch takes in and releases, \
in pages of Spark's execution memory; default 4; with 0 they go through the state store ([the shim](shim.md#state-by-time)) |
"""  # noqa: E501


def table(options: type[Any]) -> str:
    """Return a table of options in Markdown. Options that one text describes are in one row."""
    documented = [(f"`{row.name}`", row.doc, row.method) for row in rows(options) if row.doc is not None]
    lines = ["| option | meaning |", "|---|---|"]
    for at, (name, doc, method) in enumerate(documented):
        if doc != ABOVE:
            beside = at + 1
            while beside < len(documented) and documented[beside][1] == ABOVE:
                name += f", {documented[beside][0]}"
                beside += 1
            lines.append(f"| {name}{' (batch)' if method is Method.BATCH else ''} | {doc} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page's text."""
    return f"{_SOURCE}{table(ReadOptions)}{_SINK}{table(WriteOptions)}{_REST}"


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    text = page()
    if parser.parse_args().check:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
