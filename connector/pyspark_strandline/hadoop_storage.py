"""Hadoop's settings of a store as options ``storage.*``, so that one set of settings serves both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from pyspark_strandline import errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["storage_options"]

_S3 = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
}
_SECRET = {"access.key", "secret.key", "session.token"}
_DEFAULT_ENDPOINT = "s3.amazonaws.com"  # deltalake then derives the endpoint from the region


def storage_options(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the options for the source, the sink or an ingest of ``path`` that say what the session's Hadoop settings say.

    Python reads and writes a channel with options named ``storage.*``. Spark itself reaches a store by settings such as
    ``spark.hadoop.fs.s3a.access.key``. This makes the first from the second, for ``s3a://`` and ``s3://`` (by ``fs.s3a.*``, with
    the settings of a bucket, and from credential files) and for ``abfss://`` and ``abfs://`` (the account's key). A role, or
    variables in the environment, need no options: the result then has none for them.

    Args:
        spark: A session with a JVM in this process.
        path: The channel's address.

    Raises:
        StrandlineError: ``STRANDLINE_HADOOP_SETTINGS_UNREACHABLE`` with Spark Connect, and for other schemes.
    """
    place = urlparse(path)
    session: Any = spark
    if place.scheme not in ("s3", "s3a", "abfs", "abfss") or not hasattr(session, "_jsparkSession"):
        raise errors.hadoop_settings_unreachable(place.scheme)
    conf = session._jsparkSession.sessionState().newHadoopConf()

    def setting(name: str, secret: bool) -> str | None:
        value = conf.getPassword(name) if secret else conf.get(name)
        if value is None or isinstance(value, str):
            return value
        return str(session._jvm.java.lang.String.valueOf(value))

    found = _of_s3(place.netloc, setting) if place.scheme.startswith("s3") else _of_azure(place.netloc, setting)
    return {f"storage.{name}": value.strip() for name, value in found.items() if value.strip()}


def _of_s3(bucket: str, setting: Callable[[str, bool], str | None]) -> dict[str, str]:
    def value(name: str) -> str:
        own = setting(f"fs.s3a.bucket.{bucket}.{name}", name in _SECRET)
        return own or setting(f"fs.s3a.{name}", name in _SECRET) or ""

    found = {option: value(name) for name, option in _S3.items()}
    endpoint = found["AWS_ENDPOINT_URL"].strip()
    if endpoint and "://" not in endpoint:
        tls = value("connection.ssl.enabled").strip().lower() != "false"
        endpoint = "" if endpoint == _DEFAULT_ENDPOINT else f"{'https' if tls else 'http'}://{endpoint}"
    found["AWS_ENDPOINT_URL"] = endpoint
    if endpoint.lower().startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    # With an endpoint, object_store puts the bucket into the path, whatever path.style.access says. Its option for a bucket in
    # the host does not put it there: it takes the endpoint as the bucket's own.
    return found


def _of_azure(authority: str, setting: Callable[[str, bool], str | None]) -> dict[str, str]:
    host = authority.rpartition("@")[2]
    account = host.partition(".")[0]
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": account,
        "AZURE_STORAGE_ACCOUNT_KEY": setting(f"fs.azure.account.key.{host}", True) or setting("fs.azure.account.key", True) or "",
    }
