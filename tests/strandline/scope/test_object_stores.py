"""A scope on an object store: its file is one conditional PUT, and it names channels below it and beside it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from object_stores import S3
from strandline import Antichain, int64
from strandline.channel import Channel
from strandline.scope import Scope

SCHEMA = pa.schema([("time", pa.int64()), ("n", pa.int64())])


@pytest.mark.drawn("core")
def test_a_scope_on_s3_keeps_every_change() -> None:
    with S3() as s3:
        bucket, options = s3.bucket(), s3.options()
        names = [f"c{n}" for n in range(6)]
        for name in names:
            path = f"s3://{bucket}/{name}"
            Channel.create(path, SCHEMA, domain=int64, producers=["p"], at=0, storage_options=options)
        Scope.create(f"s3://{bucket}/scope", int64, storage_options=options)

        def add(name: str) -> None:
            # Hadoop's name of the same store.
            Scope.open(f"s3://{bucket}/scope", options).add_channel(name, f"s3a://{bucket}/{name}")

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(add, names))
        scope = Scope.open(f"s3a://{bucket}/scope", options)
        assert set(scope.channels) == set(names)
        assert scope.frontiers() == dict.fromkeys(names, Antichain(int64, [0]))
        assert not any(secret in repr(scope) + str(scope.channels) for secret in options.values() if len(secret) > 8)
