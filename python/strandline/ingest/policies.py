"""The policies that have a name of their own in text."""

from __future__ import annotations

from strandline.ingest.bounded import Bounded
from strandline.ingest.composed import Composed
from strandline.ingest.idle import Idle
from strandline.ingest.manifest import Manifest
from strandline.ingest.ordered import Ordered
from strandline.ingest.policy import Policy
from strandline.ingest.punctuated import Heartbeat, Punctuated

__all__ = ["ALL"]

ALL: tuple[type[Policy], ...] = (Ordered, Bounded, Manifest, Punctuated, Heartbeat, Composed, Idle)
