"""Ingest: any outside stream becomes a channel, partition by partition. The core of it, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from strandline.ingest.bounded import Bounded
from strandline.ingest.composed import Composed
from strandline.ingest.delay import Delay
from strandline.ingest.driver import Ingest
from strandline.ingest.errors import IngestError, PolicyError
from strandline.ingest.idle import Idle, Moment
from strandline.ingest.intake import Intake
from strandline.ingest.manage import (
    Status,
    accept_replay,
    drop_partitions,
    end_corrections,
    give_up_late_rows,
    publish_late_rows,
    release_parked,
    status,
)
from strandline.ingest.manifest import Manifest
from strandline.ingest.ordered import Ordered
from strandline.ingest.policy import Policy, Seen
from strandline.ingest.punctuated import Heartbeat, Punctuated
from strandline.ingest.readmit import Readmitted, readmit
from strandline.ingest.report import TaskReport
from strandline.ingest.settings import Settings
from strandline.ingest.start import Start
from strandline.ingest.text import parse_policy

__all__ = [
    "Ingest",
    "IngestError",
    "Intake",
    "Moment",
    "Policy",
    "PolicyError",
    "Readmitted",
    "Seen",
    "Settings",
    "Start",
    "Status",
    "TaskReport",
    "accept_replay",
    "bounded",
    "composed",
    "drop_partitions",
    "end_corrections",
    "give_up_late_rows",
    "heartbeat",
    "idle",
    "manifest",
    "ordered",
    "parse_policy",
    "publish_late_rows",
    "punctuated",
    "readmit",
    "release_parked",
    "status",
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


def manifest(expected: Any, cancelled: str | None = None) -> Manifest:
    """A time is complete when all rows announced for it came or were cancelled (:class:`~strandline.ingest.manifest.Manifest`).

    >>> manifest("/lake/schedule", cancelled="is_cancelled")
    manifest(/lake/schedule, cancelled=is_cancelled)
    """
    return Manifest(expected, cancelled)


def punctuated(column: str) -> Punctuated:
    """Rows say in ``column`` how far their partition is (:class:`~strandline.ingest.punctuated.Punctuated`).

    >>> punctuated("complete_to")
    punctuated(complete_to)
    """
    return Punctuated(column)


def heartbeat(column: str, policy: Policy | None = None) -> Heartbeat:
    """Rows whose ``column`` is true only move time (:class:`~strandline.ingest.punctuated.Heartbeat`).

    >>> heartbeat("is_heartbeat", bounded("1 minute"))
    heartbeat(is_heartbeat, bounded(1 minute))
    """
    return Heartbeat(column, policy)


def composed(policies: Mapping[str, Policy | str]) -> Composed:
    """Each partition has the policy of the first pattern that it fits (:class:`~strandline.ingest.composed.Composed`).

    >>> composed({"kafka-*": bounded("5 minutes"), "*": ordered()})
    composed(kafka-*: bounded(5 minutes), *: ordered())
    """
    return Composed(policies)


def idle(policy: Policy | str, after: str | timedelta) -> Idle:
    """As ``policy``, without waiting for a partition that was silent for ``after`` (:class:`~strandline.ingest.idle.Idle`).

    >>> idle(bounded("1 hour"), after="10 minutes")
    idle(bounded(1 hour), 10 minutes)
    """
    return Idle(policy, after)
