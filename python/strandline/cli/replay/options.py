"""The arguments and options of ``strandline replay`` and ``strandline compare``."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

__all__ = [
    "Against",
    "BySpark",
    "Columns",
    "Conf",
    "First",
    "From",
    "FromMoment",
    "FromVersion",
    "Into",
    "Key",
    "NamedInputs",
    "PipelinePath",
    "ReplayUntil",
    "Second",
    "Since",
    "Speed",
    "Until",
    "UntilMoment",
    "UntilVersion",
]

First: TypeAlias = Annotated[str, typer.Argument(metavar="A", help="A channel's path.", show_default=False)]
Second: TypeAlias = Annotated[str, typer.Argument(metavar="B", help="Another channel's path.", show_default=False)]
Key: TypeAlias = Annotated[
    list[str] | None, typer.Option("--key", metavar="COLUMN", help="A column that tells rows of one time apart. Repeat it.")
]
Columns: TypeAlias = Annotated[
    list[str] | None, typer.Option("--column", metavar="COLUMN", help="A column to compare (default: all). Repeat it.")
]
Since: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--since", metavar="TIME", help="Compare the times from this one on. Repeat it for a frontier of several."),
]
BySpark: TypeAlias = Annotated[bool, typer.Option("--spark", help="Spark compares, which is for large channels.")]
Conf: TypeAlias = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of the Spark session. Repeat it for each.")
]
From: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--from", metavar="TIME", help="Replay the times from this one on. Repeat it for a frontier of several."),
]
FromVersion: TypeAlias = Annotated[
    int | None, typer.Option("--from-version", min=0, help="Begin with this version of the input.")
]
FromMoment: TypeAlias = Annotated[
    str | None, typer.Option("--from-timestamp", metavar="MOMENT", help="Begin with the first commit made then or later.")
]
ReplayUntil: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--until", metavar="TIME", help="End when all times before this one are closed. Repeat it for several."),
]
UntilVersion: TypeAlias = Annotated[
    int | None, typer.Option("--until-version", min=0, help="End with this version of the input.")
]
UntilMoment: TypeAlias = Annotated[
    str | None, typer.Option("--until-timestamp", metavar="MOMENT", help="End before the first commit made later.")
]
Against: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--against",
        metavar="[NAME=]OUTPUT",
        help="The channel to compare with, for each output by name if there are several; or another pipeline file (.py).",
    ),
]
NamedInputs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=PATH", help="The channel that the pipeline calls NAME. Repeat it for each."),
]
Speed: TypeAlias = Annotated[
    str, typer.Option(help="max; realtime, with the recorded pauses; or such as 10x, ten times as fast.")
]
PipelinePath: TypeAlias = Annotated[
    str, typer.Argument(metavar="PIPELINE.py", help="A file with the function pipeline(spark, read).", show_default=False)
]
Into: TypeAlias = Annotated[
    str, typer.Option("--into", metavar="FOLDER", help="A new folder for everything that is written.", show_default=False)
]
Until: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--until", metavar="TIME", help="Compare the times before this one. Repeat it for a frontier of several."),
]
