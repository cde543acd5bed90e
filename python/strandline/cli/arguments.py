"""The arguments and options that commands share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from strandline.delta.store_errors import without_secret_options
from strandline.shell_words import SHARED_OPTIONS

__all__ = ["AsJson", "ChannelPath", "Most", "StorageOptions", "Yes", "confirmed", "storage_of"]

ChannelPath: TypeAlias = Annotated[str, typer.Argument(metavar="PATH", help="The channel's path.", show_default=False)]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--storage", metavar="KEY=VALUE", help="An option of the object store. Repeat it for each.", show_default=False),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Most: TypeAlias = Annotated[int, typer.Option("--most", "-n", min=1, help="How many are listed at most.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

DECLINED = 4


def storage_of(options: list[str] | None) -> dict[str, str] | None:
    """Return storage options from their texts. Commands that are printed from now on repeat them, but for secrets.

    >>> from contextvars import copy_context
    >>> copy_context().run(storage_of, ["AWS_REGION=eu-west-1", "token=a=b"])
    {'AWS_REGION': 'eu-west-1', 'token': 'a=b'}
    """
    found = {}
    for option in options or ():
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise typer.BadParameter("it is not of the form KEY=VALUE", param_hint="--storage")  # it may be a secret
        found[key] = value
    shared = [f"{key}={value}" for key, value in without_secret_options(found).items()]
    SHARED_OPTIONS.set(tuple(word for option in shared for word in ("--storage", option)))
    return found or None


def confirmed(question: str, *, yes: bool, as_json: bool) -> None:
    """Ask on the terminal, unless ``yes``. End the command with exit code 4 if the answer is no."""
    if yes:
        return
    if as_json:
        raise typer.BadParameter("with --json nobody is asked: add --yes", param_hint="--yes")
    try:
        agreed = typer.confirm(question, default=False, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        typer.echo("Nothing was done.", err=True)
        raise typer.Exit(DECLINED)
