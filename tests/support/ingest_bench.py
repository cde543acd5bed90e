"""An ingest without Spark: batches of Arrow rows, taken in by several tasks, committed into a real channel on disk."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from strandline.channel import Channel, WriterSession
from strandline.ingest import Ingest, IngestTask, Moment, Policy, Settings, TaskReport

SCHEMA = pa.schema([("t", pa.int64()), ("p", pa.string()), ("n", pa.int64())])


class Bench:
    """One ingest, restarted whenever the test wants."""

    def __init__(self, path: Path, policy: Policy, schema: pa.Schema = SCHEMA, query: str = "q", **options: Any) -> None:
        options = {"time": "t", "partition": "p", **options}
        self.settings = Settings.of(str(path / "channel"), schema, policy=policy, **options)
        self.schema, self.query, self.batch = schema, query, 0
        self.owner = WriterSession.here(query)
        self.ingest = Ingest(self.settings)

    def restart(self) -> None:
        """What a new process is."""
        self.ingest = Ingest(self.settings)

    def table(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        return pa.table([pa.array([r[i] for r in rows], f.type) for i, f in enumerate(self.schema)], schema=self.schema)

    def take(self, rows: Sequence[tuple[Any, ...]], tasks: int = 2) -> list[TaskReport]:
        """Take the rows in, in tasks that know only what is pickled for them."""
        settings, start = pickle.loads(pickle.dumps((self.settings.for_tasks(), self.ingest.start())))  # noqa: S301
        reports = []
        for task in range(tasks):
            with IngestTask(settings, start, name=f"part-{task}", query=self.query, batch=self.batch, arrival=1) as intake:
                intake.write(self.table(rows[task::tasks]))
                reports.append(pickle.loads(pickle.dumps(intake.finish())))  # noqa: S301
        return reports

    def commit(self, reports: list[TaskReport], now: int = 0, **moment: Any) -> int | None:
        moment = {"planned_ms": now, **moment}
        return self.ingest.commit((self.query, self.batch), reports, self.owner, Moment(now, **moment))

    def run(self, *rows: tuple[Any, ...], now: int = 0, tasks: int = 2, **moment: Any) -> int | None:
        """One batch from beginning to end."""
        version = self.commit(self.take(rows, tasks), now, **moment)
        self.batch += 1
        return version

    @property
    def channel(self) -> Channel:
        return Channel.open(self.settings.path)

    def holds(self) -> dict[str, list[Any]]:
        """What each partition holds."""
        return {name: list(state.holds) for name, state in self.channel.producers.items()}

    def frontier(self) -> list[Any]:
        return list(self.channel.frontier)

    def rows(self, key: Any = None) -> list[tuple[Any, ...]]:
        """The channel's rows, sorted."""
        rows = [[tuple(v.values()) if isinstance(v, dict) else v for v in r.values()] for r in self.channel.read().to_pylist()]
        return sorted(map(tuple, rows), key=key)

    def late(self, *columns: str) -> list[tuple[Any, ...]]:
        """The late table's rows, sorted: their own columns, or those named."""
        table = pa.table(DeltaTable(self.settings.late_path).to_pyarrow_table())
        names = list(columns) or self.schema.names
        return sorted((tuple(r.values()) for r in table.select(names).to_pylist()), key=repr)
