"""``strandline hold``, ``drop``, ``rejoin``, ``forget`` and ``compact``: what an operator changes.

All but ``compact`` change what comes out of a channel, or what is known of it. They say what it costs, and ask first.
``compact`` changes no row and no time.
"""

from __future__ import annotations

import getpass
import os
import socket
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Annotated

import typer

from strandline.channel import Channel, Log, ProducerState
from strandline.channel.write.registrar import hold_of
from strandline.cli import errors
from strandline.cli.arguments import AsJson, ChannelPath, StorageOptions, Yes, confirmed, storage_of
from strandline.cli.output import clean, done
from strandline.delta.storage import LOG_DIR
from strandline.delta.store_errors import native
from strandline.delta.table import open_delta, refuse_misread
from strandline.ingest import drop_partitions, forget_partitions, rejoin_partitions, status
from strandline.ingest.names import OWN_PREFIX, partition_name_problem
from strandline.ingest.state.partition_state import PartitionState
from strandline.ingest.state.registrar_state import RegistrarState, held_names, own_names
from strandline.report.ailments import moment
from strandline.report.holders import Describer
from strandline.shell_words import drop_command
from strandline.time.domain import timestamp
from strandline.time.time_text import parse_time

__all__ = ["compact", "drop", "forget", "hold", "rejoin"]

OPERATOR = f"{OWN_PREFIX}operator"
"""The name of a hold. No partition can have it."""


