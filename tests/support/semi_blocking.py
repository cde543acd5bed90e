"""What the semi-blocking queue of seed 5 needs, and whether micro-batches have it.

``python tests/support/semi_blocking.py`` prints the evidence of ``docs/semi-blocking-queue.md``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

from strandline.dataflow.builder import Cluster
from strandline.dataflow.operators import InputPort, OutputPort
from strandline.time.domain import int64
from strandline.time.path.summary import advance
from strandline.tracker.notificator import Notificator
from triceps import Stuck, run
from triceps_graph import FIGURE, Case, Full, Graph, Link, Looks, Node, Queues, Waits
from triceps_machine import Machine, Result
from triceps_programs import mixing, records_of, round_trip

__all__ = [
    "LAG",
    "PROGRAMS",
    "Search",
    "batches",
    "cost",
    "evenly",
    "every_schedule",
    "in_the_core",
    "larger",
    "order_at_b",
    "results_of_batches",
    "search",
]

LAG = 100
CHAIN = Graph((("timestamper", "A"), ("A", "B"), ("B", "D")))
LONG = Graph((("timestamper", "A"), ("A", "B"), ("B", "E"), ("E", "D")))
Records = list[tuple[int, Any]]
EXAMPLES: list[tuple[str, Full, Waits]] = [
    ("one loop", "every", "written"),
    ("a longer loop", "top", "all"),
    ("A filters", "every", "all"),
]
CASES: list[Case] = ["semi-blocking", "counted", "fixed"]
PROGRAMS = ["one loop", "a longer loop", "A filters", "C has work", "two loops to B", "loops to B and A"]


@dataclass
class Search:
    """What the exhaustive search found for some inputs: their number, how many of these have several results, and so on."""

    inputs: int = 0
    differing: int = 0
    most_results: int = 0
    stuck: int = 0
    situations: int = 0
    moved: int = 0
    example: tuple[Machine, list[Result]] | None = None


def every_schedule(machine: Machine, limit: int = 50_000) -> tuple[list[Result], bool, int]:
    """Return the different results of all schedules, whether one leaves records waiting for ever, and how many situations."""
    seen, open_ = {machine.key()}, [machine]
    ends: dict[str, Result] = {}
    is_stuck = False
    while open_:
        now = open_.pop()
        actions = list(now.actions()) or [action for action in [now.rescue()] if action]
        if not actions:
            ends[repr((now.done, now.result()))] = now.result()
            is_stuck |= not now.done
        for action in actions:
            then = now.fork()
            then.do(action)
            if (key := then.key()) not in seen:
                seen.add(key)
                open_.append(then)
        assert len(seen) <= limit, "too large to search"
    return [replace(result, most={}) for result in ends.values()], is_stuck, len(seen)


def machines(program: str, full: Full, waits: Waits, looks: Looks, count: int = 15) -> list[Machine]:
    """Return small inputs of a kind: three to five records, queues of one or two places."""
    draw = random.Random(2)
    graph = {"a longer loop": LONG, "C has work": FIGURE}.get(program, CHAIN)
    nodes = _nodes(program)
    made = []
    for _ in range(count):
        instant, records = 0, []
        for name in "abcde"[: draw.randint(3, 5)]:
            instant += draw.choice([1, 3, 10, 40])
            left_out = program == "A filters" and draw.random() < 0.4
            hops = draw.choice([0, 1, 2, 2, 3] if "loops" in program else [0, 1, 1, 2])
            records.append((instant, (hops, "f" if left_out else name)))
        link = Link(LAG, "semi-blocking", depth=draw.choice([1, 2]), full=full, looks=looks)
        links = [link]
        if "loops" in program:
            links.append(replace(link, name="two", target=program[-1], depth=draw.choice([1, 2])))
        made.append(Machine(records, nodes, links, graph, Queues(draw.choice([1, 1, 2]), waits)))
    return made


def _nodes(program: str) -> dict[str, Node]:
    nodes = round_trip()
    if program == "a longer loop":
        nodes["B"] = lambda record, _: [("E", record.payload)]
    if program == "A filters":
        nodes["A"] = lambda record, _: [] if record.payload[1] == "f" else [("B", record.payload)]
    if program == "C has work":
        nodes["A"] = lambda record, _: [("B", record.payload), ("C", record.payload)]
        nodes["C"] = lambda record, _: [("D", (0, record.payload[1].upper()))]
    if "loops" in program:

        def d(record: Any, _: dict[str, Any]) -> list[tuple[str, Any]]:
            hops, name = record.payload
            return [(("loop", "two")[hops % 2], (hops - 1, name))] if hops else [("out", name)]

        nodes["D"] = d
    return nodes


def search(program: str, full: Full, waits: Waits, looks: Looks, count: int = 15) -> Search:
    """Search all schedules of small inputs."""
    found = Search()
    for machine in machines(program, full, waits, looks, count):
        results, is_stuck, situations = every_schedule(machine)
        found.inputs += 1
        found.differing += len(results) > 1
        found.stuck += is_stuck
        found.situations += situations
        found.moved += any(e.new.instant < e.original.instant + LAG for e in results[0].log)
        if len(results) > 1 and (found.example is None or len(machine.records) < len(found.example[0].records)):
            found.example = machine, results
        found.most_results = max(found.most_results, len(results))
    return found


def order_at_b(result: Result) -> str:
    """Return what B took, in its order: a record's name, and its instant."""
    return " ".join(f"{payload[1]}@{stamp.instant}" for stamp, payload in result.taken["B"])


