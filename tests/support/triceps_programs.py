"""Programs and schedules for the model of Triceps' loops: every node's result depends on the order of what it takes."""

from __future__ import annotations

import random
from typing import Any

from triceps import Machine, Node, Record

__all__ = ["drive", "mixing", "records_of", "round_trip"]

MS = 1000


def records_of(seed: int, count: int, gap: int, hops: int = 3, least: int = 0) -> list[tuple[int, Any]]:
    """Return records ``(hops, value)`` with random gaps, by default sometimes none."""
    draw = random.Random(seed)
    instant, made = 0, []
    for _ in range(count):
        instant += draw.choice([least, 1, draw.randint(1, gap), draw.randint(1, gap), gap])
        made.append((instant, (draw.randint(0, hops), draw.randint(0, 99))))
    return made


def mixing(targets: tuple[str, ...] = ("loop",), fan_out: int = 2) -> dict[str, Node]:
    """A program in which A sends to B, C or both, and D sends what has hops left round again, up to ``fan_out`` times."""

    def mix(record: Record, state: dict[str, Any]) -> tuple[int, int]:
        hops, value = record.payload
        state["mixed"] = (state.get("mixed", 7) * 31 + value + 1) % 1009
        return hops, (value + state["mixed"]) % 101

    def a(record: Record, state: dict[str, Any]) -> list[tuple[str, Any]]:
        payload = mix(record, state)
        return [(to, payload) for to, left_out in (("B", 3), ("C", 4)) if payload[1] % 5 != left_out]

    def to_d(record: Record, state: dict[str, Any]) -> list[tuple[str, Any]]:
        return [("D", mix(record, state))]

    def d(record: Record, state: dict[str, Any]) -> list[tuple[str, Any]]:
        hops, value = mix(record, state)
        copies = 0 if hops == 0 else 1 + value % fan_out
        around = [(targets[(value + i) % len(targets)], (hops - 1, (value + i) % 100)) for i in range(copies)]
        return [("out", (hops, value)), *around]

    return {"A": a, "B": to_d, "C": to_d, "D": d}


def round_trip(link: str = "loop") -> dict[str, Node]:
    """A program in which ``(hops, name)`` goes from A to B to D, and round as often as it has hops. C has nothing to do."""

    def d(record: Record, _: dict[str, Any]) -> list[tuple[str, Any]]:
        hops, name = record.payload
        return [(link, (hops - 1, name))] if hops else [("out", name)]

    return {"A": lambda record, _: [("B", record.payload)], "B": lambda record, _: [("D", record.payload)], "D": d}


def drive(machine: Machine, *nodes: str) -> None:
    """Let nodes step in this order. ``"timestamper"`` lets a record in, and ``"timestamper.."`` the input's frontier move on."""
    for node in nodes:
        kind = "announce" if node.endswith("..") else "admit" if node == machine.graph.input else "step"
        action = (kind, node.removesuffix(".."))
        assert action in machine.actions(), (action, machine.key())
        machine.do(action)
