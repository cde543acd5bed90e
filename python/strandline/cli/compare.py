"""``strandline compare``: whether two channels have the same rows at all closed times, and where they part."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.arguments import AsJson, Most, StorageOptions, storage_of
from strandline.cli.output import line, print_json
from strandline.replay import compare as compare_channels

__all__ = ["compare"]

_DIFFERENT = 1

First = Annotated[str, typer.Argument(metavar="A", help="A channel's path.", show_default=False)]
Second = Annotated[str, typer.Argument(metavar="B", help="Another channel's path.", show_default=False)]
Until = Annotated[
    list[str] | None,
    typer.Option("--until", metavar="TIME", help="Compare the times before this one. Repeat it for a frontier of several."),
]
Key = Annotated[
    list[str] | None, typer.Option("--key", metavar="COLUMN", help="A column that tells rows of one time apart. Repeat it.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", metavar="COLUMN", help="A column to compare (default: all). Repeat it.")
]


def compare(
    a: First,
    b: Second,
    until: Until = None,
    key: Key = None,
    column: Columns = None,
    most: Most = 3,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Compare the rows of two channels at all times that both have closed. The exit code is 1 if they differ."""
    found = compare_channels(
        a, b, until=until or None, key=key or None, columns=column or None, most=most, storage_options=storage_of(storage)
    )
    if as_json:
        print_json(found.to_json())
    else:
        for text in found.to_text().splitlines():
            line(text)
    if not found.equal:
        raise typer.Exit(_DIFFERENT)
