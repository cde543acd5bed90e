"""A query's checkpoint as Python opens it: it does not wait long for a store, and not in every batch."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import make_channel, say
from pyspark_strandline.write import checkpoint_store as module
from pyspark_strandline.write import commit_record, offset_log
from pyspark_strandline.write.checkpoint_store import checkpoint_store
from pyspark_strandline.write.commit_record import CommitRecord, Committed, record_of
from pyspark_strandline.write.offset_log import ends_in_first_snapshot
from strandline.delta.storage import LocalStore
from strandline.errors import StorageError


@pytest.fixture
def silent() -> Iterator[tuple[dict[str, str], list[socket.socket]]]:
    """The options of an object store that accepts connections and does not answer, and its connections."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(50)
        accepted: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    accepted.append(server.accept()[0])
            except OSError:
                pass

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "us-east-1", "allow_http": "true"}
        yield keys | {"aws_endpoint_url": f"http://127.0.0.1:{server.getsockname()[1]}"}, accepted
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for each in accepted:
        each.close()


def test_a_store_that_does_not_answer_is_waited_for_once(
    silent: tuple[dict[str, str], list[socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, connections = silent
    assert {name: value[-1] for name, value in module._WAITS.items() if name != "max_retries"} == dict.fromkeys(
        ("timeout", "connect_timeout", "retry_timeout"), "s"
    )
    monkeypatch.setattr(module, "_WAITS", {"timeout": "300ms", "connect_timeout": "300ms", "max_retries": "0"})
    monkeypatch.setattr(module, "SLOW_SECONDS", 0.1)
    place = "s3a://bucket/checkpoints/silent"
    assert ends_in_first_snapshot(place, 0, options, decides=False) is None
    waited = len(connections)
    assert waited > 0
    for batch in range(1, 4):
        assert ends_in_first_snapshot(place, batch, options, decides=False) is None
        assert record_of("q", place, options)._store is None
    assert len(connections) == waited
    with pytest.raises(StorageError), checkpoint_store(place, options | {"max_retries": "1"}) as store:
        store.size("offsets/0")
    assert len(connections) > waited  # other options may be right


def test_a_store_that_was_silent_is_asked_again_where_the_answer_decides_what_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"reservoirId":"x","isStartingVersion":true}\n')
    real, fails = LocalStore.read, iter([True, False, True, True, True, False, True])

    def read(store: LocalStore, path: str, limit: int) -> bytes | None:
        if next(fails):
            raise OSError("no answer")
        return real(store, path, limit)

    monkeypatch.setattr(LocalStore, "read", read)
    monkeypatch.setattr(module, "SLOW_SECONDS", -1)
    monkeypatch.setattr(offset_log, "_PAUSE_SECONDS", 0)
    place = str(tmp_path)
    assert [ends_in_first_snapshot(place, 0) for _ in range(3)] == [True, None, True]
    assert ends_in_first_snapshot(place, 0, decides=False) is None  # it did not answer in time before
    assert next(fails)
    monkeypatch.setattr(LocalStore, "read", real)
    assert ends_in_first_snapshot(place, 1) is None  # no such file
    assert ends_in_first_snapshot(None, 0) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('v1\n{}\n{"reservoirId":"x","isStartingVersion":true}\n', True),
        ('v1\n{}\n-\n{"reservoirId":"x","isStartingVersion":true}', True),
        ('v1\n{}\n7\n{"reservoirId":"x","isStartingVersion":false}', False),
        ('v2\n{}\n0:{"strandline":1,"commit":4,"file":0,"snapshot":3}\n1:{"reservoirId":"x"}', True),
        ('v2\n{}\n0:{"reservoirId":"x","isStartingVersion":true}\n1:-', True),
        ('v2\n{}\n0:{"reservoirId":"x","isStartingVersion":false}\n1:-', False),
        ('v2\n{}\n0:{"reservoirId":"x","isStartingVersion":true', None),
        ('v1\n{}\n{"reservoirId":"x","isStarting', None),
        ("v1\n{}", None),
        ("v1", None),
        ("", None),
        ('v3\n{}\n{"reservoirId":"x","isStartingVersion":true}', None),
    ],
)
def test_only_an_offset_that_can_be_read_says_whether_it_is_in_a_snapshot(tmp_path: Path, text: str, wanted: bool | None) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(text)
    assert ends_in_first_snapshot(str(tmp_path), 0) is wanted


def test_what_a_query_sets_comes_before_the_bounds() -> None:
    given = {"AWS_TIMEOUT": "30s", "max_retries": "5"}
    assert module._bounded(given) == given | {"connect_timeout": "5s", "retry_timeout": "10s"}


def test_right_options_that_come_later_in_the_same_process_count(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "out", producers=("a",))
    say(channel, "a", (0, 1))
    place = tmp_path / "checkpoint"
    place.mkdir()
    for options in ({"durable": "perhaps"}, {}):
        record = record_of("q", str(place), options)
        record.add("", 0, channel)
        record.save()
    assert json.loads((place / "strandline" / "commits").read_text())["query"] == "q"


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}"])
def test_a_percent_sign_in_a_path_is_one_as_in_hadoop(tmp_path: Path, form: str) -> None:
    channel = make_channel(tmp_path / "out", producers=("a",))
    say(channel, "a", (0, 1))
    place = tmp_path / "a%20b c?d#e%"
    (place / "offsets").mkdir(parents=True)
    (place / "offsets" / "0").write_text('v1\n{}\n{"reservoirId":"x","isStartingVersion":true}\n')
    record = record_of("q", form.format(place), None)
    record.add("", 0, channel)
    record.save()
    assert (place / "strandline" / "commits").exists()
    assert ends_in_first_snapshot(form.format(place), 0)


def test_a_record_of_many_outputs_is_read_again(tmp_path: Path) -> None:
    place = str(tmp_path)
    record = CommitRecord("q", place)
    for name in range(250):
        record._outputs[f"output-{name}"] = [Committed(batch, batch, "\u00e9" * 200) for batch in range(100)]
    record.save()
    assert (tmp_path / "strandline" / "commits").stat().st_size <= commit_record._LARGEST
    known = CommitRecord("q", place)._outputs
    assert len(known) == 250
    assert all(entries[-1].batch == 99 and len(entries) > 1 for entries in known.values())
