"""The decision on a batch's commit, in steps: ownership, change of policy, observations, silence, parked rows.

It is made anew for each attempt to commit, so no other commit lies between the progress that it goes by and its commit. An ingest
judges and moves only its own partitions. :class:`~strandline.ingest.state.partition_state.PartitionState` is what it remembers of
each. While a source is in its first snapshot, no partition's capability moves: promises count from the end of the snapshot on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from strandline.channel import Progress, Span
from strandline.channel.statements.statement import REGISTRAR
from strandline.channel.write.append import Append
from strandline.ingest import errors
from strandline.ingest.decide.batch import Batch
from strandline.ingest.decide.given import Changes, Given
from strandline.ingest.decide.steps.entry import registrar_after
from strandline.ingest.decide.steps.observe import observe
from strandline.ingest.decide.steps.park import park
from strandline.ingest.decide.steps.policy_change import change_policy
from strandline.ingest.decide.steps.silence import fall_silent
from strandline.ingest.names import CORRECTIONS, OWN_PREFIX
from strandline.ingest.parked.files import with_stats
from strandline.ingest.parked.release import Released
from strandline.ingest.policies.policy import Policy
from strandline.ingest.settings import Settings
from strandline.json_value import JsonObject
from strandline.time.antichain import Antichain

__all__ = ["Decision", "decide"]


class Decision(NamedTuple):
    """What a batch's commit states.

    ``fell_silent`` are the partitions that the batch stops waiting for, and for how many ms they have been silent.
    """

    append: Append
    fell_silent: Mapping[str, int]


def decide(progress: Progress, settings: Settings, policy: Policy, batch: Batch) -> Decision:
    """Decide the content of a batch's commit on the newest progress of a channel.

    Raises :class:`IngestError` and :class:`ProducerError` when the batch must not be committed.
    """
    given = Given(progress, settings, policy, batch)
    _check_snapshot(given)
    given.ownership.check()
    changes = change_policy(given)
    changes = observe(given, changes)
    changes = fall_silent(given, changes)
    if settings.corrections:
        changes = changes.then(_open_corrections(given))
    changes, released = park(given, changes)
    return Decision(_append(given, changes, released), changes.fell_silent)


def _append(given: Given, changes: Changes, released: Released) -> Append:
    """Return the commit."""
    batch, settings = given.batch, given.settings
    holds = {**changes.holds, **released.holds}
    moved = set(changes.moves.names) if changes.moves is not None and changes.donors else ()
    # What a donor holds is stated although it did not change, because others are given clones of it.
    holds |= {name: given.partitions[name].holds for name in changes.donors if name not in holds and name not in moved}
    states: JsonObject = {name: state.to_json() or None for name, state in {**changes.states, **released.states}.items()}
    schema = settings.channel_schema if batch.schema is None else batch.schema
    parcels = released.joining
    return Append(
        session=batch.owner,
        files=[
            *(file for report in batch.reports for file in report.files),
            *with_stats(settings.path, schema, settings.storage, parcels),
        ],
        holds=holds,
        moves=changes.moves,
        states={**states, REGISTRAR: registrar_after(given, changes).to_json()},
        times=batch.times(given.domain),
        spans=[
            *(span for report in batch.reports for span in report.spans),
            *(Span(parcel.least, parcel.greatest, parcel.rows) for parcel in parcels),
        ],
        take_over=True,  # the ownership was checked, so that no other session of these producers is live that may not be fenced
        follow=True,
        seal=_seals(given),
        apart=[*{*given.states.own, *(name for name in holds if name.startswith(OWN_PREFIX))}],
        donors=changes.donors,
    )


def _check_snapshot(given: Given) -> None:
    """Raise if the first snapshot has begun, and may have ended with this batch: it would decide which rows are late."""
    if given.entry.snapshot and given.batch.moment.in_snapshot is None:
        raise errors.snapshot_end_unknown(given.query, given.batch.transaction[1])


def _open_corrections(given: Given) -> Changes:
    """Return what the producer of the corrections holds from the first batch on."""
    known = given.progress.get(CORRECTIONS)
    if known is None or known.seq:
        return Changes()
    return Changes({CORRECTIONS: Antichain(given.domain, [(given.settings.domain.minimum, 1)])})


def _seals(given: Given) -> bool:
    """Return whether no partition can join any more, because the manifest of the channel's only ingest has ended."""
    if not given.progress.registrar or not given.policy.ends() or given.settings.admitted:
        return False
    others = [entry for query, entry in given.registrar.entries.items() if query != given.query]
    return all(entry.fenced is not None for entry in others) and all(
        given.is_own(name, state) or not state.holds for name, state in given.partitions.items()
    )
