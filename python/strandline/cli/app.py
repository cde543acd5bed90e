"""The commands of ``strandline``, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli import create, inspect, log, reports, timeline
from strandline.cli.arguments import AsJson
from strandline.cli.operate import channels as operate
from strandline.cli.operate import remedies
from strandline.cli.output import line, print_json
from strandline.cli.page import commands as page
from strandline.cli.replay import commands as replay

__all__ = ["app"]

app = typer.Typer(
    help="Look at channels, and operate them: exact progress of streams in Delta tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from strandline import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


app.command("create")(create.create)
app.command("inspect")(inspect.inspect)
app.command("watch")(inspect.watch)
app.command("log")(log.log)
app.command("why")(reports.why)
app.command("verify")(reports.verify)
app.command("timeline")(timeline.timeline)
app.command("compare")(replay.compare)
app.command("replay")(replay.replay)
app.command("serve")(page.serve)
app.command("report")(page.report)
app.command("hold")(operate.hold)
app.command("drop")(operate.drop)
app.command("rejoin")(operate.rejoin)
app.command("forget")(operate.forget)
app.command("cancel")(remedies.cancel)
app.command("seal")(remedies.seal)
app.command("readmit")(remedies.readmit)
app.command("publish-late")(remedies.publish_late)
app.command("release-parked")(remedies.release_parked)
app.command("end-corrections")(remedies.end_corrections)
app.command("compact")(operate.compact)


@app.command("jar")
def jar(as_json: AsJson = False) -> None:
    """Print the path of the shim's jar, for spark-submit --jars."""
    from pyspark_strandline.session import shim_jar

    path = str(shim_jar())
    if as_json:
        print_json({"jar": path})
    else:
        line(path)
