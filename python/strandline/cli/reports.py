"""``strandline why`` and ``strandline verify``: what was found out, on a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.channel import Channel
from strandline.cli.arguments import AsJson, ChannelPath, Most, StorageOptions, storage_of
from strandline.cli.output import line, print_json, print_table, progress, short
from strandline.report import explain
from strandline.report import verify as verified
from strandline.report.why import explain_least
from strandline.scope import Scope
from strandline.time.time_text import parse_time

__all__ = ["verify", "why"]

FOUND = 1


def why(
    path: ChannelPath,
    time: Annotated[
        str | None,
        typer.Argument(
            metavar="TIME",
            help="The time, such as 7, 2026-03-01T12:00Z or '[2026-03-01T12:00Z, 2]' (default: the least open one that somebody "
            "waits for).",
            show_default=False,
        ),
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="A scope that knows the queries upstream. Repeat it for each.")
    ] = None,
    upstream: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="A channel upstream whose path no log has. Repeat it for each.")
    ] = None,
    most: Most = 20,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Say why a time is not closed: who holds it open, upstream to the end, and what would release it."""
    options = storage_of(storage)
    channel = Channel.open(path, options)
    scopes = [Scope.open(each, options) for each in scope or ()]
    if time is None:
        answer = explain_least(channel, storage=options, scopes=scopes, channels=upstream or (), most=most)
    else:
        asked = parse_time(channel.domain, time, "TIME")
        answer = explain(channel, asked, storage=options, scopes=scopes, channels=upstream or (), most=most)
    if answer is None:
        if as_json:
            print_json({"open": False})
        else:
            line(f"All times of {path} are closed: nothing comes any more.")
        return
    if as_json:
        print_json(answer.to_json())
        return
    for text in answer.words():
        line(text)
    if answer.holders:
        line()
        print_table(
            ("channel", "who", "kind", "holds", "since", "not read yet"),
            [(channel, short(who), *more) for channel, who, *more in answer.rows()],
        )


def verify(path: ChannelPath, storage: StorageOptions = None, as_json: AsJson = False) -> None:
    """Verify a channel's whole log and all its files against the protocol. Exit with 1 at the first violation."""
    with progress() as told:
        found = verified(path, storage_of(storage), progress=told)
    if as_json:
        print_json(found.to_json())
    else:
        line(str(found))
    if not found.sound:
        raise typer.Exit(FOUND)
