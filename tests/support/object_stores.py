"""Object stores on this machine for tests: an S3 server from PyPI, and Azure's emulator from npm."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid
from contextlib import suppress
from pathlib import Path

from helpers import ROOT
from ports import free_ports
from s3_server import READER, WRITER

__all__ = ["S3", "SECRET", "Azurite", "hadoop_jars", "why_no_azurite", "why_no_hadoop_jars"]

SECRET = "SEKRIT/of+the=tests"  # noqa: S105
"""The secret key of every key of the S3 server."""
_START_SECONDS = 60.0


class _Server:
    """A server process that ends with this one."""

    def __init__(self, *command: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        # A process of its own: delta-rs holds Python's lock while it waits for an answer.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command} does not answer (its exit code is {self._process.poll()})")
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class S3:
    """An S3 server with empty buckets (``s3_server.py`` says what it answers)."""

    def __init__(self) -> None:
        (port,) = free_ports(1)
        self._server = _Server(sys.executable, str(Path(__file__).parent / "s3_server.py"), str(port), port=port)
        self.url = self._server.url

    def __enter__(self) -> S3:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def bucket(self, prefix: str = "channels") -> str:
        """Make a bucket. One whose prefix is ``careless`` ignores If-None-Match."""
        import boto3

        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        keys = {"aws_access_key_id": WRITER, "aws_secret_access_key": SECRET}
        boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", **keys).create_bucket(Bucket=name)
        return name

    def options(self, key: str = WRITER, secret: str = SECRET) -> dict[str, str]:
        """The storage options with which delta-rs reaches the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
        }

    def reader_options(self) -> dict[str, str]:
        """The options of somebody who may only read."""
        return self.options(READER)

    def hadoop(self) -> dict[str, str]:
        """The settings with which hadoop-aws reaches the server."""
        return {
            "fs.s3a.endpoint": self.url,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": WRITER,
            "fs.s3a.secret.key": SECRET,
        }

    def requests(self) -> list[str]:
        """The requests since the last time."""
        with urllib.request.urlopen(f"{self.url}/_requests") as answer:  # noqa: S310
            return list(json.load(answer))


_AZURITE = ROOT / ".build" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def why_no_azurite() -> str | None:
    """Why Azure's emulator cannot be started."""
    if shutil.which("node") is None:
        return "there is no node, which Azure's emulator needs"
    return None if _AZURITE.exists() else "Azure's emulator was not fetched: python tools/fetch_azurite.py .build/azurite"


class Azurite:
    """Azure's emulator of its blob storage."""

    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # the emulator's own, public

    def __init__(self) -> None:
        (port,) = free_ports(1)
        how = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        self._server = _Server("node", str(_AZURITE), *how, "--blobPort", str(port), port=port)
        self.url = f"{self._server.url}/{self.account}"

    def __enter__(self) -> Azurite:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def container(self) -> str:
        """Make a container."""
        name = f"channels-{uuid.uuid4().hex[:12]}"
        now = email.utils.formatdate(usegmt=True)
        signed = f"x-ms-date:{now}\nx-ms-version:2021-08-06\n/{self.account}/{self.account}/{name}\nrestype:container"
        request = urllib.request.Request(  # noqa: S310
            f"{self.url}/{name}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": now,
                "x-ms-version": "2021-08-06",
                "Authorization": f"SharedKey {self.account}:{self._signature('PUT' + chr(10) * 12 + signed)}",
            },
        )
        urllib.request.urlopen(request).close()  # noqa: S310
        return name

    def _signature(self, text: str) -> str:
        return base64.b64encode(hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()).decode()

    def options(self) -> dict[str, str]:
        """The storage options with which delta-rs reaches the emulator by the account's key."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.account,
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_ENDPOINT": self.url,
            "AZURE_ALLOW_HTTP": "true",
        }

    def sas_options(self, container: str) -> dict[str, str]:
        """The same by a shared access signature for the container, with all rights, for an hour."""
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        rights, version = "racwdl", "2020-12-06"
        fields = [rights, "", end, f"/blob/{self.account}/{container}", "", "", "", version, "c", "", "", "", "", "", "", ""]
        signature = self._signature("\n".join(fields))
        sas = urllib.parse.urlencode({"sp": rights, "se": end, "sv": version, "sr": "c", "sig": signature})
        options = {name: value for name, value in self.options().items() if "KEY" not in name}
        return {**options, "AZURE_STORAGE_SAS_KEY": sas}


def hadoop_jars() -> list[Path]:
    """The jars of hadoop-aws that ``tools/fetch_hadoop_aws.py`` fetched."""
    folder = Path(os.environ.get("STRANDLINE_HADOOP_AWS", ROOT / ".build" / "hadoop-aws"))
    return sorted(folder.glob("*/*.jar"))


def why_no_hadoop_jars() -> str | None:
    """Why Spark cannot use S3."""
    return None if hadoop_jars() else "hadoop-aws was not fetched: python tools/fetch_hadoop_aws.py .build/hadoop-aws"
