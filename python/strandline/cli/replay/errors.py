"""The errors of ``strandline replay``."""

from __future__ import annotations

from strandline.errors import StrandlineError


def package_missing(command: str, extra: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_PACKAGE_MISSING",
        f"{command} needs packages that are not installed.",
        f"Install them with: pip install 'strandline[{extra}]'",
    )
