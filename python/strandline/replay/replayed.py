"""What a replay of a pipeline has found out: what was replayed, and how its outputs compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from strandline.replay.comparison import Comparison
from strandline.time.antichain import Antichain

__all__ = ["Replayed", "ReplayedInput"]


class ReplayedInput(NamedTuple):
    """A channel that was replayed: its location, and its version and frontier when the replay began."""

    path: str
    version: int
    frontier: Antichain


@dataclass(frozen=True)
class Replayed:
    """What was replayed, and how the outputs compare.

    Attributes:
        pipeline: The pipeline's file.
        part: The options that say which part was replayed, and how fast.
        inputs: The channels that were replayed.
        outputs: By the name of an output, the path of its channel.
        comparisons: By the name of an output, how it compares: ``a`` is what it was compared with, ``b`` the replay.
        hints: What may make two runs differ, and what has happened to the originals meanwhile, as sentences.

    >>> Replayed("rule.py", {"speed": "max"}, (), {"sums": "/tmp/sums"}, {}, ()).equal
    True
    """

    pipeline: str
    part: Mapping[str, str]
    inputs: tuple[ReplayedInput, ...]
    outputs: Mapping[str, str]
    comparisons: Mapping[str, Comparison]
    hints: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether no output differs from what it was compared with."""
        return all(each.equal for each in self.comparisons.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing was compared of some output."""
        return any(each.is_empty for each in self.comparisons.values())

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "equal": self.equal,
            "pipeline": self.pipeline,
            "part": dict(self.part),
            "inputs": [{"path": each.path, "version": each.version, "frontier": each.frontier.format()} for each in self.inputs],
            "outputs": dict(self.outputs),
            "hints": list(self.hints),
            "comparisons": {name: each.to_json() for name, each in self.comparisons.items()},
        }

    def to_text(self) -> str:
        """Return a few lines for people."""
        part = ", ".join(f"{name} {value}" for name, value in self.part.items())
        lines = [f"{self.pipeline}, replayed with {part}"]
        lines += [f"input {each.path}, version {each.version}, frontier {each.frontier.format()}" for each in self.inputs]
        lines += [f"output {name}: {path}" for name, path in self.outputs.items()]
        for name, each in self.comparisons.items():
            lines += ["", f"{name}: a is what it was compared with, b is the replay", *each.to_text().splitlines()]
        return "\n".join([*lines, *([""] if self.hints else []), *self.hints])
