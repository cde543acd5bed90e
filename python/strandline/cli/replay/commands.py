"""``strandline replay`` runs a pipeline over what was recorded; ``strandline compare`` compares two channels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from strandline.cli.arguments import AsJson, Most, StorageOptions, storage_of
from strandline.cli.output import line, print_json, progress
from strandline.cli.replay.options import (
    Against,
    BySpark,
    Columns,
    Conf,
    First,
    From,
    FromMoment,
    FromVersion,
    Into,
    Key,
    NamedInputs,
    PipelinePath,
    ReplayUntil,
    Second,
    Since,
    Speed,
    Until,
    UntilMoment,
    UntilVersion,
)
from strandline.cli.replay.page_file import HtmlFile, check_file, write_page
from strandline.cli.replay.session import spark_session
from strandline.replay import Comparison, Replayed
from strandline.replay import compare as compare_channels

__all__ = ["compare", "replay"]

PARTED = 1


def compare(
    a: First,
    b: Second,
    until: Until = None,
    since: Since = None,
    key: Key = None,
    column: Columns = None,
    most: Most = 3,
    html: HtmlFile = None,
    by_spark: BySpark = False,
    conf: Conf = None,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Compare the rows of two channels at all times that both have closed.

    The exit code is 1 if they differ, or if nothing was compared.
    """
    check_file(html, "strandline compare")
    asked: dict[str, Any] = {"until": until or None, "since": since or None, "key": key or None, "columns": column or None}
    asked |= {"most": most, "storage_options": storage_of(storage)}
    if by_spark:
        with spark_session("strandline compare", conf or ()) as spark:
            from pyspark_strandline.replay import compare as compare_by_spark

            found = compare_by_spark(spark, a, b, **asked)
    else:
        found = compare_channels(a, b, **asked)
    _end(found, html, as_json=as_json)


def replay(
    pipeline: PipelinePath,
    into: Into,
    begin: From = None,
    begin_version: FromVersion = None,
    begin_moment: FromMoment = None,
    until: ReplayUntil = None,
    until_version: UntilVersion = None,
    until_moment: UntilMoment = None,
    against: Against = None,
    inputs: NamedInputs = None,
    speed: Speed = "max",
    since: Since = None,
    key: Key = None,
    most: Most = 3,
    html: HtmlFile = None,
    by_spark: BySpark = False,
    conf: Conf = None,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline over what its inputs have recorded, beside the originals, and compare.

    The exit code is 1 if they differ, or if nothing was compared of an output. If it was stopped, the same command goes on.
    """
    check_file(html, "strandline replay")
    part: dict[str, Any] = {
        "startingFrontier": _frontier(begin),
        "startingVersion": begin_version,
        "startingTimestamp": begin_moment,
        "endingFrontier": _frontier(until),
        "endingVersion": until_version,
        "endingTimestamp": until_moment,
    }
    options = {name: str(value) for name, value in part.items() if value is not None}
    named, compared, options_of_store = _named(inputs, "--input"), _against(against), storage_of(storage)
    with spark_session("strandline replay", conf or ()) as spark, progress() as told:
        from pyspark_strandline.replay import replay as run

        found = run(
            spark,
            pipeline,
            into,
            against=compared,
            inputs=named,
            speed=speed,
            since=since or None,
            key=key or None,
            most=most,
            by_spark=by_spark,
            storage=options_of_store,
            progress=lambda output, done, whole: told(f"commits replayed for {output}", done, whole),
            **options,
        )
    _end(found, html, as_json=as_json)


def _end(found: Comparison | Replayed, html: Path | None, *, as_json: bool) -> None:
    write_page(html, found)
    if as_json:
        print_json(found.to_json())
    else:
        for text in found.to_text().splitlines():
            line(text)
    if not found.equal or found.is_empty:
        raise typer.Exit(PARTED)


def _frontier(times: list[str] | None) -> str | None:
    """Return a frontier as an option of the source has it."""
    return None if not times else times[0] if len(times) == 1 else json.dumps(times)


def _named(texts: list[str] | None, option: str) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, equals, path = text.partition("=")
        if not name or not equals or not path:
            raise typer.BadParameter(f"{text!r} is not of the form NAME=PATH", param_hint=option)
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint=option)
        found[name] = path
    return found


def _against(texts: list[str] | None) -> str | dict[str, str] | None:
    """Return what to compare with: a file of a pipeline, the path of a channel, or paths by name."""
    if not texts:
        return None
    name, equals, _ = texts[0].partition("=")
    if len(texts) == 1 and (not equals or "/" in name):
        return texts[0]
    return _named(texts, "--against")
