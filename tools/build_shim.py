"""Compiles the shim with sbt and puts its jar into the connector's package; does nothing when the jar is newer than its sources.

Uses the ``sbt`` on the path, or fetches sbt's launcher (a Maven artifact) into ``.build/sbt`` with Maven.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JARS = ROOT / "connector" / "pyspark_strandline" / "jars"
LAUNCHER_VERSION = "1.11.7"


def sources() -> list[Path]:
    """What the jar is made from."""
    found = [ROOT / "build.sbt", ROOT / "pyproject.toml"]
    patterns = ("project/*.sbt", "project/*.properties", "jvm-shim/src/main/**/*")
    found += [path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]
    return found


def version() -> str:
    """The distribution's version, which names the jar."""
    match = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    if match is None:
        raise SystemExit("pyproject.toml has no version")
    return match.group(1)


def is_fresh() -> bool:
    """Whether exactly this version's jar is there and no source is newer."""
    jars = list(JARS.glob("*.jar"))
    if len(jars) != 1 or not jars[0].name.endswith(f"-{version()}.jar"):
        return False
    made = jars[0].stat().st_mtime
    return all(path.stat().st_mtime <= made for path in sources())


def sbt() -> list[str]:
    """The command that starts sbt."""
    if found := shutil.which("sbt"):
        return [found, "-batch"]
    launcher = ROOT / ".build" / "sbt" / f"sbt-launch-{LAUNCHER_VERSION}.jar"
    if not launcher.exists():
        if not shutil.which("mvn"):
            raise SystemExit("error: neither sbt nor Maven (mvn) is on the path; install one of them to build the shim")
        artifact = f"org.scala-sbt:sbt-launch:{LAUNCHER_VERSION}"
        copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={launcher.parent}"]
        # A repository of our own: a POM without its jar in the user's one breaks Spark's package resolution.
        subprocess.run([*copy, f"-Dmaven.repo.local={ROOT / '.build' / 'm2'}"], check=True, cwd=ROOT)
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if os.environ.get("JAVA_HOME") else "java"
    return [java, "-Xmx2g", "-Dsbt.server.autostart=false", "-jar", str(launcher)]


def main() -> int:
    """Build when needed; returns sbt's exit status. With arguments, run those sbt commands instead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="*", help="sbt commands to run (default: package, when the jar is stale)")
    commands = parser.parse_args().command
    if not commands:
        if is_fresh():
            return 0
        commands = ["package"]
    return subprocess.run([*sbt(), *commands], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
