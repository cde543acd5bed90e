"""``manifest(expected)``: the number of rows that each partition will deliver for each time is announced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from strandline.channel import Channel
from strandline.ingest.policies import errors
from strandline.ingest.policies.arguments import quote
from strandline.ingest.policies.manifest_table import ManifestTable, manifest_rows, rewrite, with_cancelled_of
from strandline.ingest.policies.policy import IngestColumns, Observation, Policy
from strandline.ingest.state.manifest_state import ManifestState
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = ["Manifest"]


class Manifest(Policy):
    """A time is complete when all rows that were announced for it arrived, or were cancelled. No guess, no delay.

    ``expected`` is the path of a Delta table or channel (see :class:`ManifestTable`), or a mapping, DataFrame or Arrow table,
    which :func:`~pyspark_strandline.ingest` writes beside the channel. When the boolean column ``cancelled`` is true, the row
    states that one of the announced rows will not arrive. Such a row counts, but is not written.

    Law: a partition holds the least announced times that still lack rows, and the times at which more rows may still be
    announced. It holds nothing when all rows have arrived. Rows count when they are not set aside. A table that is not a channel
    announces all rows that there will be, so there are no partitions other than its own.

    In a total order, an incomplete time also holds the later times open.
    """

    kind = "manifest"
    moved_by_times = False  # counts move it
    needs_times = True
    silent_counts = True

    def __init__(self, expected: Any, cancelled: str | None = None) -> None:
        self.expected, self.cancelled = expected, cancelled
        self._announced: ManifestTable | None = None
        self._changed: set[str] | None = set()

    @property
    def silent_column(self) -> str | None:
        return self.cancelled

    def save(self, path: str, settings: IngestColumns) -> None:
        """Write a manifest that was given as rows to the Delta table ``path``, unless it is there already.

        What was cancelled there meanwhile stays cancelled. Raises :class:`IngestError` before anything is written if the
        channel's ingest has gone by a manifest that this one contradicts.
        """
        if isinstance(self.expected, str):
            return
        time, partition, domain = settings.time, settings.partition, settings.domain
        given = manifest_rows(self.expected, time, partition, domain)

        def changed(there: pa.Table | None) -> pa.Table | None:
            rows = given if there is None else with_cancelled_of(given, there, time, partition, domain)
            if there is not None and _same(there, rows):
                return None
            _check_rows(path, settings, there, given, rows)
            return rows

        rewrite(path, settings.storage, changed)
        self.expected = path

    def open(self, settings: IngestColumns) -> None:
        if not isinstance(self.expected, str):
            raise errors.manifest_invalid_unwritten()
        self._announced = ManifestTable(
            self.expected,
            settings.time,
            settings.partition,
            settings.domain,
            settings.storage,
        )
        self._changed = self._announced.refresh()

    def refresh(self) -> None:
        changed = self.table.refresh()
        self._changed = None if changed is None or self._changed is None else self._changed | changed

    def partitions(self) -> Iterable[str] | None:
        return None if self.table.grows else self.table.partitions()

    def changed(self) -> Iterable[str] | None:
        changed, self._changed = self._changed, set()
        return changed

    def announced(self) -> Iterable[str]:
        return self.table.partitions()

    def ends(self) -> bool:
        return not self.table.still_to_announce()

    @property
    def table(self) -> ManifestTable:
        """What is announced. The policy must be open."""
        if self._announced is None:
            raise RuntimeError("the manifest is not open")
        return self._announced

    def continued(self, before: Policy, state: Any) -> Any:
        """Return what arrived under another manifest. Cancelled rows are not in the channel, and could not be counted there."""
        if not isinstance(before, Manifest) or not isinstance(state, dict) or "came" not in state:
            return None
        return {key: state[key] for key in ("came", "cancelled") if key in state}

    def promise(self, seen: Observation, state: Any) -> tuple[Iterable[Time] | None, Any]:
        announced, name, domain = self.table, seen.partition, self.domain
        counted = ManifestState.of(name, state)
        known = None if counted.held is None else Antichain.from_json(domain, counted.held)
        _check_announced(announced, name, counted, known)
        held = known
        if seen.held is not None:
            held = Antichain(domain, seen.held)
            if known is not None:
                held = Antichain(domain, [domain.join(a, b) for a in held for b in known])
        arrived = {domain.from_json(time): n for time, n in counted.came or ()}
        for time, n in (seen.times or {}).items():
            arrived[time] = arrived.get(time, 0) + n
        times = announced.incomplete(name, arrived, None if held is None else list(held))
        promised = Antichain(domain, [*times, *announced.still_to_announce()])
        if held is not None:  # rows behind that can never arrive in time: they are not waited for
            promised = Antichain(domain, [domain.join(a, b) for a in held for b in promised])
        kept = sorted((t for t in arrived if promised.less_equal(t)), key=domain.sort_key)
        return list(promised), {
            "held": promised.to_json(),
            "came": [[domain.to_json(time), arrived[time]] for time in kept],
            "done": announced.announced_before(name, promised),
            "total": announced.total(name),
            "left": announced.left_before(name, promised),
            **({"cancelled": counted.cancelled} if counted.cancelled else {}),
        }

    def arguments(self) -> list[str]:
        if not isinstance(self.expected, str):
            raise errors.manifest_invalid_text()
        return [quote(self.expected)] + ([f"cancelled={quote(self.cancelled)}"] if self.cancelled else [])


def _check_rows(path: str, settings: IngestColumns, there: pa.Table | None, given: pa.Table, rows: pa.Table) -> None:
    """Raise as the ingest's next batch would if ``rows`` were written. They are what is given, with what was cancelled."""
    if not Channel.exists(settings.path, settings.storage):
        return
    progress = Channel.open(settings.path, settings.storage).progress
    if not RegistrarState.of(progress).entries:
        return
    table = ManifestTable(path, settings.time, settings.partition, settings.domain, settings.storage)
    if there is not None and {settings.time, *settings.partition} <= {*there.column_names}:
        table.go_by(there)
    names = {*table.partitions()}
    table.go_by(given)
    table.go_by(rows)
    for name in names.union(table.partitions()):
        known = progress.get(name)
        own = None if known is None else PartitionState.of(name, known.state).own
        if isinstance(own, dict) and "held" in own:
            counted = ManifestState.of(name, own)
            held = None if counted.held is None else Antichain.from_json(settings.domain, counted.held)
            _check_announced(table, name, counted, held)


