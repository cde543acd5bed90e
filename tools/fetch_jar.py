"""Fetches one Maven artifact: ``fetch_jar.py GROUP:NAME:VERSION FILE``. It uses Maven, or sbt if there is no Maven."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def maven(*arguments: str, cwd: Path) -> None:
    """Run Maven with a local repository of our own: a POM without its jar in the user's breaks Spark's package resolution.

    Set-up runs several programs at once, and Maven does not lock its local repository. So one Maven runs after another.
    """
    repository = ROOT / ".build" / "m2"
    repository.mkdir(parents=True, exist_ok=True)
    with (repository / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["mvn", "-q", "-B", *arguments, f"-Dmaven.repo.local={repository}"], check=True, cwd=cwd)


def by_maven(coordinate: str, folder: Path) -> None:
    """Copy only the artifact, not what it depends on."""
    maven("dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={folder}", cwd=folder)


def by_sbt(coordinate: str, folder: Path) -> None:
    """Do the same with a temporary sbt build."""
    group, name, version = coordinate.split(":")
    (folder / "build.sbt").write_text(
        f'libraryDependencies := Seq(("{group}" % "{name}" % "{version}").intransitive())\n'
        "autoScalaLibrary := false\nretrieveManaged := true\n"
    )
    (folder / "project").mkdir()
    (folder / "project" / "build.properties").write_text("sbt.version=1.11.7\n")
    subprocess.run(["sbt", "-batch", "update"], check=True, cwd=folder)


def main() -> int:
    """Fetch the artifact named on the command line. An existing file is not replaced."""
    coordinate, target = sys.argv[1], Path(sys.argv[2])
    if target.exists():
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (by_maven if shutil.which("mvn") else by_sbt)(coordinate, folder)
        found = [jar for jar in folder.rglob(target.name) if jar.is_file()]
        if not found:
            print(f"error: {coordinate} was resolved, but {target.name} is not among its files", file=sys.stderr)
            return 1
        shutil.move(found[0], target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
