"""Compiles the shim with sbt and puts its jar into the connector's package, unless the jar was made from these sources.

Uses the ``sbt`` on the path, or fetches sbt's launcher (a Maven artifact) into ``.build/sbt`` with Maven.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fetch_jar
from fetch_jar import ROOT

JARS = ROOT / "connector" / "pyspark_strandline" / "jars"
STAMP = JARS / "stamp.txt"
LAUNCHER_VERSION = "1.11.7"


def sources() -> list[Path]:
    """Return the files that the jar is made from."""
    found = [ROOT / "build.sbt", ROOT / "pyproject.toml"]
    patterns = ("project/*.sbt", "project/*.properties", "jvm-shim/src/main/**/*")
    found += [path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]
    return found


def version() -> str:
    """Return the distribution's version, which is in the jar's name."""
    match = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    if match is None:
        raise SystemExit("pyproject.toml has no version")
    return match.group(1)


def digest(paths: list[Path]) -> str:
    """Return the SHA-256 of files, with their names."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()


def stamp() -> str | None:
    """Return the digests of the jar and its sources, kept beside the jar; ``None`` unless there is exactly this version's jar."""
    jars = list(JARS.glob("*.jar"))
    if len(jars) != 1 or not jars[0].name.endswith(f"-{version()}.jar"):
        return None
    return f"jar {digest(jars)}\nsources {digest(sources())}\n"


def is_fresh() -> bool:
    """Whether the existing jar was made from the current sources."""
    return STAMP.exists() and STAMP.read_text() == stamp()


def check() -> None:
    """Exit with a message if the jar is of other sources, because tests and measurements would then be of other code."""
    if not is_fresh():
        raise SystemExit(
            "error: the shim's jar was not made from these sources: run `python tools/build_shim.py`, or `make setup`"
        )


# The compiler does not live long enough for the JVM's second compiler to pay: with these options it takes half the CPU time.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m", "-XX:+UseSerialGC")


def sbt() -> list[str]:
    """Return the command that starts sbt."""
    if found := shutil.which("sbt"):
        return [found, "-batch", *(f"-J{option}" for option in QUICK)]
    launcher = ROOT / ".build" / "sbt" / f"sbt-launch-{LAUNCHER_VERSION}.jar"
    if not launcher.exists():
        if not shutil.which("mvn"):
            raise SystemExit("error: neither sbt nor Maven (mvn) is on the path; install one of them to build the shim")
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fetch_jar.by_maven(f"org.scala-sbt:sbt-launch:{LAUNCHER_VERSION}", launcher.parent)
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if os.environ.get("JAVA_HOME") else "java"
    return [java, "-Xmx2g", *QUICK, "-Dsbt.server.autostart=false", "-jar", str(launcher)]


def main() -> int:
    """Build when needed. Returns sbt's exit status. With arguments, run those sbt commands instead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="*", help="sbt commands to run (default: package, when the jar is stale)")
    commands = parser.parse_args().command
    if not commands:
        if is_fresh():
            return 0
        commands = ["package"]
    made_from = digest(sources())
    code = subprocess.run([*sbt(), *commands], cwd=ROOT, check=False).returncode
    if code == 0 and "package" in commands and made_from == digest(sources()) and (text := stamp()) is not None:
        STAMP.write_text(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
