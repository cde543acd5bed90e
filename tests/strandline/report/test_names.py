"""Queries have the names that users gave them: in words, as data and in the graph. A name makes no commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ingest_bench import Bench
from strandline.channel import Channel, WriterSession
from strandline.channel.statements.inputs import Input
from strandline.ingest import ordered
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.page import Looker
from strandline.page.render import report_html
from strandline.report import explain
from why_channels import dead, make, send


def commit(channel: Channel, producer: str, query: str, source: Channel, **state: Any) -> None:
    """What a query's sink states."""
    reads = (Input(source.table_id, source.version + 1, 0, source.path, ()),)
    channel.append(
        [],
        statements={producer: [1]},
        states={producer: {"strandline:batch": "0:9f86d081884c7d65", **state}},
        times=[],
        owner=WriterSession.here(query),
        reads=reads,
    )


def test_a_query_has_the_name_that_was_given_to_it_or_to_its_producer(tmp_path: Path) -> None:
    source = make(tmp_path / "in", producers=["p"])
    send(source, "p", [0], [9])
    out = make(tmp_path / "out", producers=["query-da91d606", "slow-sum", "query-77", "query-5"])
    commit(out, "query-da91d606", "da91d606", source, **{"strandline:name": "hours"})
    commit(out, "slow-sum", "c138a054", source)
    commit(out, "query-77", "77", source)
    commit(out, "query-5", "5", source, loop={"query": "loop"}, **{"strandline:name": "another"})
    answer = explain(out.path, 5)
    assert {holder.name: (holder.query, holder.called) for holder in answer.culprits} == {
        "query-da91d606": ("hours", "hours (query-da91d606)"),
        "slow-sum": ("slow-sum", "slow-sum"),
        "query-77": (None, "query-77"),
        "query-5": ("another", "another (query-5)"),
    }
    assert f"It waits for query hours (query-da91d606) of {out.path}" in str(answer)
    assert {each["query"] for each in answer.to_json()["holders"]} == {"hours", "slow-sum", None, "another"}
    page = Looker([source.path, out.path], interval=0.0).look()
    assert {node.label for node in page.nodes if node.kind == "query"} == {"hours", "slow-sum", "query 77", "loop"}
    assert "<bdi>hours</bdi></b> (query-da91d606) of" in report_html(page)


def test_an_ingest_has_its_name_and_it_makes_no_commit(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((3, "a", 0))
    bench.settings = replace(bench.settings, query_name="intake")
    bench.restart()
    version = bench.channel.version
    bench.run()
    assert bench.channel.version == version
    assert RegistrarState.of(bench.channel.progress).entry("q").name is None
    bench.owner = dead("q")
    bench.run((4, "a", 0), (4, "b", 0))
    assert RegistrarState.of(bench.channel.progress).entry("q").name == "intake"
    bench.channel.seal()
    answer = explain(bench.channel, 4)
    assert f"It waits for ingest intake (q) of {bench.channel.path}, which is gone (2 partitions: a, b)." in str(answer)
    assert "start query intake (q) again" in str(answer)
    labels = [node.label for node in Looker([bench.channel.path], interval=0.0).look().nodes if node.kind == "ingest"]
    assert labels == ["intake"]
