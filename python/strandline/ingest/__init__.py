"""Ingest: turns any outside stream into a channel, partition by partition. This is the core, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from strandline.errors import IngestError, PolicyError
from strandline.ingest.admin import (
    accept_replay,
    drop_partitions,
    end_corrections,
    give_up_late_rows,
    publish_late_rows,
    release_parked,
)
from strandline.ingest.cancel import cancel
from strandline.ingest.clocks.moment import Moment
from strandline.ingest.driver import Ingest
from strandline.ingest.forget import forget_partitions
from strandline.ingest.late.readmit import Readmitted, readmit
from strandline.ingest.late.retention import purge_late_rows
from strandline.ingest.leftovers import remove_unnamed_parked
from strandline.ingest.policies.bounded import Bounded
from strandline.ingest.policies.composed import Composed
from strandline.ingest.policies.idle import Idle
from strandline.ingest.policies.manifest import Manifest
from strandline.ingest.policies.ordered import Ordered
from strandline.ingest.policies.parser import parse_policy
from strandline.ingest.policies.policy import Observation, Policy
from strandline.ingest.policies.punctuated import Heartbeat, Punctuated
from strandline.ingest.rejoin import rejoin_partitions
from strandline.ingest.settings import Settings
from strandline.ingest.status import Status, status
from strandline.ingest.task.batch_start import BatchStart
from strandline.ingest.task.ingest_task import IngestTask
from strandline.ingest.task.task_report import TaskReport
from strandline.time.duration import Duration

__all__ = [
    "BatchStart",
    "Ingest",
    "IngestError",
    "IngestTask",
    "Moment",
    "Observation",
    "Policy",
    "PolicyError",
    "Readmitted",
    "Settings",
    "Status",
    "TaskReport",
    "accept_replay",
    "bounded",
    "cancel",
    "composed",
    "drop_partitions",
    "end_corrections",
    "forget_partitions",
    "give_up_late_rows",
    "heartbeat",
    "idle",
    "manifest",
    "ordered",
    "parse_policy",
    "publish_late_rows",
    "punctuated",
    "purge_late_rows",
    "readmit",
    "rejoin_partitions",
    "release_parked",
    "remove_unnamed_parked",
    "status",
]


def ordered() -> Ordered:
    """Return a policy: each partition delivers its rows in time order (:class:`~strandline.ingest.policies.ordered.Ordered`).

    >>> ordered()
    ordered()
    """
    return Ordered()


def bounded(delay: str | int | timedelta | Duration, coordinate: str | None = None) -> Bounded:
    """Return a policy: rows are at most ``delay`` out of order (:class:`~strandline.ingest.policies.bounded.Bounded`).

    This holds within each partition.

    Args:
        delay: A duration for timestamps, or a number for integer times.
        coordinate: The coordinate of a composite time to which the delay applies (default: the first).

    Raises:
        PolicyError: ``STRANDLINE_DELAY_INVALID``.

    >>> bounded("90 minutes"), bounded(5)
    (bounded(90 minutes), bounded(5))
    """
    return Bounded(delay, coordinate)


def manifest(expected: Any, cancelled: str | None = None) -> Manifest:
    """Return a policy: a time is complete when all rows announced for it arrived or were cancelled (:class:`Manifest`).

    Args:
        expected: The path of a Delta table or channel, or the rows: a mapping, a DataFrame or an Arrow table.
        cancelled: A boolean column of the stream. Where it is true, the row states that an announced row will not arrive.

    >>> manifest("/lake/schedule", cancelled="is_cancelled")
    manifest(/lake/schedule, cancelled=is_cancelled)
    """
    return Manifest(expected, cancelled)


def punctuated(column: str) -> Punctuated:
    """Return a policy: rows state their partition's progress in ``column``.

    See :class:`~strandline.ingest.policies.punctuated.Punctuated`.

    >>> punctuated("complete_to")
    punctuated(complete_to)
    """
    return Punctuated(column)


def heartbeat(column: str, policy: Policy | None = None) -> Heartbeat:
    """Return a policy: rows whose ``column`` is true only advance time.

    See :class:`~strandline.ingest.policies.punctuated.Heartbeat`.

    Args:
        column: The boolean column.
        policy: The policy for the other rows.

    >>> heartbeat("is_heartbeat", bounded("1 minute"))
    heartbeat(is_heartbeat, bounded(1 minute))
    """
    return Heartbeat(column, policy)


def composed(policies: Mapping[str, Policy | str]) -> Composed:
    """Return a policy: each partition uses the policy of the first pattern that matches its name.

    See :class:`~strandline.ingest.policies.composed.Composed`.

    >>> composed({"kafka-*": bounded("5 minutes"), "*": ordered()})
    composed(kafka-*: bounded(5 minutes), *: ordered())
    """
    return Composed(policies)


def idle(policy: Policy | str, after: str | timedelta, *, counts: str = "listening", all_silent: str = "hold") -> Idle:
    """Return a policy: like ``policy``, but without waiting for a partition that was silent for ``after`` (:class:`Idle`).

    Args:
        policy: The policy, as an object or as text.
        after: The silence after which the ingest does not wait for a partition.
        counts: ``"listening"``: silence counts while a run of the query listens. ``"wall"``: it counts on the wall clock, also
            between runs, as a query that a scheduler runs needs it.
        all_silent: What the frontier does while all partitions are silent. ``"hold"``: it stays at the greatest promise.
            ``"advance"``, with ``counts="wall"``: it follows the clock, ``after`` behind it.

    Raises:
        PolicyError: ``after`` is not a duration of more than 0, ``policy`` contains ``idle`` already, or an argument has a value
            that does not exist or that does not fit the others.

    >>> idle(bounded("1 hour"), after="10 minutes")
    idle(bounded(1 hour), 10 minutes)
    >>> idle(bounded("1 hour"), after="1 day", counts="wall", all_silent="advance")
    idle(bounded(1 hour), 1 day, counts=wall, all_silent=advance)
    """
    return Idle(policy, after, counts, all_silent)
