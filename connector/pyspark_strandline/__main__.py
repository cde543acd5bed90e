"""``python -m pyspark_strandline jar`` prints the shim's jar, ``… options`` all options for Spark's programs."""

from __future__ import annotations

import argparse
import sys

from pyspark_strandline import errors
from pyspark_strandline.session import shim_jar, submit_options
from strandline.errors import StrandlineError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns the exit status: 0, or 1 with an error on standard error."""
    parser = argparse.ArgumentParser(prog="python -m pyspark_strandline", description="Strandline's connector for Spark.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("jar", help="print the path of the shim's jar")
    options = commands.add_parser("options", help="print the options for spark-submit, spark-shell, spark-sql and pyspark")
    options.add_argument("--no-delta", action="store_true", help="leave Delta out, which late tables and USING delta need")
    given = parser.parse_args(arguments)
    try:
        print(shim_jar() if given.command == "jar" else _in_one_line(submit_options(delta=not given.no_delta)))
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _in_one_line(options: list[str]) -> str:
    """Return the options as ``$(…)`` of a shell takes them apart again: at blanks, whatever is quoted."""
    if blank := [option for option in options if any(letter.isspace() for letter in option)]:
        raise errors.option_invalid_blank(blank[0])
    return " ".join(options)


if __name__ == "__main__":
    sys.exit(main())
