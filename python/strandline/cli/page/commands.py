"""``strandline serve`` and ``strandline report``: channels and scopes as a live page, as one HTML file, or as JSON."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from strandline.cli.arguments import AsJson, Most, StorageOptions, storage_of
from strandline.cli.output import line, print_json
from strandline.page import Looker, Page

__all__ = ["report", "serve"]

Paths: TypeAlias = Annotated[list[str], typer.Argument(metavar="PATH…", help="Paths of channels and scopes.", show_default=False)]
StaleAfter: TypeAlias = Annotated[
    float, typer.Option("--stale", min=0, help="After how many seconds a frontier that stands is marked.")
]
Commits: TypeAlias = Annotated[int, typer.Option(min=1, help="How many of the newest commits of each channel are read at first.")]
USAGE, REFUSED = 2, 3
_LOCAL = ("127.0.0.1", "::1", "localhost")


def serve(
    paths: Paths,
    host: Annotated[
        str, typer.Option(help="The address to listen at. Others than this machine's own let others look.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8765,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A further name by which the page is reached. Repeat it for each.")
    ] = None,
    interval: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two looks.")] = 1.0,
    stale: StaleAfter = 300.0,
    commits: Commits = 500,
    most: Most = 20,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Serve a live page of channels and scopes, until Ctrl-C. It only reads, and listens on this machine only."""
    _require("jinja2", "starlette", "uvicorn")
    from strandline.page.server import application, listen
    from strandline.page.server import serve as run

    looker = Looker(paths, storage_of(storage), most=most, stale_after=stale, window=commits, interval=interval)
    remote = host not in _LOCAL
    app = application(looker, interval=interval, hosts=[host, *(allow_host or ())], remote=remote)
    with listen(host, port) as bound:
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{bound.getsockname()[1]}/"
        if as_json:
            print_json({"url": url}, compact=True)
        else:
            line(f"{url} (Ctrl-C ends it)")
        if remote:
            typer.echo("Everybody who reaches this address can look: the page asks for no password.", err=True)
        sys.stdout.flush()
        run(app, bound)


def report(
    paths: Paths,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The HTML file.", show_default=False)
    ] = None,
    stale: StaleAfter = 300.0,
    commits: Commits = 500,
    most: Most = 20,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Write the page as one HTML file that needs no network, or with --json print what it shows."""
    if output is None and not as_json:
        raise typer.BadParameter("name the HTML file, or ask for --json", param_hint="--output")
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise typer.BadParameter(f"{str(output)!r} is not a file in a folder that exists", param_hint="--output")
    if output is not None:
        _require("jinja2")
    page = Looker(paths, storage_of(storage), most=most, stale_after=stale, window=commits).look()
    if output is not None:
        from strandline.page.render import report_html

        try:
            output.write_text(report_html(page), encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{str(output)!r} cannot be written: {error.strerror}", param_hint="--output") from None
    if as_json:
        print_json(page.to_json())
    else:
        line(f"{output}: {_summary(page)}")
    if not any(view.version >= 0 for view in page.channels) and _problems(page):
        raise typer.Exit(REFUSED)


def _problems(page: Page) -> int:
    return len(page.problems) + sum(view.problem is not None for view in page.channels)


def _summary(page: Page) -> str:
    standing = sum(view.stale for view in page.channels)
    text = f"{len(page.channels)} channel{'' if len(page.channels) == 1 else 's'}, {standing} standing"
    return text + (f"; {_problems(page)} cannot be read" if _problems(page) else "")


def _require(*packages: str) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        typer.echo(f"strandline: this needs {', '.join(missing)}. Install it with: pip install 'strandline[page]'", err=True)
        raise typer.Exit(USAGE)
