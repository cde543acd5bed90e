"""Very many data files as columns. A commit may add tens of thousands, and one object for each takes time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import overload
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from strandline.delta.data_file import DataFile, rows_in

__all__ = ["DataFiles"]

# The fields of a log's add actions that are read. The columnar reader gives up if a value has another type.
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("deletionVector", pa.struct([("storageType", pa.string())])),
    ]
)
# No Python value is converted to Arrow here. For that pyarrow would load pandas, which takes a few tenths of a second in a new
# process.
_LINE = pj.ParseOptions(explicit_schema=pa.schema([("add", _ADD)]), unexpected_field_behavior="ignore")


class DataFiles(Sequence[DataFile]):
    """Data files in order, as columns. An entry becomes a :class:`DataFile` only when it is accessed.

    If ``rows`` are not given, they are taken from the statistics.

    >>> files = DataFiles(["a.parquet", "b.parquet"], [900, 800], ['{"numRecords":3}', None])
    >>> files[0].rows, files[1:].paths, files.rows
    (3, ['b.parquet'], [3, -1])
    """

    __slots__ = ("_rows", "paths", "sizes", "stats")

    def __init__(self, paths: list[str], sizes: list[int], stats: list[str | None], rows: list[int] | None = None) -> None:
        self.paths = paths
        self.sizes = sizes
        self.stats = stats
        self._rows = rows

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> DataFiles:
        """Return the same files as columns."""
        if isinstance(files, DataFiles):
            return files
        files = list(files)
        return cls([f.path for f in files], [f.size for f in files], [f.stats for f in files], [f.rows for f in files])

    @classmethod
    def joined(cls, parts: Sequence[DataFiles]) -> DataFiles:
        """Return the files of all parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        every = chain.from_iterable
        known = any(part._rows is not None for part in parts)
        return cls(
            list(every(part.paths for part in parts)),
            list(every(part.sizes for part in parts)),
            list(every(part.stats for part in parts)),
            list(every(part.rows for part in parts)) if known else None,
        )

    @classmethod
    def from_adds(cls, lines: Sequence[bytes]) -> DataFiles | None:
        """Return the files that bring new rows, from log lines with one ``add`` action each, or ``None`` if a line is unusual.

        In that case the lines must be read one by one. This finds what is wrong, if anything is.

        >>> line = b'{"add":{"path":"a%20b.parquet","size":9,"stats":"{}","dataChange":true}}'
        >>> DataFiles.from_adds([line, line.replace(b"true", b"false")]).paths
        ['a b.parquet']
        >>> DataFiles.from_adds([line.replace(b"9", b"-9")]) is None
        True
        """
        text = b"\n".join(lines)
        # A line that ends with a brace cannot form one object together with the next line. So if there are as many objects as
        # lines, each object is one line.
        if not text.endswith(b"}") or text.count(b"}\n{") != len(lines) - 1:
            return None
        try:
            if not text.isascii():
                text.decode()  # fields that are not read must be valid text too
            adds = pj.read_json(pa.BufferReader(text), parse_options=_LINE).column("add")
            paths, sizes, changes, stats, vectors = (pc.struct_field(adds, [i]) for i in range(_ADD.num_fields))
            if len(adds) != len(lines) or paths.null_count or sizes.null_count or vectors.null_count < len(adds):
                return None
            if pc.min(sizes).as_py() < 0 or pc.min(pc.binary_length(paths)).as_py() == 0:
                return None
            columns = [paths.to_pylist(), sizes.to_pylist(), stats.to_pylist()]
            if pc.all(changes).as_py() is False:  # a missing dataChange means a change
                kept = [change is not False for change in changes.to_pylist()]
                columns = [list(compress(column, kept)) for column in columns]
            columns[0] = [unquote(path) if "%" in path else path for path in columns[0]]
            return cls(*columns)
        except (pa.ArrowException, ValueError):
            return None

    @property
    def counted(self) -> bool:
        """Whether the rows are known without reading the statistics."""
        return self._rows is not None

    @property
    def rows(self) -> list[int]:
        """The number of rows of each file, -1 if it is unknown."""
        if self._rows is None:
            self._rows = [-1 if text is None else rows_in(text) for text in self.stats]
        return self._rows

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> DataFile: ...
    @overload
    def __getitem__(self, index: slice) -> DataFiles: ...
    def __getitem__(self, index: int | slice) -> DataFile | DataFiles:
        if isinstance(index, slice):
            rows = None if self._rows is None else self._rows[index]
            return DataFiles(self.paths[index], self.sizes[index], self.stats[index], rows)
        stats = self.stats[index]
        rows_ = self._rows[index] if self._rows is not None else -1 if stats is None else rows_in(stats)
        return DataFile(self.paths[index], self.sizes[index], rows_, stats)

    def __iter__(self) -> Iterator[DataFile]:
        return map(DataFile, self.paths, self.sizes, self.rows, self.stats)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"DataFiles({list(self)!r})"
