"""Commits that arrive after their writer was told of an error: they are recognised by their ids, and no row is there twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from helpers import make_channel, rows, say
from strandline.channel import Channel, ChannelError, LogError, Producer, ProducerError, StorageError
from strandline.delta.data_file import DataFile
from strandline.delta.storage import LocalStore
from strandline.delta.table import Table
from strandline.time.domain import int64

Arrive = Callable[[], bool]


@contextmanager
def times_out() -> Iterator[list[Arrive]]:
    """The requests to commit do not arrive, and their writers are told of an error. The value lets them arrive later."""
    real = Table.commit
    late: list[Arrive] = []

    def commit(self: Table, *args: Any) -> bool:
        late.append(lambda: real(self, *args))
        raise OSError("timed out waiting for the answer")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="timed out"):
        patch.setattr(Table, "commit", commit)
        yield late


@contextmanager
def before_the_next_commit(arrive: Arrive) -> Iterator[None]:
    """The late request arrives while the writer has decided its next commit, and before that is written."""
    real = Table.commit
    left = [arrive]

    def commit(self: Table, *args: Any) -> bool:
        if left:
            assert left.pop()()
        return real(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "commit", commit)
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in"


def numbers(path: Path) -> list[int]:
    """The rows of the table, and of a stream of its commits, which must be the same."""
    channel = Channel.open(path)
    found = sorted(channel.read().column("n").to_pylist())
    commits = list(channel.log.tail(0))
    for commit in commits:
        commit.check()
    streamed = sorted(n for commit in commits for n in channel.read_files(commit.files).column("n").to_pylist())
    assert streamed == found
    return [int(n) for n in found]


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("last", ["commit", "close"])
def test_a_repeated_commit_is_recognised_wherever_it_arrives(path: Path, when: str, more: bool, last: str) -> None:
    producer = make_channel(path, producers=("a",)).producer("a")
    producer.send(rows(int64, (1, 1), (1, 2)))
    producer.delay([1])
    producer.state = {"at": 2}
    with times_out() as late:
        producer.commit()
    if more:
        producer.send(rows(int64, (1, 3)))
        producer.delay([2])
    if when == "before":
        assert late[0]()
        getattr(producer, last)()
    else:
        with before_the_next_commit(late[0]):
            getattr(producer, last)()
    if last == "commit":
        producer.send(rows(int64, (5, 5)))
        producer.commit()
        assert list(producer.stated) == [2 if more else 1]
    producer.close()
    assert numbers(path) == [1, 2] + [3] * more + [5] * (last == "commit")
    assert Channel.open(path).producers["a"].state == {"at": 2}


def test_one_of_several_late_attempts_is_recognised(path: Path) -> None:
    for arrives in range(3):
        producer = make_channel(path / str(arrives), producers=("a",)).producer("a")
        late = []
        for n in range(3):
            producer.send(rows(int64, (n, n)))
            with times_out() as attempts:
                producer.commit()
            late += attempts
        assert late[arrives]()
        assert not any(again() for again in late)
        producer.send(rows(int64, (3, 3)))
        producer.close()
        assert numbers(path / str(arrives)) == [0, 1, 2, 3]


def test_what_never_arrives_is_committed_again_with_all_that_came_later(path: Path) -> None:
    producer = make_channel(path, producers=("a",)).producer("a")
    for n in range(3):
        producer.send(rows(int64, (1, n), (n, n)))
        with times_out() as late:
            producer.commit()
    version = producer.commit()
    assert version is not None
    assert not late[0]()
    said = Channel.open(path).log.require(version).statement
    assert said is not None
    assert said.times == ((0, 1), (1, 4), (2, 1))
    assert numbers(path) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("when", ["before abort", "before commit", "between"])
def test_a_commit_that_arrives_around_an_abort_is_named_and_nothing_doubles(path: Path, when: str) -> None:
    producer = make_channel(path, producers=("a",)).producer("a")
    producer.send(rows(int64, (1, 1), (1, 2)))
    producer.state = {"at": 2}
    with times_out() as late:
        producer.commit()

    def again() -> None:
        producer.abort()
        if when == "before commit":
            assert late[0]()
        producer.send(rows(int64, (1, 1), (1, 2)))
        if when == "between":
            with before_the_next_commit(late[0]):
                producer.commit()
        else:
            producer.commit()

    if when == "before abort":
        assert late[0]()
    with pytest.raises(ProducerError, match=r"STRANDLINE_COMMIT_WAS_MADE.*: 2 row\(s\), in version 2\..*Do not send"):
        again()
    assert producer.state == {"at": 2}
    producer.send(rows(int64, (3, 3)))
    producer.close()
    assert numbers(path) == [1, 2, 3]
    assert len(list(path.glob("*.parquet"))) == 2


@pytest.mark.parametrize("arrives", [False, True])
def test_a_block_that_is_repeated_after_an_error_doubles_nothing(path: Path, arrives: bool) -> None:
    channel = make_channel(path, producers=("a",))
    real = Table.commit
    late: list[Arrive] = []

    def commit(self: Table, *args: Any) -> bool:
        if len(args[1]) and not late:
            late.append(lambda: real(self, *args))
            raise OSError("timed out waiting for the answer")
        return real(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "commit", commit)
        for _ in range(2):
            try:
                with channel.producer("a") as producer:
                    producer.send(rows(int64, (1, 1)))
                    try:
                        producer.commit()
                        break
                    finally:
                        if arrives:
                            late[0]()
            except OSError:
                continue
            except ProducerError as error:
                assert error.condition == "STRANDLINE_COMMIT_WAS_MADE"  # noqa: PT017
                assert arrives
                break
    assert not late[0]()
    assert numbers(path) == [1]
    Channel.open(path).producer("a")  # the name is free


def test_a_close_after_a_commit_that_was_aborted_and_arrived_releases_the_name(path: Path) -> None:
    producer = make_channel(path, producers=("a",)).producer("a")
    producer.send(rows(int64, (1, 1)))
    with times_out() as late:
        producer.commit()
    producer.abort()
    assert late[0]()
    with pytest.raises(ProducerError, match="STRANDLINE_COMMIT_WAS_MADE"):
        producer.close()
    assert producer.closed
    Channel.open(path).producer("a").close()


def test_an_abort_names_all_that_was_made_since_the_last_commit_that_returned(path: Path) -> None:
    producer = make_channel(path, producers=("a",)).producer("a")
    producer.send(rows(int64, (1, 1), (1, 2)))
    with times_out() as late:
        producer.commit()
    assert late[0]()
    producer.send(rows(int64, (1, 3)))  # finds it
    with times_out() as later:
        producer.commit()
    assert later[0]()
    with times_out():  # finds it, and has more to commit
        producer.drop()
        producer.commit()
    with pytest.raises(ProducerError, match=r"STRANDLINE_COMMIT_WAS_MADE.*: 3 row\(s\), in version 2, 3\."):
        producer.abort()
    producer.abort()  # it was told
    producer.close()
    assert numbers(path) == [1, 2, 3]


def test_after_an_abort_no_store_with_requests_under_way_takes_the_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "writes_late", True)
    producer = make_channel(path, producers=("a",)).producer("a")
    producer.send(rows(int64, (1, 1)))
    with times_out() as late:
        producer.commit()
    with times_out() as later:
        producer.abort()
    producer.abort()
    assert not late[0]()
    assert not later[0]()
    version = Channel.open(path).version
    producer.abort()  # nothing to say
    assert Channel.open(path).version == version
    producer.send(rows(int64, (1, 1)))
    producer.close()
    assert numbers(path) == [1]


def test_an_abort_that_fails_throws_nothing_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "writes_late", True)
    producer = make_channel(path, producers=("a",)).producer("a")
    producer.send(rows(int64, (1, 1)))
    with times_out():
        producer.commit()
    with times_out() as late:
        producer.abort()
    assert late[0]()  # what would have kept the commit away does no harm
    producer.send(rows(int64, (1, 2)))
    producer.close()
    assert numbers(path) == [1, 2]


def test_a_block_that_fails_commits_nothing_though_its_abort_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "writes_late", True)
    producer = make_channel(path, producers=("a",)).producer("a")
    real, broken = Table.commit, [True, True]

    def commit(self: Table, *args: Any) -> bool:
        if broken:
            broken.pop()
            raise StorageError("STRANDLINE_STORAGE_FAILED", "It is away.")
        return real(self, *args)

    with monkeypatch.context() as patch, pytest.raises(StorageError), producer:
        patch.setattr(Table, "commit", commit)
        producer.send(rows(int64, (1, 1)))
        producer.commit()
    assert not broken
    assert numbers(path) == []


def test_a_session_whose_opening_arrives_late_is_nobodys(path: Path) -> None:
    channel = make_channel(path, producers=("a",))
    with times_out() as late:
        channel.producer("a")
    assert late[0]()
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_LIVE"):
        Channel.open(path).producer("a")
    with channel.producer("a") as producer:
        producer.send(rows(int64, (1, 1)))
    assert numbers(path) == [1]


def test_a_session_that_was_opened_again_after_its_answer_was_lost_is_live(path: Path) -> None:
    channel = make_channel(path, producers=("a",))
    with times_out() as late:
        channel.producer("a", owner="loader")
    assert late[0]()
    producer = channel.producer("a", owner="loader")
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_LIVE"):
        channel.producer("a", owner="another")
    with producer:
        producer.send(rows(int64, (1, 1)))
    assert numbers(path) == [1]


def test_a_lost_opening_of_one_producer_says_nothing_of_another(path: Path) -> None:
    channel = make_channel(path, producers=("a", "b"))
    with times_out() as late:
        channel.producer("a", owner="loader")
    assert late[0]()
    with channel.producer("b", owner="loader") as producer:
        with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_LIVE"):
            channel.producer("b", owner="another")
        producer.send(rows(int64, (1, 1)))
    assert numbers(path) == [1]


def new_file(channel: Channel, n: int) -> tuple[list[DataFile], Any]:
    with channel.file_writer() as writer:
        writer.write(rows(int64, (1, n)))
        return writer.finish()


@pytest.mark.parametrize("when", ["before", "between"])
def test_an_append_of_the_same_files_is_recognised(path: Path, when: str) -> None:
    channel = make_channel(path, producers=("a",))
    files, times = new_file(channel, 1)
    with times_out() as late:
        channel.append(files, statements={"a": [1]}, times=times)
    if when == "before":
        assert late[0]()
        assert channel.append(files, statements={"a": [1]}, times=times) == 1
    else:
        with before_the_next_commit(late[0]):
            assert channel.append(files, statements={"a": [1]}, times=times) == 1
    files, times = new_file(channel, 2)
    assert channel.append(files, statements={"a": [1]}, times=times) == 2
    assert numbers(path) == [1, 2]


@pytest.mark.parametrize("when", ["before", "between", "never"])
def test_an_append_of_other_files_says_that_the_earlier_one_arrived(path: Path, when: str) -> None:
    channel = make_channel(path, producers=("a",))
    files, times = new_file(channel, 1)
    with times_out() as late:
        channel.append(files, statements={"a": [1]}, times=times)
    files, times = new_file(channel, 1)  # the same row again

    def again() -> int | None:
        return channel.append(files, statements={"a": [1]}, times=times)

    if when == "never":
        again()
        assert not late[0]()
    else:
        with pytest.raises(ChannelError, match=r"STRANDLINE_COMMIT_WAS_MADE.*as version 1 with 1 file"):
            if when == "before":
                assert late[0]()
                again()
            else:
                with before_the_next_commit(late[0]):
                    again()
    assert numbers(path) == [1]
    files, times = new_file(channel, 2)
    channel.append(files, statements={"a": [1]}, times=times)
    assert numbers(path) == [1, 2]


@pytest.mark.parametrize("when", ["before", "refreshed", "between", "never"])
@pytest.mark.parametrize("exist_ok", [False, True])
def test_a_repeated_registration_is_recognised(path: Path, when: str, exist_ok: bool) -> None:
    channel = Channel.create(path, rows(int64).schema, domain=int64, producers=["a"], sealed=False)
    with times_out() as late:
        channel.register(["b", "c"], 3, exist_ok=exist_ok)

    def again() -> int | None:
        return channel.register(["c", "b"], [3], exist_ok=exist_ok)

    if when == "between":
        with before_the_next_commit(late[0]):
            assert again() == 1
        assert channel.version == 1
    elif when == "never":
        assert again() == 1
        assert not late[0]()
    else:
        assert late[0]()
        if when == "refreshed":
            channel.refresh()
            assert channel.register(["d"]) == 2  # another call in between
        assert again() == 1
    assert sorted(Channel.open(path).producers) == ["a", "b", "c"] + ["d"] * (when == "refreshed")
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_EXISTS"):  # it was told
        channel.register(["b", "c"], 3)
    assert channel.register(["b", "c"], 3, exist_ok=True) is None


def test_a_registration_of_others_or_elsewhere_is_not_taken_for_a_repeated_one(path: Path) -> None:
    channel = Channel.create(path, rows(int64).schema, domain=int64, producers=["a"], sealed=False)
    with times_out() as late:
        channel.register(["b", "c"], 3)
    assert late[0]()
    for names, at in ((["b", "d"], 3), (["b"], 3), (["b", "c"], 4), (["b", "c"], None)):
        with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_EXISTS"):
            channel.register(names, at)
    with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_EXISTS"):  # another handle cannot know whose commit it is
        Channel.open(path).register(["b", "c"], 3)
    assert channel.register(["b", "c"], 3) == 1
    assert channel.version == 1


def test_a_log_that_was_cleaned_before_the_answer_was_looked_for_says_what_to_do(path: Path) -> None:
    producer = make_channel(path, producers=("a", "b")).producer("a")
    producer.send(rows(int64, (1, 1)))
    with times_out() as late:
        producer.commit()
    assert late[0]()
    say(Channel.open(path), "b", (2, 2))
    Channel.open(path).clean_log(timedelta(0))
    with pytest.raises(
        LogError, match=r"STRANDLINE_LOG_TRUNCATED.*not known whether the last commit.*Open the channel again"
    ) as e:
        producer.commit()
    assert "checkpoint" not in e.value.remedy
    fresh = Channel.open(path)
    with fresh.producer("a", take_over=True) as producer:
        assert producer.owner is not None
    assert sorted(fresh.read().column("n").to_pylist()) == [1, 2]


def test_every_commit_has_an_id_of_its_own(path: Path) -> None:
    channel = make_channel(path, producers=("a",))
    with channel.producer("a") as producer:
        producer.send(rows(int64, (1, 1)))
    channel.refresh()
    said = [commit.statement for commit in channel.log.tail(1)]
    ids = [statement.id for statement in said if statement is not None]
    assert len(set(ids)) == len(ids) == channel.version
    assert None not in ids


def test_a_channel_whose_creation_was_not_answered_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = DeltaTable.create

    def create(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise OSError("timed out waiting for the answer")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create", create)
        channel = make_channel(path, producers=("a",))
        with pytest.raises(ChannelError, match="STRANDLINE_CHANNEL_EXISTS"):
            make_channel(path, producers=("a",))
    with channel.producer("a") as producer:
        producer.send(rows(int64, (1, 1)))
    assert numbers(path) == [1]


def run_at_random(path: Path, seed: int) -> None:
    """Requests fail, arrive now, late or never, and a sender follows what it is told; each number is there once at the end."""
    moments = random.Random(seed)
    real = Table.commit
    late: list[Arrive] = []
    calm = False

    def commit(self: Table, *args: Any) -> bool:
        while late and moments.random() < 0.4:
            late.pop(moments.randrange(len(late)))()
        fate = "made" if calm else moments.choice(["made", "made", "unanswered", "late", "never", "refused"])
        if fate == "late":
            late.append(lambda: real(self, *args))
        done = real(self, *args) if fate in ("made", "unanswered", "refused") else False
        if fate in ("made", "refused"):
            return done and fate == "made"
        raise OSError("timed out")

    make_channel(path, producers=("a", "b"))
    channel = Channel.open(path)
    queue, pending, other = list(range(40)), list[int](), channel
    producer: Producer | None = None

    def left() -> list[int]:
        there = set(Channel.open(path).read().column("n").to_pylist())
        return sorted(set(range(40)) - there - set(pending))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "commit", commit)
        for step in range(250):
            calm = step > 200
            try:
                if producer is None or producer.closed:
                    producer = channel.producer("a")
                    pending, queue = [], left()
                act = moments.choice(["send", "send", "commit", "commit", "abort", "close", "other", "refresh"])
                if act == "send" and queue:
                    producer.send(rows(int64, (1, queue[0])))
                    pending.append(queue.pop(0))
                elif act == "commit":
                    producer.commit()
                    pending = []
                elif act == "abort":
                    producer.abort()
                    queue, pending = sorted(queue + pending), []
                elif act == "close" and moments.random() < 0.3:
                    producer.close()
                elif act == "other":
                    other.append([], statements={"b": [step]}, states={"b": step})
                else:
                    channel.refresh()
            except OSError:
                pass
            except ProducerError as error:
                # A close that arrived late ends the session.
                assert error.condition == "STRANDLINE_COMMIT_WAS_MADE" or producer is None or producer.closed, error  # noqa: PT017
                pending = []
                queue = left()
    if producer is None or producer.closed:
        producer = channel.producer("a")
        queue = left()
    for n in queue:
        producer.send(rows(int64, (1, n)))
    producer.close()
    assert numbers(path) == sorted(set(numbers(path))), "a row is there twice"
    assert numbers(path) == list(range(40))


@pytest.mark.drawn
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40))])
@pytest.mark.parametrize("writes_late", [False, True])
def test_at_random_every_row_is_there_once(path: Path, seed: int, writes_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "writes_late", writes_late)
    run_at_random(path, seed)
