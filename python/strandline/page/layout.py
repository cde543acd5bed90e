"""Where the nodes of the graph stand: in layers from left to right, with few crossings, and edges that go back below.

No well-kept Python library has this layout: grandalf's newest release is of January 2023, and its licence is the GPL or the EPL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from strandline.page.model import Edge, Node

__all__ = ["Layout", "Placed", "Route", "layout_of"]

WIDTH, HEIGHT = 176, 54
_GAP_X, _GAP_Y = 136, 28
_MARGIN = 16
_SWEEPS = 4


@dataclass(frozen=True)
class Placed:
    """A node with the place of its upper left corner."""

    node: Node
    x: int
    y: int


@dataclass(frozen=True)
class Route:
    """An edge with its SVG path, and the place of its label."""

    edge: Edge
    path: str
    x: int
    y: int
    back: bool


@dataclass(frozen=True)
class Layout:
    """The whole picture, in pixels."""

    width: int
    height: int
    nodes: tuple[Placed, ...]
    routes: tuple[Route, ...]


def layout_of(nodes: Sequence[Node], edges: Sequence[Edge]) -> Layout:
    """Return the places of nodes and edges. The same graph has the same picture, in whatever order its parts come.

    Each node is one layer after the last of those before it (Sugiyama's layers: longest paths, then barycentres). An edge of
    a cycle that goes back runs below all nodes.

    >>> nodes = [Node(id, "channel", id, "") for id in "abc"]
    >>> made = layout_of(nodes, [Edge("a", "b", ()), Edge("b", "c", ()), Edge("c", "b", ())])
    >>> [placed.node.id for placed in sorted(made.nodes, key=lambda each: each.x)], [route.back for route in made.routes]
    (['a', 'b', 'c'], [False, False, True])
    """
    names = sorted(node.id for node in nodes)
    pairs = sorted({(edge.source, edge.target) for edge in edges if edge.source != edge.target})
    back = _back_edges(names, pairs)
    layer = _layers(names, [pair for pair in pairs if pair not in back])
    columns, chains = _columns(names, layer, [pair for pair in pairs if pair not in back])
    _order(columns, chains)
    tallest = max(map(len, columns), default=0)
    step_x, step_y = WIDTH + _GAP_X, HEIGHT + _GAP_Y
    place: dict[object, tuple[int, int]] = {}
    for number, column in enumerate(columns):
        top = _MARGIN + (tallest - len(column)) * step_y // 2
        for row, item in enumerate(column):
            place[item] = _MARGIN + number * step_x, top + row * step_y
    bottom = _MARGIN + max(tallest * step_y - _GAP_Y, 0)
    routes = []
    below = 0
    taken: list[tuple[int, int]] = []
    for edge in sorted(edges, key=lambda each: (each.source, each.target)):
        pair = edge.source, edge.target
        is_back = pair in back or edge.source == edge.target
        if is_back:
            below += 1
            path, x, y = _way_back(place[edge.source], place[edge.target], bottom + 28 * below)
        else:
            path, x, y = _way([place[edge.source], *(place[each] for each in chains[pair]), place[edge.target]])
        while any(abs(x - a) < _GAP_X - 20 and abs(y - b) < 15 for a, b in taken):
            y += 15
        taken.append((x, y))
        routes.append(Route(edge, path, x, y, is_back))
    by_id = {node.id: node for node in nodes}
    placed = tuple(Placed(by_id[name], *place[name]) for name in names)
    width = _MARGIN * 2 + max(len(columns) * step_x - _GAP_X, 0)
    height = max([bottom + 28 * below, *(y + 24 for _, y in taken)], default=bottom) + _MARGIN
    return Layout(width, height, placed, tuple(routes))


Pair = tuple[str, str]
Item = str | tuple[str, str, int]
"""A node, or the place where an edge crosses a layer."""


def _back_edges(names: Sequence[str], pairs: Sequence[Pair]) -> set[Pair]:
    """Return edges without which there is no cycle: of each cycle, the one that leads to where the cycle is entered."""
    back: set[Pair] = set()
    while True:
        left = [pair for pair in pairs if pair not in back]
        sorter = _sorter(names, left)
        try:
            sorter.prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1]  # each is before the next one, and the last is the first
            ring = list(pairwise(cycle))
            entered = {target for source, target in left if source not in cycle}
            back.add(min(ring, key=lambda pair: (pair[1] not in entered, pair)))
        else:
            return back


def _sorter(names: Sequence[str], pairs: Iterable[Pair]) -> TopologicalSorter[str]:
    sorter = TopologicalSorter[str](dict.fromkeys(names, ()))
    for source, target in pairs:
        sorter.add(target, source)
    return sorter


def _layers(names: Sequence[str], pairs: Sequence[Pair]) -> dict[str, int]:
    """Return each node's layer. What begins the graph stands just before what it leads to."""
    after: dict[str, list[str]] = {}
    before: dict[str, list[str]] = {}
    for source, target in pairs:
        after.setdefault(source, []).append(target)
        before.setdefault(target, []).append(source)
    layer: dict[str, int] = {}
    for name in _sorter(names, pairs).static_order():
        layer[name] = max((layer[each] + 1 for each in before.get(name, ())), default=0)
    for name in names:
        if name not in before and name in after:
            layer[name] = min(layer[each] for each in after[name]) - 1
    return layer


def _columns(
    names: Sequence[str], layer: dict[str, int], pairs: Sequence[Pair]
) -> tuple[list[list[Item]], dict[Pair, list[Item]]]:
    columns: list[list[Item]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name in names:
        columns[layer[name]].append(name)
    chains: dict[Pair, list[Item]] = {}
    for source, target in pairs:
        between: list[Item] = [(source, target, number) for number in range(layer[source] + 1, layer[target])]
        for item, number in zip(between, range(layer[source] + 1, layer[target]), strict=True):
            columns[number].append(item)
        chains[source, target] = between
    return columns, chains


def _order(columns: list[list[Item]], chains: dict[Pair, list[Item]]) -> None:
    """Order each layer by where its neighbours stand, forwards and backwards in turns."""
    before: dict[Item, list[Item]] = {}
    after: dict[Item, list[Item]] = {}
    for (source, target), between in chains.items():
        way: list[Item] = [source, *between, target]
        for a, b in pairwise(way):
            after.setdefault(a, []).append(b)
            before.setdefault(b, []).append(a)
    for sweep in range(_SWEEPS):
        sweeping = list(columns) if sweep % 2 == 0 else columns[::-1]
        neighbours = before if sweep % 2 == 0 else after
        for fixed, column in pairwise(sweeping):
            at = {item: (row + 0.5) / len(fixed) for row, item in enumerate(fixed)}
            own = {item: (row + 0.5) / len(column) for row, item in enumerate(column)}

            def centre(item: Item, at: dict[Item, float] = at, own: dict[Item, float] = own) -> float:
                found = [at[each] for each in neighbours.get(item, ()) if each in at]  # noqa: B023 - used at once
                return sum(found) / len(found) if found else own[item]

            column.sort(key=centre)


def _way(places: Sequence[tuple[int, int]]) -> tuple[str, int, int]:
    """Return the path through places, and the middle of its last piece, where the label is."""
    x, y = places[0][0] + WIDTH, places[0][1] + HEIGHT // 2
    path = f"M{x} {y}"
    middle = x, y
    for place_x, place_y in places[1:]:
        to_x, to_y = place_x, place_y + HEIGHT // 2
        half = (x + to_x) // 2
        path += f" C{half} {y} {half} {to_y} {to_x} {to_y}"
        middle = half, (y + to_y) // 2
        if (place_x, place_y) != places[-1]:
            path += f" H{to_x + WIDTH}"
            to_x += WIDTH
        x, y = to_x, to_y
    return path, middle[0], middle[1] - 7


def _way_back(source: tuple[int, int], target: tuple[int, int], floor: int) -> tuple[str, int, int]:
    """Return the path from the bottom of one node to the bottom of another, along a line below all nodes."""
    start, end = source[0] + WIDTH * 2 // 3, target[0] + WIDTH // 3
    path = f"M{start} {source[1] + HEIGHT} C{start} {floor} {start} {floor} {start - 28} {floor}"
    path += f" H{end + 28} C{end} {floor} {end} {floor} {end} {target[1] + HEIGHT}"
    return path, (start + end) // 2, floor - 6
