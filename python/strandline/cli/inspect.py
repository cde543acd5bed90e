"""``strandline inspect`` and ``strandline watch``: a channel at its newest version, once or live."""

from __future__ import annotations

import time as clock
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from strandline.channel import Channel
from strandline.channel.statements.statement import REGISTRAR
from strandline.cli.arguments import AsJson, ChannelPath, Most, StorageOptions, storage_of
from strandline.cli.output import clean, console, line, print_json, short, table
from strandline.ingest.state.registrar_state import RegistrarState
from strandline.ingest.status import PartitionStatus, status_of
from strandline.report.ailments import moment

__all__ = ["inspect", "watch"]


def inspect(path: ChannelPath, most: Most = 20, storage: StorageOptions = None, as_json: AsJson = False) -> None:
    """Show a channel: its domain, frontier, producers with what they hold, and sizes."""
    channel = Channel.open(path, storage_of(storage))
    body = _state(channel, most) | {"sizes": _sizes(channel)}
    ingest = status_of(channel) if RegistrarState.of(channel.progress).entries else None
    if ingest is not None:
        body["ingest"] = {
            "policies": list(ingest.policies),
            "setAside": ingest.aside,
            "setAsideByReason": dict(ingest.aside_by_reason),
            "parked": ingest.parked_rows,
        }
        partitions = {each.name: each for each in ingest.partitions}
        for each in body["producers"]:
            each["setAside"] = _aside(partitions.get(each["name"]))
    if as_json:
        print_json(body)
        return
    sizes = body["sizes"]
    console().print(_shown(body))
    line()
    line(f"{sizes['files']} data files, {sizes['rows']} rows, {sizes['bytes']} bytes; {sizes['commits']} commits in the log")
    if ingest is not None:
        for text in str(ingest).splitlines()[:-1]:
            line(text)


def watch(
    path: ChannelPath,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many looks (default: on Ctrl-C).")] = None,
    most: Most = 20,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show a channel live. A look reads only the commits that are new. Without a terminal, print a line for each change."""
    channel = Channel.open(path, storage_of(storage))
    where = console()
    looks, before = 0, None
    with Live(console=where, auto_refresh=False, screen=False) if where.is_terminal and not as_json else _Nothing() as live:
        try:
            while count is None or looks < count:
                if looks:
                    clock.sleep(interval)
                    channel.refresh()
                looks += 1
                if live is not None:
                    live.update(_shown(_state(channel, most)), refresh=True)
                elif channel.version != before:
                    body = _state(channel, most)
                    if as_json:
                        print_json(body, compact=True)
                    else:
                        line(f"version {body['version']}, {body['changed']}: frontier {', '.join(body['frontier']) or 'empty'}")
                before = channel.version
        except KeyboardInterrupt:
            return


class _Nothing:
    """In the place of a live display, where there is no terminal."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _state(channel: Channel, most: int) -> dict[str, Any]:
    domain, progress = channel.domain, channel.progress
    producers = sorted(
        progress.producers.items(),
        key=lambda entry: (not entry[1].holds, min(map(domain.sort_key, entry[1].holds), default=()), entry[0]),
    )
    newest = channel.log.read(channel.version)
    return {
        "channel": channel.path,
        "table": channel.table_id,
        "version": channel.version,
        "changed": moment(newest.timestamp_ms) if newest is not None else None,
        "domain": str(domain),
        "timeColumn": channel.time_column,
        "columns": {field.name: str(field.type) for field in channel.schema},
        "sealed": channel.sealed,
        "registrar": [domain.format(time) for time in channel.registrar],
        "frontier": [domain.format(time) for time in channel.frontier],
        "producers": [
            {
                "name": name,
                "holds": [domain.format(time) for time in state.holds],
                "holdsBack": any(time in channel.frontier for time in state.holds),
                "session": None if state.owner is None else str(state.owner),
                "gone": True if state.owner is not None and state.owner.is_dead() else None,
            }
            for name, state in producers[:most]
        ],
        "producersNotListed": max(0, len(producers) - most),
    }


def _sizes(channel: Channel) -> dict[str, int | None]:
    files = channel.snapshot_files()
    rows = [file.rows for file in files]
    return {
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "rows": None if -1 in rows else sum(rows),
        "commits": channel.version + 1 - channel.log.earliest(),
    }


def _aside(partition: PartitionStatus | None) -> dict[str, Any] | None:
    """Return what is said of the rows of a partition that were set aside; ``None`` if there are none."""
    if partition is None or not partition.aside:
        return None
    newest = partition.newest_aside
    if newest is None:
        return {"rows": partition.aside, "newestRows": None, "reason": None, "time": None, "onlySince": None}
    since = newest.only_since_ms
    return {
        "rows": partition.aside,
        "newestRows": newest.rows,
        "reason": newest.reason,
        "time": moment(newest.at_ms),
        "onlySince": None if since is None else moment(since),
    }


def _aside_shown(aside: dict[str, Any] | None) -> str:
    if aside is None:
        return ""
    why = "" if aside["reason"] is None else f" ({aside['reason']})"
    return f"{aside['rows']}{why}" + ("" if aside["onlySince"] is None else f", all since {aside['onlySince']}")


def _shown(body: dict[str, Any]) -> Group:
    head = [
        f"{body['channel']}, version {body['version']} ({body['changed']}), times of {body['domain']} in {body['timeColumn']}",
        f"frontier {', '.join(body['frontier']) or 'empty: everything is closed'}",
        "sealed" if body["sealed"] else f"open: producers may join at {', '.join(body['registrar'])} ({REGISTRAR})",
    ]
    rows = [
        (
            short(each["name"]),
            ", ".join(each["holds"]) or "nothing",
            "←" if each["holdsBack"] else "",
            "closed" if each["session"] is None else short(f"gone: {each['session']}" if each["gone"] else each["session"], 100),
            *([_aside_shown(each["setAside"])] if "ingest" in body else []),
        )
        for each in body["producers"]
    ]
    parts: list[Any] = [
        *(Text(clean(text)) for text in head),
        Text(),
        table(("producer", "holds", "holds back", "open in", *(["set aside"] if "ingest" in body else [])), rows),
    ]
    if body["producersNotListed"]:
        parts.append(Text(f"and {body['producersNotListed']} more"))
    return Group(*parts)
