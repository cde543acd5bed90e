"""``strandline create``: a new channel."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType

from strandline.channel import Channel
from strandline.cli.arguments import AsJson, ChannelPath, StorageOptions, storage_of
from strandline.cli.output import line, print_json
from strandline.time.arrow import time_field
from strandline.time.domain import parse_domain
from strandline.time.time_text import parse_time

__all__ = ["create"]


def create(
    path: ChannelPath,
    domain: Annotated[
        str, typer.Option(help="The domain of the times, such as timestamp or 'product(epoch, iter)'.")
    ] = "timestamp",
    time: Annotated[str, typer.Option(help="The name of the time column.")] = "time",
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME:TYPE", help="A column, with a type of Delta. Repeat it for each.")
    ] = None,
    producer: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A first producer. Repeat it for each.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Where producers begin (default: the least time).")] = None,
    sealed: Annotated[
        bool | None,
        typer.Option("--sealed/--open", help="Whether producers may join later (default: sealed if there is a producer)."),
    ] = None,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Create a channel."""
    times = parse_domain(domain)
    columns = [_column(text) for text in column or ()]
    schema = pa.schema([time_field(time, times), *columns])
    channel = Channel.create(
        path,
        schema,
        time=time,
        producers=producer or (),
        sealed=sealed,
        at=None if at is None else parse_time(times, at, "--at"),
        storage_options=storage_of(storage),
    )
    if as_json:
        print_json(
            {
                "channel": channel.path,
                "table": channel.table_id,
                "domain": str(channel.domain),
                "producers": list(channel.producers),
                "sealed": channel.sealed,
                "frontier": [channel.domain.format(time) for time in channel.frontier],
            }
        )
    else:
        line(f"created {channel.path}: times of {channel.domain}, {len(channel.producers)} producers, {_sealed(channel)}")


def _sealed(channel: Channel) -> str:
    return "sealed" if channel.sealed else "open for producers"


def _column(text: str) -> pa.Field:
    name, colon, kind = text.partition(":")
    try:
        if not name or not colon:
            raise ValueError
        return pa.schema(Schema([Field(name, PrimitiveType(kind), nullable=True)])).field(0)
    except Exception:
        raise typer.BadParameter(
            f"{text!r} is not NAME:TYPE with a type such as string, long, double, boolean, date, timestamp or decimal(12,2)",
            param_hint="--column",
        ) from None
