"""Fetches what Spark needs for S3 into a folder, for tests only: ``fetch_hadoop_aws.py FOLDER``.

``hadoop-aws`` is of the Hadoop in Spark. It needs its accelerator's classes even where that is off. The modules of the AWS SDK
that it uses take 16 MB; the SDK's bundle has hundreds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fetch_kafka import fetch

HADOOP = ("org.apache.hadoop:hadoop-aws:3.5.0", "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1")
_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
SDK = tuple(f"software.amazon.awssdk:{name}:2.57.8" for name in _MODULES)
IN_SPARK = ("commons-codec-", "commons-logging-", "httpclient-4", "httpcore-4", "slf4j-api-")

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    fetch(HADOOP, folder / "hadoop", transitive=False)
    fetch(SDK, folder / "sdk", transitive=True)
    for jar in (folder / "sdk").iterdir():
        if jar.name.startswith(IN_SPARK):
            jar.unlink()
