"""One ailment, said once: holders that wait for the same process, which is gone, have one cause."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from strandline.channel import ProducerState, WriterSession
from strandline.report.ailments.holder import Holder, called
from strandline.shell_words import drop_command

__all__ = ["Ailment", "Causes", "ailments"]

_MOST_NAMES = 5

Cause = tuple[str, str]
"""What is gone: ``query`` with an ingest's id, or ``process`` with its number, its host and its start."""


class Causes:
    """Why those who hold a time of one channel hold it, as far as a process that is gone is the cause.

    Args:
        names: Everyone who holds the time, the earliest first.
        states: The states of the channel's producers.
        ingests: The queries that are ingests of the channel.
    """

    def __init__(self, names: Iterable[str], states: Mapping[str, ProducerState], ingests: Collection[str]) -> None:
        self._causes: dict[str, Cause | None] = {}
        self._alike: dict[Cause, list[str]] = {}
        dead: dict[WriterSession, bool] = {}
        for name in names:
            owner = states[name].owner if name in states else None
            if owner is not None and owner not in dead:
                dead[owner] = owner.is_dead()
            cause = None if owner is None or not dead[owner] else _cause(owner, ingests)
            self._causes[name] = cause
            if cause is not None:
                self._alike.setdefault(cause, []).append(name)

    def listed(self, most: int) -> list[str]:
        """Return the names of those who are listed, in their order: one of each cause first, as far as there is room.

        >>> Causes(["a", "b", "c"], {}, ()).listed(2)
        ['a', 'b']
        """
        first: dict[Cause | str, str] = {}
        for name, cause in self._causes.items():
            first.setdefault(cause or name, name)
        wanted = {*list(first.values())[:most]}
        others = (name for name in self._causes if name not in wanted)
        wanted.update(name for name, _ in zip(others, range(most - len(wanted)), strict=False))
        return [name for name in self._causes if name in wanted]

    def of(self, holder: Holder) -> Holder:
        """Return a holder with who else holds the time for the same cause. A query is alone: it is started by itself."""
        cause = self._causes.get(holder.name)
        if cause is None or holder.kind not in ("partition", "producer", "ingest") or len(self._alike[cause]) == 1:
            return holder
        return replace(holder, cause=": ".join(cause), alike=tuple(self._alike[cause]))


def _cause(owner: WriterSession, ingests: Collection[str]) -> Cause:
    return ("query", owner.id) if owner.id in ingests else ("process", f"{owner.pid} on {owner.host}, {owner.start}")


@dataclass(frozen=True)
class Ailment:
    """Holders with one cause, as one: or one holder that is alone.

    Attributes:
        first: The holder that holds the earliest time.
        what: What is known.
        release: What would release the time.
        who: What is gone, if several wait for it.
        whom: How many these are, and who, in words.
        count: How many hold it, listed or not.
        listed: How many of these are listed as holders.
    """

    first: Holder
    what: str
    release: str
    who: str = ""
    whom: str = ""
    count: int = 1
    listed: int = 1

    @property
    def holds(self) -> str:
        """Who it is and what it holds, as the end of a sentence."""
        shown = f"{', '.join(self.first.shown)} since {self.first.since_text}"
        if not self.who:
            return f"{self.first.subject}, which holds {shown}"
        return f"{self.who} of {self.first.channel}, which is gone ({self.whom}). {self.first.name} holds {shown}"


def ailments(holders: Iterable[Holder]) -> list[Ailment]:
    """Return holders as ailments, in their order. What only an end for good would release comes last."""
    together: dict[tuple[str, str], list[Holder]] = {}
    for number, holder in enumerate(holders):
        together.setdefault((holder.channel, holder.cause or str(number)), []).append(holder)
    return [_ailment(each) for each in sorted(together.values(), key=lambda alike: alike[0].last)]


def _ailment(holders: list[Holder]) -> Ailment:
    first = holders[0]
    if first.cause is None:
        return Ailment(first, first.what, first.release)
    kind, _, query = first.cause.partition(": ")
    names = [name for name in first.alike if not name.startswith("strandline:")] or list(first.alike)
    process = (first.session or "").partition(" (session ")[0]
    if kind == "query":
        who, noun, query = f"ingest {called(first.query, query)}", "partition", called(first.query, query)
        what = f"its process is gone ({process})"
        release = f"start query {query} again: it takes in what its partitions have delivered"
    else:
        who, noun, what = f"program ({process})", "producer", "the process is gone"
        drop = drop_command(first.channel, *names)
        release = f"start the process again, so that it goes on; or, if it will never go on: {drop}"
    said = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    whom = f"{len(names)} {noun}{'' if len(names) == 1 else 's'}: {said}"
    return Ailment(first, what, release, who, whom, len(first.alike), len(holders))
