"""A partition that has run ahead joins again where the others are: nothing closed is opened, and its rows are in time again."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_bench import Bench
from pages import blocks, run_blocks
from strandline.channel import Channel, WriterSession
from strandline.errors import IngestError
from strandline.ingest import bounded, drop_partitions, idle, manifest, ordered, readmit, rejoin_partitions, status
from strandline.report import verify

FAR = 10**9
HOUR = 3_600_000


def ran_ahead(tmp_path: Path, policy: Any = None, **options: Any) -> Bench:
    """An ingest whose partition b has promised a far time."""
    bench = Bench(tmp_path, policy or bounded(5), **{"partitions": ["a", "b"], **options})
    bench.run((10, "a", 1), (10, "b", 1), now=1, to_end=True)
    bench.run((12, "a", 2), (FAR, "b", 2), now=1, to_end=True)
    bench.run((20, "b", 3), now=1, to_end=True)
    assert bench.late() == [(20, "b", 3)]
    return bench


@pytest.mark.parametrize("policy", [bounded(5), ordered(), idle(bounded(5), "1 hour"), idle(ordered(), "1 hour", counts="wall")])
@pytest.mark.parametrize("options", [{}, {"partitions": None}])
def test_it_joins_where_the_others_are(tmp_path: Path, policy: Any, options: Any) -> None:
    bench = ran_ahead(tmp_path, policy, **options)
    frontier = bench.frontier()
    version = rejoin_partitions(bench.settings.path, ["b"])
    assert version == bench.channel.version
    (b,) = [p for p in status(bench.settings.path).partitions if p.name == "b"]
    assert (list(b.holds), b.generation, b.idle_since) == (frontier, 2, None)
    bench.run((25, "a", 4), to_end=True, read_ms=1)
    assert bench.holds()["b"] == frontier == bench.frontier(), "it is waited for, although it delivered nothing"
    bench.run((21, "b", 5), to_end=True, read_ms=2)
    assert (21, "b", 5) in bench.rows()
    assert bench.late() == [(20, "b", 3)]
    assert "b (generation 2)" in str(status(bench.settings.path))
    assert verify(bench.settings.path).sound


def test_its_rows_that_are_behind_are_still_late(tmp_path: Path) -> None:
    bench = ran_ahead(tmp_path)
    rejoin_partitions(bench.settings.path, "b")
    bench.run((3, "b", 6), (8, "b", 7))
    assert bench.late() == [(20, "b", 3), (3, "b", 6)]
    assert bench.frontier() == [7]


def test_a_running_batch_with_its_rows_is_planned_again(tmp_path: Path) -> None:
    bench = ran_ahead(tmp_path)
    reports = bench.take([(20, "b", 8)])
    without = bench.take([(14, "a", 8)])
    rejoin_partitions(bench.settings.path, ["b"])
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_OVERTAKEN"):
        bench.commit(reports)
    bench.commit(without)
    assert bench.holds()["b"] == [7], "what the others held when it rejoined"


@pytest.mark.parametrize("policy", [ordered(), idle(ordered(), "1 hour")])
def test_the_registrar_moves_while_a_batch_of_one_that_rejoins_alone_runs(tmp_path: Path, policy: Any) -> None:
    bench, other = Bench(tmp_path, policy), Bench(tmp_path, bounded(0), query="other")
    other.run((2, "x", 1), to_end=True)
    bench.run((9, "a", 1), to_end=True, read_ms=1)
    rejoin_partitions(bench.settings.path, ["a"])
    reports = bench.take([(4, "a", 2), (12, "a", 2)])
    other.run((8, "x", 1), to_end=True)
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_OVERTAKEN.*'a'"):
        bench.commit(reports, to_end=True, read_ms=2)
    bench.restart()
    bench.run((4, "a", 3), (12, "a", 3), to_end=True, read_ms=2)
    assert bench.late() == [(4, "a", 3)]
    assert (12, "a", 3) in bench.rows()


def test_two_calls_are_one(tmp_path: Path) -> None:
    bench = ran_ahead(tmp_path)
    assert rejoin_partitions(bench.settings.path, ["b"]) == rejoin_partitions(bench.settings.path, ["b"])


def test_it_can_run_ahead_again(tmp_path: Path) -> None:
    bench = ran_ahead(tmp_path)
    for generation in (2, 3):
        rejoin_partitions(bench.settings.path, ["b"])
        bench.run((FAR + generation, "b", 9))
        assert bench.channel.producers["b"].state["generation"] == generation  # type: ignore[index]


def test_the_only_partition_is_refused_and_readmit_remains(tmp_path: Path) -> None:
    bench = Bench(tmp_path, bounded(5), partitions=["b"], corrections=True)
    bench.run((10, "b", 1))
    bench.run((FAR, "b", 2))
    bench.run((20, "b", 3))
    before = bench.channel.version
    with pytest.raises(
        IngestError, match=rf"STRANDLINE_REJOIN_IMPOSSIBLE.*no other partition.*readmit\('{bench.settings.path}', where=…\)"
    ):
        rejoin_partitions(bench.settings.path, ["b"])
    assert bench.channel.version == before
    assert readmit(bench.settings.path).rows == 1


@pytest.mark.parametrize("partitions", [["b"], None])
def test_the_only_partition_does_not_join_at_a_hold_which_can_add_the_rows_itself(tmp_path: Path, partitions: Any) -> None:
    bench = Bench(tmp_path, bounded(5), partitions=partitions)
    bench.run((10, "b", 1))
    bench.channel.hold("operator", 8, by="ann")
    bench.run((FAR, "b", 2))
    bench.run((20, "b", 3))
    path = bench.settings.path
    refused = rf"REJOIN_IMPOSSIBLE.*'operator' holds \{{8\}} \(strandline hold\).*open\('{path}'\).producer\('operator'\)"
    with pytest.raises(IngestError, match=refused):
        rejoin_partitions(path, ["b"])
    with bench.channel.producer("operator") as operator:
        operator.send(bench.table([(20, "b", 3)]))
    bench.run((FAR + 9, "b", 4))
    assert ([row[2] for row in bench.rows()], bench.frontier()) == ([1, 3, 2, 4], [8])
    with bench.channel.producer("operator") as operator:
        operator.drop()
    with pytest.raises(IngestError, match="no other partition of its ingest holds an earlier time. A partition"):
        rejoin_partitions(path, ["b"])
    assert verify(path).sound


def test_one_that_is_behind_is_refused(tmp_path: Path) -> None:
    bench = ran_ahead(tmp_path)
    with pytest.raises(IngestError, match=r"STRANDLINE_PARTITION_NOT_AHEAD.*'a'.*holds \{7\}.*join at"):
        rejoin_partitions(bench.settings.path, ["a"])
    with pytest.raises(IngestError, match=r"STRANDLINE_PARTITION_UNKNOWN.*'c'.*a, b"):
        rejoin_partitions(bench.settings.path, ["c"])


def test_a_dropped_one_comes_back(tmp_path: Path) -> None:
    bench = ran_ahead(tmp_path)
    drop_partitions(bench.settings.path, ["b"])
    rejoin_partitions(bench.settings.path, ["b"])
    bench.run((11, "b", 9))
    assert (11, "b", 9) in bench.rows()
    assert "dropped" not in bench.channel.producers["b"].state  # type: ignore[operator]


def test_it_can_be_dropped_before_it_has_joined(tmp_path: Path) -> None:
    bench = ran_ahead(tmp_path)
    rejoin_partitions(bench.settings.path, ["b"])
    drop_partitions(bench.settings.path, ["b"])
    bench.run((30, "a", 1))
    assert bench.holds() == {"a": [25], "b": []}


def test_one_that_was_idle_joins(tmp_path: Path) -> None:
    bench = ran_ahead(tmp_path, idle(bounded(5), "1 hour"))
    bench.run((30, "a", 1), now=2 * HOUR, to_end=True)
    assert bench.holds()["b"] == []
    rejoin_partitions(bench.settings.path, ["b"])
    bench.run((40, "a", 1), now=2 * HOUR, to_end=True)
    assert bench.holds()["b"] == [25]
    bench.run((50, "a", 1), now=4 * HOUR, to_end=True)
    assert bench.holds()["b"] == [], "silent again, counted from when it joined"


def test_the_ingest_keeps_it_and_another_one_takes_it_over(tmp_path: Path) -> None:
    bench = ran_ahead(tmp_path)
    rejoin_partitions(bench.settings.path, ["b"])
    assert bench.channel.producers["b"].owner.id == "q"  # type: ignore[union-attr]
    other = Bench(tmp_path, bounded(5), query="other", partitions=["a", "b"], take_over=True)
    other.owner = WriterSession.here("other")
    other.run((13, "a", 1))
    assert other.holds() == {"a": [8], "b": [7]}
    other.run((9, "b", 1))
    assert (9, "b", 1) in other.rows()


def test_a_producer_of_no_ingest_cannot_rejoin(tmp_path: Path) -> None:
    bench = Bench(tmp_path, bounded(5))
    channel = Channel.create(bench.settings.path, bench.settings.channel_schema, time="t", producers=["declared", "w"], at=0)
    with channel.producer("w") as program:
        program.delay([40])
        program.commit()
        drop_partitions(bench.settings.path, ["declared"])
        for name in ("declared", "w"):
            with pytest.raises(IngestError, match=f"STRANDLINE_PARTITION_UNKNOWN.*No ingest has written '{name}'"):
                rejoin_partitions(bench.settings.path, name)
        program.delay([41])
        program.commit()
    assert Channel.open(bench.settings.path).frontier.to_json() == [41]


def test_a_manifest_counts_what_the_channel_has(tmp_path: Path) -> None:
    bench = Bench(tmp_path, bounded(1), partitions=["a", "b"])
    bench.run((10, "a", 1), (10, "b", 1), (11, "b", 1))
    bench.run((FAR, "b", 1))
    rejoin_partitions(bench.settings.path, ["b"])
    policy = manifest({("a", 10): 1, ("a", 30): 1, ("b", 10): 2, ("b", 11): 1})
    policy.save(f"{bench.settings.path}_manifest", bench.settings)
    counting = Bench(tmp_path, policy, partitions=["a", "b"])
    counting.batch = bench.batch
    counting.run((10, "b", 2))
    assert counting.holds()["b"] == [], "1 + 1 rows at 10, and 1 at 11"


@pytest.mark.parametrize("many", [300])
def test_in_columns(tmp_path: Path, many: int) -> None:
    """Among very many partitions, which are decided all at once."""
    names = [f"p{i}" for i in range(many)]
    bench = Bench(tmp_path, idle(bounded(5), "1 hour"), partitions=[*names, "b"])
    bench.run(*((10, name, 1) for name in names), (FAR, "b", 1), to_end=True)
    rejoin_partitions(bench.settings.path, ["b"])
    bench.run(*((20, name, 1) for name in names), to_end=True)
    assert bench.holds()["b"] == [5] == bench.frontier()
    bench.run((6, "b", 1), to_end=True)
    assert bench.late() == []


def test_the_page_says_what_an_operator_sees() -> None:
    page = Path(__file__).parents[3] / "docs" / "operations.md"
    run_blocks([block for block in blocks(page) if "rejoin_partitions" in block[0]], "operations")


_rows = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab"), st.just(0)), max_size=4)
_step = st.one_of(_rows, st.just("far"), st.just("rejoin"), st.just("restart"), st.just("idle"))


def story(steps: list[Any], folder: Path, policy: Any) -> None:
    """No row comes behind the frontier; one of b that is in time joins, once it has rejoined."""
    bench, now, rejoined, given = Bench(folder, policy, partitions=["a", "b"]), 0, False, 0
    bench.run((0, "a", 0), (0, "b", 0), to_end=True)
    for step in steps:
        frontier = bench.channel.frontier.copy()
        if step == "rejoin":
            try:
                rejoin_partitions(bench.settings.path, ["b"])
                rejoined = True
            except IngestError as error:
                if error.condition not in ("STRANDLINE_REJOIN_IMPOSSIBLE", "STRANDLINE_PARTITION_NOT_AHEAD"):
                    raise
        elif step == "restart":
            bench.restart()
        else:
            now += 2 * HOUR if step == "idle" else 1000
            rows = [(FAR, "b", 0)] if step == "far" else [] if step == "idle" else step
            joins = next(list(p.holds) for p in status(bench.settings.path).partitions if p.name == "b")
            before = len(bench.rows())
            bench.run(*rows, now=now, to_end=True, read_ms=now)
            if rejoined:
                assert len(bench.rows()) - before >= sum(name == "b" and bool(joins) and t >= joins[0] for t, name, _ in rows)
            rejoined = False
            given += len(rows)
        assert frontier.dominates(bench.channel.frontier), "the frontier never goes back"
    late = bench.late()
    assert len(bench.rows()) + len(late) == given + 2
    assert verify(bench.settings.path).sound


POLICIES = st.sampled_from([bounded(5), ordered(), idle(bounded(5), "1 hour"), idle(ordered(), "1 hour", counts="wall")])


@pytest.mark.drawn
@settings(max_examples=12, deadline=None)
@given(st.lists(_step, max_size=9), POLICIES)
def test_stories(steps: list[Any], policy: Any) -> None:
    with TemporaryDirectory() as folder:
        story(steps, Path(folder), policy)


@pytest.mark.soak
@settings(max_examples=400, deadline=None)
@given(st.lists(_step, max_size=20), POLICIES)
def test_many_stories(steps: list[Any], policy: Any) -> None:
    with TemporaryDirectory() as folder:
        story(steps, Path(folder), policy)
