"""Compiles the shim with sbt and puts its jar into the connector's package, unless the jar was made from these sources.

There is a jar for each line of Spark. ``--spark 4.3.0`` makes the one of that version's line, from the jars inside the package
pyspark, which it fetches into ``.build``.

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
LAUNCHER_VERSION = "1.11.7"
SPARKS = ("4.2.0", "4.3.0")
"""The versions of Spark that jars are built for, one of each line. The first comes from Maven, and is that of development."""


def line_of(spark: str) -> str:
    """Return the line of a version of Spark: ``4.2`` of ``4.2.0``."""
    return ".".join(spark.split(".")[:2])


def stamp_file(spark: str) -> Path:
    """Return the file that says what the jar of a line was made from."""
    return JARS / f"stamp-{line_of(spark)}.txt"


def sources() -> list[Path]:
    """Return the files that the jar is made from."""
    found = [ROOT / "build.sbt", ROOT / "pyproject.toml"]
    patterns = ("project/*.sbt", "project/*.properties", "jvm-shim/src/main/**/*")  # of all lines: they change rarely
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


def jars_of(spark: str) -> list[Path]:
    """Return the jars of a version's line that there are."""
    return list(JARS.glob(f"strandline-spark-{line_of(spark)}_*.jar"))


def stamp(spark: str = SPARKS[0]) -> str | None:
    """Return the digests of a line's jar and its sources, kept beside it; ``None`` unless there is exactly this version's jar."""
    jars = jars_of(spark)
    if len(jars) != 1 or not jars[0].name.endswith(f"-{version()}.jar"):
        return None
    return f"jar {digest(jars)}\nsources {digest(sources())}\n"


def is_fresh(spark: str = SPARKS[0]) -> bool:
    """Whether the existing jar of a line was made from the current sources."""
    file = stamp_file(spark)
    return file.exists() and file.read_text() == stamp(spark)


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


def spark_of(spark: str) -> list[str]:
    """Return sbt's options for a version of Spark. Another than the first is fetched from where the packages of Python are."""
    if spark == SPARKS[0]:
        return [f"-Dspark.version={spark}"]
    folder = ROOT / ".build" / f"spark-{spark}"
    if not (folder / ".fetched").exists():
        print(f"pyspark {spark}: half a gigabyte into {folder.relative_to(ROOT)}", flush=True)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"]
        subprocess.run([*install, "--upgrade", "--target", str(folder), f"pyspark=={spark}"], check=True)
        (folder / ".fetched").touch()
    return [f"-Dspark.jars={folder / 'pyspark' / 'jars'}"]


def main() -> int:
    """Build when needed. Returns sbt's exit status. With commands, run those sbt commands instead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", choices=SPARKS, default=SPARKS[0], help="the version of Spark to build for (%(default)s)")
    parser.add_argument("command", nargs="*", help="sbt commands to run (default: package, when the jar is stale)")
    given = parser.parse_args()
    if not given.command:
        if is_fresh(given.spark):
            return 0
        given.command = ["package"]
    made_from = digest(sources())
    code = subprocess.run([*sbt(), *spark_of(given.spark), *given.command], cwd=ROOT, check=False).returncode
    if code == 0 and "package" in given.command and made_from == digest(sources()) and (text := stamp(given.spark)) is not None:
        stamp_file(given.spark).write_text(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
