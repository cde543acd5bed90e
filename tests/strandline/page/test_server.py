"""The server: which requests it answers, with which headers, and that nothing can be changed or chosen from outside."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cli_schemas import check
from page_channels import make, send
from strandline.cli.__main__ import main
from strandline.errors import PageError
from strandline.page import Looker
from strandline.page.server import POLICY, application, listen


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = make(tmp_path_factory.mktemp("lake") / "flights", producers=["EWR", "JFK"])
    send(made, "EWR", [1, 2], [7])
    return made


@pytest.fixture
def client(channel: Any) -> TestClient:
    return TestClient(application(Looker([channel.path], interval=0.0), hosts=["127.0.0.1"]), base_url="http://127.0.0.1:8765")


def test_the_page_its_part_and_its_json(client: TestClient) -> None:
    whole, part, model = client.get("/"), client.get("/main"), client.get("/page.json")
    assert whole.text.startswith("<!doctype html>")
    assert "JFK" in whole.text
    assert part.text.lstrip().startswith("<main")
    assert model.json()["channels"][0]["culprits"][0]["name"] == "JFK"
    assert [client.get(each).headers["content-type"].split(";")[0] for each in ("/page.css", "/page.js", "/icon.svg")] == [
        *("text/css", "text/javascript", "image/svg+xml")
    ]
    assert client.head("/").status_code == 200


@pytest.mark.parametrize("path", ["/", "/main", "/page.json", "/page.js", "/nothing"])
def test_every_answer_has_the_headers(path: str, client: TestClient) -> None:
    for answer in (client.get(path), client.post(path), client.get(path, headers={"host": "evil.example"})):
        assert answer.headers["content-security-policy"] == POLICY
        assert "unsafe" not in POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers
        assert "set-cookie" not in answer.headers


HOSTS = [
    ("127.0.0.1", True),
    ("127.0.0.1:8765", True),
    ("localhost:1", True),
    ("LOCALHOST", True),
    ("127.9.9.9:8765", True),
    ("[::1]:8765", True),
    ("[::1]", True),
    ("evil.example", False),
    ("127.0.0.1.evil.example", False),
    ("localhost.evil.example:8765", False),
    ("10.0.0.7", False),
    ("0.0.0.0", False),  # noqa: S104
    ("[::1]evil", False),
    ("localhost:x", False),
    ("localhost@evil.example", False),
    ("", False),
]


@pytest.mark.parametrize(("host", "accepted"), HOSTS)
def test_another_host_is_refused(host: str, accepted: bool, client: TestClient) -> None:
    answer = client.get("/page.json", headers={"host": host})
    assert (answer.status_code == 200, answer.status_code == 421) == (accepted, not accepted)
    assert accepted or "JFK" not in answer.text


def test_a_page_for_other_machines_accepts_addresses_and_the_names_it_was_told(channel: Any) -> None:
    app = application(Looker([channel.path], interval=0.0), hosts=["0.0.0.0", "ops.example"], remote=True)  # noqa: S104
    asked = TestClient(app)
    found = {
        host: asked.get("/main", headers={"host": host}).status_code for host in ("10.0.0.7:8765", "OPS.example", "evil.example")
    }
    assert found == {"10.0.0.7:8765": 200, "OPS.example": 200, "evil.example": 421}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(method: str, client: TestClient, channel: Any) -> None:
    version = channel.version
    assert client.request(method, "/").status_code == 405
    channel.refresh()
    assert channel.version == version


@pytest.mark.parametrize(
    "path", ["/?path=/etc", "/main?path=/etc", "/etc/passwd", "/..%2f..%2fetc/passwd", "/page.css/../x", "/templates/page.html"]
)
def test_a_request_cannot_choose_what_is_opened(path: str, client: TestClient) -> None:
    answer = client.get(path)
    assert "root:" not in answer.text
    assert answer.status_code == 404 or "JFK" in answer.text


def test_secrets_of_the_storage_are_nowhere(channel: Any) -> None:
    storage = {"AWS_SECRET_ACCESS_KEY": "hunter2hunter2", "AWS_REGION": "eu"}
    client = TestClient(application(Looker([channel.path], storage, interval=0.0)), base_url="http://localhost")
    assert all("hunter2" not in client.get(path).text for path in ("/", "/main", "/page.json"))


def test_an_address_that_cannot_be_had() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PageError, match="STRANDLINE_PAGE_ADDRESS"):
            listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(PageError, match="STRANDLINE_PAGE_ADDRESS"):
        listen("203.0.113.7", 0)


@pytest.mark.drawn
def test_the_command_serves_on_this_machine_only(channel: Any) -> None:
    command = [sys.executable, "-m", "strandline.cli", "serve", channel.path, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = json.loads(process.stdout.readline())
            check("serve", said)
            url = said["url"]
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310
                assert b"JFK" in answer.read()
                assert answer.headers["content-security-policy"] == POLICY
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0


def test_a_report_is_one_file_or_json(channel: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"
    assert main(["report", channel.path, "-o", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: 1 channel, 0 standing\n"
    assert "JFK" in file.read_text()
    assert main(["report", channel.path, "--json", "--stale", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["channels"][0]["stale"]
    assert main(["report", channel.path]) == 2
    assert main(["report", channel.path, "-o", str(tmp_path / "none" / "x.html")]) == 2
    assert main(["report", channel.path, "-o", str(tmp_path)]) == 2
    assert main(["report", str(tmp_path / "none"), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["channels"][0]["problem"]["condition"] == "STRANDLINE_NOT_A_TABLE"
    assert main(["report", str(tmp_path / "none"), channel.path, "--json"]) == 0


def test_the_extra_is_asked_for(channel: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from strandline.cli.page import commands

    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    assert main(["serve", channel.path]) == 2
    assert "pip install 'strandline[page]'" in capsys.readouterr().err
