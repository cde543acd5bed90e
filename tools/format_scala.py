"""Formats the Scala sources by ``.scalafmt.conf``: ``format_scala.py [--check]``.

``--check`` changes nothing, and fails when a file is not formatted. scalafmt is fetched into ``.build/scalafmt``, once for each
version.
"""

from __future__ import annotations

import re
import subprocess
import sys

from fetch_jar import ROOT
from fetch_kafka import fetch

CONFIG = ROOT / ".scalafmt.conf"


def main() -> int:
    """Run scalafmt of the version that the configuration names. Return its exit code."""
    found = re.search(r"^version = (\S+)$", CONFIG.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"error: {CONFIG.name} names no version")
    jars = ROOT / ".build" / "scalafmt" / found[1]
    if not jars.exists():
        jars.parent.mkdir(parents=True, exist_ok=True)
        fetch((f"org.scalameta:scalafmt-cli_2.13:{found[1]}",), jars, transitive=True)
    mode = ["--test"] if sys.argv[1:] == ["--check"] else []
    scalafmt = ["java", "-cp", f"{jars}/*", "org.scalafmt.cli.Cli", "--non-interactive", "--config", str(CONFIG)]
    return subprocess.run([*scalafmt, *mode, "jvm-shim"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