def hold(
    path: ChannelPath,
    time: Annotated[str, typer.Argument(metavar="TIME", help="The least time that is to stay open.", show_default=False)],
    name: Annotated[
        str | None,
        typer.Option(
            "--as", help="The name of the producer that holds it (default: one that no partition of an ingest can have)."
        ),
    ] = None,
    yes: Yes = False,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Keep a time and all later ones open: a producer joins that holds it, until it is dropped. Only a closed time is refused."""
    channel = Channel.open(path, storage_of(storage))
    wanted = parse_time(channel.domain, time, "TIME")
    shown = channel.domain.format(wanted)
    if name is not None and not channel.sealed and RegistrarState.of(channel.progress).entries:
        told = (
            f"If the ingest gets a partition {name!r}, it stops, until the hold is dropped and then forgotten. Leave --as out "
            "for a name that no partition can have."
        )
        typer.echo(clean(told), err=True)
    name = _free_name(channel, name)
    confirmed(
        f"{clean(channel.path)}: the producer {clean(name)!r} will hold {shown}. Until it is dropped, no result at or after "
        f"{shown} comes out, here and downstream. Go on?",
        yes=yes,
        as_json=as_json,
    )
    version = channel.hold(name, wanted, by=_operator())
    release = drop_command(channel.path, name)
    done(channel, version, f"{name} holds {shown} now; release it with: {release}", as_json=as_json)


def drop(
    path: ChannelPath,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME…", help="Producers, or partitions of an ingest.", show_default=False)
    ],
    yes: Yes = False,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Give up everything that producers hold, for good: of a dead producer, or a partition that never delivers again."""
    options = storage_of(storage)
    channel = Channel.open(path, options)
    describer = Describer(channel)
    partitions: list[str] = []
    producers: list[str] = []
    ended: list[str] = []
    for name in dict.fromkeys(names):
        state = _known(channel, name)
        kind = describer.describe(name, state).kind
        if _has_ended(name, state, is_partition=kind == "partition"):
            ended.append(name)
            typer.echo(clean(f"{kind} {name} has ended before: it holds nothing, and there is nothing to drop."), err=True)
            continue
        (partitions if kind == "partition" else producers).append(name)
        typer.echo(clean(_holding(channel, kind, name, state)), err=True)
    if ended and not partitions and not producers:
        done(channel, channel.version, f"nothing was dropped, because it had ended before: {', '.join(ended)}", as_json=as_json)
        return
    typer.echo(_lost([channel.producers[name] for name in producers], partitions), err=True)
    dropped = [name for name in dict.fromkeys(names) if name not in ended]
    confirmed(f"Drop {clean(', '.join(dropped))} in {clean(channel.path)}?", yes=yes, as_json=as_json)
    version = channel.version
    for name in producers:
        with channel.producer(name, take_over=True) as producer:
            producer.drop()
        version = channel.version
    if partitions:
        version = drop_partitions(path, partitions, options)
    channel.refresh()
    done(channel, version, f"dropped {', '.join(dropped)}", as_json=as_json)


def rejoin(
    path: ChannelPath,
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Partitions of an ingest.", show_default=False)],
    yes: Yes = False,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Let partitions that have run ahead, as by a wrong clock, join their ingest again where its other partitions are."""
    options = storage_of(storage)
    channel = Channel.open(path, options)
    told = (
        "A partition that rejoins gives up what it holds, and holds the least time of its ingest's other partitions from the "
        "next batch on. Rows of it that were set aside stay in the late table. A batch that is running and has rows of it fails: "
        "start the query again then."
    )
    typer.echo(told, err=True)
    confirmed(f"Let {clean(', '.join(names))} rejoin in {clean(channel.path)}?", yes=yes, as_json=as_json)
    version = rejoin_partitions(path, names, options)
    channel.refresh()
    joined = [p for p in status(path, options).partitions if p.name in names]
    shown = ", ".join(f"{p.name} (generation {p.generation}) at {', '.join(map(channel.domain.format, p.holds))}" for p in joined)
    done(channel, version, f"with the next batch, these rejoin: {shown}", as_json=as_json)


def forget(
    path: ChannelPath,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Partitions (default: all dead ones).", show_default=False)
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(help="Only those that have delivered no row since this moment, with its zone.", show_default=False),
    ] = None,
    yes: Yes = False,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Remove dead partitions of an ingest: those that were dropped, or are complete. They cost nothing from then on."""
    moment = None if before is None else _moment(before)
    options = storage_of(storage)
    channel = Channel.open(path, options)
    which = f"{len(names)} partitions" if names else "every dead partition"
    again = (
        "The channel is sealed: if it delivers again, the ingest stops, until its rows are left out of the stream."
        if channel.sealed
        else "If it delivers again, it joins as a new one does."
    )
    lost = (
        f"A forgotten partition is not shown any more. {again} A reader that does not know version 3 of the protocol cannot read "
        "the channel's later commits. This cannot be taken back."
    )
    typer.echo(lost, err=True)
    confirmed(f"Forget {which} of {clean(channel.path)}?", yes=yes, as_json=as_json)
    count_before = len(channel.producers)
    version = forget_partitions(path, names or None, options, before=moment)
    channel.refresh()
    gone = count_before - len(channel.producers)
    done(channel, version, f"forgot {gone} partition(s)", as_json=as_json, more={"forgotten": gone})


def _moment(text: str) -> datetime:
    micros = parse_time(timestamp, text, "--before")
    try:
        return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)
    except OverflowError:
        raise errors.time_invalid(text) from None


def compact(
    path: ChannelPath,
    size: Annotated[int | None, typer.Option("--target-size", min=1, help="Bytes of a file (default: Delta's).")] = None,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite small data files as larger ones (Delta's OPTIMIZE). Readers do not notice. Old files stay until VACUUM."""
    options = storage_of(storage)
    channel = Channel.open(path, options)
    log = Log(path, options)
    before = log.store.list(LOG_DIR)
    handle = open_delta(log, options)
    refuse_misread(log, handle, before, options)  # deltalake may write a checkpoint too, whatever it is asked for
    with native(channel.path, options), channel.log.store.errors("compact"):
        metrics = handle.optimize.compact(target_size=size)
    body = {"removed": metrics["numFilesRemoved"], "added": metrics["numFilesAdded"]}
    channel.refresh()
    done(channel, channel.version, f"{body['removed']} files became {body['added']}", as_json=as_json, more=body)


def _operator() -> str:
    """Return who runs this command, as ``user@host``. A container may have no name for its user."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _free_name(channel: Channel, wanted: str | None) -> str:
    """Return the name for a producer that holds. A name that was dropped stays taken: its statements are in the log."""
    taken = channel.producers
    if wanted is None:
        return next(name for n in count(1) if (name := OPERATOR if n == 1 else f"{OPERATOR}-{n}") not in taken)
    if (problem := partition_name_problem(wanted)) is not None:
        raise errors.producer_name_invalid(wanted, problem)
    if wanted in taken:
        held = ", ".join(map(channel.domain.format, taken[wanted].holds)) or "nothing"
        raise errors.producer_exists(channel.path, wanted, held)
    return wanted


def _holding(channel: Channel, kind: str, name: str, state: ProducerState) -> str:
    """Return what a producer holds, and where it is open, as a sentence."""
    held = ", ".join(map(channel.domain.format, state.holds)) or "nothing"
    hold = hold_of(state.state)
    if hold is not None:
        return f"{name} holds {held} for {hold.by} since {moment(hold.at)} (strandline hold)."
    if state.owner is None:
        return f"{kind} {name} holds {held}, and is open nowhere."
    if state.owner.is_dead():
        return f"{kind} {name} holds {held}. It was open in {state.owner}, which is gone."
    return f"{kind} {name} holds {held}, and is open in {state.owner}."


def _lost(producers: list[ProducerState], partitions: list[str]) -> str:
    """Return what is lost when producers and partitions are dropped. A hold has no rows."""
    told = []
    if any(hold_of(state.state) is None for state in producers):
        told.append("Rows that a producer has not committed are lost: its session is fenced, and it can write nothing any more.")
    if partitions:
        told.append("Rows that a dropped partition still delivers are set aside as late.")
    closes = "Times that only these hold close at once, so results "
    return " ".join([*told, f"{closes}{'without those rows ' if told else ''}come out. This cannot be taken back."])


def _known(channel: Channel, name: str) -> ProducerState:
    state = channel.producers.get(name)
    own = {*own_names(channel.progress)} if RegistrarState.of(channel.progress).entries else set[str]()
    own -= {*held_names(channel.progress)}
    if state is None or name in own:
        known = sorted(each for each in channel.producers if each not in own)
        raise errors.producer_unknown(channel.path, name, known)
    return state


def _has_ended(name: str, state: ProducerState, *, is_partition: bool) -> bool:
    """Return whether a producer has given up everything for good. A partition that holds nothing may be idle, or join again."""
    if state.holds:
        return False
    return not is_partition or PartitionState.of(name, state.state).dropped is not None
