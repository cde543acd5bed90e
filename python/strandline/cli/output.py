"""What the commands print: tables and lines on a terminal, or JSON. What comes from logs is escaped first."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from strandline.channel import Channel
from strandline.errors import printable

__all__ = ["clean", "console", "done", "line", "print_json", "print_table", "progress", "short", "table"]

_WIDE = 1000
_LINE_EVERY_S = 5.0


def console(*, errors: bool = False) -> Console:
    """Return a console that takes no text for markup. What is not a terminal has no width, so nothing is cut."""
    stream = sys.stderr if errors else sys.stdout
    width = None if stream.isatty() else _WIDE
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width, soft_wrap=True)


def clean(value: object) -> str:
    r"""Return a value as text of one line that is safe for a terminal.

    >>> clean("JFK\x1b[2J\n[red]")
    'JFK\\x1b[2J\\n[red]'
    """
    return printable(str(value)).replace("\n", "\\n").replace("\t", "\\t")


def short(name: str, most: int = 60) -> str:
    """Return a name for a table: of a long one its beginning and its end, so that the table fits on a screen.

    >>> short("a" * 80 + "bc", most=9), short("JFK")
    ('aaaa…aabc', 'JFK')
    """
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[-end:]}"


def line(text: str = "") -> None:
    """Print a line."""
    console().print(Text(clean(text)))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table whose cells are text as it is."""
    made = Table(*columns, box=None, pad_edge=False, show_edge=False, header_style="bold")
    for row in rows:
        made.add_row(*(Text(clean(cell)) for cell in row))
    return made


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table."""
    console().print(table(columns, rows))


def print_json(value: Any, *, compact: bool = False) -> None:
    """Print a value as JSON, in ASCII: so control characters of names are escaped. A number that JSON does not have is null."""
    print(json.dumps(_finite(value), indent=None if compact else 2, allow_nan=False), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show how far long work is, on standard error: as bars on a terminal, elsewhere as a line every some seconds.

    Yields a function that takes what is being done, how many are done, and how many there are.
    """
    where = console(errors=True)
    if not where.is_terminal:
        yield _Lines(where)
        return
    tasks: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=where, transient=True) as bar:

        def told(what: str, done: int, whole: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=whole)
            bar.update(tasks[what], completed=done, total=whole)

        yield told


class _Lines:
    def __init__(self, where: Console) -> None:
        self._where = where
        self._next = time.monotonic() + _LINE_EVERY_S

    def __call__(self, what: str, done: int, whole: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _LINE_EVERY_S
            self._where.print(Text(clean(f"{what}: {done} of {whole}")))


def done(channel: Channel, version: int | None, text: str, *, as_json: bool, more: dict[str, int] | None = None) -> None:
    """Print what a command has done, and where the channel stands."""
    frontier = [channel.domain.format(time) for time in channel.frontier]
    if as_json:
        print_json({"channel": channel.path, "version": version, "frontier": frontier, "done": text, **(more or {})})
    else:
        line(f"version {version}: {text}; the frontier is {', '.join(frontier) or 'empty'}")
