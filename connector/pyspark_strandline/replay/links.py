"""Compares the links of a loop that is replayed with their recordings: while it runs, and at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from pyspark_strandline.operators.summary_steps import By, advancing
from strandline.channel import Channel
from strandline.replay import CLOCK, Comparison, compare
from strandline.replay.errors import compare_open
from strandline.replay.originals import Compared
from strandline.time.antichain import Antichain

__all__ = ["ReplayedLinks"]


@dataclass
class ReplayedLinks:
    """The links of a replay.

    Attributes:
        sides: By link, what was recorded.
        recorded: The links whose recordings the replay reads. What comes round the others comes round again.
        feedback: By link, by how much its times advance.
        at: The folder with the replay's own channels.
        most: At how many times of a link the rows that differ are shown.
        storage: Options of the object store.
    """

    sides: Mapping[str, Compared]
    recorded: list[str]
    feedback: Mapping[str, Mapping[str, By] | By]
    at: Path
    most: int
    storage: Mapping[str, str] | None

    def __post_init__(self) -> None:
        self._looked: Antichain | None = None

    @property
    def common(self) -> Antichain:
        """The frontier up to which all recorded links are recorded: the replay cannot get farther.

        A recording that was killed between two commits of a batch has more of some links than of others.
        """
        return _meet(self.sides[name].frontier for name in self.recorded)

    def look(self) -> dict[str, Comparison]:
        """Compare at the times that all links have closed since the last look, so that no lesser time differs than the first."""
        if not all(Channel.exists(self.at / name, self.storage) for name in self.sides):
            return {}
        mine = self._mine()
        until = _meet(each.frontier for each in (*self.sides.values(), *mine.values()))
        since, self._looked = self._looked, until
        return {name: compare(side, mine[name], until=until, since=since, most=self.most) for name, side in self.sides.items()}

    def end(self) -> tuple[dict[str, Comparison], list[str]]:
        """Compare each link as far as the replay has come, at its end. Say in sentences what of a recording was not compared.

        Raises:
            StrandlineError: ``STRANDLINE_COMPARE_OPEN`` if the replay has not come as far as all recorded links are recorded.
        """
        mine, found, hints = self._mine(), {}, []
        for name, side in self.sides.items():
            own = mine[name]
            if not (wanted := self._wanted(name)).dominates(own.frontier):
                raise compare_open(own.path, own.frontier, wanted)
            until = side.frontier.meet(own.frontier)
            compared = compare(side, own, until=until, most=self.most)
            if any(file.rows for file in side.snapshot_files(side.version)):
                compared = replace(compared, asked=False)  # rows that nobody compares are not equal
            found[name] = compared
            if until != side.frontier:
                hints.append(
                    f"The link {name} is recorded up to {side.frontier.format()}, and another one less far, as after a kill "
                    f"between two commits of a batch. It was compared up to {until.format()}."
                )
        return found, hints

    def _wanted(self, name: str) -> Antichain:
        """Return the frontier that the replay's link has reached at the end."""
        side = self.sides[name].frontier
        if not self.recorded:
            return side
        if name in self.recorded:
            return self.common
        return side.meet(advancing(CLOCK, self.feedback[name]).results(self.common))

    def _mine(self) -> dict[str, Channel]:
        return {name: Channel.open(self.at / name, self.storage) for name in self.sides}


def _meet(frontiers: Iterable[Antichain]) -> Antichain:
    return reduce(Antichain.meet, frontiers, Antichain(CLOCK))
