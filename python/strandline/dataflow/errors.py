"""The errors of building and running a dataflow."""

from __future__ import annotations

from strandline.errors import CapabilityError, DataflowError, StrandlineError
from strandline.time.domain import Time, TimeDomain
from strandline.tracker.capability import Capability


def capability_backwards(output: str, domain: TimeDomain, time: Time, capability: Capability) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_CAPABILITY_BACKWARDS",
        f"{output} cannot send at {domain.format(time)} under {capability!r}, because that time is not at or "
        "after the capability's time.",
        "Send at or after the capability's time.",
    )


def capability_invalid(capability: Capability, output: str) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_CAPABILITY_INVALID",
        f"{capability!r} is not a valid capability for the output of {output}.",
        "Send under a capability that this output's operator holds, before it is dropped.",
    )


def dataflow_invalid_built(scope: str) -> DataflowError:
    return DataflowError(
        "STRANDLINE_DATAFLOW_INVALID",
        f"{scope} is already built, so no operator can be added.",
        "Add all operators in the with block.",
    )


def dataflow_invalid_enter(outer: str, inner: str) -> DataflowError:
    return DataflowError(
        "STRANDLINE_DATAFLOW_INVALID",
        f"A stream of {outer} cannot enter {inner}, which is not nested directly in {outer}.",
        "Enter one scope after the other, from the outside in.",
    )


def dataflow_invalid_leave(scope: str) -> DataflowError:
    return DataflowError(
        "STRANDLINE_DATAFLOW_INVALID",
        f"A stream cannot leave {scope}, because no scope surrounds it.",
        "Use leave only in a nested scope.",
    )


def dataflow_invalid_open_loop(scope: str) -> DataflowError:
    return DataflowError("STRANDLINE_DATAFLOW_INVALID", f"A feedback of {scope} is not connected.", "Call connect on its loop.")


def dataflow_invalid_scope(stream: str, scope: str) -> DataflowError:
    return DataflowError(
        "STRANDLINE_DATAFLOW_INVALID",
        f"A stream of {stream} cannot be used in {scope}.",
        "Convert it with enter or leave first.",
    )


def dataflow_invalid_second_loop(scope: str) -> DataflowError:
    return DataflowError("STRANDLINE_DATAFLOW_INVALID", f"A feedback of {scope} is connected twice.", "Connect each once.")


def dataflow_invalid_workers(workers: int) -> DataflowError:
    return DataflowError(
        "STRANDLINE_DATAFLOW_INVALID",
        f"The cluster has {workers} workers, but dataflow() builds the dataflow on one worker only.",
        "Use `for scope in cluster.scopes(domain)`.",
    )


def dataflow_stalled(unread: str, held: str) -> DataflowError:
    return DataflowError(
        "STRANDLINE_DATAFLOW_STALLED",
        "The dataflow makes no progress, and the condition is still true. "
        + (f"Unread: {unread}. " if unread else "")
        + f"Held: {held or 'nothing'}.",
        "Read them: `for token, records in input`."
        if unread
        else "Advance or close the inputs, and drop capabilities that are not needed. Let an operator's logic return "
        "True if it must run again without new records.",
    )


def input_closed(name: str) -> StrandlineError:
    return StrandlineError("STRANDLINE_INPUT_CLOSED", f"The input {name} is closed.", "Send all records first.")
