"""``python -m pyspark_strandline jar`` prints the shim's jar, for ``spark-submit --jars`` and ``pyspark --jars``."""

from __future__ import annotations

import argparse
import sys

from pyspark_strandline.session import shim_jar
from strandline.errors import StrandlineError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns the exit status: 0, or 1 with an error on standard error."""
    parser = argparse.ArgumentParser(prog="python -m pyspark_strandline", description="Strandline's connector for Spark.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("jar", help="print the path of the shim's jar")
    parser.parse_args(arguments)
    try:
        print(shim_jar())
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
