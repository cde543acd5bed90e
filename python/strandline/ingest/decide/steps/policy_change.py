"""The second step: partitions that belong to the ingest from now on, or are under another policy from now on."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.channel import ProducerState
from strandline.ingest.decide.given import Changes, Given, policy_for
from strandline.ingest.decide.steps.promise import Promised, nothing, promise, promise_idle, promise_unseen, resume
from strandline.ingest.names import OWN_PREFIX
from strandline.ingest.policies.parser import recorded_policy
from strandline.ingest.policies.policy import Policy
from strandline.ingest.state.partition_state import PartitionState
from strandline.time.antichain import Antichain

__all__ = ["change_policy"]


def change_policy(given: Given) -> Changes:
    """Return what changes for partitions that another policy, or none, has judged so far, or another ingest.

    A partition that delivered something has only a state afterwards: its observation is applied to that.
    """
    ownership, states = given.ownership, given.states
    changes = Changes()
    groups: dict[str | None, list[str]] = {}
    if not given.same_policy:
        owned = [n for n, state in states.partitions.items() if state.owner is not None and state.owner.id == given.query]
        groups[given.entry.policy] = owned  # not those taken over or claimed now: that policy did not judge them
    for donor, names in ownership.taken.items():
        policy = given.registrar.entry(donor).policy
        groups.setdefault(policy, []).extend(names)
        if policy == str(given.policy):  # nothing to judge again, but the readings of their clock mean nothing here
            for name in names:
                changes = changes.then(_taken_over(given, name))
    known = [name for name in ownership.claimed if given.progress.get(name) is not None]
    groups.setdefault(None, []).extend(known)
    for text, names in groups.items():
        if text != str(given.policy):
            before = None if text is None else recorded_policy(text)  # None if it can no longer be determined
            changes = changes.then(_all_changed(given, before, names))
    adopted = Changes(adopted=bool(changes.holds or changes.states))
    return changes.then(adopted).then(_claimed(given, changes))


def _taken_over(given: Given, name: str) -> Changes:
    """Return what changes for a producer of an ingest with the same policy."""
    known = given.progress.get(name)
    assert known is not None  # noqa: S101 - it was taken over
    if name.startswith(OWN_PREFIX):
        return Changes({name: known.holds})
    state = _adopted(given, name, known)
    if name in given.seen:
        return Changes(states={name: state})
    promised = promise_unseen(given, name, state) if given.may_have_changed(name) else None
    holds, state = promised or (known.holds, state)
    return Changes({name: holds}, {name: state})


def _adopted(given: Given, name: str, known: ProducerState) -> PartitionState:
    """Return the state of a partition that another ingest had: without its clock, and what a snapshot promised."""
    return _heard(given, name, PartitionState.of(name, known.state)).changed(soon=None)


def _heard(given: Given, name: str, state: PartitionState) -> PartitionState:
    """Return the state with the reading of the ingest's clock. A reading of another ingest's clock says nothing here."""
    if given.clock.judges:
        return given.clock.heard(given.policy_of(name), state)
    return state if state.heard is None and state.heard_wall is None else state.changed(heard=None, heard_wall=None)


def _all_changed(given: Given, before: Policy | None, names: Iterable[str]) -> Changes:
    """Put partitions under the policy. Another policy, or none, has judged them so far."""
    holds: dict[str, Antichain] = {}
    states: dict[str, PartitionState] = {}
    donors, recounts = frozenset[str](), set[str]()
    for name in names:
        if name.startswith(OWN_PREFIX):
            if (known := given.progress.get(name)) is not None:
                holds[name] = known.holds
            continue
        state, recount = _continued(given, before, name)
        policy, held = given.policy_of(name), None
        if policy is not None and state.idle is not None and (policy.idle_after_ms is None or state.idle.rejoins):
            state, held, again, more = resume(given, name, state)  # it was not waited for, and now is again
            donors, recount = donors | more, recount or again
        states[name] = state
        if name in given.seen:
            recounts.update([name] * recount)
            continue
        holds[name], states[name] = _promised_under(given, name, state, policy, held, recount=recount)
    return Changes(holds, states, donors=donors, recounts=frozenset(recounts))


def _promised_under(
    given: Given, name: str, state: PartitionState, policy: Policy | None, held: Antichain | None, *, recount: bool
) -> Promised:
    """Return what a partition that delivered nothing holds under the policy."""
    if policy is None:
        known = given.partitions[name]
        return Promised(known.holds, _adopted(given, name, known))
    if state.idle is not None:
        return promise_idle(given, name, state, recount=recount)
    return promise(given, nothing(name), state, held, recount=recount)


def _continued(given: Given, before: Policy | None, name: str) -> tuple[PartitionState, bool]:
    """Return a partition's state under the policy, and whether the policy has not counted the rows from before the batch."""
    known = given.partitions[name]
    state, interrupted = PartitionState.of(name, known.state), False
    if known.owner is None or known.owner.id != given.query:
        interrupted = state.soon is not None
        state = _adopted(given, name, known)
    policy = given.policy_of(name)
    was = None if before is None else policy_for(before, name)
    if policy is None or (was is not None and str(was.core) == str(policy.core)):
        return state, False
    own = None if was is None or interrupted else policy.core.continued(was.core, state.own)
    state = state.changed(own=None)
    if own is not None:
        return state.changed(own=own), False
    return state, policy.needs_times and (known.owner is not None or known.seq > 0)


def _claimed(given: Given, changes: Changes) -> Changes:
    """Return what the ingest's new partitions hold that deliver nothing yet."""
    holds: dict[str, Antichain] = {}
    states: dict[str, PartitionState] = {}
    for name in given.ownership.claimed:
        if name not in changes.holds and name not in given.seen:
            state = _heard(given, name, changes.states.get(name) or PartitionState())
            holds[name], states[name] = promise(given, nothing(name), state, recount=name in changes.recounts)
    return Changes(holds, states)
