"""Fetches one Maven artifact: ``fetch_jar.py GROUP:NAME:VERSION FILE``, with Maven, or with sbt where there is no Maven."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def by_maven(coordinate: str, folder: Path) -> None:
    """Copy the artifact alone, through a repository of our own: the user's one is left as it was."""
    copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={folder}"]
    subprocess.run([*copy, f"-Dmaven.repo.local={ROOT / '.build' / 'm2'}"], check=True, cwd=folder)


def by_sbt(coordinate: str, folder: Path) -> None:
    """The same with a throw-away sbt build."""
    group, name, version = coordinate.split(":")
    (folder / "build.sbt").write_text(
        f'libraryDependencies := Seq(("{group}" % "{name}" % "{version}").intransitive())\n'
        "autoScalaLibrary := false\nretrieveManaged := true\n"
    )
    (folder / "project").mkdir()
    (folder / "project" / "build.properties").write_text("sbt.version=1.11.7\n")
    subprocess.run(["sbt", "-batch", "update"], check=True, cwd=folder)


def main() -> int:
    """Fetch the artifact named on the command line; an existing file is left alone."""
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
