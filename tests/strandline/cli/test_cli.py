"""The command line: what each command says and with which exit code, as JSON too, and with names that are hostile."""

from __future__ import annotations

import doctest
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer.main
from deltalake import write_deltalake

from cli_schemas import check_printed
from helpers import ROOT
from ingest_bench import Bench
from strandline.channel import Channel
from strandline.cli.__main__ import main
from strandline.cli.app import app
from strandline.delta.storage import commit_name
from strandline.errors import ChannelError
from strandline.ingest import ordered
from strandline.report import verify
from strandline.scope import Scope
from strandline.time.arrow import time_field
from strandline.time.domain import int64, lex, product

PAGE = ROOT / "docs" / "cli.md"


class Ran:
    """A command that was run in this process."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: object) -> Ran:
        words = [str(each) for each in arguments]
        ran = Ran(main(words), *capsys.readouterr())
        check_printed(words, ran.out, ran.err)
        return ran

    return run


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    schema = pa.schema([time_field("time", int64), ("n", pa.int64())])
    made = Channel.create(tmp_path / "c", schema, producers=["a", "b"], at=0, sealed=False)
    with made.producer("a") as a:
        a.send(pa.table({"time": [1, 2, 2], "n": [1, 2, 3]}, schema=made.schema))
        a.delay([7])
    return made


def test_the_page_says_what_the_commands_print(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = []
    for kind, code in re.findall(r"```(console|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if kind == "python":
            exec(code, {})  # noqa: S102
            continue
        for command, expected in re.findall(r"^\$ strandline (.*?)\n(.*?)(?=^\$ |\Z)", code, re.DOTALL | re.MULTILINE):
            ran = run(*command.split())
            want = re.sub(r"\n\s*\n", "\n", expected)
            got = re.sub(r"\n\s*\n", "\n", ran.out)
            checker = doctest.OutputChecker()
            assert checker.check_output(want, got, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), f"{command}:\n{ran.out}"
            assert ran.code == 0
            commands.append(command.split()[0])
    assert commands == ["create", "inspect", "why", "timeline", "log", "verify", "drop", "why"]


def test_the_page_has_every_command_and_every_option() -> None:
    page = PAGE.read_text(encoding="utf-8")
    shared = page.partition("## What all commands share")[2].partition("\n## ")[0]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(re.findall(r"^## strandline ([\w-]+)", page, re.MULTILINE)) == set(commands)
    for name, command in commands.items():
        section = page.partition(f"## strandline {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            for option in [*parameter.opts, *parameter.secondary_opts]:
                if option.startswith("-"):
                    assert f"`{option}" in section + shared, f"{name} {option}"


@pytest.mark.parametrize(
    "command",
    [
        *("inspect", "log", "why", "verify", "timeline", "watch", "compact", "hold", "drop", "create", "report"),
        pytest.param("jar", marks=pytest.mark.spark),
    ],
)
def test_every_command_prints_json(command: str, run: Any, channel: Channel) -> None:
    more = {"why": [5], "watch": ["--count", 1], "hold": [5, "--yes"], "drop": ["a", "--yes"], "create": ["--domain", "int64"]}
    path = f"{channel.path}-new" if command == "create" else channel.path
    ran = run(command, *([] if command == "jar" else [path]), *more.get(command, []), "--json")
    assert (ran.code, isinstance(ran.json, dict)) == (0, True)
    if command == "report":
        assert [each["path"] for each in ran.json["channels"]] == [path]
    elif command != "jar":
        assert ran.json["channel"] == path


def test_errors_have_names_and_exit_codes(run: Any, channel: Channel, tmp_path: Path) -> None:
    assert run("inspect", tmp_path / "none").code == 3
    ran = run("inspect", tmp_path / "none", "--json")
    assert (ran.code, ran.out, json.loads(ran.err)["error"]["condition"]) == (3, "", "STRANDLINE_NOT_A_TABLE")
    assert "[STRANDLINE_TIME_INVALID] TIME 'noon' is not an integer" in run("why", channel.path, "noon").err
    assert run("log").code == 2
    assert run("nothing").code == 2
    secret = run("inspect", channel.path, "--storage", "topsecret")
    assert (secret.code, "topsecret" in secret.err) == (2, False)
    assert run("drop", channel.path, "nobody", "--yes").code == 3
    assert run("--version").out.strip()


def test_a_defect_has_a_code_of_its_own(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Channel, "open", lambda *_: 1 / 0)
    ran = run("inspect", "anywhere")
    assert (ran.code, "ZeroDivisionError" in ran.err) == (70, True)


def test_verify_names_the_first_violation(run: Any, channel: Channel) -> None:
    file = Path(channel.path, commit_name(2))
    file.write_text(file.read_text().replace(r"\"holds\":[7]", r"\"holds\":[8]"))
    ran = run("verify", channel.path)
    assert (ran.code, "is not sound: version 2, sum: found " in ran.out) == (1, True)
    ran = run("verify", channel.path, "--json")
    assert (ran.code, ran.json["sound"], ran.json["violation"]["field"]) == (1, False, "sum")


def test_verify_says_how_far_it_is_where_there_is_no_terminal(
    run: Any, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("verify", channel.path).err == ""  # it took less than some seconds
    monkeypatch.setattr("strandline.cli.output._LINE_EVERY_S", 0)
    ran = run("verify", channel.path, "--json")
    assert (ran.code, ran.json["sound"]) == (0, True)
    assert ran.err.splitlines()[:3] == ["commits: 1 of 3", "commits: 2 of 3", "commits: 3 of 3"]
    assert ran.err.splitlines()[-1] == "files: 1 of 1"


def test_nothing_is_done_without_a_yes(run: Any, channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    version = channel.version
    for answer in ("n\n", ""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        ran = run("drop", channel.path, "b")
        assert (ran.code, "Nothing was done." in ran.err) == (4, True)
        assert "producer b holds 0" in ran.err
        assert "Rows that a producer has not committed are lost" in ran.err
    assert run("hold", channel.path, 5, "--json").code == 2
    channel.refresh()
    assert channel.version == version
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert run("drop", channel.path, "b").code == 0
    assert not Channel.open(channel.path).producers["b"].holds


def test_an_operator_holds_a_time_until_it_is_dropped(run: Any, channel: Channel) -> None:
    assert run("drop", channel.path, "b", "--yes").code == 0
    channel.refresh()
    channel.delay_registrar([5])
    assert run("hold", channel.path, 5, "--as", "me", "--yes").code == 0
    channel.refresh()
    channel.seal()
    assert list(channel.frontier) == [5]
    assert "producer me of" in run("why", channel.path, 6).out
    assert run("drop", channel.path, "me", "--yes").code == 0
    channel.refresh()
    assert list(channel.frontier) == [7]
    assert verify(channel.path).sound


def test_a_partition_of_an_ingest_is_dropped_as_such(run: Any, tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered())
    bench.run((3, "a", 0), (2, "b", 0))
    ran = run("drop", bench.settings.path, "b", "--yes")
    assert (ran.code, "partition b holds 2" in ran.err) == (0, True)
    assert "dropped" in (bench.channel.producers["b"].state or {})
    assert "ordered()" in run("inspect", bench.settings.path).out


def test_a_partition_that_ran_ahead_rejoins(run: Any, tmp_path: Path) -> None:
    bench = Bench(tmp_path, ordered(), partitions=["a", "b"])
    bench.run((3, "a", 0), (1000, "b", 0))
    path = bench.settings.path
    ran = run("rejoin", path, "b", "--yes")
    assert (ran.code, "these rejoin: b (generation 2) at 3" in ran.out) == (0, True)
    assert "rejoined: b (generation 2)" in run("inspect", path).out
    bench.run((4, "b", 0))
    assert (4, "b", 0) in bench.rows()
    assert "it has rejoined, as generation 2" in run("why", path, 5).out
    refused = run("rejoin", path, "a", "--yes", "--json")
    assert (refused.code, json.loads(refused.err.splitlines()[-1])["error"]["condition"]) == (3, "STRANDLINE_PARTITION_NOT_AHEAD")


def test_names_of_others_do_nothing_to_a_terminal(run: Any, tmp_path: Path) -> None:
    name = "\x1b[2J[red]x[/red]\n; rm -rf ~ <script>"
    schema = pa.schema([time_field("time", int64)])
    path = str(Channel.create(tmp_path / "c", schema, producers=[name], at=0).path)
    for command in (("inspect", path), ("log", path), ("why", path, 5), ("timeline", path), ("watch", path, "--count", 1)):
        ran = run(*command)
        assert ran.code == 0
        assert "\x1b" not in ran.out, command
        if command[0] != "watch":
            assert "\\x1b[2J[red]x" in ran.out, command
    assert f"strandline drop {path} $'\\x1b[2J[red]x[/red]\\n; rm" in run("why", path, 5).out
    assert "\x1b" not in run("inspect", path, "--json").out


def test_times_of_several_coordinates_are_drawn_by_one_of_them(run: Any, tmp_path: Path) -> None:
    domain = product(epoch="int64", iter="int64")
    path = Channel.create(tmp_path / "c", pa.schema([time_field("time", domain)]), producers=["a"], at=(3, 0)).path
    ran = run("timeline", path)
    assert (ran.code, "STRANDLINE_TIMELINE_COORDINATE" in ran.err) == (3, True)
    assert "None" not in ran.err
    assert "Choose one with --coordinate: epoch, iter." in ran.err
    assert run("timeline", path, "--coordinate", "epoch", "--json").json["holds"] == {"a": 3}
    assert "(epoch=3, iter=7) is open" in run("why", path, "[3, 7]").out
    assert "Write it like [7, 7]." in run("why", path, "3 7").err


def test_why_asks_scopes_and_other_channels(run: Any, channel: Channel, tmp_path: Path) -> None:
    schema = pa.schema([time_field("time", int64), ("n", pa.int64())])
    sums = Channel.create(tmp_path / "sums", schema, producers=["query-1"], at=0)
    scope = Scope.create(tmp_path / "scope", int64)
    scope.add_channel("c", channel.path)
    scope.add_channel("sums", sums.path)
    scope.add_query("daily", reads=["c"], writes=["sums"])
    body = run("why", sums.path, 5, "--scope", tmp_path / "scope", "--json").json
    assert {each["name"] for each in body["holders"] if each["culprit"]} == {"b", "$registrar"}


def test_why_without_a_time_asks_for_the_least_open_one(run: Any, tmp_path: Path) -> None:
    schema = pa.schema([time_field("time", int64)])
    made = Channel.create(tmp_path / "c", schema, producers=["a", "b"], at=3)
    assert run("why", made.path).out == run("why", made.path, 3).out
    for name in ("a", "b"):
        with made.producer(name) as producer:
            producer.drop()
    assert "All times of" in run("why", made.path).out
    assert run("why", made.path, "--json").json == {"open": False}


def test_log_is_newest_first_and_bounded(run: Any, channel: Channel) -> None:
    body = run("log", channel.path, "-n", 2, "--json").json
    assert [entry["version"] for entry in body["commits"]] == [2, 1]
    assert body["commits"][0]["times"] == [["1", 1], ["2", 2]]
    assert body["commits"][0]["statements"]["a"]["holds"] == ["7"]


def test_watch_prints_changes_and_reads_only_new_commits(run: Any, channel: Channel) -> None:
    lines = run("watch", channel.path, "--count", 3, "--interval", 0.05, "--json").out.splitlines()
    assert [json.loads(line)["version"] for line in lines] == [2]


@pytest.mark.drawn
def test_the_program_and_its_completion() -> None:
    program = Path(sys.executable).with_name("strandline")
    done = subprocess.run([program, "why"], capture_output=True, text=True, check=False)
    assert (done.returncode, "Missing argument" in done.stderr) == (2, True)
    environment = {**os.environ, "_STRANDLINE_COMPLETE": "source_bash"}
    script = subprocess.run([program], env=environment, capture_output=True, text=True, check=True).stdout
    assert "complete " in script


def test_without_the_extra_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['typer'] = None; from strandline.cli.__main__ import main; sys.exit(main(['why']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, "pip install 'strandline[cli]'" in done.stderr) == (2, True)


def test_what_hold_and_drop_do_for_an_operator_again_and_again(run: Any, channel: Channel) -> None:
    """A name that was dropped stays taken, so the next hold has another one."""
    for name in ("strandline:operator", "strandline:operator-2"):
        assert run("hold", channel.path, 8, "--yes").out.startswith(
            f"version {Channel.open(channel.path).version}: {name} holds 8"
        )
        assert run("drop", channel.path, name, "--yes").code == 0
    assert run("hold", channel.path, 8, "--as", "operator", "--yes").code == 0
    assert run("drop", channel.path, "operator", "--yes").code == 0
    again = run("hold", channel.path, 8, "--as", "operator", "--yes", "--json")
    assert again.code == 3
    assert json.loads(again.err)["error"] == {
        "condition": "STRANDLINE_PRODUCER_EXISTS",
        "what": f"{channel.path} already has the producer 'operator'. It holds nothing.",
        "remedy": "Choose another name with --as, or leave --as out.",
    }


def test_nobody_holds_under_a_name_of_ingests_and_one_that_does_can_be_dropped(run: Any, channel: Channel) -> None:
    refused = run("hold", channel.path, 8, "--as", "strandline:ops", "--yes")
    assert (refused.code, "STRANDLINE_PRODUCER_NAME_INVALID" in refused.err) == (3, True)
    channel.register(["strandline:ops"], [8])  # as earlier releases let it
    why = run("why", channel.path, 8).out
    assert f"strandline drop {channel.path} strandline:ops" in why
    assert run("drop", channel.path, "strandline:ops", "--yes").code == 0
    assert not Channel.open(channel.path).producers["strandline:ops"].holds


def test_a_later_coordinate_of_a_lexicographic_time_is_no_line(run: Any, tmp_path: Path) -> None:
    """After (3, 7) comes (4, 0), so nothing before 7 is closed."""
    domain = lex(tick="int64", step="int64")
    Channel.create(tmp_path / "c", pa.schema([time_field("time", domain)]), producers=["a"], at=(3, 7))
    refused = run("timeline", tmp_path / "c", "--coordinate", "step")
    assert (refused.code, "Choose one with --coordinate: tick." in refused.err) == (3, True)
    assert "before 3" in run("timeline", tmp_path / "c", "--coordinate", "tick").out


def test_errors_of_usage_are_json_too(run: Any, channel: Channel) -> None:
    for arguments, what in (
        (["timeline"], "Missing argument"),
        (["log", channel.path, "--most", "0"], "Invalid value for '--most'"),
        (["hold", channel.path, "8"], "Invalid value for --yes"),
    ):
        ran = run(*arguments, "--json")
        error = json.loads(ran.err)["error"]
        assert (ran.code, error["condition"], ran.out) == (2, "USAGE", "")
        assert error["what"].startswith(what)
        assert error["remedy"] == f"See strandline {arguments[0]} --help."
        assert "Usage: strandline" in run(*arguments).err or arguments[0] == "hold"


def test_columns_that_differ_in_their_case_only(run: Any, tmp_path: Path) -> None:
    ran = run("create", tmp_path / "c", "--column", "a:long", "--column", "A:long")
    assert (ran.code, "STRANDLINE_COLUMN_NAME_INVALID" in ran.err) == (3, True)
    inner = pa.list_(pa.struct({"x": pa.int64(), "X": pa.int64()}))
    with pytest.raises(ChannelError, match="only in case"):
        Channel.create(tmp_path / "d", pa.schema([time_field("time", int64), ("s", inner)]))
    Channel.create(tmp_path / "e", pa.schema([time_field("time", int64), ("m", pa.map_(pa.string(), pa.int64()))]))


def test_a_path_that_would_not_be_found_again_is_refused(run: Any, tmp_path: Path) -> None:
    ran = run("create", tmp_path / "p%20 4")
    assert (ran.code, "has '%20' in it" in ran.err) == (3, True)
    assert run("create", tmp_path / "100% of it").code == 0
    assert Channel.open(tmp_path / "100% of it").version == 0


def test_numbers_that_json_does_not_have_are_null(run: Any, channel: Channel) -> None:
    with channel.producer("b") as producer:
        producer.state = {"x": 1.5}
        producer.delay([1])
    newest = Path(channel.path) / commit_name(Channel.open(channel.path).version)
    newest.write_text(re.sub(r',\\"sum\\":\\"[0-9a-f]*\\"', "", newest.read_text()).replace("1.5", "NaN"))
    ran = run("log", channel.path, "--json", "-n", 1)
    assert "NaN" not in ran.out
    assert ran.json["commits"][0]["statements"]["b"]["state"] == {"x": None}


@pytest.mark.drawn
def test_exit_codes_of_signals_and_closed_pipes(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"{sys.executable} -m strandline.cli log {channel.path} --json | true; echo ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout == "141\n"

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Channel, "open", interrupted)
    assert main(["why", channel.path, "5"]) == 130


HIDDEN = ["\u061c", "\u200b", "\u200e", "\u200f", "\u2028", "\u2029", "\u2060", "\ufeff", "\xad", "\U000e0041"]


@pytest.mark.parametrize("hidden", HIDDEN)
def test_characters_that_nobody_sees_are_shown(hidden: str, run: Any, tmp_path: Path) -> None:
    """Otherwise two names that look the same are two producers, or the text around a name is in another order."""
    Channel.create(tmp_path / "c", pa.schema([time_field("time", int64)]), producers=[f"JFK{hidden}x"], at=0)
    shown = run("why", tmp_path / "c", 5).out
    assert hidden not in shown
    assert f"JFK{hidden.encode('unicode_escape').decode()}x" in shown


def ran_with(encoding: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run([sys.executable, "-m", "strandline.cli", *arguments], capture_output=True, check=False, env=environment)


@pytest.mark.drawn
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_characters_of_names(encoding: str, tmp_path: Path) -> None:
    schema = pa.schema([time_field("time", int64)])
    path = Channel.create(tmp_path / "zürich → bern", schema, producers=["zürich"], at=0).path
    for command in (["inspect", path], ["why", path, "5"], ["log", path], ["verify", path], ["drop", path, "zürich", "--yes"]):
        done = ran_with(encoding, *command)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    assert not Channel.open(path).producers["zürich"].holds


def test_the_jar_is_printed_without_pyspark(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark_strandline"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    ran = run("jar")
    assert (ran.code, ran.out.strip()[-4:]) == (0, ".jar")


def test_what_the_command_hold_prints_releases_it(run: Any, channel: Channel) -> None:
    name = "tab\there\x1b[2J 'x'"
    ran = run("hold", channel.path, 5, "--as", name, "--yes")
    command = ran.out.partition("release it with: strandline ")[2].partition("; the frontier")[0]
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True).stdout
    words = said.decode().split("\0")
    assert words[:-1] == ["drop", channel.path, name]
    assert run(*words[:-1], "--yes").code == 0  # options may be appended
    assert not Channel.open(channel.path).producers[name].holds


def test_the_path_of_a_plain_table_is_no_channel(run: Any, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"n": [1]}))
    assert run("verify", tmp_path / "t").code == 3


def test_a_producer_that_has_ended_is_not_dropped_again(run: Any, channel: Channel, tmp_path: Path) -> None:
    """Dropping it again made two commits, and said that it was dropped."""
    assert run("drop", channel.path, "a", "--yes").code == 0
    channel.refresh()
    ran = run("drop", channel.path, "a", "--yes")
    assert (ran.code, Channel.open(channel.path).version) == (0, channel.version)
    assert ran.out.startswith(f"version {channel.version}: nothing was dropped, because it had ended before: a; ")
    assert ": dropped b; " in run("drop", channel.path, "a", "b", "--yes").out
    bench = Bench(tmp_path / "ingest", ordered())
    bench.run((1, "p", 0))
    assert run("drop", bench.settings.path, "p", "--yes").code == 0
    version = bench.channel.version
    assert "had ended before: p" in run("drop", bench.settings.path, "p", "--yes").out
    assert bench.channel.version == version


def test_drop_asks_by_name(run: Any, channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    ran = run("drop", channel.path, "a", "b")
    assert (ran.code, f"Drop a, b in {channel.path}?" in ran.err) == (4, True)


def test_a_file_and_a_folder_of_tables_are_told(run: Any, channel: Channel, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    assert f"{tmp_path / 'a.py'} is a file, but a Delta table is a folder." in run("inspect", tmp_path / "a.py").err
    (tmp_path / "c").rename(tmp_path / "result")
    ran = run("why", tmp_path, 1)
    assert (ran.code, f"Tables are in that folder: {tmp_path / 'result'}. Name one of them." in ran.err) == (3, True)


def test_long_names_do_not_widen_a_table(run: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    names = ["x" * 200 + "1", "x" * 200 + "2"]
    Channel.create(path, pa.schema([time_field("time", int64)]), producers=names, at=0)
    rows = run("inspect", path).out.splitlines()[4:6]
    assert [max(map(len, rows)) < 100, len({*rows})] == [True, 2]
    assert [each["name"] for each in run("inspect", path, "--json").json["producers"]] == names
    assert max(map(len, run("why", path, 1).out.split("\n\n")[1].splitlines())) < 250


def test_the_usage_names_arguments_in_one_way(run: Any) -> None:
    assert "[OPTIONS] {PATH} [TIME]" in run("why", "--help").out
    assert "[OPTIONS] {PATH} {TIME}" in run("hold", "--help").out
