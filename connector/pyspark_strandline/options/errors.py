"""The errors of options."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import StrandlineError


def option_conflict_path(path: object, several: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_CONFLICT",
        f"The options path ({path}) and {several} are both given.",
        f"Call load() or start() without a path: the option {several} has a path for each channel.",
    )


def option_missing_time() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_MISSING",
        "The strandline ingest needs the option time.",
        "Set it to the name of the rows' time column.",
    )


def option_unknown(key: str, what: str, hint: str, valid: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_UNKNOWN",
        f"{key!r} is not an option of {what}.",
        f"{hint}The options are {valid}, and storage.*.",
    )


def outputs_invalid(other: str, output: str, path: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OUTPUTS_INVALID",
        f"The outputs {other} and {output} are both {path}.",
        "Write each channel by one output. To unite rows, use unionByName before you write them.",
    )


def path_missing(what: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_PATH_MISSING",
        f"{what[0].upper()}{what[1:]} needs a path.",
        "Give it to load() or start(), or to CREATE TABLE as LOCATION '…'.",
    )


def resume_impossible_ingest() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        "The option resume is given for an ingest. Where its outside stream had been read is only in the checkpoint.",
        "Start it with the checkpoint that it had. Or ingest into a new channel, and let the readers change to it.",
    )


def resume_impossible_outputs(outputs: Iterable[str]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_RESUME_IMPOSSIBLE",
        f"The option resume is given for a query with the outputs {', '.join(outputs)}. They may be complete up "
        "to different positions of the inputs.",
        "Start it with new channels, which get all rows, and let the readers change to them. Or write each channel by a "
        "query of its own, which can be resumed.",
    )
