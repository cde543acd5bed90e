"""What an ingest waits for when it waits for a partition, and what would end that: as its policy has it."""

from __future__ import annotations

from typing import NamedTuple

from strandline.ingest import Policy, Status
from strandline.ingest.policies.punctuated import Heartbeat, Punctuated
from strandline.ingest.status import PartitionStatus
from strandline.report.ailments import moment
from strandline.report.history import Since

__all__ = ["Awaited", "awaited"]


class Awaited(NamedTuple):
    """What is known beside when the partition last delivered rows, what would release the time, and whether a drop does."""

    what: str
    release: str
    drop_helps: bool = True


def awaited(
    partition: PartitionStatus, policy: Policy | None, status: Status, since: Since | None, *, clock_times: bool
) -> Awaited:
    """Return what is awaited of a partition.

    Args:
        partition: The partition.
        policy: The policy that judges it; ``None`` if that is not known here.
        status: The state of its ingest.
        since: When what it holds last changed.
        clock_times: Whether the rows' times are timestamps, so that a clock can stand for them.
    """
    core = policy.core if policy is not None else None
    mark = _mark(core)
    if mark is not None and since is not None and partition.last_ms is not None and partition.last_ms > since.ms:
        other = f"heartbeat({core.column!r}, bounded(…))" if isinstance(core, Heartbeat) else "bounded(…)"
        return Awaited(
            f"; its rows come, but {mark[0]} has moved it on since {moment(since.ms)}{'' if since.exact else ' or earlier'}",
            f"{mark[1]}: see why what sends its rows sends none; or start the query with a policy that its rows move on too, "
            f"such as {other}",
            drop_helps=False,
        )
    rows = "later rows of the partition" if mark is None else mark[1]
    if policy is not None and policy.idle_after_ms is not None:
        return _under_idle(partition, policy, status, rows, clock_times=clock_times)
    if policy is None and any("idle(" in each for each in status.policies):
        return Awaited("", f"{rows}; or, once it has been silent for so long, the idle(…) of its policy")
    return Awaited("", f"{rows}; or a policy with idle(…), which does not wait for silent partitions")


def _under_idle(partition: PartitionStatus, policy: Policy, status: Status, rows: str, *, clock_times: bool) -> Awaited:
    if status.silence_unknowable:
        return Awaited(
            f"; {status.idle_problem}",
            f"{rows}; or start the query without an option that limits its batches, such as maxFilesPerTrigger, so that idle(…) "
            "judges; or with readsToEnd=true, if you know that each batch reads all that there is",
        )
    if partition.idle_since is not None:
        others = any(each.idle_since is not None for each in status.partitions if each.name != partition.name)
        release = "rows of any of them"
        if clock_times:
            clock = "" if policy.advances_when_silent else ", and the policy idle(…, counts='wall', all_silent='advance')"
            release += f"; or start the query with heartbeat=True{clock}: then time goes on by the clock, which is a guess"
        what = "; all partitions of the ingest are silent, and this one stands for all of them"
        return Awaited(what, release, drop_helps=not others)
    return Awaited(
        "",
        f"{rows}; or, once it has been silent for so long, the idle(…) of its policy, with the next batch (if nothing at all "
        "comes, there is one only with heartbeat=True)",
    )


def _mark(core: Policy | None) -> tuple[str, str] | None:
    """Return what alone moves a partition on, and a row with it, in words; ``None`` if its rows do."""
    if isinstance(core, Heartbeat) and core.policy is None:
        return "no heartbeat", f"a heartbeat of the partition (a row in which {core.column} is true)"
    if isinstance(core, Punctuated):
        return "no punctuation", f"a row of the partition with a punctuation in {core.column}"
    return None
