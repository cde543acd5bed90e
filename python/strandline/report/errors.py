"""The errors of reports."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import ChannelError, ScopeError, StrandlineError


def channel_changes(path: str, tries: int) -> ChannelError:
    return ChannelError(
        "STRANDLINE_CHANNEL_CHANGES",
        f"{path} could not be verified: it changes too quickly. While its log and its files were read, others committed, and "
        f"removed what was to be read, {tries} times.",
        "Verify it again while nobody cleans its log or removes its files.",
    )


def channels_missing(path: str) -> ChannelError:
    return ChannelError(
        "STRANDLINE_CHANNELS_MISSING",
        f"There is no channel at or below {path}.",
        "Check the path. Names that begin with a dot or an underscore are not looked at.",
    )


def report_invalid(what: str) -> StrandlineError:
    """Say what a progress report has that it cannot have."""
    return StrandlineError(
        "STRANDLINE_REPORT_INVALID",
        f"The progress report is invalid: {what}.",
        "Write it as docs/schemas/progress-report.schema.json says.",
    )


def scope_channel_unknown(channels: Iterable[str]) -> ScopeError:
    return ScopeError(
        "STRANDLINE_SCOPE_CHANNEL_UNKNOWN",
        f"No channel of the scope was named. Its channels are: {', '.join(channels) or 'none'}.",
        "Name one of them with channel=….",
    )
