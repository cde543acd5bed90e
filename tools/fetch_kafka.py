"""Fetches the Kafka of tests and benchmarks into a folder: ``fetch_kafka.py FOLDER`` makes ``broker/`` and ``spark/`` there.

``broker/`` contains Apache Kafka with all its dependencies. ``spark/`` contains the jars of Spark's Kafka source that Spark
itself does not include.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fetch_jar import maven

BROKER = ("org.apache.kafka:kafka_2.13:4.1.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3")
SPARK = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    # Later versions are not available everywhere. This one logs delegation tokens differently; these brokers have none.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
    "org.scala-lang.modules:scala-parallel-collections_2.13:1.2.0",
)

_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def by_maven(coordinates: tuple[str, ...], folder: Path, transitive: bool) -> None:
    """Copy the artifacts, alone or with their runtime dependencies, through a temporary Maven project."""
    dependencies = ""
    for group, name, version in (coordinate.split(":") for coordinate in coordinates):
        named = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        dependencies += f"<dependency>{named}{'' if transitive else _ALONE}</dependency>\n"
    (folder / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>strandline</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )
    maven("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'jars'}", cwd=folder)


def by_sbt(coordinates: tuple[str, ...], folder: Path, transitive: bool) -> None:
    """Do the same with a temporary sbt build."""
    modules = []
    for group, name, version in (coordinate.split(":") for coordinate in coordinates):
        module = f'"{group}" % "{name}" % "{version}"'
        modules.append(module if transitive else f"({module}).intransitive()")
    (folder / "build.sbt").write_text(
        f"libraryDependencies := Seq({', '.join(modules)})\nautoScalaLibrary := false\n"
        'val copyJars = taskKey[Unit]("copies the jars")\n'
        "copyJars := (Runtime / externalDependencyClasspath).value.map(_.data)\n"
        '  .foreach(jar => IO.copyFile(jar, baseDirectory.value / "jars" / jar.getName))\n'
    )
    (folder / "project").mkdir()
    (folder / "project" / "build.properties").write_text("sbt.version=1.11.7\n")
    subprocess.run(["sbt", "-batch", "copyJars"], check=True, cwd=folder)


def fetch(coordinates: tuple[str, ...], target: Path, *, transitive: bool) -> None:
    """Fill ``target`` with the jars. It is replaced as a whole, so that no older version stays in it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (by_maven if shutil.which("mvn") else by_sbt)(coordinates, folder, transitive)
        found = {jar.name: jar for jar in (folder / "jars").glob("*.jar")}
        missing = [c for c in coordinates if not any(name.startswith(c.split(":")[1]) for name in found)]
        if missing:
            raise SystemExit(f"error: {missing[0]} was resolved, but its jar is not among {sorted(found)}")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for jar in found.values():
            shutil.move(jar, target)


if __name__ == "__main__":
    fetch(BROKER, Path(sys.argv[1]) / "broker", transitive=True)
    fetch(SPARK, Path(sys.argv[1]) / "spark", transitive=False)
