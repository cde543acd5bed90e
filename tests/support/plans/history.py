"""Random channels: producers that hold, delay, clone, send at or after what they hold, and drop; and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa

from helpers import make_channel
from plans.times import Domain, Time
from strandline.channel import Channel
from strandline.time.arrow import array_of

Row = tuple[Time, "str | None", int]
"""A time, a key and a number: what every channel has, and every operator gives."""

BUSY, IDLE, EMPTY, MUTE = "busy", "idle", "empty", "mute"
KINDS = (BUSY, BUSY, BUSY, BUSY, IDLE, EMPTY, MUTE)
"""Idle: rows at first, then silence until the end. Empty: promises and no row. Mute: not a word until the end."""


@dataclass(frozen=True)
class Commit:
    """One commit: its data files' rows, and what its producer holds from then on."""

    producer: str
    files: tuple[tuple[Row, ...], ...]
    holds: tuple[Time, ...]


@dataclass(frozen=True)
class History:
    """What happens in one channel, phase by phase: the query is stopped and started again between two phases."""

    domain: Domain
    kind: str
    producers: tuple[str, ...]
    phases: tuple[tuple[Commit, ...], ...]
    start: Time
    """What every producer holds at first."""

    @property
    def commits(self) -> tuple[Commit, ...]:
        """All commits, in order: the first is version 1."""
        return tuple(commit for phase in self.phases for commit in phase)

    def rows_until(self, version: int, file: int) -> list[Row]:
        """The rows before a position: all of the commits before ``version``, and of its own files the first ``file``."""
        whole = [row for commit in self.commits[: max(0, version - 1)] for part in commit.files for row in part]
        own = self.commits[version - 1].files[:file] if file else ()
        return whole + [row for part in own for row in part]

    def frontier_until(self, version: int) -> tuple[Time, ...]:
        """The least that may still come after the commits before ``version``; nothing is promised before version 0 is in."""
        held = dict.fromkeys(self.producers, (self.start,))
        for commit in self.commits[: max(0, version - 1)]:
            held[commit.producer] = commit.holds
        return self.domain.minimal(t for holds in held.values() for t in holds)

    def at_times(self, move: Callable[[Time], Time]) -> History:
        """The same at other times; ``move`` keeps their order."""

        def commit(old: Commit) -> Commit:
            files = tuple(tuple((move(time), key, n) for time, key, n in part) for part in old.files)
            return Commit(old.producer, files, tuple(map(move, old.holds)))

        phases = tuple(tuple(map(commit, phase)) for phase in self.phases)
        return replace(self, phases=phases, start=move(self.start))

    def cut(self, phases: int, r: Random) -> History:
        """The same commits in more phases."""
        commits, more = self.phases[-1], phases - len(self.phases)
        cuts = [0, *sorted(r.randint(0, len(commits)) for _ in range(more)), len(commits)]
        return replace(self, phases=(*self.phases[:-1], *(commits[a:b] for a, b in pairwise(cuts))))

    def after(self, version: int, file: int) -> tuple[Commit, ...]:
        """The commits from a position on, or none when they bring neither a row nor a move of the frontier."""
        end = len(self.commits) + 1
        brings = len(self.rows_until(version, file)) < len(self.rows_until(end, 0))
        moves = self.frontier_until(version) != self.frontier_until(end)
        return self.commits[max(0, version - 1) :] if brings or moves else ()


def random_history(r: Random, domain: Domain, phases: int, kind: str, *, ends: bool, commits: int) -> History:
    """A legal history of about ``commits`` commits; when it ``ends``, every capability is dropped in the last phase."""
    producers = tuple("pqr"[: r.choice((1, 1, 2, 2, 3))])
    held = dict.fromkeys(producers, (domain.start,))
    history: list[tuple[Commit, ...]] = []
    for phase in range(phases):
        made: list[Commit] = []
        talks = kind in (BUSY, EMPTY) or (kind == IDLE and phase == 0)
        for _ in range(r.randint(1, -(-2 * commits // phases)) if talks else 0):
            live = [p for p in producers if held[p]]
            if not live:
                break
            name = r.choice(live)
            files = () if kind == EMPTY or r.random() < 0.15 else _files(r, domain, held[name])
            holds = _onwards(r, domain, held[name])
            if files or holds != held[name]:
                made.append(Commit(name, files, holds))
                held[name] = holds
        if ends and phase == phases - 1:
            for name in r.sample(producers, len(producers)):
                if held[name]:
                    made.append(Commit(name, (), ()))
                    held[name] = ()
        history.append(tuple(made))
    return History(domain, kind, producers, tuple(history), domain.start)


def _files(r: Random, domain: Domain, holds: Sequence[Time]) -> tuple[tuple[Row, ...], ...]:
    rows = [(domain.step(r, r.choice(holds)), r.choice("aabbc"), r.randint(1, 9)) for _ in range(r.choice((1, 2, 3, 4, 6)))]
    if len(rows) > 1 and r.random() < 0.3:
        cut = r.randrange(1, len(rows))
        return (tuple(rows[:cut]), tuple(rows[cut:]))
    return (tuple(rows),)


def _onwards(r: Random, domain: Domain, holds: Sequence[Time]) -> tuple[Time, ...]:
    moved: list[Time] = []
    for time in holds:
        moved += r.choice(([time], [domain.step(r, time)], [domain.step(r, time)], [domain.step(r, time), domain.step(r, time)]))
    if len(moved) > 1 and r.random() < 0.2:
        moved.pop()
    return domain.minimal(moved)


def write(history: History, phase: int, path: Path) -> Channel:
    """Write one phase's commits; the channel is made before the first."""
    names = history.producers
    channel = Channel.open(path) if phase else make_channel(path, history.domain.core, names, at=history.start)
    for commit in history.phases[phase]:
        files, times = [], []
        for part in commit.files:
            with channel.file_writer() as writer:
                table = {
                    "time": array_of([t for t, _, _ in part], channel.domain),
                    "key": pa.array([k for _, k, _ in part], pa.string()),
                    "n": pa.array([n for _, _, n in part], pa.int64()),
                }
                writer.write(pa.table(table))
                written, counted = writer.finish()
            files += written
            times += counted
        assert channel.append(files, statements={commit.producer: commit.holds}, times=times, owner="history") == channel.version
    return channel
