"""Hypothesis strategies for the core: domains, times, summaries, graphs without idle cycles, legal histories."""

from __future__ import annotations

from hypothesis import strategies as st

from strandline.errors import GraphError
from strandline.time.domain import Lex, Scalar, Time, TimeDomain, int64, lex, product, timestamp, uint64
from strandline.time.path.summary import LexSummary, PathSummary, ProductSummary, ScalarSummary, identity
from strandline.tracker.graph import Graph

PAIR = product(epoch="uint64", iter="uint64")
TRIPLE = product(a="uint64", b="uint64", c="uint64")
SCOPE = lex(tick="uint64", stratum="uint64", iter="uint64")
DOMAINS: list[TimeDomain] = [
    uint64,
    int64,
    timestamp,
    PAIR,
    TRIPLE,
    SCOPE,
    product(event="int64", loop=lex(tick="uint64", iter="uint64")),
    lex(epoch="uint64", where=PAIR),
    product(outer=product(a="uint64", b="int8"), inner="uint64"),
]


def is_lex(domain: TimeDomain) -> bool:
    return isinstance(domain, Lex) or any(is_lex(part) for _, part in domain.coordinates)


def domains() -> st.SearchStrategy[TimeDomain]:
    return st.sampled_from(DOMAINS)


def times(domain: TimeDomain, high: int = 4, edges: bool = False) -> st.SearchStrategy[Time]:
    """Times near zero, so that they meet; with ``edges`` the domain's extremes too."""
    if isinstance(domain, Scalar):
        near = st.integers(0, high)
        return near | st.sampled_from([domain.minimum, domain.maximum, domain.maximum - 1]) if edges else near
    return st.tuples(*(times(part, high, edges) for _, part in domain.coordinates))


def summaries(domain: TimeDomain, high: int = 3, widest: bool = True) -> st.SearchStrategy[PathSummary]:
    """Summaries by small amounts and, with ``widest``, by ones that overflow."""
    if isinstance(domain, Scalar):
        width = domain.maximum - domain.minimum
        amounts = st.integers(0, high)
        if widest:
            amounts |= st.sampled_from([width, width - 1])
        return amounts.map(lambda by: ScalarSummary(domain, by))
    if isinstance(domain, Lex):

        def one(at: int | None) -> st.SearchStrategy[PathSummary]:
            if at is None:
                return st.just(identity(domain))
            part = summaries(domain.parts[at][1], high, widest).filter(lambda s: not s.is_identity)
            rest = st.tuples(*(times(d, high) for _, d in domain.parts[at + 1 :]))
            return st.builds(lambda p, r: LexSummary(domain, at, p, r), part, rest)

        return st.sampled_from([None, *range(len(domain.parts))]).flatmap(one)
    parts = st.tuples(*(summaries(part, high, widest) for _, part in domain.coordinates))
    return parts.map(lambda found: ProductSummary(domain, found))


@st.composite
def graphs(draw: st.DrawFn, domain: TimeDomain, max_nodes: int = 5) -> Graph:
    """A random graph, node 0 the outside; an edge that would close a cycle which does not advance is left out."""
    shape = [(draw(st.integers(0, 2)), draw(st.integers(1, 2)))]
    shape += [(draw(st.integers(0, 3)), draw(st.integers(0, 2))) for _ in range(draw(st.integers(1, max_nodes)))]
    # A lexicographic composition that overflows is only a lower bound, brute force would find it unequal.
    paths = st.lists(summaries(domain, 2, widest=not is_lex(domain)) | st.just(identity(domain)), max_size=2)
    rows: list[list[dict[int, list[PathSummary]]]] = [[{} for _ in range(shape[0][0])]]
    rows += [[{o: draw(paths) for o in range(outputs)} for _ in range(inputs)] for inputs, outputs in shape[1:]]
    outputs_of = [(n, o) for n, (_, outputs) in enumerate(shape) for o in range(outputs)]
    inputs_of = [(n, i) for n, (inputs, _) in enumerate(shape) for i in range(inputs)]
    wanted = []
    if outputs_of and inputs_of:
        pairs = st.tuples(st.sampled_from(outputs_of), st.sampled_from(inputs_of))
        wanted = draw(st.lists(pairs, max_size=10, unique=True))

    def build(edges: list[tuple[tuple[int, int], tuple[int, int]]]) -> Graph:
        graph = Graph(domain)
        for (inputs, outputs), row in zip(shape, rows, strict=True):
            graph.add_node(inputs, outputs, row)
        for (n, o), (m, i) in edges:
            graph.add_edge(n, o, m, i)
        return graph

    kept: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for edge in wanted:
        try:
            build([*kept, edge]).validate()
        except GraphError:
            continue
        kept.append(edge)
    return build(kept)
