"""What the channel's tests share: small channels and rows for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.channel import Channel
from strandline.time.arrow import array_of, time_field
from strandline.time.domain import Time, TimeDomain, int64


class Helpers:
    """Plain functions, given as a fixture because test folders are no packages."""

    @staticmethod
    def schema(domain: TimeDomain = int64) -> pa.Schema:
        return pa.schema([time_field("time", domain), ("n", pa.int64())])

    @staticmethod
    def rows(times: Iterable[Time], domain: TimeDomain = int64) -> pa.Table:
        times = list(times)
        columns = [array_of(times, domain), pa.array(range(len(times)), pa.int64())]
        return pa.Table.from_arrays(columns, schema=Helpers.schema(domain))

    @staticmethod
    def write_commit(path: str | Path, version: int, *actions: dict[str, Any]) -> None:
        """A commit by some other writer."""
        text = "".join(json.dumps(action) + "\n" for action in actions)
        Path(path, "_delta_log", f"{version:020d}.json").write_text(text)

    @staticmethod
    def info(user_metadata: str | None = None, operation: str = "WRITE") -> dict[str, Any]:
        info: dict[str, Any] = {"timestamp": 0, "operation": operation}
        return {"commitInfo": info | ({} if user_metadata is None else {"userMetadata": user_metadata})}

    @staticmethod
    def add(path: str, *, changes: bool = True) -> dict[str, Any]:
        return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": changes}}

    @staticmethod
    def remove(path: str, *, changes: bool = True) -> dict[str, Any]:
        return {"remove": {"path": path, "dataChange": changes, "deletionTimestamp": 0}}


@pytest.fixture
def make() -> type[Helpers]:
    return Helpers


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a channel")  # a space: paths are URLs to some layers and not to others


@pytest.fixture
def create(path: str) -> Callable[..., Channel]:
    """Creates the test's channel: int64 times, sealed producers a and b at 0, unless told otherwise."""

    def create(domain: TimeDomain = int64, **options: Any) -> Channel:
        options = {"producers": ["a", "b"], "at": 0} | options if domain is int64 else options
        return Channel.create(path, Helpers.schema(domain), **options)

    return create
