"""Ingest: any outside stream becomes a channel, partition by partition. The core of it, without Spark."""

from __future__ import annotations

from datetime import timedelta

from strandline.ingest.bounded import Bounded
from strandline.ingest.delay import Delay
from strandline.ingest.driver import Ingest
from strandline.ingest.errors import IngestError, PolicyError
from strandline.ingest.intake import Intake
from strandline.ingest.ordered import Ordered
from strandline.ingest.policy import Policy, Seen
from strandline.ingest.report import TaskReport
from strandline.ingest.settings import Settings
from strandline.ingest.start import Start
from strandline.ingest.text import parse_policy

__all__ = [
    "Ingest",
    "IngestError",
    "Intake",
    "Policy",
    "PolicyError",
    "Seen",
    "Settings",
    "Start",
    "TaskReport",
    "bounded",
    "ordered",
    "parse_policy",
]


def ordered() -> Ordered:
    """Each partition brings its rows in the order of their times (:class:`~strandline.ingest.ordered.Ordered`).

    >>> ordered()
    ordered()
    """
    return Ordered()


def bounded(delay: str | int | timedelta | Delay, coordinate: str | None = None) -> Bounded:
    """A partition's rows are at most ``delay`` out of order (:class:`~strandline.ingest.bounded.Bounded`).

    >>> bounded("90 minutes"), bounded(5)
    (bounded(90 minutes), bounded(5))
    """
    return Bounded(delay, coordinate)
