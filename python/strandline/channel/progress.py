"""Progress: everybody's newest statement, and the frontier that they make together.

Statements are state, so merging them is idempotent and commutative (newest ``seq`` wins): Naiad's protocol, in which atomic
batches may be seen in any order. The frontier is kept as statements come, not computed from all producers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from strandline.antichain import Antichain
from strandline.channel.errors import StatementError
from strandline.channel.statement import REGISTRAR, ProducerState, Statement, wrong_domain
from strandline.errors import TimeError
from strandline.mutable_antichain import MutableAntichain
from strandline.order import Time, TimeDomain

if TYPE_CHECKING:
    from strandline.channel.log import Commit

__all__ = ["Progress"]


class Progress:
    """What a view of the log knows: each producer's newest state, through ``version`` (-1: nothing yet).

    >>> from strandline.order import int64
    >>> progress = Progress(int64)
    >>> progress.hear(REGISTRAR, Statement(0, ()))  # sealed
    >>> progress.hear("a", Statement(1, (3,)))
    >>> progress.hear("b", Statement(1, (5,)))
    >>> progress.hear("a", Statement(2, (7,)))
    >>> progress.hear("a", Statement(1, (3,)))  # an old copy changes nothing
    >>> progress.frontier
    Antichain(int64, [5])
    """

    def __init__(self, domain: TimeDomain) -> None:
        self.domain = domain
        self.version = -1
        self._states: dict[str, ProducerState] = {}
        self._held = MutableAntichain(domain)

    @property
    def frontier(self) -> Antichain:
        """The least times that may still appear: the meet of all capabilities, the registrar's among them.

        Before the channel's founding statement is known, nothing is closed.
        """
        return self._held.frontier if REGISTRAR in self._states else Antichain.least(self.domain)

    @property
    def producers(self) -> Mapping[str, ProducerState]:
        """State by producer; the registrar is not among them."""
        return _Producers(self._states)

    def snapshot(self) -> dict[str, ProducerState]:
        """Everybody's state as a dict of its own, the registrar's among them: for going through very many quickly."""
        return dict(self._states)

    @property
    def registrar(self) -> Antichain:
        """The capabilities at which new producers may join; empty once the channel is sealed."""
        state = self._states.get(REGISTRAR)
        return state.holds.copy() if state else Antichain(self.domain)

    @property
    def sealed(self) -> bool:
        """Whether no producer can join any more."""
        return REGISTRAR in self._states and not self._states[REGISTRAR].holds

    def least_with(self, holds: Mapping[str, Antichain]) -> Antichain:
        """What the producers would hold together, the registrar apart, if those in ``holds`` held that."""
        new = [time for times in holds.values() for time in times]
        old = [time for name in (*holds, REGISTRAR) if (state := self._states.get(name)) is not None for time in state.holds]
        if self.domain.is_total:
            gone = Counter(old)
            left = [time for time, n in self._held.updates() if n > gone.get(time, 0)]
            return Antichain(self.domain, [min(left + new)] if left or new else [])
        changes = [*((time, 1) for time in new), *((time, -1) for time in old)]
        self._held.update_iter(changes)
        least = self._held.frontier.copy()
        self._held.update_iter([(time, -n) for time, n in changes])
        return least

    def get(self, name: str) -> ProducerState | None:
        """The state of a producer, or of the registrar under its own name."""
        return self._states.get(name)

    def hear(self, name: str, statement: Statement) -> None:
        """Take up one statement, unless one as new is known. Raises :class:`~strandline.errors.TimeError` for a foreign time."""
        self._hear_all([(name, statement)])

    def _hear_all(self, statements: Iterable[tuple[str, Statement]], ordered_at: int | None = None) -> None:
        """Take up statements, all or none; those of commit ``ordered_at`` must not move a capability back."""
        said = dict(statements)
        states, domain = self._states, self.domain
        ordered = ordered_at is not None and bool(states)  # the first statement of all founds the channel
        # Most producers of a large channel hold the same times: one antichain for each distinct set.
        shared: dict[tuple[Time, ...], Antichain] = {}
        news: dict[str, ProducerState] = {}
        changes: list[tuple[Time, int]] = []
        for name, (seq, times, owner, state) in said.items():
            old = states.get(name)
            if old is not None and old.seq >= seq:
                continue
            holds = shared.get(times)
            if holds is None:
                holds = shared[times] = Antichain(domain, [domain.time(time, f"a capability of {name!r}") for time in times])
            if ordered:
                self._check_order(name, old, holds, ordered_at, said)
            news[name] = ProducerState(seq, holds, owner, state)
            for time in holds:
                changes.append((time, 1))  # noqa: PERF401 - a comprehension would be made anew for each producer
            if old is not None:
                for time in old.holds:
                    changes.append((time, -1))  # noqa: PERF401
        states |= news
        self._held.update_iter(changes)

    def _check_order(
        self, name: str, old: ProducerState | None, holds: Antichain, version: int | None, said: Iterable[str]
    ) -> None:
        source = old or self._states.get(REGISTRAR)
        if source is None or source.holds is holds or source.holds.dominates(holds):
            return
        if not (old and old.holds) and self._given(said).dominates(holds):
            return
        time = self.domain.format(next(t for t in holds if not source.holds.less_equal(t)))
        held = source.holds.format()
        raise StatementError(
            "STRANDLINE_STATEMENT_REGRESSION",
            f"The progress statement of commit {version} "
            + (f"moves the capability of {name!r} back to {time}: it held {held}." if old else "")
            + ("" if old else f"adds the producer {name!r} at {time}, though new ones may join at {held} only."),
            "No Strandline writer does this: copy the rows of the version before into a new channel.",
        )

    def _given(self, said: Iterable[str]) -> Antichain:
        """What a producer that holds nothing may be given clones of: what the commit's others, and the registrar, held."""
        states = [state for name in (*said, REGISTRAR) if (state := self._states.get(name)) is not None]
        return Antichain(self.domain, [time for state in states for time in state.holds])

    def apply(self, commit: Commit) -> None:
        """Take up a commit's statements; commits without one only move ``version``. Applying twice changes nothing.

        Raises :class:`StatementError` when the statement is not of this domain, takes a capability back, or names a producer that
        was never registered: such a commit would move the frontier backwards.
        """
        said = commit.statement
        if said is not None and commit.version > self.version:
            said.check_message_times(self.domain, commit.version)
            try:
                self._hear_all(said.statements.items(), ordered_at=commit.version)
            except TimeError as error:
                wrong_domain(commit.version, self.domain, error)
        self.version = max(self.version, commit.version)

    def begin(self, commit: Commit) -> None:
        """Take up a commit that says where everybody stands (``statement.known``), and thereby all before it."""
        said = commit.statement
        if said is None or said.known is None:
            raise ValueError(f"commit {commit.version} does not repeat everybody's statements")
        try:
            self._hear_all((said.known | said.statements).items())  # type: ignore[operator]
        except TimeError as error:
            wrong_domain(commit.version, self.domain, error)
        self.version = max(self.version, commit.version)

    def accept(self, version: int, statements: Mapping[str, Statement]) -> None:
        """Take up what was just committed here as ``version``, the one after :attr:`version`."""
        self._hear_all(statements.items())
        self.version = version

    def merge(self, other: Progress) -> None:
        """Take up everything that another view knows."""
        self._hear_all((name, state.statement()) for name, state in other._states.items())
        self.version = max(self.version, other.version)

    def others(self, than: Mapping[str, Statement]) -> dict[str, Statement]:
        """The newest statements of all but those in ``than``: what a commit repeats as ``known``."""
        return {name: state.statement() for name, state in self._states.items() if name not in than}

    def copy(self) -> Progress:
        """An independent view with the same knowledge."""
        result = Progress(self.domain)
        result.version = self.version
        result._states = dict(self._states)
        result._held = MutableAntichain(self.domain, self._held.updates())
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Progress):
            return NotImplemented
        return self.domain == other.domain and self._states == other._states

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Progress(version={self.version}, {len(self.producers)} producers, frontier={self.frontier.format()})"


class _Producers(Mapping[str, ProducerState]):
    """A view on the states without the registrar's, so that asking for it copies nothing."""

    def __init__(self, states: dict[str, ProducerState]) -> None:
        self._states = states

    def __getitem__(self, name: str) -> ProducerState:
        if name == REGISTRAR:
            raise KeyError(name)
        return self._states[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._states if name != REGISTRAR)

    def __len__(self) -> int:
        return len(self._states) - (REGISTRAR in self._states)

    def __repr__(self) -> str:
        return repr(dict(self))