def batches(records: Records, nodes: dict[str, Node], link: Link, seed: int, size: int, tasks: int = 1) -> tuple[Result, int]:
    """Run micro-batches, and return how many there were. What comes round in one goes to the next.

    A batch lets in up to ``size`` records, and its operators take all that they can. So a semi-blocking queue is asked when a
    batch begins whether it is full: whether ``depth`` records of one task wait. ``tasks`` share the records by name.
    """
    draw = random.Random(seed)
    physical = replace(link, depth=None) if link.case == "semi-blocking" else link
    machine = Machine(records, nodes, [physical])
    waiting = machine.link[link.name].waiting

    def is_full() -> bool:
        shares = [sum(ord(record.payload[1][0]) % tasks == task for record in waiting) for task in range(tasks)]
        return link.case == "semi-blocking" and max(shares) >= (link.depth or 0)

    for batch in range(100_000):
        for _ in range(draw.randint(1, size)):
            if machine.can_admit():
                machine.do(("admit", machine.graph.input))
        for node in machine.graph.nodes():
            while node == link.target and is_full() and machine.knows_next(link.name):
                machine.do(("move", link.name))
            while machine.can_step(node):
                machine.do(("step", node))
        if machine.done:
            return machine.result(), batch + 1
    raise AssertionError("the batches have no end")


def larger(seed: int, targets: tuple[str, ...], schedule: int) -> tuple[object, bool]:
    """Run a larger input through loops to these nodes: what came of it, and whether records wait for ever."""
    draw = random.Random(seed)
    records = records_of(seed, draw.randint(3, 14), draw.choice([5, 20, 60]), hops=draw.choice([1, 2, 3]), least=1)
    queues = Queues(draw.randint(1, 3), draw.choice(get_args(Waits)))
    names = ("loop", "two")[: len(targets)]
    links = [
        Link(draw.choice([30, 50, LAG]), "semi-blocking", name, target=target, depth=draw.randint(1, 3))
        for name, target in zip(names, targets, strict=True)
    ]
    try:
        result = run(records, mixing(names), links, schedule, queues=queues)
    except Stuck as stuck:
        return stuck.args, True
    return (result.outputs, result.log, result.taken), False


def evenly(count: int, gap: int) -> Records:
    """Return records that go round once, one each ``gap`` microseconds."""
    return [(gap * i, (1, f"{chr(ord('a') + i % 26)}{i}")) for i in range(count)]


def cost(link: Link, count: int = 400, gap: int = 1) -> tuple[int, int]:
    """Return the batches that evenly spaced records need when nothing limits a batch, and the most that wait on the link."""
    result, needed = batches(evenly(count, gap), round_trip(), link, 0, count)
    return needed, result.most[link.name]


def in_the_core(records: Records, seed: int, lag: int, depth: int | None = None) -> tuple[list[str], int]:
    """Run records that go round in the core's dataflow, with delays by a seed: B's order, and the most records in the loop.

    The feedback advances times by ``lag``, and B takes a time when it is closed. With ``depth`` B takes the first record of the
    loop before the next one from outside as soon as ``depth`` wait there: what a queue's depth would decide.
    """
    draw = random.Random(seed)
    order: list[str] = []
    held: dict[int, tuple[list[Any], list[Any]]] = {}
    rights: dict[int, Any] = {}
    in_loop = most = 0

    def take(output: OutputPort, capability: Any, record: Any, instant: int) -> None:
        nonlocal in_loop, most
        order.append(f"{record[1]}@{instant}")
        in_loop += record[0] > 0
        most = max(most, in_loop)
        output.send(capability, [record])

    def b(outside: InputPort, looped: InputPort, output: OutputPort, notificator: Notificator) -> None:
        nonlocal in_loop
        for port, source in ((0, looped), (1, outside)):
            for token, batch in source:
                in_loop -= len(batch) * (port == 0)
                held.setdefault(token.time, ([], []))[port].extend(batch)
                rights.setdefault(token.time, token.retain())
                notificator.notify_at(token.retain())
        upcoming = min((instant for instant, (_, records) in held.items() if records), default=None)
        while depth and upcoming is not None and sum(len(records) for records, _ in held.values()) >= depth:
            first = min(instant for instant, (records, _) in held.items() if records)
            take(output, rights[first], held[first][0].pop(0), min(first, upcoming))
        for capability, _ in notificator.ready([outside, looped]):
            for record in [*held[capability.time][0], *held.pop(capability.time)[1]]:
                take(output, capability, record, capability.time)
            rights.pop(capability.time).drop()

    with Cluster(seed=seed) as cluster:
        with cluster.dataflow(int64) as scope:
            handle, stream = scope.input("outside")
            loop, around = scope.feedback(advance(int64, None, lag), "loop")
            taken = stream.binary_notify("B", around, b)
            loop.connect(taken.filter(lambda record: record[0] > 0).map(lambda record: (record[0] - 1, record[1])))
        for instant, payload in records:
            handle.advance_to(instant)
            handle.send(payload)
            for _ in range(draw.randint(0, 4)):
                cluster.step()
        handle.close()
    return order, most


