"""``strandline cancel``, ``seal``, ``readmit``, ``publish-late``, ``release-parked`` and ``end-corrections``.

They release a time, or bring back rows.
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.channel import Channel
from strandline.cli.arguments import AsJson, ChannelPath, StorageOptions, Yes, confirmed, storage_of
from strandline.cli.output import clean, done
from strandline.ingest import cancel as cancel_rows
from strandline.ingest import end_corrections as end_the_corrections
from strandline.ingest import publish_late_rows
from strandline.ingest import readmit as readmit_rows
from strandline.ingest import release_parked as release_rows
from strandline.ingest.state.registrar_state import RegistrarState

__all__ = ["cancel", "end_corrections", "publish_late", "readmit", "release_parked", "seal"]

LatePath = Annotated[str | None, typer.Option("--late-path", help="The late table (default: PATH_late).", show_default=False)]


def cancel(
    path: ChannelPath,
    rows: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PARTITION TIME N]…",
            help="How many announced rows of a partition and a time never come, in all. Without: what the manifest says now.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Cancel announced rows of a manifest that never come: their times close at once. N is the total, so twice is once."""
    words = rows or []
    if len(words) % 3:
        raise typer.BadParameter("give PARTITION TIME N, as often as needed", param_hint="[PARTITION TIME N]…")
    wanted: dict[tuple[str, object], int] = {}
    for name, time, number in zip(words[::3], words[1::3], words[2::3], strict=True):
        if not number.isdecimal():
            raise typer.BadParameter(f"{clean(number)} is no number of rows", param_hint="N")
        wanted[name, time] = int(number)
    channel = Channel.open(path, storage_of(storage))
    told = "Times that wait only for these rows close, so results without them come out. This cannot be taken back."
    typer.echo(told, err=True)
    what = f"Cancel rows at {len(wanted)} times" if wanted else "Go by the manifest as it is now"
    confirmed(f"{what} in {clean(channel.path)}?", yes=yes, as_json=as_json)
    before, held = channel.version, {name: state.holds for name, state in channel.producers.items()}
    version = cancel_rows(path, wanted or None, storage_of(storage))
    channel.refresh()
    told = "it goes by the manifest now"
    if version == before:
        told = "nothing changed, because it went by the manifest already"
    elif held == {name: state.holds for name, state in channel.producers.items()}:
        told = "it goes by the manifest now, but nobody holds less by that, so no time was released"
    done(channel, version, told, as_json=as_json)


def seal(path: ChannelPath, yes: Yes = False, storage: StorageOptions = None, as_json: AsJson = False) -> None:
    """Seal a channel: no producer can join any more, so nothing waits for one that might."""
    channel = Channel.open(path, storage_of(storage))
    fed = RegistrarState.of(channel.progress).entries
    stops = " An ingest feeds this channel: a row of a new partition then stops it for good." if fed else ""
    confirmed(
        f"No producer, and no new partition, can join {clean(channel.path)} any more.{stops} This cannot be taken back. Go on?",
        yes=yes,
        as_json=as_json,
    )
    version = channel.seal()
    told = "it was sealed already" if version is None else "it is sealed"
    done(channel, channel.version, told, as_json=as_json)


def readmit(
    path: ChannelPath,
    late_path: LatePath = None,
    yes: Yes = False,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Add the rows that were late since the last call, as the channel's next correction (ingests with corrections)."""
    options = storage_of(storage)
    channel = Channel.open(path, options)
    confirmed(f"Add late rows to {clean(channel.path)} as a correction? It cannot be taken back.", yes=yes, as_json=as_json)
    found = readmit_rows(path, late_path, storage=options)
    channel.refresh()
    told = f"{found.rows} rows came back" + (f" as correction {found.correction}" if found.rows else "")
    done(channel, channel.version, f"{told}, {found.left} stay", as_json=as_json, more={"rows": found.rows, "left": found.left})


def publish_late(
    path: ChannelPath,
    late_path: LatePath = None,
    yes: Yes = False,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Add late rows that a query had named when it ended to their late tables. The query's next batch does the same."""
    options = storage_of(storage)
    channel = Channel.open(path, options)
    confirmed(f"Publish late rows of {clean(channel.path)}?", yes=yes, as_json=as_json)
    rows = publish_late_rows(path, options, late_path=late_path)
    channel.refresh()
    done(channel, channel.version, f"{rows} late rows were published", as_json=as_json, more={"rows": rows})


def release_parked(
    path: ChannelPath,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Also if their query may be running: you say that it has ended.")
    ] = False,
    forget_missing: Annotated[
        bool, typer.Option("--forget-missing", help="Give up rows whose files are missing, for good.")
    ] = False,
    yes: Yes = False,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Let rows that wait beyond maxAhead join the channel now, of queries that have ended."""
    options = storage_of(storage)
    channel = Channel.open(path, options)
    lost = " Rows whose files are missing are given up." if forget_missing else ""
    confirmed(f"Let all parked rows join {clean(channel.path)}?{lost} This cannot be taken back.", yes=yes, as_json=as_json)
    version = release_rows(path, options, take_over=take_over, forget_missing=forget_missing)
    channel.refresh()
    told = "no rows were parked" if version is None else "the parked rows have joined"
    done(channel, channel.version, told, as_json=as_json)


def end_corrections(path: ChannelPath, yes: Yes = False, storage: StorageOptions = None, as_json: AsJson = False) -> None:
    """End the corrections of a channel: late rows are readmitted no more, so its last times can close."""
    options = storage_of(storage)
    channel = Channel.open(path, options)
    confirmed(
        f"No late rows can be readmitted to {clean(channel.path)} any more. This cannot be taken back. Go on?",
        yes=yes,
        as_json=as_json,
    )
    version = end_the_corrections(path, options)
    channel.refresh()
    told = "it accepts no corrections" if version is None else "its corrections have ended"
    done(channel, channel.version, told, as_json=as_json)
