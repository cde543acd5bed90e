"""The judge of a story: reads the logs of the channel and its late table, and holds what they say against the specification."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ingest_stories.spec import Late, Row, Spec
from ingest_stories.table_log import REGISTRAR, Entry, Said, file_rows, read_entry
from ingest_stories.times import Holds, Time, before, beyond, first, least, plain

__all__ = ["CORRECTIONS", "Judge"]

CORRECTIONS, PARKED = "strandline:corrections", "strandline:parked"


class Judge:
    """What the logs of one channel and its late table say so far. Whatever must not be is an ``AssertionError``."""

    def __init__(self, channel: Path, late: Path, spec: Spec, minimum: Time, *, corrections: bool) -> None:
        self.channel, self.late, self.spec, self.minimum, self.corrections = channel, late, spec, minimum, corrections
        self.version = -1
        self.said: dict[str, Said] = {}
        self._files: dict[str, None] = {}
        self._late_version = -1
        self._late_files: dict[str, None] = {}
        self._rows: dict[Path, list[tuple[Any, ...]]] = {}

    # ------------------------------------------------------------------------------------------------------- the log

    def news(self) -> Iterator[Entry]:
        """The channel's commits since the last time, each judged by itself."""
        while (entry := read_entry(self.channel, self.version + 1)) is not None:
            self.version += 1
            held = self._frontier()
            self._check_rows_ahead(entry, held)
            self._check_order(entry)
            entry.held_before = {name: self.said[name].holds for name in entry.statements if name in self.said}
            self.said |= entry.statements
            assert not self.version or before(held, self._frontier()), (
                f"commit {self.version} moves the frontier back from {set(held)} to {set(self._frontier())}"
            )
            self._files |= dict.fromkeys(entry.files)
            for removed in entry.removed:
                self._files.pop(removed, None)
            yield entry

    def outside(self, holds: Holds) -> Holds:
        """Channel times as outside times, corrections apart."""
        return frozenset(event for event, k in holds if k <= 0) if self.corrections else holds

    def _frontier(self) -> Holds:
        return (
            least(time for said in self.said.values() for time in said.holds)
            if self.said
            else frozenset([self.to_channel_time(self.minimum)])
        )

    def to_channel_time(self, time: Time) -> Time:
        """The channel's time of a row that comes in at an outside time."""
        return (time, 0) if self.corrections else time

    def _check_rows_ahead(self, entry: Entry, held: Holds) -> None:
        for time, _ in entry.times:
            assert beyond(held, time), f"commit {entry.version} brings rows at {time}, behind the frontier {set(held)}"

    def _check_order(self, entry: Entry) -> None:
        """No capability goes back, but that one who holds nothing may be given a clone of what the others in the commit held."""
        if not entry.version:
            return
        donors = least(t for name in entry.statements if name in self.said for t in self.said[name].holds)
        joining = self.said[REGISTRAR].holds
        for name, said in entry.statements.items():
            known = self.said.get(name)
            held = known.holds if known is not None else joining
            given = not held or known is None
            ok = before(held, said.holds) or (given and before(least([*donors, *joining]), said.holds))
            assert ok, f"commit {entry.version} moves {name} from {set(held)} to {set(said.holds)}"
            assert known is None or said.seq > known.seq, f"commit {entry.version} states {name} with an old number"

    # ------------------------------------------------------------------------------------------------------- comparing

    def compare(self) -> None:
        """What the log says is what the specification says."""
        if self.version < 0:
            return
        spec = self.spec
        stated = {name: said for name, said in self.said.items() if not name.startswith("strandline:") and name != REGISTRAR}
        assert stated.keys() == spec.partitions.keys() | spec.others.keys(), (
            f"{sorted(stated)} are known, and should be {sorted(spec.partitions)}"
        )
        for name, partition in spec.partitions.items():
            holds = self.outside(stated[name].holds)
            if partition.waited:
                assert holds == partition.promised, f"{name} holds {set(holds)}, and should hold {set(partition.promised)}"
            else:
                held_open = spec.held_open(partition.owner)
                assert not holds or holds == held_open, f"{name} holds {set(holds)} for idle ones, not {set(held_open)}"
        assert self.outside(self.said[REGISTRAR].holds) == spec.registrar, (
            f"the registrar holds {set(self.said[REGISTRAR].holds)}, and should hold {set(spec.registrar)}"
        )
        frontier = least(
            t for name, said in self.said.items() if not name.startswith("strandline:") for t in self.outside(said.holds)
        )
        assert frontier == spec.frontier, f"the frontier is {set(frontier)}, and should be {set(spec.frontier)}"

    def _parcels(self, name: str) -> list[Any]:
        """The parked files that a state names, also those in its lists."""
        parcels = []
        for entry in (self.said[name].state or {}).get("parked", ()):
            if isinstance(entry, dict):
                listed = json.loads((self.channel / entry["list"]).read_text())["parked"]
                parcels += [one for one in listed if "after" not in entry or first(plain(one[1])) > entry["after"]]
            else:
                parcels.append(entry)
        return parcels

    def parked_files(self) -> list[tuple[str, Time]]:
        """The files of parked rows, with the least time in each."""
        parcels = [parcel for name in self.said if name.startswith(PARKED) for parcel in self._parcels(name)]
        return [(path, plain(low)) for files, low, _, _ in parcels for path, *_ in files]

    def check(self, *, published: bool = False) -> None:
        """Every row is where it must be, once; nothing that was committed is gone.

        ``published``: the late rows are in the late table. When a query was interrupted after its commit, they may be on the way.
        """
        self.compare()
        spec = self.spec
        have = Counter(self._all_rows(self.channel, [*self._files, *(path for path, _ in self.parked_files())]))
        want = Counter((self.to_channel_time(row.time), *row[1:]) for row in spec.in_time.elements())
        want.update(((row.time, k + 1), *row[1:]) for k, rows in enumerate(spec.corrections) for row in rows)
        assert have == want, (
            f"the channel lacks {list((want - have).elements())} and has {list((have - want).elements())} besides"
        )
        self._check_parked()
        while (entry := read_entry(self.late, self._late_version + 1)) is not None:
            self._late_version += 1
            self._late_files |= dict.fromkeys(entry.files)
            for removed in entry.removed:
                self._late_files.pop(removed, None)
        late = Counter(self._late(row) for row in self._all_rows(self.late, list(self._late_files)))
        expected = Counter(late._replace(cancelled=False) for late in spec.late)
        assert not late - expected, f"the late table has {list((late - expected).elements())} besides"
        if published:
            assert late == expected, f"the late table lacks {list((expected - late).elements())}"

    def _late(self, row: tuple[Any, ...]) -> Late:
        *own, reason, partition, frontier, _, batch, query = row
        held = frozenset(self._or_least(plain(time), self.minimum) for time in frontier or ())
        return Late(Row(*own), reason, partition, held, query, batch)

    def _or_least(self, time: Any, minimum: Any) -> Time:
        """A time of the column, in which null stands for a coordinate's least value."""
        if isinstance(time, tuple):
            return tuple(self._or_least(part, least_) for part, least_ in zip(time, minimum, strict=True))
        return minimum if time is None else time

    def _all_rows(self, table: Path, files: Sequence[str]) -> list[tuple[Any, ...]]:
        found = []
        for file in files:
            path = table / file
            assert path.exists(), f"{file} is part of {table.name}, and was deleted"
            if path not in self._rows:
                self._rows[path] = file_rows(path)
            found += self._rows[path]
        return found

    def _check_parked(self) -> None:
        """The times of parked rows are open. Their producers hold nothing back, as of the newest batch of their ingests."""
        held = self._frontier()
        for path, low in self.parked_files():
            assert beyond(held, low), f"{path} is parked with rows at {low}, which are closed: {set(held)}"

    def check_parking(self, query: str, ahead: int | None, planned: int | None, times: Sequence[Time]) -> None:
        """After a batch of an ingest: no row of it waits that is near enough, and none that is far ahead came in.

        ``planned`` is the limit that the batch was planned with.
        """
        least_held, frontier = self.spec.least_held, self.spec.frontier
        for name, said in self.said.items():
            if name.startswith(PARKED) and said.owner == query:
                low = self.outside(said.holds)
                waiting = [plain(least_) for _, least_, *_ in self._parcels(name)]
                open_ = [*frontier, *self.outside(frozenset(waiting))]
                assert before(open_, low), f"{name} holds {set(low)}, and has {waiting}; all the others hold {set(frontier)}"
                for _, low_, _, _ in self._parcels(name):
                    first_ = first(plain(low_))
                    near = ahead is None or not least_held or first_ <= min(map(first, least_held)) + ahead
                    assert not near, f"rows at {plain(low_)} are parked, but {set(least_held)} is held, and maxAhead is {ahead}"
        if ahead is not None and least_held:
            limit = min(map(first, least_held)) + ahead + max(1, ahead)
            limit = max(limit, planned or limit)  # a partition that joined in the batch may hold less
            assert all(first(time) <= limit for time in times), f"rows at {times} came in, but {set(least_held)} is held"