def results_of_batches(case: Case) -> set[str]:
    """Return the different results of 80 runs in micro-batches, of sizes from 1 to 12."""
    records, link = evenly(12, 10), Link(LAG, case, depth=4)
    runs = [batches(records, round_trip(), link, seed, size) for seed in range(20) for size in (1, 2, 5, 12)]
    return {order_at_b(result) for result, _ in runs}


def main() -> None:
    """Print the evidence."""
    print("1. Queues of a fixed size, one record at a time: all schedules of 15 inputs each")
    print(f"{'':18}{'moves when':12}{'a node waits for':18}{'looks':8}several results  stuck for ever  situations")
    for full in get_args(Full):
        total = Search()
        for program, waits, looks in product(PROGRAMS, get_args(Waits), get_args(Looks)):
            found = search(program, full, waits, looks)
            several = f"{found.differing} (up to {found.most_results})" if found.differing else "-"
            print(f"{program:18}{full:12}{waits:18}{looks:8}{several:17}{found.stuck or '-':<16}{found.situations}")
            if looks == "above":
                total.inputs += found.inputs
                total.differing += found.differing
                total.stuck += found.stuck
                total.most_results = max(total.most_results, found.most_results)
        print(f"{full}, above: {total.inputs} inputs, {total.differing} with several results", end=" ")
        print(f"(up to {total.most_results}), {total.stuck} stuck for ever\n")
    for program, full, waits in EXAMPLES:
        example = search(program, full, waits, "above").example
        assert example is not None
        machine, results = example
        print(f"{program}, {full}, {waits}: {machine.records}, two schedules")
        for result in results[:2]:
            print("   B takes", order_at_b(result))
    records = evenly(12, 10)
    print("\n2. Micro-batches: 12 records, 10 µs apart, L = 100 µs, full at 4")
    for size, tasks in ((1, 1), (2, 1), (5, 1), (5, 2), (12, 1)):
        result, _ = batches(records, round_trip(), Link(LAG, "semi-blocking", depth=4), 0, size, tasks)
        print(f"   at most {size} a batch, {tasks} task(s): B takes {order_at_b(result)[:100]} ...")
    for case in CASES:
        print(f"   {case}: {len(results_of_batches(case))} result(s) of 80 runs")
    print("   The same in the core's dataflow, whose network delays records by a seed, 80 runs each:")
    for text, lag, depth in (("full at 4", LAG, 4), ("T + L", LAG, None), ("a feedback that may release at once", 1, None)):
        runs = [in_the_core(records, seed, lag, depth) for seed in range(80)]
        different, most = len({tuple(order) for order, _ in runs}), max(most for _, most in runs)
        print(f"   {text}: {different} result(s), at most {most} record(s) in the loop")
    print("\n3. The cost: 400 records, 1 µs apart, L = 100 µs, nothing limits a batch")
    for link in (Link(LAG), *(Link(LAG, "counted", depth=depth) for depth in (1, 4, 16, 64))):
        needed, most = cost(link)
        print(f"   {link.case} {link.depth or '':<3}: {needed:3} batches, at most {most} record(s) wait on the link")
    burst = batches([(0, (1, f"a{i}")) for i in range(400)], round_trip(), Link(LAG, "counted", depth=4), 0, 400)
    print(f"   counted 4, all records at one instant: at most {burst[0].most['loop']} record(s) wait on the link")
    print("\n4. Larger random inputs, two schedules each, a record moves when nothing else can happen")
    for targets in (("B",), ("B", "B"), ("B", "A")):
        pairs = [[larger(seed, targets, schedule) for schedule in (0, seed + 1)] for seed in range(400)]
        differing = sum(one != other for (one, _), (other, _) in pairs)
        waiting = sum(is_stuck for (_, is_stuck), _ in pairs)
        print(f"   loops to {' and '.join(targets)}: of 400, {differing} with several results, {waiting} stuck for ever")


if __name__ == "__main__":
    main()
