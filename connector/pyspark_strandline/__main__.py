"""``python -m pyspark_strandline``: the shim's ``jar``, the ``options`` for Spark's programs, and a ``connect-server``."""

from __future__ import annotations

import argparse
import os
import sys

from pyspark_strandline import errors
from pyspark_strandline.session import SPARK_LINES, connect_server_command, is_local, shim_jar, submit_options
from strandline.errors import StrandlineError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns the exit status: 0, or 1 with an error on standard error."""
    parser = argparse.ArgumentParser(prog="python -m pyspark_strandline", description="Strandline's connector for Spark.")
    commands = parser.add_subparsers(dest="command", required=True)
    jar = commands.add_parser("jar", help="print the path of the shim's jar")
    jar.add_argument("--spark", metavar="LINE", choices=SPARK_LINES, help="the line of Spark (default: the installed pyspark's)")
    options = commands.add_parser("options", help="print the options for spark-submit, spark-shell, spark-sql and pyspark")
    serve = commands.add_parser(
        "connect-server", help="run Spark's Connect server until it is stopped", epilog="All other options are spark-submit's."
    )
    serve.add_argument(
        "--host", default="127.0.0.1", help="the address to listen at; whoever reaches it can run code (%(default)s)"
    )
    serve.add_argument("--port", type=int, default=15002, help="the port to listen at (%(default)s)")
    serve.add_argument("--master", help="Spark's master, as for spark-submit")
    for each in (options, serve):
        each.add_argument("--no-delta", action="store_true", help="leave Delta out, which late tables and USING delta need")
    given, others = parser.parse_known_args(arguments)
    if others and given.command != "connect-server":
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    try:
        if given.command == "connect-server":
            _serve(given, others)
        print(shim_jar(given.spark) if given.command == "jar" else _in_one_line(submit_options(delta=_delta(given))))
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _delta(given: argparse.Namespace) -> bool | None:
    return False if given.no_delta else None


def _serve(given: argparse.Namespace, others: list[str]) -> None:
    """Become the server, so that a signal to this process reaches it."""
    master = {"spark.master": given.master} if given.master else {}
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python: Spark would take any "python3"
    arguments = ["--master", given.master, *others] if given.master else others
    command = connect_server_command(given.host, given.port, arguments, delta=_delta(given))
    os.execv(command[0], command)  # noqa: S606


def _in_one_line(options: list[str]) -> str:
    """Return the options as ``$(…)`` of a shell takes them apart again: at blanks, whatever is quoted."""
    if blank := [option for option in options if any(letter.isspace() for letter in option)]:
        raise errors.option_invalid_blank(blank[0])
    return " ".join(options)


if __name__ == "__main__":
    sys.exit(main())
