"""Each command that prints JSON has a schema, and what it prints is as the schema says, in many states."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli_schemas import SCHEMAS, check_printed, schema_of, validator
from helpers import ROOT
from ingest_bench import SCHEMA as COLUMNS
from ingest_bench import Bench
from page_channels import make, read_of, send
from strandline.channel.statements.beginning import Beginning
from strandline.cli.__main__ import main
from strandline.cli.app import app
from strandline.ingest import Settings, manifest, ordered
from strandline.page import model
from strandline.replay import Comparison, Replayed, compare
from strandline.time.domain import timestamp

COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
SHARED = {"change", "error", "progress-report"}
BASES = {("change",), ("inspect", "$defs", "state")}
"""What others extend. These allow no further field."""
NAMES = sorted(path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: object, code: int = 0) -> Any:
        arguments = [*map(str, words), "--json"]
        assert main(arguments) == code
        printed = capsys.readouterr()
        check_printed(arguments, printed.out, printed.err)
        return json.loads(printed.out) if printed.out else None

    return run


def test_each_command_has_a_schema_and_a_line_in_the_page() -> None:
    assert {*COMMANDS, *SHARED} == set(NAMES)
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("## JSON")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"\]\(schemas/([\w-]+)\.schema\.json\)", page)) == sorted({*COMMANDS, "change", "error"})


@pytest.mark.parametrize("name", [*COMMANDS, "change", "error"])
def test_each_field_is_described_and_no_other_is_allowed(name: str) -> None:
    schema = schema_of(name)
    for where, part in _parts(schema):
        if part.get("type") != "object" or "properties" not in part:  # without a type it only says more of fields
            continue
        closed = part.get("additionalProperties") is False or part.get("unevaluatedProperties") is False
        assert closed != ((name, *where) in BASES), where
        for field, said in part["properties"].items():
            assert _description(schema, said), (*where, field)


def _parts(schema: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if isinstance(schema, dict):
        yield where, schema
        for key, value in schema.items():
            yield from _parts(value, (*where, key))
    elif isinstance(schema, list):
        for value in schema:
            yield from _parts(value, where)


def _description(schema: Any, said: Any) -> Any:
    return said.get("description") or schema["$defs"][said["$ref"].rpartition("/")[2]].get("description")


def test_the_page_has_the_fields_of_its_model() -> None:
    known = {"lateTable": "LateTableView", "channel": "ChannelView", "rows": "RowsByTime"}
    for name, said in schema_of("report")["$defs"].items():
        kind = getattr(model, known.get(name, name[0].upper() + name[1:]))
        assert set(said["properties"]) == {model.json_name(field.name) for field in fields(kind)}, name


def test_a_field_that_the_schema_does_not_have_is_found(run: Any, tmp_path: Path) -> None:
    """Of each object with fields of its own; else drift would stay unseen."""
    channel = make(tmp_path / "c", sealed=False)
    send(channel, "a", [1, 2], [3])
    for command in ("inspect", "log", "why", "verify", "timeline", "report"):
        body = run(command, channel.path)
        assert validator(command).is_valid(body)
        places = [()] if command == "timeline" else list(_objects(command, body))
        for place in places:
            changed = copy.deepcopy(body)
            inner = changed
            for key in place:
                inner = inner[key]
            inner["surprise"] = 1
            assert not validator(command).is_valid(changed), (command, place)


def _objects(command: str, value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    by_name = {("inspect", "columns"), ("log", "statements"), ("log", "transactions"), ("log", "state")}
    if isinstance(value, dict):
        if not place or (command, place[-1]) not in by_name:
            yield place
        for key, each in value.items():
            yield from _objects(command, each, (*place, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _objects(command, each, (*place, at))


def test_channels_of_producers(run: Any, tmp_path: Path) -> None:
    body = run("create", tmp_path / "new", "--domain", "product(epoch, iter)", "--producer", "a", "--column", "n:long")
    assert body["domain"] == "product(epoch int64, iter int64)"
    clock = make(tmp_path / "clock", timestamp, sealed=False, at=None)
    done = make(tmp_path / "done")
    for name in ("a", "b"):
        send(done, name, [1], [])
    for channel in (clock, done):
        for command in ("inspect", "log", "why", "verify", "timeline", "report", "watch"):
            run(command, channel.path, *(["--count", "1"] if command == "watch" else []))
    assert run("why", done.path) == {"open": False}
    assert run("why", done.path, 5)["holders"] == []
    assert run("drop", done.path, "a", "--yes")["frontier"] == []
    assert run("hold", clock.path, "2026-01-01T00:00Z", "--yes")["done"].startswith("strandline:operator holds")
    assert run("seal", clock.path, "--yes")["version"] == clock.version + 2
    run("compact", done.path)
    run("inspect", tmp_path / "none", code=3)
    run("report", tmp_path / "none", code=3)


def test_queries_and_what_they_read(run: Any, tmp_path: Path) -> None:
    source, sums = make(tmp_path / "in"), make(tmp_path / "sums", producers=["query-1"])
    send(source, "a", [1, 2], [7])
    read = read_of(source)._replace(after="x", domain="int64", input="in", snapshot=0, began=Beginning(0, None, 7, lossy=True))
    send(sums, "query-1", [1], [3], read)
    send(source, "b", [3], [9])
    assert run("log", sums.path)["commits"][0]["reads"][0]["began"] == {"commit": 0, "removed": 7, "lossy": True}
    [holder] = run("why", sums.path, 8)["holders"][:1]
    assert (holder["kind"], holder["behind"][0]["rows"]) == ("query", 1)
    assert run("report", sums.path, source.path, "--stale", "0")["attention"]


def test_ingests(run: Any, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    policy = manifest({("a", 1): 2, ("b", 2): 1})
    policy.save(
        str(tmp_path / "m" / "manifest"),
        Settings.of(str(tmp_path / "m" / "channel"), COLUMNS, policy=policy, time="t", partition="p"),
    )
    bench = Bench(tmp_path / "m", policy)
    bench.run((1, "a", 0), (2, "b", 0))
    assert run("cancel", bench.settings.path, "a", 1, 1, "--yes")["done"] == "it goes by the manifest now"
    bench = Bench(tmp_path / "o", ordered(), corrections=True)
    path = bench.settings.path
    bench.run((3, "a", 0), (3, "b", 0), (1000, "c", 0))
    bench.run((1, "a", 1), (4, "b", 1), (None, "b", 2))
    body = run("inspect", path)
    assert body["ingest"]["setAsideByReason"]["late"] == 1
    assert {each["name"]: each["setAside"] and each["setAside"]["rows"] for each in body["producers"]}["a"] == 1
    for command in ("why", "log", "report", "verify"):
        run(command, path)
    run("timeline", path, "--coordinate", "event")
    run("watch", path, "--count", 1)
    assert run("publish-late", path, "--yes")["rows"] == 0
    assert run("readmit", path, "--yes")["rows"] == 1
    assert run("release-parked", path, "--yes")["done"] == "no rows were parked"
    run("rejoin", path, "c", "--yes")
    run("rejoin", path, "a", "--yes", code=3)
    run("drop", path, "b", "--yes")
    assert run("forget", path, "--yes")["forgotten"] == 1
    assert run("end-corrections", path, "--yes")["done"] == "its corrections have ended"
    run("report", path)


def test_an_unsound_channel(run: Any, tmp_path: Path) -> None:
    channel = make(tmp_path / "c")
    send(channel, "a", [1], [2])
    log = tmp_path / "c" / "_delta_log" / f"{channel.version:020}.json"
    log.write_text(log.read_text().replace('"holds', '"holdz'))
    assert not run("verify", channel.path, code=1)["sound"]


def test_comparisons(run: Any, tmp_path: Path) -> None:
    a, b = make(tmp_path / "a"), make(tmp_path / "b")
    for channel, times in ((a, [1, 2]), (b, [1, 1, 2])):
        send(channel, "a", times, [9])
        send(channel, "b", [], [9])
    assert run("compare", a.path, a.path)["equal"]
    body = run("compare", a.path, b.path, "--key", "n", "--since", 1, code=1)
    assert body["differences"]
    found: Comparison = compare(a.path, b.path)
    whole = Replayed("rule.py", {"speed": "max"}, (), {"sums": b.path}, {"sums": found}, ("It reads a clock.",)).to_json()
    validator("replay").validate(json.loads(json.dumps(whole)))
    whole["comparisons"]["sums"]["surprise"] = 1
    assert not validator("replay").is_valid(whole)
