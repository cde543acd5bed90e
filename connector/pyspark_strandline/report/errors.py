"""The errors of progress reports and their exporters."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import StrandlineError
from strandline.report.progress.progress_report import Level


def extension_missing_for_reports() -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_EXTENSION_MISSING",
        "The Spark session does not have the strandline extension, so it makes no progress reports.",
        "Build the session with pyspark_strandline.configure(builder), or pass the shim's jar with --jars "
        '"$(python -m pyspark_strandline jar)".',
    )


def option_invalid_level(value: object, levels: Iterable[Level]) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_OPTION_INVALID",
        f"The level is {str(value)[:100]!r}.",
        f"Give one of {', '.join(each.value for each in levels)}.",
    )


def option_invalid_window(window: object) -> StrandlineError:
    return StrandlineError("STRANDLINE_OPTION_INVALID", f"window is {window!r}, not a number of batches.", "Give 1 or more.")


def package_missing(package: str, extra: str) -> StrandlineError:
    return StrandlineError(
        "STRANDLINE_PACKAGE_MISSING",
        f"The package {package} is not installed.",
        f'Install it: pip install "strandline[{extra}]".',
    )
