"""Fetches one Maven artifact: ``fetch_jar.py GROUP:NAME:VERSION FILE``. It uses Maven, or sbt if there is no Maven."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def by_maven(coordinate: str, folder: Path) -> None:
    """Copy only the artifact, through our own repository, so that the user's repository does not change."""
    copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={folder}"]
    subprocess.run([*copy, f"-Dmaven.repo.local={ROOT / '.build' / 'm2'}"], check=True, cwd=folder)


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
