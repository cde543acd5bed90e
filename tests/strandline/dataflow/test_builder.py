"""Timely's kind of programs on the in-process dataflow, over workers, delays and held-back progress that seeds decide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from strandline.dataflow.builder import Cluster, Scope, Stream
from strandline.dataflow.operators import InputPort, OutputPort
from strandline.errors import CapabilityError, CycleError, DataflowError, SummaryError
from strandline.time.domain import lex, product, uint64
from strandline.time.path.summary import identity
from strandline.tracker.capability import Capability, InputCapability
from strandline.tracker.notificator import Notificator
from strandline.tracker.refinement import Refinement

SEEDS = [None, 1, 2, 3, 4]
CLUSTERS = [(workers, seed, eager) for workers in (1, 3) for seed in SEEDS for eager in (True, False)]
clusters = pytest.mark.parametrize(("workers", "seed", "eager"), CLUSTERS)


def collect(into: dict[Any, list[Any]]) -> Callable[[InputPort, OutputPort, Notificator], None]:
    """Keep the records of each time, and send them as one list when the time is closed; checks that none comes afterwards."""
    closed: list[Any] = []

    def logic(records_in: InputPort, output: OutputPort, notificator: Notificator) -> None:
        for token, records in records_in:
            assert token.time not in closed
            into.setdefault(token.time, []).extend(records)
            notificator.notify_at(token.retain())
        for capability, _ in notificator.ready([records_in]):
            assert records_in.frontier.closed(capability.time)
            if capability.time in into:
                closed.append(capability.time)
                output.send(capability, [sorted(into.pop(capability.time))])

    return logic


@clusters
def test_exchange_and_notification_give_each_group_once_and_whole(workers: int, seed: int | None, eager: bool) -> None:
    cluster = Cluster(workers, seed, eager=eager)
    inputs, outputs, probes = [], [], []
    for scope in cluster.scopes(uint64):
        words, stream = scope.input("words")
        grouped = stream.exchange(hash_of).unary_notify("group", collect({}))
        output: list[tuple[int, list[int]]] = []
        inputs.append(words)
        outputs.append(output)
        probes.append(grouped.inspect(lambda time, group, output=output: output.append((time, group))).probe())
    for epoch in range(4):
        for worker, words in enumerate(inputs):
            words.send(*(10 * worker + n for n in range(5)))
            words.advance_to(epoch + 1)
        cluster.step_while(lambda epoch=epoch: any(probe.less_than(epoch + 1) for probe in probes))
        found = sorted(n for output in outputs for time, group in output if time == epoch for n in group)
        assert found == sorted(10 * worker + n for worker in range(workers) for n in range(5))
    for words in inputs:
        words.close()
    cluster.run()
    assert all(probe.done() for probe in probes)
    for worker, output in enumerate(outputs):
        assert len(output) == len({time for time, _ in output})  # once each
        assert all(n % workers == worker for _, group in output for n in group)


def hash_of(record: int) -> int:
    return record


def test_nothing_is_emitted_before_its_time_is_closed() -> None:
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            slow, left = scope.input("slow")
            fast, right = scope.input("fast")
            output = left.concat(right).unary_notify("group", collect({})).capture()
        fast.send(1, 2)
        fast.advance_to(9)
        for _ in range(20):
            cluster.step()
        assert output == []
        slow.send(3)
        slow.advance_to(1)
        cluster.step_while(lambda: not output)
        assert output == [(0, [1, 2, 3])]
        slow.close()
        fast.close()


def collatz(n: int) -> int:
    return n // 2 if n % 2 == 0 else 3 * n + 1


@pytest.mark.drawn
@clusters
def test_a_loop_runs_to_its_fixed_point_and_comes_to_rest(workers: int, seed: int | None, eager: bool) -> None:
    cluster = Cluster(workers, seed, eager=eager)
    inputs, outputs, probes = [], [], []
    for scope in cluster.scopes(uint64):
        numbers, stream = scope.input("numbers")
        with scope.nested("collatz") as loop:
            again, going_round = loop.feedback()
            stepped = stream.enter(loop).concat(going_round).exchange(hash_of).map(collatz)
            again.connect(stepped.filter(lambda n: n != 1))
            done = stepped.filter(lambda n: n == 1).leave()
        output: list[tuple[int, int]] = []
        inputs.append(numbers)
        outputs.append(output)
        probes.append(done.inspect(lambda time, n, output=output: output.append((time, n))).probe())
    for epoch, handle in [(epoch, handle) for epoch in range(3) for handle in inputs]:
        handle.send(*range(2, 12))
        handle.advance_to(epoch + 1)
    cluster.step_while(lambda: any(probe.less_than(3) for probe in probes))
    by_time = defaultdict(int)
    for output in outputs:
        for time, n in output:
            assert n == 1
            by_time[time] += 1
    assert by_time == dict.fromkeys(range(3), 10 * workers)
    for handle in inputs:
        handle.close()
    cluster.run()


def test_iterations_are_counted_in_the_loops_own_coordinate() -> None:
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            numbers, stream = scope.input("numbers")
            with scope.nested("loop") as loop:
                again, going_round = loop.feedback()
                everything = stream.enter(loop).concat(going_round)
                seen = everything.capture()
                again.connect(everything.filter(lambda n: n < 8).map(lambda n: 2 * n))
        numbers.advance_to(5)
        numbers.send(1)
        numbers.close()
    assert seen == [((5, 0), 1), ((5, 1), 2), ((5, 2), 4), ((5, 3), 8)]


@pytest.mark.drawn
@clusters
def test_a_loop_in_a_loop_notifies_each_round_exactly_once(workers: int, seed: int | None, eager: bool) -> None:
    """The inner loop halves to an odd number, the outer adds one and starts again, until 1; every round is a notification."""
    cluster = Cluster(workers, seed, eager=eager)
    inputs, outputs, rounds = [], [], []
    for scope in cluster.scopes(uint64):
        numbers, stream = scope.input("numbers")
        notified: list[Any] = []

        def watch(records_in: InputPort, output: OutputPort, notificator: Notificator, notified: list[Any] = notified) -> None:
            for token, records in records_in:
                assert not any(token.time == time for time in notified)
                with token.retain() as capability:
                    output.send(capability, records)
                notificator.notify_at(token.retain())
            for capability, _ in notificator.ready([records_in]):
                notified.append(capability.time)

        with scope.nested("outer") as outer:
            next_round, from_before = outer.feedback()
            begun = stream.enter(outer).concat(from_before)
            with outer.nested("inner") as inner:
                halve_again, halved = inner.feedback()
                now = begun.enter(inner).concat(halved).exchange(hash_of).unary_notify("watch", watch)
                halve_again.connect(now.filter(lambda n: n % 2 == 0).map(lambda n: n // 2))
                odd = now.filter(lambda n: n % 2 == 1).leave()
            next_round.connect(odd.filter(lambda n: n > 1).map(lambda n: n + 1))
            done = odd.filter(lambda n: n == 1).leave()
        inputs.append(numbers)
        outputs.append(done.capture())
        rounds.append(notified)
    inputs[0].send(7, 12)
    for handle in inputs:
        handle.close()
    cluster.run()
    assert sorted(record for output in outputs for record in output) == [(0, 1), (0, 1)]
    # 7 | 8 4 2 1 and 12 6 3 | 4 2 1: (epoch, outer round, inner round)
    expected = {(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 1, 1), (0, 1, 2), (0, 1, 3)}
    assert {time for notified in rounds for time in notified} == expected
    assert all(len(notified) == len(set(notified)) for notified in rounds)


def components(edges: list[tuple[int, int]]) -> dict[int, int]:
    label = {node: node for edge in edges for node in edge}
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            least = min(label[a], label[b])
            changed |= label[a] != least or label[b] != least
            label[a] = label[b] = least
    return label


def connected(scope: Scope, edges: Stream) -> Stream:
    """Label propagation: a node keeps the least label it hears of in an epoch, and tells its neighbours of each change."""
    with scope.nested("propagate") as loop:
        again, heard = loop.feedback()
        inside = edges.enter(loop)
        both_ways = inside.flat_map(lambda e: [e, (e[1], e[0])]).exchange(lambda e: e[0])
        neighbours: dict[tuple[int, int], set[int]] = defaultdict(set)
        labels: dict[tuple[int, int], int] = {}
        proposed: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)

        def tell(left: InputPort, right: InputPort, output: OutputPort, notificator: Notificator) -> None:
            for token, records in left:
                for a, b in records:
                    neighbours[token.time[0], a].add(b)
                    proposed[token.time].append((a, a))
                notificator.notify_at(token.retain())
            for token, records in right:
                proposed[token.time] += records
                notificator.notify_at(token.retain())
            for capability, _ in notificator.ready([left, right]):
                epoch = capability.time[0]
                news = {}
                for node, label in proposed.pop(capability.time, []):
                    if label < labels.get((epoch, node), node + 1):
                        labels[epoch, node] = news[node] = label
                output.send(capability, [(to, label) for node, label in news.items() for to in neighbours[epoch, node]])

        told = both_ways.binary_notify("tell", heard.exchange(lambda m: m[0]), tell)
        again.connect(told)
        rest = told.leave()

    def results(records_in: InputPort, output: OutputPort, notificator: Notificator) -> None:
        for token, _ in records_in:
            notificator.notify_at(token.retain())
        for capability, _ in notificator.ready([records_in]):
            output.send(capability, [(node, label) for (epoch, node), label in labels.items() if epoch == capability.time])

    return rest.unary_notify("results", results)


@clusters
def test_connected_components(workers: int, seed: int | None, eager: bool) -> None:
    graphs = {0: [(1, 2), (2, 3), (5, 6), (9, 9)], 1: [(4, 3), (3, 2), (2, 1), (1, 0), (7, 8)]}
    cluster = Cluster(workers, seed, eager=eager)
    inputs, outputs = [], []
    for scope in cluster.scopes(uint64):
        edges, stream = scope.input("edges")
        inputs.append(edges)
        outputs.append(connected(scope, stream).capture())
    for epoch, edges in graphs.items():
        for i, edge in enumerate(edges):
            inputs[i % workers].send(edge)
        for handle in inputs:
            handle.advance_to(epoch + 1)
    for handle in inputs:
        handle.close()
    cluster.run()
    for epoch, edges in graphs.items():
        found = [record for output in outputs for time, record in output if time == epoch]
        assert dict(found) == components(edges)
        assert len(found) == len(dict(found))


def test_two_inputs_have_frontiers_of_their_own() -> None:
    """Timely's, not Naiad's merged one: a join may forget its left side as the right frontier moves, and only then."""
    seen: list[tuple[list[int], list[int]]] = []
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            left, left_stream = scope.input("left")
            right, right_stream = scope.input("right")

            def logic(a: InputPort, b: InputPort, output: OutputPort) -> None:
                for port in (a, b):
                    for _ in port:
                        pass
                seen.append((list(a.frontier), list(b.frontier)))

            probe = left_stream.binary("join", right_stream, logic).probe()
        left.advance_to(7)
        right.advance_to(3)
        cluster.step_while(lambda: probe.less_than(3))
        assert seen[-1] == ([7], [3])
        assert list(probe.frontier) == [3]
        left.close()
        for _ in range(5):
            cluster.step()
        assert seen[-1] == ([], [3])
        right.close()


def test_a_stream_may_enter_and_leave_at_once_and_be_used_several_times() -> None:
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            numbers, stream = scope.input("numbers")
            with scope.region() as region:
                inside = stream.enter(region)
                passed, doubled = inside.leave(), inside.map(lambda n: 2 * n).leave()
            out, twice, raw = passed.capture(), doubled.capture(), stream.capture()
        numbers.send(1, 2)
        numbers.close()
    assert (out, twice, raw) == ([(0, 1), (0, 2)], [(0, 2), (0, 4)], [(0, 1), (0, 2)])


TICK = lex(tick="uint64", iter="uint64")


def test_recorded_case_of_dfirs_tick_loop() -> None:
    """``surface_stratum.rs``: a tick loop doubles [1, 3] → [2, 6] → [4, 12] → [8, 24], each tick after the last."""
    ticks: list[tuple[int, list[int]]] = []
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            numbers, stream = scope.input("numbers")
            with scope.nested("ticks") as loop:
                again, deferred = loop.feedback()

                def tick(records_in: InputPort, output: OutputPort, notificator: Notificator) -> None:
                    for token, records in records_in:
                        held.setdefault(token.time, []).extend(records)
                        notificator.notify_at(token.retain())
                    for capability, _ in notificator.ready([records_in]):
                        records = held.pop(capability.time)
                        ticks.append((capability.time[1], records))
                        output.send(capability, records)

                held: dict[Any, list[int]] = {}
                out = stream.enter(loop).concat(deferred).unary_notify("tick", tick)
                again.connect(out.map(lambda n: 2 * n).filter(lambda n: n <= 24))
        numbers.send(1, 3)
        numbers.close()
    assert ticks[:4] == [(0, [1, 3]), (1, [2, 6]), (2, [4, 12]), (3, [8, 24])]


def test_recorded_case_of_dfirs_difference_of_two_strata() -> None:
    """{01, 02, 03}, {11, 12}, {02}: a difference may be taken only when its negative side is complete."""
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            plus, left = scope.input("plus")
            minus, right = scope.input("minus")
            kept: dict[int, list[str]] = {}
            removed: dict[int, set[str]] = {}

            def difference(a: InputPort, b: InputPort, output: OutputPort, notificator: Notificator) -> None:
                for token, records in a:
                    kept.setdefault(token.time, []).extend(records)
                    notificator.notify_at(token.retain())
                for token, records in b:
                    removed.setdefault(token.time, set()).update(records)
                for capability, _ in notificator.ready([a, b]):
                    gone = removed.pop(capability.time, set())
                    output.send(capability, [{n for n in kept.pop(capability.time) if n not in gone}])

            output = left.binary_notify("difference", right, difference).capture()
        for tick, (added, taken) in enumerate([(["01", "02", "03"], []), (["11", "12"], []), (["01", "02"], ["01"])]):
            plus.send(*added)
            plus.advance_to(tick + 1)
            minus.send(*taken)
            minus.advance_to(tick + 1)
        plus.close()
        minus.close()
    assert [group for _, group in output] == [{"01", "02", "03"}, {"11", "12"}, {"02"}]


@pytest.mark.parametrize("seed", SEEDS)
def test_recorded_case_of_bytewax_reclocking(seed: int | None) -> None:
    """``reclock.rs``: data 0..9 and a clock 3, 5, 8 → (3, [0–3]), (5, [4, 5]), (8, [6–8])."""
    with Cluster(seed=seed) as cluster:
        with cluster.dataflow(uint64) as scope:
            numbers, data = scope.input("data")
            clock, ticks = scope.input("clock")
            stash: list[tuple[int, int]] = []

            def reclock(data: InputPort, ticks: InputPort, output: OutputPort, notificator: Notificator) -> None:
                for token, records in data:
                    stash.extend((token.time, record) for record in records)
                for token, _ in ticks:
                    notificator.notify_at(token.retain())
                for capability, _ in notificator.ready([data, ticks]):
                    output.send(capability, [sorted(record for time, record in stash if time <= capability.time)])
                    stash[:] = [(time, record) for time, record in stash if time > capability.time]

            output = data.binary_notify("reclock", ticks, reclock).capture()
        for n in range(10):
            numbers.advance_to(n)
            numbers.send(n)
        for tick in (3, 5, 8):
            clock.advance_to(tick)
            clock.send("tick")
        numbers.close()
        clock.close()
    assert output == [(3, [0, 1, 2, 3]), (5, [4, 5]), (8, [6, 7, 8])]


def test_progress_that_holds_nobody_up_is_held_back_and_merged() -> None:
    def batches(eager: bool) -> int:
        cluster = Cluster(3, eager=eager)
        inputs = []
        for scope in cluster.scopes(uint64):
            numbers, stream = scope.input("numbers")
            stream.exchange(hash_of).map(abs).exchange(hash_of).unary_notify("group", collect({})).probe()
            inputs.append(numbers)
        for epoch in range(20):  # worker 0 stays behind: what the others do at later times concerns nobody yet
            for handle in inputs[1:]:
                handle.send(*range(10))
                handle.advance_to(epoch + 1)
            for _ in range(4):
                cluster.step()
        for handle in inputs:
            handle.close()
        cluster.run()
        return cluster.network.moves

    assert batches(eager=False) < batches(eager=True)


# Reading a part of what has arrived.


def one_batch(records_in: InputPort, output: OutputPort) -> None:
    for token, records in records_in:
        with token.retain() as capability:
            output.send(capability, records)
        break


def next_batch(records_in: InputPort, output: OutputPort) -> None:
    read = next(iter(records_in), None)
    if read is not None:
        token, records = read
        with token.retain() as capability:
            output.send(capability, records)


def sliced_batch(records_in: InputPort, output: OutputPort) -> None:
    for token, records in islice(records_in, 1):
        with token.retain() as capability:
            output.send(capability, records)


@pytest.mark.parametrize("logic", [one_batch, next_batch, sliced_batch])
@clusters
def test_what_an_operator_does_not_read_stays_queued_and_holds_its_time(
    workers: int, seed: int | None, eager: bool, logic: Callable[[InputPort, OutputPort], None]
) -> None:
    cluster = Cluster(workers, seed, eager=eager)
    inputs, outputs = [], []
    for scope in cluster.scopes(uint64):
        numbers, stream = scope.input("numbers")
        inputs.append(numbers)
        closed: list[int] = []

        def watch(records_in: InputPort, output: OutputPort, notificator: Notificator, closed: list[int] = closed) -> None:
            for token, records in records_in:
                assert token.time not in closed
                notificator.notify_at(token.retain())
                with token.retain() as capability:
                    output.send(capability, records)
            closed.extend(capability.time for capability, _ in notificator.ready([records_in]))

        outputs.append(stream.exchange(hash_of).unary("slow", logic).exchange(hash_of).unary_notify("watch", watch).capture())
    for time in range(6):
        for handle in inputs:
            handle.send(*range(5))
            handle.advance_to(time + 1)
    for handle in inputs:
        handle.close()
    cluster.run()
    found = sorted(record for output in outputs for record in output)
    assert found == sorted((time, n) for time in range(6) for n in range(5) for _ in range(workers))


def test_an_error_in_the_middle_of_a_read_leaves_the_rest_queued() -> None:
    """The batch at hand was read, and its time is given back; the ones after it are there when the program goes on."""
    cluster = Cluster()
    with cluster.dataflow(uint64) as scope:
        numbers, stream = scope.input("numbers")

        def fragile(records_in: InputPort, output: OutputPort) -> None:
            for token, records in records_in:
                with token.retain() as capability:
                    output.send(capability, records)
                if records == [1]:
                    raise ValueError(records)

        output = stream.unary("fragile", fragile)
        captured, probe = output.capture(), output.probe()
    for n in range(4):
        numbers.send(n)
        numbers.advance_to(n + 1)
    numbers.close()
    with pytest.raises(ValueError, match="1") as kept:  # `kept` holds the logic's frame, as a debugger would
        cluster.run()
    cluster.run()
    assert kept is not None
    assert captured == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert probe.done()


def test_a_token_is_good_until_its_operators_turn_ends() -> None:
    tokens: list[InputCapability] = []
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            numbers, stream = scope.input("numbers")

            def all_at_once(records_in: InputPort, output: OutputPort) -> None:
                for token, records in list(records_in):
                    with token.retain() as capability:
                        output.send(capability, records)
                    tokens.append(token)

            captured = stream.unary("all at once", all_at_once).capture()
        numbers.send(1)
        numbers.advance_to(1)
        numbers.send(2)
        numbers.close()
    assert captured == [(0, 1), (1, 2)]
    for token in tokens:
        with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_DROPPED"):
            token.retain()


def test_a_read_that_is_kept_over_turns_gives_no_right_to_a_closed_time() -> None:
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            numbers, stream = scope.input("numbers")
            reads: list[Any] = []
            refused: list[int] = []

            def lingering(records_in: InputPort, output: OutputPort) -> None:
                if reads:
                    (token, _), _ = reads.pop()
                    with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_DROPPED"):
                        token.retain()
                    refused.append(token.time)
                read = iter(records_in)
                batch = next(read, None)
                if batch is not None:
                    reads.append((batch, read))

            stream.unary("lingering", lingering).probe()
        numbers.send(1)
        numbers.close()
    assert refused == [0]


# Coming to rest, or saying why not.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("eager", [True, False])
def test_an_operator_that_never_reads_is_named_with_what_waits_there(seed: int | None, eager: bool) -> None:
    cluster = Cluster(2, seed, eager=eager)
    for worker, scope in enumerate(cluster.scopes(uint64)):
        numbers, stream = scope.input("numbers")
        with scope.nested("loop") as loop:
            stream.exchange(hash_of).enter(loop).exchange(hash_of).unary("deaf", lambda records_in, output: None).probe()
        if worker == 0:
            numbers.send(1)
            numbers.send(3, 5)
            numbers.advance_to(4)
            numbers.send(7)
        numbers.close()
    with pytest.raises(DataflowError, match="STRANDLINE_DATAFLOW_STALLED") as stall:
        cluster.run()
    assert "3 batches of 4 records wait at deaf.in0 in dataflow.loop on worker 1, from (outer=0, iter=0) on" in str(stall.value)
    assert "Read them" in str(stall.value)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ticker_that_says_that_it_is_active_is_no_stall(seed: int | None) -> None:
    """It acts only after some quiet steps, and nothing else happens meanwhile."""
    with Cluster(2, seed) as cluster:
        outputs = []
        for scope in cluster.scopes(uint64):
            numbers, stream = scope.input("numbers")
            with scope.region() as region:
                held: list[tuple[Capability, list[int], int]] = []

                def later(
                    records_in: InputPort, output: OutputPort, held: list[tuple[Capability, list[int], int]] = held
                ) -> bool:
                    held[:] = [(capability, records, quiet - 1) for capability, records, quiet in held]
                    held.extend((token.retain(), records, 50) for token, records in records_in)
                    for capability, records, quiet in held:
                        if quiet == 0:
                            output.send(capability, records)
                            capability.drop()
                    held[:] = [entry for entry in held if entry[2] > 0]
                    return bool(held)

                outputs.append(stream.enter(region).unary("later", later).leave().capture())
            numbers.send(1)
            numbers.close()
    assert outputs == [[(0, 1)], [(0, 1)]]


def test_waiting_for_what_cannot_happen_is_an_error_that_says_what_is_held() -> None:
    cluster = Cluster()
    with cluster.dataflow(uint64) as scope:
        _numbers, stream = scope.input("numbers")
        probe = stream.map(abs).probe()
    with pytest.raises(DataflowError, match=r"STRANDLINE_DATAFLOW_STALLED.*1 × 0 at numbers\.out0"):
        cluster.step_while(lambda: probe.less_equal(0))
    with pytest.raises(DataflowError, match="STRANDLINE_DATAFLOW_STALLED"), cluster:
        pass  # the end of the block runs to the end


# What is built or used wrongly.


def test_an_input_is_not_moved_backwards_nor_used_after_its_end() -> None:
    with Cluster() as cluster:
        with cluster.dataflow(product(epoch="uint64", part="uint64")) as scope:
            numbers, stream = scope.input("numbers")
            stream.probe()
        numbers.advance_to((1, 1))
        with pytest.raises(CapabilityError, match=r"\(epoch=1, part=1\) cannot be delayed to \(epoch=2, part=0\)"):
            numbers.advance_to((2, 0))
        numbers.close()
        with pytest.raises(Exception, match="STRANDLINE_INPUT_CLOSED"):
            numbers.send(1)


def test_a_loop_without_an_advance_is_refused_and_shown() -> None:
    def build() -> None:
        with Cluster().dataflow(uint64) as scope:
            _, stream = scope.input("numbers")
            again, going_round = scope.feedback(identity(uint64))
            again.connect(stream.concat(going_round))

    with pytest.raises(CycleError, match=r"feedback\.in0 → feedback\.out0 → concat\.in1 → concat\.out0"):
        build()


@pytest.mark.parametrize("wrong", ["unconnected", "late", "twice", "other scope", "deep", "nowhere", "region", "workers"])
def test_dataflows_that_are_built_wrongly_are_refused(wrong: str) -> None:
    with pytest.raises((DataflowError, SummaryError)):
        build_wrongly(wrong)


def build_wrongly(wrong: str) -> None:
    with Cluster(2 if wrong == "workers" else 1).dataflow(uint64) as scope:
        _, stream = scope.input("numbers")
        match wrong:
            case "nowhere":
                stream.leave()
            case "region":
                with scope.region() as region:
                    region.feedback()
            case "late":
                with scope.region() as region:
                    inside = stream.enter(region)
                inside.map(abs)
            case _:
                with scope.nested("outer") as outer:
                    again, _ = outer.feedback()
                    if wrong != "unconnected":
                        again.connect(stream.enter(outer))
                    if wrong == "twice":
                        again.connect(stream.enter(outer))
                    if wrong == "other scope":
                        stream.concat(stream.enter(outer))
                    if wrong == "deep":
                        with outer.nested("inner") as inner:
                            stream.enter(inner)


def test_sending_needs_a_capability_of_that_output_at_that_time_or_before() -> None:
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            one, stream = scope.input("one")
            other, _ = scope.input("other")
            kept: list[Any] = []

            def logic(records_in: InputPort, output: OutputPort) -> None:
                for token, _ in records_in:
                    kept.append(token.retain())
                if kept:
                    with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_BACKWARDS"):
                        output.send(kept[0], ["early"], time=0)
                    with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_INVALID"):
                        output.send(other._capability, ["stolen"])
                    kept[0].drop()
                    with pytest.raises(CapabilityError, match="STRANDLINE_CAPABILITY_INVALID"):
                        output.send(kept.pop(), ["late"])

            output = stream.unary("strict", logic).capture()
        one.advance_to(4)
        one.send("message")
        one.close()
        other.close()
    assert output == []


def test_a_scope_can_be_lexicographic() -> None:
    with Cluster() as cluster:
        with cluster.dataflow(uint64) as scope:
            numbers, stream = scope.input("numbers")
            with scope.nested("ticks", Refinement.nested(uint64, "iter", order=lex, outer_name="tick")) as loop:
                assert loop.domain == TICK
                again, going_round = loop.feedback()
                everything = stream.enter(loop).concat(going_round)
                again.connect(everything.filter(lambda n: n > 0).map(lambda n: n - 1))
                out = everything.leave().capture()
        numbers.send(2)
        numbers.advance_to(1)
        numbers.send(1)
        numbers.close()
    assert sorted(out) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
