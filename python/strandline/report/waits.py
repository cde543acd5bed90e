"""Where a wait ends: whom each query waits for, around loops too, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from strandline.report.ailments import Holder
from strandline.report.graph import Edge

__all__ = ["Read", "Waits"]

Key = tuple[str, str]

NAME_IT = "--upstream of why, a further path of serve and report"
"""How a channel is named that no log leads to."""


@dataclass(frozen=True)
class Read:
    """An input of a query, and who holds the asked time in it.

    Attributes:
        edge: The input.
        holders: Who holds the time there, by the channel's table and the name.
        loop: Whether the way to the query leads through this input, so the query reads what follows from its own output.
        unknown: Whether it is not known if the input holds the time, and what the query has not read may close it.
        far: Whether the input is too far away to be looked at.
    """

    edge: Edge
    holders: list[Key] = field(default_factory=list)
    loop: bool = False
    unknown: bool = False
    far: bool = False


class Waits:
    """Who waits for whom. A wait ends at those who wait for nobody, or in a loop whose members wait for each other only.

    In such a loop, those whose processes are gone are to blame; else those who have not read what is there; else all of them.
    So the answer does not depend on the channel of the loop that was asked for.
    """

    def __init__(self) -> None:
        self._reads: dict[Key, dict[tuple[str, str], Read]] = {}

    def add(self, key: Key, read: Read) -> None:
        """Add an input of a query. It may come again by another way, with other holders."""
        known = self._reads.setdefault(key, {})
        place = read.edge.label, repr(read.edge.steps)
        before = known.get(place)
        if before is not None:
            holders = list(dict.fromkeys([*before.holders, *read.holders]))
            read = Read(read.edge, holders, before.loop or read.loop, before.unknown or read.unknown, before.far or read.far)
        known[place] = read

    def judged(self, found: Mapping[Key, Holder]) -> Iterable[Holder]:
        """Return the holders, with what is said of those that are queries."""
        behind = {key for key in self._reads if any(read.edge.behind is not None for read in self._reads[key].values())}
        for key, holder in found.items():
            if key not in self._reads:
                yield holder
                continue
            reads = list(self._reads[key].values())
            after = self._after(key, found)
            ring = {each for each in after if key in self._after(each, found)} if key in after else set()
            ends = after <= ring and not any(read.far for each in {key, *ring} for read in self._reads[each].values())
            stuck = {each for each in ring if found[each].gone} or ring & behind or ring
            culprit = ends and (not ring or key in stuck)
            waits = [
                read.edge.label for read in reads if read.far or any(each in found and each not in ring for each in read.holders)
            ]
            others = sorted(found[each].called for each in stuck - {key}) if ends and not culprit else []
            yield _said(holder, reads, waits, others, loop=bool(ring) or any(read.loop for read in reads), culprit=culprit)

    def _after(self, key: Key, found: Mapping[Key, Holder]) -> set[Key]:
        """Return everyone for whom a holder waits, directly or not."""
        reached: set[Key] = set()
        left = [key]
        while left:
            for read in self._reads.get(left.pop(), {}).values():
                for each in read.holders:
                    if each in found and each not in reached:
                        reached.add(each)
                        left.append(each)
        return reached


def _said(holder: Holder, reads: list[Read], waits: list[str], others: list[str], *, loop: bool, culprit: bool) -> Holder:
    """Return a query with what is known of it in words."""
    edges = [read.edge for read in reads]
    behind = tuple(edge.behind for edge in edges if edge.behind is not None)
    unread = "; ".join(each.words for each in behind)
    names = dict.fromkeys(edge.query for edge in edges if edge.query is not None)
    called = f"in its scope it is {', '.join(map(str, names))}; " if names else ""
    unopened = any(edge.channel is None for edge in edges)
    unknown = [read.edge.label for read in reads if read.unknown]
    again = (
        "start the query again: its process is gone"
        if holder.gone
        else "the query's next batches: see whether it runs, and how long a batch takes; if it has stopped, start it again"
    )
    if waits:
        what = f"{called}it waits for its input {', '.join(waits)}" + (f"; {unread}" if unread else "") + _waiting(edges)
        release = f"its input {', '.join(waits)} must close the time first" + (f"; then {again}" if holder.gone else "")
    elif others:
        what = f"{called}it waits for its loop, where {', '.join(others)} must go on" + (f"; {unread}" if unread else "")
        release = f"{', '.join(others)} must go on first"
    elif unopened:
        known, release = _unopened(edges, again)
        what = called + known + (f"; {unread}" if unread and not any(edge.replaced for edge in edges) else "")
    elif unknown:
        what = f"{called}it is not known whether its input {', '.join(unknown)} has closed the time"
        what += f"; {unread}" if unread else ""
        release = again
    elif loop:
        what = f"{called}its inputs from outside have closed the time, but rows still go round its loop: " + (
            unread or "it has read all that is there and has not passed the time"
        )
        what += _waiting(edges)
        rounds = "if its body returns rows for ever, let it return only rows that change something"
        release = f"{again}; {rounds}" if unread or holder.gone else f"{rounds}; if the query has stopped, start it again"
        release += "; if it has stopped with STRANDLINE_LOOP_UNBOUNDED, do first what that error says"
    else:
        what = f"{called}its inputs have closed the time, but the query has not: " + (
            unread or "it has not committed since, or it keeps an earlier time itself"
        )
        release = again
    return replace(
        holder,
        kind="loop" if loop else "query",
        culprit=culprit,
        what=f"{what}; {holder.what}",
        release=release,
        behind=behind,
        reads=tuple(edge.label for edge in edges),
    )


def _unopened(edges: list[Edge], again: str) -> tuple[str, str]:
    """Return what is known of inputs that are not opened, the worst first, and what would help."""
    replaced = [edge.label for edge in edges if edge.replaced]
    unnamed = [edge.label for edge in edges if edge.unnamed]
    not_known = "so it is not known whether this input has closed the time"
    if replaced:
        what = (
            f"at the recorded path of its input, {replaced[0]}, is another table now, and it is not known where the one is "
            "that it has read"
        )
        release = (
            f"if that table was moved, name it too ({NAME_IT}), and ask again. If it was deleted, restore it, or start the query "
            "with a new checkpointLocation and a new output: its checkpoint is of no use then"
        )
        return what, release
    if unnamed:
        return (
            f"its input {unnamed[0]} is not looked at here, {not_known}",
            f"name {unnamed[0]} too, as a further path, and it is known who holds the time; or {again}",
        )
    [label, *_] = [edge.label for edge in edges if edge.channel is None]
    return (
        f"its input {label} cannot be opened, {not_known}",
        f"make {label} readable from here, or name it too ({NAME_IT}), and ask again; or {again}",
    )


def _waiting(edges: list[Edge]) -> str:
    """Return how many rows wait on the looping links that a query reads, as their own commits say, in words."""
    found = {}
    for edge in edges:
        for known in () if edge.channel is None else edge.channel.progress.producers.values():
            rows = known.state.get("waiting") if isinstance(known.state, dict) else None
            if type(rows) is int and rows > 0:
                found[edge.label] = rows
    return "".join(f"; {rows} rows wait on the link {label}" for label, rows in found.items())