def _check_announced(announced: ManifestTable, name: str, counted: ManifestState, held: Iterable[Time] | None) -> None:
    """Raise when fewer rows are announced than before, or when more rows are expected for times that were complete."""
    if held is None or counted.total is None or counted.done is None:
        return
    done, total, left = announced.announced_before(name, held), announced.total(name), announced.left_before(name, held)
    was = left if counted.left is None else counted.left
    if announced.grows:  # a wrong announcement is taken back by a row with the opposite count
        done, total = counted.done, counted.total
    if total < counted.total or done < counted.done:
        raise errors.manifest_shrinks_in_total(announced.path, total, name, done, counted.total, counted.done)
    if done > counted.done:
        raise errors.manifest_contradiction_announced(announced.path, done, name, counted.done)
    if left > was:
        raise errors.manifest_contradiction_expected(announced.path, left, name, was)


def _same(a: pa.Table, b: pa.Table) -> bool:
    if sorted(a.column_names) != sorted(b.column_names) or a.num_rows != b.num_rows:
        return False
    names = sorted(a.column_names)
    key = [(name, "ascending") for name in names if not pa.types.is_nested(a.schema.field(name).type)]
    left, right = a.select(names).sort_by(key), b.select(names).sort_by(key)
    return bool(left.to_pylist() == right.to_pylist())
