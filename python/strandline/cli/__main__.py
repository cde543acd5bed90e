"""The entry point of the command ``strandline``: runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import atexit
import io
import json
import os
import sys
import traceback
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any

from strandline.errors import StrandlineError, printable

__all__ = ["main", "run"]

_MISSING = "strandline: the command line needs the packages typer and rich. Install them with: pip install 'strandline[cli]'"
USAGE, REFUSED, DEFECT, INTERRUPTED, UNREAD = 2, 3, 70, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code.

    0: done. 1: ``verify`` found something. 2: a usage error. 3: an error of Strandline, which has a name. 4: the user said no.
    70: a defect of the command line, with a traceback. 130: Ctrl-C. 141: nobody reads its output any more.

    >>> main(["why"])
    2
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return copy_context().run(_main, given)  # what a command sets ends with it
    except KeyboardInterrupt:
        return INTERRUPTED


def _main(given: list[str]) -> int:
    try:
        import rich  # noqa: F401
        import typer
    except ImportError:
        print(_MISSING, file=sys.stderr)
        return USAGE
    from strandline.cli.app import app

    usage: Any = typer.BadParameter.__mro__[2]  # every error of usage that typer has
    try:
        code = app(given, prog_name="strandline", standalone_mode=False)
    except SystemExit as end:  # of a pipe whose reader has gone
        return UNREAD if end.code == 1 else end.code if isinstance(end.code, int) else USAGE * (end.code is not None)
    except StrandlineError as error:
        if "--json" in given:
            _print_error(error.condition, error.what, error.remedy)
        else:
            print(printable(str(error)), file=sys.stderr)
        return USAGE if error.condition == "STRANDLINE_PACKAGE_MISSING" else REFUSED
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        if not isinstance(error, usage):
            print(printable(traceback.format_exc()), file=sys.stderr)
            return DEFECT
        command = getattr(getattr(error, "ctx", None), "command_path", "strandline")
        if "--json" in given:
            _print_error("USAGE", error.format_message(), f"See {command} --help.")
        else:
            error.show()
        return USAGE
    return code if isinstance(code, int) else 0


def _print_error(condition: str, what: str, remedy: str) -> None:
    print(json.dumps({"error": {"condition": condition, "what": what, "remedy": remedy}}), file=sys.stderr)


def run() -> None:
    """Run the command line as a program."""
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack characters of names: what is done must not fail by showing it
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    codes: list[int] = []
    atexit.register(_end, codes)  # before all others, so it runs after them
    codes.append(main())
    sys.exit(codes[0])


def _end(codes: list[int]) -> None:
    """End the process with an exit code, before the interpreter takes itself apart.

    Threads of Arrow may still close files that Python reads for them. Such a thread aborts a process that has no interpreter.
    """
    if not codes:  # an error that is not main's
        return
    code = codes[0]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:  # noqa: PERF203 - each is flushed
            code = UNREAD
        except OSError:
            code = DEFECT
    os._exit(code)


if __name__ == "__main__":
    run()
