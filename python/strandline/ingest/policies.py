"""The policies that have a name of their own in text."""

from __future__ import annotations

from strandline.ingest.bounded import Bounded
from strandline.ingest.ordered import Ordered
from strandline.ingest.policy import Policy

__all__ = ["ALL"]

ALL: tuple[type[Policy], ...] = (Ordered, Bounded)
