"""The layout of the graph: no two nodes overlap, edges go to the right unless they close a cycle, and order does not matter."""

from __future__ import annotations

from graphlib import TopologicalSorter
from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from strandline.page.layout import HEIGHT, WIDTH, layout_of
from strandline.page.model import Edge, Node

PAIRS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=16, unique=True)


@given(count=st.integers(0, 9), pairs=PAIRS, seed=st.integers(0, 99))
def test_laws(count: int, pairs: list[tuple[int, int]], seed: int) -> None:
    nodes = [Node(f"n{n}", "channel", str(n), "") for n in range(count)]
    edges = [Edge(f"n{a}", f"n{b}", ()) for a, b in pairs if a < count and b < count]
    made = layout_of(nodes, edges)
    place = {placed.node.id: (placed.x, placed.y) for placed in made.nodes}
    assert set(place) == {node.id for node in nodes}
    for (x, y), (other_x, other_y) in combinations(place.values(), 2):
        assert abs(x - other_x) >= WIDTH or abs(y - other_y) >= HEIGHT
    assert all(0 <= x <= made.width - WIDTH and 0 <= y <= made.height - HEIGHT for x, y in place.values())
    assert sorted((route.edge.source, route.edge.target) for route in made.routes) == sorted((e.source, e.target) for e in edges)
    forward = [route.edge for route in made.routes if not route.back]
    assert all(place[edge.source][0] + WIDTH < place[edge.target][0] for edge in forward)
    graph: dict[str, set[str]] = {node.id: set() for node in nodes}
    for edge in edges:
        graph[edge.target].add(edge.source)
    back = len(edges) - len(forward)
    assert (back == 0) == is_acyclic(graph)
    assert all(0 < route.y <= made.height for route in made.routes)
    random = Random(seed)
    assert layout_of(random.sample(nodes, len(nodes)), random.sample(edges, len(edges))) == made


def is_acyclic(graph: dict[str, set[str]]) -> bool:
    try:
        TopologicalSorter(graph).prepare()
    except ValueError:
        return False
    return True
