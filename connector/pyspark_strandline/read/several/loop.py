"""Plans the batches of a loop: what each takes in, what may still come round, and when the loop is at rest."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pyspark_strandline.options import ReadOptions
from pyspark_strandline.read import errors
from pyspark_strandline.read.batch_planner import BatchPlanner, ChannelBatch
from pyspark_strandline.read.log_cursor import LogCursor
from pyspark_strandline.read.offset import Offset
from pyspark_strandline.read.several.cut import Cut, LoopPosition
from pyspark_strandline.read.several.inputs import Inputs
from pyspark_strandline.read.several.loop_logs import LoopLogs, times_of
from strandline.channel import Commit
from strandline.loop import Entered, Rounds, Taken, Waiting
from strandline.replay.clock import CLOCK
from strandline.time.antichain import Antichain
from strandline.time.domain import Time

__all__ = ["LoopPlanner"]

_SHOWN = 8
_FIRST_WARNING = 100
_FEW_ROWS = 10_000
"""Fewer rows from outside count as so many, when a loop's growth is bounded."""
_log = logging.getLogger(__name__)


class LoopPlanner:
    """Adds to the positions of a batch what may still come round the loop (:class:`strandline.loop.Rounds`).

    Everything comes from the offset before, and from the statements in the channels' logs. The query is the only writer of the
    loop's channels that it writes, and has committed every earlier batch before a batch is planned. So their logs have all rows
    that may come round because of it, except for those that an operator has yet to emit.
    """

    def __init__(
        self,
        inputs: Inputs,
        planners: Mapping[str, BatchPlanner],
        logs: LoopLogs | None,
        options: ReadOptions,
        each: Mapping[str, ReadOptions],
    ) -> None:
        self._inputs, self._planners, self._logs, self._each = inputs, planners, logs, each
        self._max_rounds, self._max_rows, self._max_growth = options.max_rounds, options.max_loop_rows, options.max_loop_growth
        self._max_waiting, self._max_lag = options.max_loop_waiting, options.max_loop_lag
        self._warned, self._rows_then = _FIRST_WARNING, 0
        # Statements without rows, after the offset at which the loop came to rest. They change nothing.
        self._rest: tuple[Cut, dict[str, Offset]] | None = None

    def beginning(self, frontier: Antichain) -> LoopPosition:
        """Return where a new query begins, which has read nothing."""
        return LoopPosition(Rounds(frontier), consumed=dict.fromkeys(self._inputs.rounds_come_by, 0), has_begun=False)

    def check_beginning(self, begin: Cut) -> None:
        """Check the channels when the first batch is planned.

        A first batch that is repeated after a crash is not planned again. It may have committed some of its outputs already.

        Raises:
            StrandlineError: ``STRANDLINE_LOOP_CHANNEL_USED`` if an earlier query has written a feedback channel: the state of its
                operators is not there any more. ``STRANDLINE_LOOP_TIMES_UNKNOWN`` if a channel cannot be read commit by commit:
                then the times of its rows are not stated.
        """
        if _of(begin).has_begun:
            return
        for name, planner in self._planners.items():
            if planner.initial().snapshot is not None:
                raise errors.loop_times_unknown(name, planner.cursor.channel.path)
        for name, own in self._inputs.written.items():
            own.refresh()
            if any(commit.transactions or len(commit.files) for commit in self._commits(name)):
                raise errors.loop_channel_used_commits(name, own.path)
            if own.frontier != Antichain.least(own.domain):
                raise errors.loop_channel_used_frontier(name, own.path, own.frontier)

    def at_rest_in(self, begin: Cut) -> dict[str, Offset]:
        """Return the positions from which to look for something new."""
        if self._rest is not None and self._rest[0] == begin:
            return dict(self._rest[1])
        return dict(begin.positions)

    def end_of_batch(self, begin: Cut, batches: Mapping[str, ChannelBatch], first: int) -> Cut | None:
        """Return the end of the batch that takes ``batches`` of the channels; ``None`` if it would do nothing.

        Raises:
            StrandlineError: ``STRANDLINE_LOOP_UNBOUNDED`` if rows come round more often than allowed, or more of them.
        """
        inputs, before = self._inputs, _of(begin)
        assert inputs.graph is not None  # noqa: S101 - there is a loop
        ends = {name: batch.end for name, batch in batches.items()}
        taken = {name: list(self._times(name, batch.commits)) for name, batch in batches.items()}
        passes = inputs.passing or frozenset()
        kept = [one for name, each in taken.items() if name not in passes for one in each]
        passing = None if inputs.passing is None else [one for name in passes & set(taken) for one in taken[name]]
        behind: dict[str, list[Commit]] = {}
        if self._logs is not None:
            look = self._logs.look({name: ends[name].commit for name in before.consumed})
            others, waiting = look.arrivals, look.waiting
        else:
            behind = {name: list(self._planners[name].waiting(ends[name])) for name in inputs.rounds_come_by}
            others, waiting = [], [one.low for name, commits in behind.items() for one in self._times(name, commits)]
        outside = inputs.outside({name: end.frontier for name, end in ends.items()})
        rounds = before.rounds.after(inputs.graph, inputs.query, kept, outside, waiting, others, passing=passing)
        if rounds.frontier == begin.frontier and not any(batch.commits for batch in batches.values()) and before.has_begun:
            self._rest = (begin, ends)
            return None
        rows = sum(batches[name].rows for name in inputs.rounds_come_by if batches[name].commits)
        pauses = not rows and not waiting
        if self._logs is not None:
            # What was held before may be written in this batch, so it still goes round.
            own = [held for each in (before.rounds, rounds) for held in each.held(inputs.graph, inputs.query).values()]
            pauses = pauses and look.is_quiet and not any(own)
        in_all = 0 if pauses else before.rows + rows
        outside_rows = sum(each.rows for name, each in batches.items() if each.commits and name not in inputs.rounds_come_by)
        if not pauses:
            outside_rows += before.outside_rows
        writers = {name: self._writer(name, before.writers.get(name), batches[name].commits) for name in inputs.rounds_come_by}
        known = {name: writer for name, writer in writers.items() if writer is not None}
        came_in = [one for name, each in taken.items() if inputs.enters_anywhere(name) for one in each]
        entered = before.entered.after(inputs.graph, came_in, rounds.frontier)
        self._check_bounds(taken, in_all, outside_rows, before.entered)
        self._warn(taken, rows, in_all, outside_rows, before.entered)
        consumed = {name: ends[name].commit for name in before.consumed}
        waits = self._waiting(begin, batches, behind, rounds.frontier)
        self._check_lag(rounds.frontier, outside)
        loop = LoopPosition(rounds, in_all, outside_rows, known, consumed, entered=entered, waiting=waits)
        return Cut(ends, rounds.frontier, first, loop)

    def _waiting(
        self, begin: Cut, batches: Mapping[str, ChannelBatch], behind: Mapping[str, list[Commit]], frontier: Antichain
    ) -> dict[str, Waiting]:
        """Return the rows that wait on each link of a loop over the times of a clock. Raises if there are too many.

        Args:
            begin: Where the batch begins.
            batches: What it takes of each channel.
            behind: The commits of each link that it does not take completely; nothing in a loop of several queries.
            frontier: The frontier of the loop after it.
        """
        if self._inputs.domain != CLOCK:
            return {}
        found = {}
        for name in self._inputs.rounds_come_by:
            came: list[tuple[Time, int]] = []
            at = begin.positions[name]
            for commit in batches[name].commits:
                if commit.statement is not None and not (commit.version == at.commit and at.file):  # else it was counted before
                    came += commit.statement.times
                    came += [(span.high, span.rows) for span in commit.statement.spans]
            end = batches[name].end
            whole = [each for each in behind.get(name, ()) if not (each.version == end.commit and end.file)]
            unread = sum(commit.statement.rows for commit in whole if commit.statement is not None)
            found[name] = replace(_of(begin).waiting.get(name, Waiting()).after(came, frontier), unread=unread)
            if self._max_waiting is not None and found[name].rows > self._max_waiting:
                raise errors.loop_unbounded_waiting(name, found[name].rows, self._max_waiting)
        return found

    def _check_lag(self, frontier: Antichain, outside: Iterable[Time]) -> None:
        """Raise if lags are too small: the loop falls behind what comes from outside, because rounds take too long."""
        at, upcoming = next(iter(frontier), None), min(outside, default=None)
        if self._max_lag is None or self._inputs.domain != CLOCK or at is None or upcoming is None:
            return
        behind = upcoming[0] - at[0]
        if behind <= self._max_lag:
            return
        lags = {name: by["instant"] for name, by in self._inputs.rounds_come_by.items() if by.get("instant")}
        if lags:
            raise errors.loop_behind(lags, behind, self._max_lag)

    def _commits(self, name: str) -> Iterator[Commit]:
        """Yield all commits of a channel that the query writes, before it begins."""
        cursor, at = LogCursor(self._each[name]), 0
        while (commit := cursor.next(at)) is not None:
            yield commit
            at += 1

    def _writer(self, name: str, known: str | None, came: Iterable[Commit]) -> str | None:
        """Return the id of the query that writes a channel of the loop. Raises if there are two: state would belong to one."""
        for commit in came:
            for query in commit.transactions or ("no query",):
                if known is not None and query != known:
                    raise errors.loop_two_writers_feedback(commit.version, name, query, known)
                known = query
        return known

    def _times(self, name: str, commits: Iterable[Commit]) -> Iterator[Taken]:
        """Yield the times of the commits' rows, inside the loop. If a commit is taken in part, all its times count."""
        for commit in commits:
            yield from (Taken(low, high) for low, high in times_of(commit, self._inputs, name))

    def _check_bounds(self, taken: Mapping[str, list[Taken]], rows: int, outside: int, entered: Entered) -> None:
        domain = self._inputs.domain
        for name, by in self._inputs.rounds_come_by.items():
            if self._beyond(name, taken[name], entered, self._max_rounds) is not None:
                times = self._shown(taken[name])
                raise errors.loop_unbounded_rounds(name, self._max_rounds, rows, times, by)
            if self._max_rows is not None and rows > self._max_rows:
                raise errors.loop_unbounded_rows(rows, self._max_rows, domain, self._shown(taken[name]))
            if self._max_growth is not None and rows > self._max_growth * max(outside, _FEW_ROWS):
                times = self._shown(taken[name])
                raise errors.loop_unbounded_growth(rows, outside, self._max_growth, _FEW_ROWS, domain, times)

    def _beyond(self, name: str, taken: list[Taken], entered: Entered, most: int) -> Time | None:
        """Return one of the times of a channel's rows that have come round more than ``most`` times."""
        assert self._inputs.graph is not None  # noqa: S101 - there is a loop
        times = [one.high for one in taken]
        found = (
            entered.first_beyond(self._inputs.graph, times, leaf, by, most) for leaf, by in self._inputs.counting(name).items()
        )
        return next((time for time in found if time is not None), None)

    def _warn(self, taken: Mapping[str, list[Taken]], rows: int, in_all: int, outside: int, entered: Entered) -> None:
        """Say that rows go round for long, each time that they have come round twice as often as before."""
        for name in self._inputs.rounds_come_by:
            time = self._beyond(name, taken[name], entered, self._warned)
            if time is not None:
                _log.warning(
                    "Rows of the feedback channel %s have come round more than %d times, and still go round at %s. This round "
                    "has %d rows (%d at the warning before), %d without a pause, after %d rows from outside. The query "
                    "stops with STRANDLINE_LOOP_UNBOUNDED after %d rounds (maxRounds).",
                    name,
                    self._warned,
                    self._inputs.domain.format(time),
                    rows,
                    self._rows_then,
                    in_all,
                    outside,
                    self._max_rounds,
                )
                self._warned, self._rows_then = 2 * self._warned, rows
        if not in_all:
            self._warned, self._rows_then = _FIRST_WARNING, 0

    def _shown(self, taken: list[Taken]) -> str:
        text = self._inputs.domain.format
        times = [text(one.low) if one.low == one.high else f"{text(one.low)} to {text(one.high)}" for one in taken]
        return ", ".join(times[:_SHOWN]) + (f" and {len(times) - _SHOWN} more" if len(times) > _SHOWN else "")


def _of(cut: Cut) -> LoopPosition:
    assert cut.loop is not None  # noqa: S101 - it is one of a loop
    return cut.loop
