"""The entry point of the command ``strandline``: runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence

from strandline.errors import StrandlineError, printable

__all__ = ["main", "run"]

_MISSING = "strandline: the command line needs the packages typer and rich. Install them with: pip install 'strandline[cli]'"
USAGE, REFUSED, DEFECT = 2, 3, 70


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code.

    0: done. 1: ``verify`` found something. 2: a usage error. 3: an error of Strandline, which has a name. 4: the user said no.
    70: a defect of the command line, with a traceback.

    >>> main(["why"])
    2
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        print(_MISSING, file=sys.stderr)
        return USAGE
    from strandline.cli.app import app

    try:
        app(given, prog_name="strandline")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE * (end.code is not None)
    except StrandlineError as error:
        if "--json" in given:
            body = {"condition": error.condition, "what": error.what, "remedy": error.remedy}
            print(json.dumps({"error": body}), file=sys.stderr)
        else:
            print(printable(str(error)), file=sys.stderr)
        return REFUSED
    except Exception:
        print(printable(traceback.format_exc()), file=sys.stderr)
        return DEFECT
    return 0


def run() -> None:
    """Run the command line as a program."""
    sys.exit(main())


if __name__ == "__main__":
    run()
