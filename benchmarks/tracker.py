"""Speed and memory of the tracker, compared with timely's own in Rust.

    .venv/bin/python benchmarks/tracker.py [--batches 1000000]

The Rust figures are those of timely 0.29 on this kind of machine: 41 ns per update of a ``MutableAntichain`` in batches of 100 to
10 000 producers, and 400 to 500 ns per location when a capability moves along a chain of 10 to 1000 operators in a loop. They
were measured once and are not measured here. The last line holds when every measure's goal holds.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from _alternating import Measure, summary
from strandline import ColumnarAntichain, Graph, MutableAntichain, TimeDomain, Tracker, advance, identity, int64, product

PAIR = product(epoch="int64", iter="int64")
RUST_UPDATE_NS = 41.0
RUST_LOCATION_NS = 450.0


def least_median_ms(run: Callable[[], object], rounds: int = 5, repeat: int = 20) -> float:
    """Return the median time of a call in milliseconds, as the least over some rounds.

    Other programs may disturb a round.
    """
    medians = []
    for _ in range(rounds):
        times = []
        for _ in range(repeat):
            begin = time.perf_counter()
            run()
            times.append((time.perf_counter() - begin) * 1e3)
        medians.append(statistics.median(times))
    return min(medians)


def in_rust(value: float) -> dict[str, float]:
    """Return the value as that of the other."""
    return {"timely, in Rust": value}


def moving_producers(domain: TimeDomain, producers: int, spread: int) -> float:
    """Return the milliseconds for one batch, as columns, in which every producer drops its time and takes a later one."""
    rng = np.random.default_rng(20131001)
    at = [rng.integers(0, spread, producers) for _ in domain.leaves()]
    stamps = ColumnarAntichain(domain)
    stamps.update_columns(at, np.ones(producers, np.int64))
    deltas = np.repeat(np.array([-1, 1]), producers)
    moves = []
    for _ in range(100):
        later = [column + rng.integers(0, 3, producers) for column in at]
        moves.append([np.concatenate(pair) for pair in zip(at, later, strict=True)])
        at = later
    moving = iter(moves)
    found = least_median_ms(lambda: stamps.update_columns(next(moving), deltas))
    assert sum(count for _, count in stamps.updates()) == producers
    return found


def moving_producers_plain(producers: int) -> float:
    """Measure the same over ``int64`` through the plain path."""
    rng = np.random.default_rng(20131001)
    at = rng.integers(0, 1000, producers).tolist()
    stamps = MutableAntichain(int64, [(t, 1) for t in at])
    moves = []
    for _ in range(25):
        later = [t + step for t, step in zip(at, rng.integers(0, 3, producers).tolist(), strict=True)]
        moves.append([(t, -1) for t in at] + [(t, 1) for t in later])
        at = later
    moving = iter(moves)
    return least_median_ms(lambda: stamps.update_iter(next(moving)), rounds=5, repeat=5)


def chain_in_a_loop(domain: TimeDomain, operators: int) -> float:
    """Return the milliseconds until every operator of a chain in a loop knows of a capability's move at its head."""
    graph = Graph(domain)
    graph.add_node(0, 0)
    around = advance(domain, "iter" if domain.coordinates else None)
    for i in range(operators):
        graph.add_node(1, 1, [{0: [around]}] if i == operators - 1 else None)
    for i in range(operators):
        graph.add_edge(1 + i, 0, 1 + (i + 1) % operators, 0)
    tracker = Tracker(graph)
    now = [0]

    def at(moment: int) -> Any:
        return (moment, 0) if domain.coordinates else moment

    tracker.update_source(1, 0, at(0), 1)
    tracker.propagate_all()

    def move() -> None:
        tracker.update_source(1, 0, at(now[0]), -1)
        now[0] += 1
        tracker.update_source(1, 0, at(now[0]), 1)
        tracker.propagate_all()

    found = least_median_ms(move)
    assert len(tracker.pushed()) == 2 * operators
    return found


def wide_scope(ports: int) -> float:
    """Return the seconds to build, check and summarise a scope around an operator with ``ports`` ports.

    Each input reaches its own output.
    """
    begin = time.perf_counter()
    graph = Graph(int64)
    graph.add_node(ports, ports, [{}] * ports)
    unchanged = identity(int64)
    graph.add_node(ports, ports, [{port: [unchanged]} for port in range(ports)])
    for port in range(ports):
        graph.add_edge(0, port, 1, port)
        graph.add_edge(1, port, 0, port)
    tracker = Tracker(graph)
    tracker.update_source(1, ports - 1, 5, 1)
    tracker.propagate_all()
    assert len(tracker.scope_summary) == ports
    return time.perf_counter() - begin


def growth_over(batches: int) -> float:
    """Return the megabytes by which the process grows over the batches after a first tenth, with ten times outstanding."""
    graph = Graph(PAIR)
    for by in (0, 0, 1):
        graph.add_node(1, 1, [{0: [advance(PAIR, "iter", by)]}])
    for node in range(3):
        graph.add_edge(node, 0, (node + 1) % 3, 0)
    tracker = Tracker(graph)
    held = [(i, i % 7) for i in range(10)]
    for t in held:
        tracker.update_target(1, 0, t, 1)
    tracker.propagate_all()
    process, before = psutil.Process(), 0
    for i in range(batches):
        if i == batches // 10:
            gc.collect()
            before = process.memory_info().rss
        old = held[i % 10]
        held[i % 10] = (i + 10, i % 7)
        tracker.update_target(1, 0, old, -1)
        tracker.update_target(1, 0, held[i % 10], 1)
        tracker.propagate_all()
    gc.collect()
    return (process.memory_info().rss - before) / 1e6


def main() -> None:
    """Measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1_000_000, help="batches for the memory measure")
    chosen = parser.parse_args()
    measures = []
    for domain, spread in ((int64, 1000), (int64, 1_000_000), (PAIR, 1000), (PAIR, 1_000_000)):
        ours = moving_producers(domain, 10_000, spread)
        name = f"20 000 updates as columns, {domain}, spread {spread}"
        measures.append(Measure.alone(name, ours, "ms", 2, others=in_rust(20_000 * RUST_UPDATE_NS / 1e6)))
    for producers in (100, 1000, 10_000):
        ours = moving_producers_plain(producers) / (2 * producers) * 1e6
        name = f"an update in the plain path, {producers} producers, int64"
        measures.append(Measure.alone(name, ours, "ns", others=in_rust(RUST_UPDATE_NS)))
    for domain in (int64, PAIR):
        for operators in (10, 100, 1000):
            ours = chain_in_a_loop(domain, operators)
            other = 2 * operators * RUST_LOCATION_NS / 1e6
            name = f"a capability moves, {operators} operators in a loop, {domain}"
            measures.append(Measure.alone(name, ours, "ms", 10, others=in_rust(other)))
    measures.append(Measure.alone("a scope with 100 000 ports built and summarised", wide_scope(100_000), "s", 30))
    measures.append(Measure.alone(f"growth over {chosen.batches} batches", growth_over(chosen.batches), "MB", 5))
    summary("tracker", measures)


if __name__ == "__main__":
    main()
