"""A file source fed by a test: each file becomes a batch, in the order in which they were written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("mark", pa.int64()), ("flag", pa.bool_())])
DDL = "t long, p string, n long, mark long, flag boolean"


class Feed:
    """A folder that Spark reads as a stream."""

    def __init__(self, folder: Path, schema: pa.Schema = COLUMNS, ddl: str = DDL) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.schema, self.ddl, self._next = folder, schema, ddl, 0

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """One more file."""
        table = pa.table(
            [pa.array([r[i] if i < len(r) else None for r in rows], f.type) for i, f in enumerate(self.schema)],
            schema=self.schema,
        )
        path = self.folder / f"{self._next:05d}.parquet"
        draft = self.folder.parent / f".{self.folder.name}-{self._next}"
        pq.write_table(table, draft)
        os.utime(draft, (1_000_000_000 + self._next, 1_000_000_000 + self._next))  # the source goes by modification time
        os.rename(draft, path)
        self._next += 1

    def stream(self, spark: Any, files: int | None = 1) -> Any:
        """The folder as a streaming DataFrame, ``files`` a batch."""
        reader = spark.readStream.schema(self.ddl)
        if files is not None:
            reader = reader.option("maxFilesPerTrigger", str(files))
        return reader.parquet(str(self.folder))


def finish(writer: Any, checkpoint: Path) -> Any:
    """Run a query until everything there is has been read."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query
