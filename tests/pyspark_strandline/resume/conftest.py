"""What the tests of the package ``resume`` share."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import make_channel
from resumed import send
from strandline.channel import Channel


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Channel, Channel]:
    """A channel of three commits, the second with two files, and an output of it that has none of them."""
    source = make_channel(tmp_path / "in", producers=("a",))
    send(tmp_path / "in", [(0, 1)], then=1)
    send(tmp_path / "in", [(1, 2)], [(1, 3)], then=2)
    send(tmp_path / "in", [(2, 4)], then=3)
    source.refresh()
    return source, make_channel(tmp_path / "out", producers=("q", "r"))
