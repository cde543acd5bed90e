"""Data files as columns: what is read at once is what is read one by one, from whatever log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.channel import Commit, DataFile, LogError
from strandline.delta.data_file_columns import DataFiles

ORDINARY = {"path": "part-1.parquet", "partitionValues": {}, "size": 9, "modificationTime": 5, "dataChange": True}
ODD = {
    "path": st.sampled_from(["a%20b%25.parquet", "naïve 🌊.parquet", "a\x00b", "\ud800", "", 5, None]),
    "size": st.sampled_from([0, 1 << 62, 1 << 63, -1, True, 9.0, "9", None]),
    "dataChange": st.sampled_from([False, None, 0, "false"]),
    "stats": st.sampled_from(['{"numRecords":3}', '{"minValues":{},"numRecords":4}', "{", "\ud800", "a\nb", 5, {}, None]),
    "deletionVector": st.sampled_from([None, {}, {"storageType": "u"}, {"storageType": 5}, "x", 0]),
    "tags": st.sampled_from([None, {"a": [[{"b": 1e400}]]}, float("nan")]),
}
ADD = st.builds(
    lambda odd, lacking: {key: value for key, value in (ORDINARY | odd).items() if key not in lacking},
    st.fixed_dictionaries({}, optional=ODD),
    st.just(()) | st.sets(st.sampled_from(["path", "size", "dataChange"]), max_size=1),
)


def one_by_one(lines: list[bytes]) -> list[DataFile]:
    return [file for line in lines for file in Commit(3, line).files]


def held_to_the_law(lines: list[bytes]) -> bool:
    """Whether the lines were read at once; if so, as they are one by one."""
    at_once = DataFiles.from_adds(lines)
    if at_once is not None:
        assert list(at_once) == one_by_one(lines)
    return at_once is not None


@given(st.lists(ADD, min_size=1, max_size=6), st.booleans())
def test_adds_read_at_once_are_those_read_one_by_one(adds: list[dict[str, Any]], escaped: bool) -> None:
    lines = [json.dumps({"add": add}, ensure_ascii=escaped).encode(errors="surrogatepass") for add in adds]
    held_to_the_law(lines)


@given(st.binary(max_size=4), st.integers(6, 140), st.integers(0, 3), st.integers(0, 2))
def test_a_damaged_line_is_never_read_otherwise(more: bytes, at: int, fewer: int, which: int) -> None:
    """Bytes put in and left out anywhere; a line break would make two lines of it."""
    lines = [json.dumps({"add": ORDINARY | {"path": f"{i}.parquet", "stats": '{"numRecords":3}'}}).encode() for i in range(3)]
    lines[which] = lines[which][:at] + more.replace(b"\n", b"") + lines[which][at + fewer :]
    held_to_the_law(lines)


def test_a_line_is_never_read_together_with_its_neighbour() -> None:
    whole = b'{"add":{"path":"a","size":1}}'
    swallowing = [b'{"add":{"path":"a","size":1,"x":', whole + b"}}", whole + whole]
    assert DataFiles.from_adds(swallowing) is None
    assert DataFiles.from_adds([whole + whole, whole[:-1], b'{"add"']) is None
    assert held_to_the_law([whole, whole])


def test_an_ordinary_commit_is_read_at_once_and_an_odd_one_is_told() -> None:
    names = [f"{i}.parquet" for i in range(200)]
    lines = [json.dumps({"add": ORDINARY | {"path": name, "dataChange": name != "7.parquet"}}) for name in names]
    assert held_to_the_law([line.encode() for line in lines])
    info = json.dumps({"commitInfo": {"operation": "WRITE"}})
    commit = Commit(3, "\n".join([*lines[:100], info, *lines[100:]]).encode())
    assert [file.path for file in commit.files] == [name for name in names if name != "7.parquet"]
    with pytest.raises(
        LogError, match=r"STRANDLINE_COMMIT_INVALID.*Commit 3 has an invalid add action: the size of '5.parquet' is -1"
    ):
        _ = Commit(
            3, "\n".join(lines).replace('"5.parquet", "partitionValues": {}, "size": 9', '"5.parquet", "size": -1').encode()
        ).files
    deep = '{"add":{"path":"a","size":1,"x":' + "[" * 200_000 + "]" * 200_000 + "}}"
    with pytest.raises(LogError, match=r"STRANDLINE_COMMIT_INVALID|STRANDLINE_DELETION"):
        _ = Commit(3, "\n".join([*lines, deep, lines[0].replace("9", '"9"')]).encode()).files


FILES = st.lists(st.builds(DataFile, st.text(), st.integers(0), st.just(3), st.sampled_from([None, '{"numRecords":3}'])))


@given(FILES, FILES, st.slices(6))
def test_columns_are_a_sequence_of_files(some: list[DataFile], more: list[DataFile], part: slice) -> None:
    both = DataFiles.joined([DataFiles.of(some), DataFiles.of(more)])
    assert both == some + more
    assert list(both) == [both[i] for i in range(len(both))]
    if part.step in (None, 1):
        assert both[part] == (some + more)[part]
    assert [file.rows for file in DataFiles(both.paths, both.sizes, both.stats)] == [3 if f.stats else -1 for f in both]
