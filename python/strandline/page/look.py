"""Looks at the channels and scopes that were given, again and again, and reads only what is new in their logs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256

from strandline.channel import Channel
from strandline.delta.log import moment_of
from strandline.delta.storage import location_of
from strandline.delta.store_errors import without_secrets
from strandline.errors import StrandlineError, printable
from strandline.ingest.names import late_path_beside
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.page.channel_view import late_counts, problem_of, view_of
from strandline.page.cursor import Cursor, texts
from strandline.page.graph import Shown, graph_of
from strandline.page.late import LateTables
from strandline.page.model import Attention, ChannelView, Culprit, LateTableView, Page, Problem, Since
from strandline.report import Explanation
from strandline.report.overview import GivenPath
from strandline.report.why import explain_least
from strandline.scope import Scope
from strandline.time.domain import Time

__all__ = ["Looker"]

_LOG = logging.getLogger("strandline.page")
_SHARE = 4
"""After a look that took so long, there is none for this many times as long: a page takes at most a fifth of a processor."""
_RETRY = 5.0
_WHY_AGAIN = 10.0
_QUICK = 0.05
_MOST_CULPRITS = 5


class Looker:
    """Makes the :class:`~strandline.page.model.Page` of some paths. Threads may share it: they take turns.

    Only these paths, the channels of these scopes, and the late tables of these channels are opened. Nothing is written.

    Args:
        paths: Paths of channels and scopes.
        storage: The options of their storage.
        most: How many producers of each channel are listed.
        stale_after: After how many seconds a frontier that stands is marked.
        window: How many of the newest commits of each channel are read at first.
        interval: A page that is younger than so many seconds is not made again. With 0, each look reads what is new.
        clock_ms: Returns the moment of a look, in ms since 1970.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from strandline.time.arrow import time_field
    >>> from strandline.time.domain import int64
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Channel.create(f"{folder}/flights", pa.schema([time_field("time", int64)]), producers=["EWR", "JFK"], at=0)
    ...     with Channel.open(f"{folder}/flights").producer("EWR") as ewr:
    ...         ewr.delay([7])
    ...     [view] = Looker([f"{folder}/flights"]).look().channels
    >>> view.label, view.frontier, [(culprit.name, culprit.holds) for culprit in view.culprits]
    ('flights', ('0',), [('JFK', ('0',))])
    """

    def __init__(
        self,
        paths: Sequence[str],
        storage: dict[str, str] | None = None,
        *,
        most: int = 20,
        stale_after: float = 300.0,
        window: int = 500,
        interval: float = 1.0,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._storage = storage
        self._most, self._stale_after, self._window, self._interval = most, stale_after, window, interval
        self._clock_ms = clock_ms
        self._given = [GivenPath(path, storage) for path in dict.fromkeys(location_of(path) for path in paths)]
        self._slots: dict[str, _Slot] = {}
        self._whys: dict[str, _Why] = {}
        self._page: Page | None = None
        self._next = 0.0
        self._lock = threading.Lock()

    def look(self) -> Page:
        """Return the page as it is now, or the newest one if it is still young."""
        with self._lock:
            started = time.monotonic()
            if self._page is None or started >= self._next:
                self._page = self._make()
                now = time.monotonic()
                self._next = now + (max(self._interval, _SHARE * (now - started)) if self._interval else 0.0)
            return self._page

    def _make(self) -> Page:
        now_ms = self._clock_ms()
        problems: list[Problem] = []
        slots = self._update(problems)
        labels = _labels([(slot.name, slot.location) for slot in slots])
        shown = [Shown(self._view(slot, label, now_ms), slot.cursor) for slot, label in zip(slots, labels, strict=True)]
        scopes = [given.scope for given in self._given if given.scope is not None]
        shown = self._with_whys(shown, scopes, now_ms)
        try:
            nodes, edges, unread = graph_of(shown, scopes)
        except Exception as error:
            _log(error)
            problems.append(problem_of("the graph", error, self._storage))
            nodes, edges, unread = (), (), {}
        views = tuple(replace(each.view, unread=unread.get(each.view.id, ())) for each in shown)
        title = ", ".join(self._shown(given.location.rpartition("/")[2]) for given in self._given)
        return Page(now_ms, title, self._stale_after, tuple(problems), _attention(views), views, nodes, edges)

    def _update(self, problems: list[Problem]) -> list[_Slot]:
        """Read what is new. Return the channels in the order in which they were given, each once."""
        found: dict[str, _Slot] = {}
        for given in self._given:
            try:
                known = self._slots.get(given.location)
                if given.scope is not None or known is None or known.cursor is None:  # it is not known to be a channel
                    given.refresh()
            except Exception as error:
                _log(error)
                problems.append(problem_of(given.location, error, self._storage))
            for each in given.channels:
                if each.path not in self._slots:
                    name, opener, retry = self._shown(each.name), partial(given.open, each), _RETRY if self._interval else 0.0
                    self._slots[each.path] = _Slot(name, each.path, opener, self._storage, self._window, retry)
                found.setdefault(each.path, self._slots[each.path])
        for slot in found.values():
            slot.update()
        self._slots = dict(found)
        return list(found.values())

    def _shown(self, name: str) -> str:
        return printable(without_secrets(name, self._storage))

    def _view(self, slot: _Slot, label: str, now_ms: int) -> ChannelView:
        id_ = "c" + sha256(slot.location.encode("utf-8", "replace")).hexdigest()[:10]
        path = self._shown(slot.location)
        if slot.cursor is None:
            return ChannelView(id_, label, path, slot.problem)
        try:
            view = view_of(slot.cursor, id_, label, most=self._most, now_ms=now_ms, stale_after=self._stale_after)
            late = late_counts(slot.cursor)
            if late is not None:
                late = replace(late, tables=slot.late_tables(slot.cursor.channel))
        except Exception as error:
            _log(error)
            problem = problem_of(label, error, self._storage)
            view, late = replace(slot.last or ChannelView(id_, label, path), problem=problem), None
        view = replace(view, late=late, problem=slot.problem or view.problem)
        slot.last = view
        return view

    def _with_whys(self, shown: list[Shown], scopes: list[Scope], now_ms: int) -> list[Shown]:
        opened = [each.cursor.channel for each in shown if each.cursor is not None]
        names = {each.cursor.channel.path: each.view.label for each in shown if each.cursor is not None}
        names |= {location_of(path): label for path, label in names.items()}
        made = []
        for each in shown:
            if each.cursor is None or each.view.problem is not None or not each.view.frontier:
                made.append(each)
                continue
            why = self._whys.setdefault(each.view.id, _Why(_WHY_AGAIN if self._interval else 0.0))
            why.update(each.cursor, opened, scopes, self._storage)
            made.append(Shown(why.in_view(each.view, names), each.cursor))
        return made


Opener = Callable[[], Channel]


class _Slot:
    """A channel of the page, with its cursor. One that cannot be read is tried again after a while."""

    def __init__(
        self, name: str, location: str, opener: Opener, storage: dict[str, str] | None, window: int, retry: float
    ) -> None:
        self.name, self.location = name, location
        self.cursor: Cursor | None = None
        self.problem: Problem | None = None
        self.last: ChannelView | None = None
        self._open, self._storage, self._window = opener, storage, window
        self._tables: LateTables | None = None
        self._retry_after, self._retry = retry, 0.0

    def update(self) -> None:
        if self.problem is not None and time.monotonic() < self._retry:
            return
        try:
            if self.cursor is None or self.problem is not None:
                self.cursor = Cursor(self._open(), self._window)
            else:
                self.cursor.update()
            self.problem = None
        except Exception as error:
            _log(error)
            self.problem = problem_of(self.name, error, self._storage)
            self._retry = time.monotonic() + self._retry_after

    def late_tables(self, channel: Channel) -> tuple[LateTableView, ...]:
        if self._tables is None:
            self._tables = LateTables(channel.path, self._storage)
        entries = RegistrarState.of(channel.progress).entries.values()
        paths = [location_of(entry.late or late_path_beside(channel.path)) for entry in entries]
        return self._tables.view(dict.fromkeys(paths))


class _Why:
    """The newest answer to why the least time of a channel's frontier is open.

    It is asked again when other producers hold that time, unless the last answer took long; else after a while: a process may
    have died, and a query may have read on.
    """

    def __init__(self, again_after: float) -> None:
        self._again_after = again_after
        self._answer: Explanation | None = None
        self._problem: str | None = None
        self._asked: tuple[frozenset[Time], frozenset[str]] | None = None
        self._not_before = self._again = 0.0

    def update(self, cursor: Cursor, opened: list[Channel], scopes: list[Scope], storage: dict[str, str] | None) -> None:
        least = frozenset(cursor.progress.frontier)
        asked = least, frozenset(name for name, state in cursor.states if not least.isdisjoint(state.holds))
        now = time.monotonic()
        if now < self._not_before or (asked == self._asked and now < self._again):
            return
        self._problem = None
        try:
            self._answer = explain_least(
                cursor.channel, storage=storage, scopes=scopes, channels=opened, most=_MOST_CULPRITS, follow=False
            )
        except Exception as error:
            _log(error)
            self._answer = None
            self._problem = error.what if isinstance(error, StrandlineError) else f"{type(error).__name__}: {error}"
        self._asked = asked
        if self._again_after:
            took = time.monotonic() - now
            self._not_before = now + took * (_SHARE + 1) if took > _QUICK else now
            self._again = now + max(self._again_after, took * 100)

    def in_view(self, view: ChannelView, names: dict[str, str]) -> ChannelView:
        answer = self._answer
        if self._problem is not None:
            note = f"it is not known who keeps it open: {self._problem.rstrip('.')}"
            return replace(view, why_notes=(printable(without_secrets(note)),))
        if answer is None or not answer.open:
            return view
        if texts(answer.frontier) != view.frontier:  # the frontier has moved, and asking takes long
            return view
        asked = answer.domain.format(answer.time)
        shown = answer.ailments
        culprits = tuple(
            Culprit(
                names.get(holder.channel, printable(without_secrets(holder.channel))),
                printable(holder.name),
                holder.kind,
                holder.shown[:_MOST_CULPRITS],
                None if holder.since is None else Since(holder.since.version, moment_of(holder.since.ms), holder.since.exact),
                printable(without_secrets(ailment.what)),
                printable(without_secrets(ailment.release)),
                tuple(names.get(each, printable(without_secrets(each))) for each in holder.way),
                printable(holder.query or "") if holder.kind in ("query", "loop") else "",
                printable(without_secrets(ailment.who)),
                printable(ailment.whom),
                ailment.count,
            )
            for ailment in shown[:_MOST_CULPRITS]
            for holder in (ailment.first,)
        )
        hidden = answer.more + sum(each.count for each in shown[_MOST_CULPRITS:])
        notes = tuple(printable(without_secrets(note)) for note in answer.notes)
        return replace(view, asked=asked, culprits=culprits, why_hidden=hidden, why_notes=notes)


def _attention(views: Sequence[ChannelView]) -> tuple[Attention, ...]:
    """Return who holds back the channels whose frontier stands, each once, the one that does so for the longest first."""
    found: dict[tuple[str, str], tuple[Culprit, list[ChannelView]]] = {}
    for view in views:
        if view.stale:
            for culprit in view.culprits:
                whole = culprit.kind in ("query", "loop")  # a query has the same name in every channel that it writes
                found.setdefault(("" if whole else culprit.channel, culprit.who or culprit.name), (culprit, []))[1].append(view)
    made = []
    for culprit, waiting in found.values():
        stands = [view.stands_since for view in waiting if view.stands_since is not None and view.stands_since.ms is not None]
        first = min(stands, key=lambda since: since.ms or 0, default=None)
        made.append(
            Attention(
                culprit,
                tuple(view.id for view in waiting),
                None if first is None else first.ms,
                first is not None and first.exact,
            )
        )
    return tuple(sorted(made, key=_urgency))


def _urgency(each: Attention) -> tuple[int, bool, str, str]:
    """Return the order: the longest first, and somebody who may come after those who are there."""
    return each.since_ms or 0, each.culprit.kind == "registrar", each.culprit.channel, each.culprit.name


def _labels(named: Sequence[tuple[str, str]]) -> list[str]:
    """Return a short name for each channel: its own, and so much of its path that no two are the same.

    >>> _labels([("flights", "/a/flights"), ("sums", "/a/sums"), ("flights", "/b/flights")])
    ['a/flights', 'sums', 'b/flights']
    """
    labels = [name for name, _ in named]
    for parts in range(2, 8):
        twice = {label for label in labels if labels.count(label) > 1}
        if not twice:
            break
        labels = [
            "/".join(path.rstrip("/").split("/")[-parts:]) if label in twice else label
            for label, (_, path) in zip(labels, named, strict=True)
        ]
    return [printable(without_secrets(label)) for label in labels]


def _log(error: Exception) -> None:
    """Write a defect to the log of the command. A named error is on the page."""
    if not isinstance(error, StrandlineError):
        _LOG.error("a channel could not be shown", exc_info=error)
