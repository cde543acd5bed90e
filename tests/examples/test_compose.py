"""The example in containers: its file is one of Compose, its parts fit each other, and its programs run without containers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import ROOT
from object_stores import S3, SECRET, hadoop_jars, why_no_hadoop_jars
from s3_server import WRITER
from strandline.channel import Channel
from strandline.ingest import status

FOLDER = ROOT / "examples" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


@pytest.mark.drawn
def test_it_is_a_compose_file(tmp_path: Path) -> None:
    check = [str(Path(sys.executable).parent / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    subprocess.run([*check, str(FOLDER / "compose.yml")], check=True, capture_output=True)
    wrong = tmp_path / "compose.yml"
    wrong.write_text((FOLDER / "compose.yml").read_text().replace("healthcheck:", "healthchek:"))
    assert subprocess.run([*check, str(wrong)], check=False, capture_output=True).returncode == 1


@pytest.mark.skipif(
    shutil.which("docker") is None or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode != 0,
    reason="no Docker with Compose",
)
def test_docker_reads_it() -> None:
    subprocess.run(["docker", "compose", "-f", str(FOLDER / "compose.yml"), "config", "--quiet"], check=True)


def test_images_have_fixed_tags() -> None:
    for service in SERVICES.values():
        if "build" not in service:
            _, _, tag = service["image"].rpartition(":")
            assert re.search(r"\d", tag), service["image"]
    base = re.search(r"^FROM (\S+)", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert base is not None
    assert re.search(r":.*\d", base.group(1))


def test_its_parts_fit_each_other() -> None:
    for service in SERVICES.values():
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[other]
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
        if "build" in service:
            assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).exists()
            program = FOLDER / Path(service["command"][1]).name
            read = set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', program.read_text()))
            keys = {name for name in service["environment"] if name.startswith("AWS_")}  # devices.py leaves them to pyarrow
            assert set(service["environment"]) - keys <= read
            assert "S3_ENDPOINT" in service["environment"]
            assert len(keys) == 2
    store = SERVICES["store"]["environment"]
    for name in ("devices", "pipeline"):
        given = SERVICES[name]["environment"]
        assert (given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"]) == (
            store["MINIO_ROOT_USER"],
            store["MINIO_ROOT_PASSWORD"],
        )
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    assert job["job_name"] == "strandline"  # the alert rules name it
    assert job["static_configs"] == [{"targets": ["pipeline:9464"]}]
    assert SERVICES["pipeline"]["ports"] == ["127.0.0.1:9464:9464"]


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.skipif(why_no_hadoop_jars() is not None, reason=why_no_hadoop_jars() or "")
def test_the_programs_run_with_a_broker_and_a_store(tmp_path: Path) -> None:
    from broker import Broker, spark_jars
    from ports import free_ports

    delta = os.environ["STRANDLINE_DELTA_JARS"].split(os.pathsep)
    with Broker(tmp_path / "kafka") as broker, S3() as store:
        bucket = store.bucket("lake")
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK"))},
            "KAFKA": broker.bootstrap,
            "S3_ENDPOINT": store.url,
            "BUCKET": bucket,
            "LAKE": f"s3a://{bucket}",
            "AWS_ACCESS_KEY_ID": WRITER,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "STARTED": str(tmp_path / "started"),
            "HOW_LONG": "400",
            "METRICS_PORT": str(free_ports(1)[0]),
            "JARS": ",".join([spark_jars(), *map(str, hadoop_jars()), *delta]),
        }
        for program in (["devices.py"], ["pipeline.py", "--once"], ["pipeline.py", "--once"]):
            done = subprocess.run(
                [sys.executable, str(FOLDER / program[0]), *program[1:]],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=500,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
        assert (tmp_path / "started").exists()
        readings = Channel.open(f"s3://{bucket}/readings", store.options()).read().to_pylist()
        assert {row["device"] for row in readings} == {"a", "b", "c"}
        assert len(readings) > 1000
        shown = status(f"s3://{bucket}/readings", store.options())
        assert [p.name for p in shown.partitions] == ["a", "b", "c"]
        minutes = Channel.open(f"s3://{bucket}/minutes", store.options()).read().to_pylist()
        closed = shown.frontier.to_json()[0]
        wanted: dict[tuple[int, str], int] = {}
        for row in readings:
            time = int(row["time"].timestamp())
            if (time // 60 + 1) * 60_000_000 <= closed:
                wanted[time // 60 * 60, row["device"]] = wanted.get((time // 60 * 60, row["device"]), 0) + row["n"]
        assert {(int(row["time"].timestamp()), row["device"]): row["n"] for row in minutes} == wanted
        assert wanted
