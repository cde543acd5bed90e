"""Every remedy works: what ``why`` or an error prints is typed as it stands, and the time is released."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingest_bench import Bench
from strandline.channel import CapabilityError, Channel
from strandline.cli.__main__ import main
from strandline.ingest import ordered
from strandline.report import explain, verify
from strandline.time.domain import product
from typed import typed
from why_channels import make, send, the_culprit


def ran(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.fixture
def sealed(tmp_path: Path) -> Channel:
    """A query's output: sealed, with one producer, which holds 5."""
    made = make(tmp_path / "out", producers=["query-q"])
    send(made, "query-q", [1], [5])
    return made


def test_a_hold_on_a_sealed_channel_stands_until_what_why_prints_is_typed(sealed: Channel) -> None:
    assert ran("hold", sealed.path, 7, "--yes") == 0
    send(Channel.open(sealed.path), "query-q", [6], [20])
    assert list(Channel.open(sealed.path).frontier) == [7]
    culprit = the_culprit(explain(sealed.path, 9))
    assert re.search(r"held by `strandline hold`, by .+@.+, since 2\d{3}-\d\d-\d\dT", culprit.what)
    assert typed(str(explain(sealed.path, 9)), "drop") == 0
    assert list(Channel.open(sealed.path).frontier) == [20]
    assert verify(sealed.path).sound


def test_a_closed_time_cannot_be_held(sealed: Channel, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("hold", sealed.path, 4, "--yes") == 3
    assert "cannot join at 4, because the frontier is {5}" in capsys.readouterr().err
    with pytest.raises(CapabilityError):
        sealed.hold("me", 4, by="me")
    send(Channel.open(sealed.path), "query-q", [], [])
    assert ran("hold", sealed.path, 9, "--yes") == 3, "everything is closed"


def test_a_hold_in_a_partial_order_needs_one_who_holds_an_earlier_time(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", product(epoch="int64", iter="int64"), at=(0, 0))
    send(channel, "a", [], [(3, 0)])
    send(channel, "b", [], [(1, 5)])
    channel.hold("me", (2, 6), by="me")
    assert list(channel.producers["me"].holds) == [(2, 6)]
    with pytest.raises(CapabilityError):
        channel.hold("you", (2, 4), by="me")


def test_a_session_that_is_open_goes_on_beside_a_hold(tmp_path: Path) -> None:
    """The hold states again what it clones. The session takes this for what it is: nothing new."""
    channel = make(tmp_path / "c", producers=["a"])
    a = channel.producer("a")
    a.delay([3])
    a.commit()
    a.delay([8])
    Channel.open(channel.path).hold("me", 4, by="ann")
    a.commit()
    Channel.open(channel.path).hold("you", 9, by="ann")
    a.close()
    assert list(Channel.open(channel.path).frontier) == [4]
    assert verify(channel.path).sound


def test_one_who_takes_the_name_still_fences_the_session(tmp_path: Path) -> None:
    channel = make(tmp_path / "c", producers=["a"])
    a = channel.producer("a")
    Channel.open(channel.path).hold("me", 4, by="ann")
    Channel.open(channel.path).producer("a", take_over=True)
    a.delay([1])
    with pytest.raises(Exception, match="STRANDLINE_PRODUCER_FENCED"):
        a.commit()


def test_a_batch_of_an_ingest_goes_on_beside_a_hold(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a", "b"])
    bench.run((3, "a", 0), (5, "b", 0))
    reports = bench.take([(7, "a", 1), (8, "b", 1)])
    assert ran("hold", bench.settings.path, 4, "--yes") == 0
    bench.commit(reports)
    assert bench.frontier() == [4]
    assert bench.late() == []
    assert typed(str(explain(bench.settings.path, 5)), "drop") == 0
    assert bench.frontier() == [7]
    assert verify(bench.settings.path).sound
