"""``--html FILE``: one page of a comparison or of a replay."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from strandline.cli.replay import errors
from strandline.replay import Comparison, Replayed

__all__ = ["HtmlFile", "check_file", "write_page"]

HtmlFile: TypeAlias = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write one HTML page.", show_default=False)
]


def check_file(file: Path | None, command: str) -> None:
    """Raise before any work if the page could not be written."""
    if file is None:
        return
    if file.is_dir() or not file.parent.is_dir():
        raise typer.BadParameter(f"{str(file)!r} is not a file in a folder that exists", param_hint="--html")
    if find_spec("jinja2") is None:
        raise errors.package_missing(f"{command} --html", "page")


def write_page(file: Path | None, found: Comparison | Replayed) -> None:
    """Write the page, if one is asked for."""
    if file is None:
        return
    from strandline.page.comparison import comparison_html

    try:
        file.write_text(comparison_html(found), encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{str(file)!r} cannot be written: {error.strerror}", param_hint="--html") from None
