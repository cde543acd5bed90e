"""Session set-up: the settings that a Spark session needs so that frontiers reach its stateful operators."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from glob import glob
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_strandline import errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "SPARK_LINES",
    "configure",
    "connect_server_command",
    "delta_packages",
    "local_delta_jars",
    "shim_jar",
    "spark_line",
    "submit_options",
]

_LOG = logging.getLogger(__name__)

SPARK_LINES = ("4.2", "4.3")
"""The lines of Spark (major.minor) that there are shims for."""

_DELTA_LINES = ("4.2",)
"""The lines that there is a Delta for in Maven."""

_SCALA = "2.13"
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_CHECKPOINT_FILES = "strandline.spark.checkpoint.LocalCheckpointFileManager"
_REDACTED_OPTIONS = "spark.sql.redaction.options.regex"
# Spark 4.2.0 hangs when an Arrow-optimised Python UDF (the default) sits directly over a vectorised Parquet or Delta scan.
_COLUMNAR_UDF_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
_UNIX_SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
_UNIX_SOCKET_FOLDER_CHARS = 61  # Spark's limit


_SPARK_HAS = (
    *(f"com.fasterxml.jackson.core:jackson-{x}" for x in ("annotations", "core", "databind")),
    "com.github.luben:zstd-jni",
    "com.google.code.findbugs:jsr305",
    "commons-logging:commons-logging",
    "commons-pool:commons-pool",
    "io.airlift:aircompressor",
    *(f"org.apache.hadoop:hadoop-client-{x}" for x in ("api", "runtime")),
    *(f"org.apache.logging.log4j:log4j-{x}" for x in ("api", "core", "slf4j2-impl")),
    *(f"org.apache.parquet:parquet-{x}" for x in ("column", "common", "encoding", "format-structures", "hadoop", "jackson")),
    "org.locationtech.jts:jts-core",
    *(f"org.roaringbitmap:{x}" for x in ("RoaringBitmap", "shims")),
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
)
"""What Delta depends on and Spark has in its own folder of jars, whose classes it prefers: 75 of 89 MB, for nothing."""


def spark_line() -> str:
    """Return the line of the installed pyspark.

    Raises:
        StrandlineError: ``STRANDLINE_SPARK_VERSION_MISMATCH`` if there is no shim for it.

    >>> spark_line() in SPARK_LINES
    True
    """
    version = metadata.version("pyspark")
    line = ".".join(version.split(".")[:2])
    if line not in SPARK_LINES:
        raise errors.spark_version_mismatch(version, SPARK_LINES)
    return line


def shim_jar(line: str | None = None) -> str:
    """Return the path of the shim's jar inside this package, for ``--jars`` of ``spark-submit`` and ``pyspark``.

    Args:
        line: The line of Spark, such as ``"4.2"`` (default: that of the installed pyspark).

    Raises:
        StrandlineError: ``STRANDLINE_SHIM_MISSING`` if the package was installed without the jar.

    >>> shim_jar().endswith(".jar")
    True
    """
    line = spark_line() if line is None else line
    jars = sorted((Path(__file__).parent / "jars").glob(f"strandline-spark-{line}_{_SCALA}-*.jar"))
    if not jars:
        raise errors.shim_missing(line, Path(__file__).parent / "jars")
    return str(jars[-1])


def delta_packages() -> list[str]:
    """Return the Maven coordinates of the Delta that matches the installed ``delta-spark``. Empty if that is not installed.

    Raises:
        StrandlineError: ``STRANDLINE_DELTA_MISSING`` if there is no Delta for the installed Spark.

    >>> delta_packages()
    ['io.delta:delta-spark_4.2_2.13:4.4.0']
    """
    try:
        version = metadata.version("delta-spark")
    except metadata.PackageNotFoundError:
        return []
    if (line := spark_line()) not in _DELTA_LINES:
        raise errors.delta_missing(line)
    return [f"io.delta:delta-spark_{line}_{_SCALA}:{version}"]


def configure(
    builder: SparkSession.Builder,
    extra_packages: Iterable[str] = (),
    *,
    delta: bool | None = None,
    delta_jars: Sequence[str] | None = None,
) -> SparkSession.Builder:
    """Set up a session builder for strandline, like ``configure_spark_with_delta_pip``.

    Adds the shim's jar (its session extension loads by itself), and Delta's jars and SQL extension. Switches off the columnar UDF
    input of Spark 4.2.0, which hangs over Parquet scans. Writes checkpoints on a local path without a process for each file, and
    syncs them (docs/operations.md). Hides the values of options ``storage.*`` in plans. With a local master,
    Python workers use this interpreter, unless ``PYSPARK_PYTHON`` is set, and Unix domain sockets in a folder of this user: with
    TCP, each task that calls Python waits 40 ms. The builder's own settings are kept: jars, packages and extensions are extended,
    and other settings stay as they are.

    Call this before the JVM is started (in a script run by ``python``). With ``spark-submit`` and the ``pyspark`` shell, the JVM
    already runs: pass the jar as ``--jars "$(python -m pyspark_strandline jar)"``, or call this before the session is started.

    Args:
        builder: The session builder.
        extra_packages: Additional Maven coordinates to resolve.
        delta: ``False`` leaves Delta out. The source and the sink do not need it. Only SQL and DataFrames over the same tables
            do. By default it is there if there is one for the installed Spark: not yet for Spark 4.3.
        delta_jars: Local Delta jars, so that nothing is resolved over the network. The environment variable
            ``STRANDLINE_DELTA_JARS`` (joined by ``os.pathsep``) does the same. Nothing is resolved either where Spark's own
            folder of jars has Delta.

    Raises:
        StrandlineError: When a session without the extension is already running (a session's extensions are fixed at its start),
            when there is no shim for the installed pyspark, when there is no Delta for it that was asked for, and when a local
            Delta jar does not exist.

    >>> from pyspark.sql import SparkSession
    >>> builder = configure(SparkSession.builder.master("local[2]"), delta=False)
    >>> builder._options["spark.jars"] == shim_jar()
    True
    >>> builder._options.clear()  # SparkSession.builder's options are shared by the process
    """
    spark_line()  # raises
    options: dict[str, Any] = builder._options
    jars = [shim_jar()]
    packages = list(extra_packages)
    if delta is None:
        delta = _has_delta(delta_jars)
    if delta:
        local, fetched = _find_delta(options, delta_jars)
        jars += local
        packages += fetched
        if fetched:
            _append(options, builder, "spark.jars.excludes", _SPARK_HAS)
        _append(options, builder, "spark.sql.extensions", [_DELTA_EXTENSION])
        if "spark.sql.catalog.spark_catalog" not in options:
            builder = builder.config("spark.sql.catalog.spark_catalog", _DELTA_CATALOG)
    _append(options, builder, "spark.jars", jars)
    if packages:
        _append(options, builder, "spark.jars.packages", packages)
    if _COLUMNAR_UDF_INPUT not in options:
        builder = builder.config(_COLUMNAR_UDF_INPUT, "false")
    if _CHECKPOINT_FILES not in options:
        builder = builder.config(_CHECKPOINT_FILES, _LOCAL_CHECKPOINT_FILES)
    if _REDACTED_OPTIONS not in options:  # the first half is Spark's; its secret names lack those of some stores
        builder = builder.config(_REDACTED_OPTIONS, r"(?i)url|^storage\.")
    if str(options.get("spark.master", "local")).startswith("local"):
        # Otherwise Spark starts "python3", which may belong to another environment. Clusters have their own paths.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _reach_a_started_jvm(jars)
    if _UNIX_SOCKETS not in options and os.name == "posix" and is_local(options):
        if not os.path.isdir(_socket_folder()):  # somebody has cleaned up since an earlier session
            _socket_folder.cache_clear()
        folder = _socket_folder()
        if len(folder) <= _UNIX_SOCKET_FOLDER_CHARS:
            builder = builder.config(_UNIX_SOCKETS, "true")
            if _UNIX_SOCKET_FOLDER not in options:
                builder = builder.config(_UNIX_SOCKET_FOLDER, folder)
    return builder


def submit_options(*, delta: bool | None = None) -> list[str]:
    """Return what :func:`configure` sets as options of ``spark-submit``, ``spark-shell``, ``spark-sql`` and ``pyspark``.

    Args:
        delta: ``False`` leaves Delta out, as in :func:`configure`.

    Raises:
        StrandlineError: As :func:`configure`.

    >>> submit_options(delta=False)[:2] == ["--jars", shim_jar()]
    True
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    builder._options = {"spark.master": "unknown"}  # an instance's own: the class shares its options with all builders
    settings = {name: str(value) for name, value in configure(builder, delta=delta)._options.items() if name != "spark.master"}
    options = ["--jars", settings.pop("spark.jars")]
    if "spark.jars.packages" in settings:
        options += ["--packages", settings.pop("spark.jars.packages")]
    for name, value in settings.items():
        options += ["--conf", f"{name}={value}"]
    return options


def connect_server_command(host: str, port: int, arguments: Sequence[str] = (), *, delta: bool | None = None) -> list[str]:
    """Return the command that runs Spark's Connect server with what :func:`configure` sets, until it is stopped.

    Args:
        host: The address to listen at.
        port: The port to listen at.
        arguments: More options of ``spark-submit``. They come later, so Spark takes a setting from them.
        delta: ``False`` leaves Delta out, as in :func:`configure`.

    Raises:
        StrandlineError: As :func:`configure`.

    >>> connect_server_command("127.0.0.1", 15002, ["--master", "local[2]"], delta=False)[-5:]
    ['--master', 'local[2]', '--class', 'org.apache.spark.sql.connect.service.SparkConnectServer', 'spark-internal']
    """
    command = [str(_spark_home() / "bin" / "spark-submit"), *submit_options(delta=delta)]
    for name, value in {"address": host, "port": port}.items():
        command += ["--conf", f"spark.connect.grpc.binding.{name}={value}"]
    return [*command, *arguments, "--class", _CONNECT_SERVER, "spark-internal"]


def is_local(options: dict[str, Any]) -> bool:
    """Return whether it is known that the driver and its tasks will run in one process.

    >>> is_local({"spark.master": "local[2]"}), is_local({"spark.master": "yarn"})
    (True, False)
    """
    from pyspark import SparkContext

    master = options.get("spark.master")
    if master is None and SparkContext._gateway is not None:
        master = SparkContext._jvm.org.apache.spark.SparkConf().get("spark.master", "")  # type: ignore[union-attr]
    if master is None:  # then Spark will look in these places, and without them use local[*]
        defaults = Path(os.environ.get("SPARK_CONF_DIR") or _spark_home() / "conf", "spark-defaults.conf")
        told = [name for name in ("PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_REMOTE") if name in os.environ]
        return not told and "spark.remote" not in options and not defaults.exists()
    return str(master).split("[")[0] == "local"


@lru_cache(maxsize=1)
def _socket_folder() -> str:
    """Return a new folder that only this user can enter. Unix domain sockets have no other protection."""
    at, owner = tempfile.gettempdir(), os.getpid()
    folder = tempfile.mkdtemp(prefix="strandline-", dir=at if len(at) <= _UNIX_SOCKET_FOLDER_CHARS // 2 else "/tmp")  # noqa: S108

    def remove() -> None:
        if os.getpid() == owner:  # a fork of this process has the same work at its exit
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _spark_home() -> Path:
    """Return the folder of the Spark that a session will run."""
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _find_delta(options: Mapping[str, Any], given: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the jars and the Maven coordinates that give a session Delta. Neither, if Spark's own folder of jars has Delta.

    Args:
        options: The builder's options.
        given: The jars that the caller names, or ``None`` for those of ``STRANDLINE_DELTA_JARS``.

    Raises:
        StrandlineError: ``STRANDLINE_OPTION_INVALID`` if one of the jars does not exist. Spark would skip it with a warning.
    """
    jars = list(given) if given is not None else local_delta_jars()
    for jar in jars:
        if re.match(r"(?!file:)[\w+.-]+:", jar) is None and not glob(jar.removeprefix("file:")):  # Spark allows patterns
            raise errors.option_invalid_delta_jar(jar)
    if jars or any((_spark_home() / "jars").glob("delta-spark_*.jar")):
        return jars, []
    packages = delta_packages()
    if packages and not _is_cached(options, packages[0]):
        _LOG.warning(
            "Spark fetches Delta's jars from Maven Central now, once. Without a network this fails with [JAVA_GATEWAY_EXITED]: "
            "name the two jars in STRANDLINE_DELTA_JARS (docs/installing.md)."
        )
    return [], packages


def _has_delta(given: Sequence[str] | None) -> bool:
    """Return whether there may be a Delta for the installed Spark. Log if there is none."""
    line = spark_line()
    if line in _DELTA_LINES or given or local_delta_jars() or any((_spark_home() / "jars").glob("delta-spark_*.jar")):
        return True
    _LOG.warning(
        "There is no Delta for Spark %s yet, so this session is without it: SQL and DataFrames over late tables, and USING "
        "delta, fail. Channels do not need it.",
        line,
    )
    return False


def local_delta_jars() -> list[str]:
    """Return the jars that ``STRANDLINE_DELTA_JARS`` names, joined by ``os.pathsep``."""
    return [jar for jar in os.environ.get("STRANDLINE_DELTA_JARS", "").split(os.pathsep) if jar]


def _is_cached(options: Mapping[str, Any], coordinate: str) -> bool:
    """Return whether a session before this one has fetched the package into Spark's folder for that."""
    group, name, version = coordinate.split(":")
    folder = Path(str(options.get("spark.jars.ivy", "~/.ivy2.5.2"))).expanduser()
    return (folder / "jars" / f"{group}_{name}-{version}.jar").is_file()


def _append(options: dict[str, Any], builder: SparkSession.Builder, key: str, values: Sequence[str]) -> None:
    have = [value for value in str(options.get(key, "")).split(",") if value]
    builder.config(key, ",".join(have + [value for value in values if value not in have]))


def _reach_a_started_jvm(jars: Sequence[str]) -> None:
    """Add the jars to a JVM that already runs.

    This is the case under ``spark-submit`` and in the shell, where ``spark.jars`` would reach its class loader too late.
    """
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        jvm: Any = SparkContext._jvm
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        if loader.getResource("strandline/spark/StrandlineExtensions.class") is None:
            raise errors.session_running()
        return
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return  # the JVM will be launched with spark.jars on its class path
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if hasattr(loader, "addURL"):  # Spark's MutableURLClassLoader
        for jar in jars:
            loader.addURL(jvm.java.io.File(jar).toURI().toURL())
