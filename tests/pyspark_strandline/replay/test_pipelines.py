"""``replay`` runs a pipeline over what was recorded, beside the originals, refuses what it must, and compares."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from cli_schemas import check
from helpers import contents, make_channel, say
from pyspark_strandline.replay import replay, start
from pyspark_strandline.replay.folder import ReplayFolder
from pyspark_strandline.replay.plan import varying_parts
from strandline.channel import Channel
from strandline.cli.app import app
from strandline.errors import StrandlineError

pytestmark = pytest.mark.spark

RULE = """
from pyspark.sql import functions as F

def pipeline(spark, read):
    rows = read("readings")
    return {"sums": rows.groupBy("time").agg(F.sum("n").alias("n"))}
"""
CHANGED = RULE.replace('read("readings")', 'read("readings").where("n != 20")')


def recorded(path: Path, hours: int = 5) -> None:
    """An hour a commit, with rows ``10 * hour`` and 1; the times before the last one are closed."""
    channel = make_channel(path, producers=("a",))
    for hour in range(hours):
        say(channel, "a", (hour, 10 * hour), (hour, 1), then=[hour + 1])


def files(path: Path) -> dict[str, int]:
    return {str(each): each.stat().st_mtime_ns for each in path.rglob("*") if each.is_file()}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A channel and two rules."""
    recorded(tmp_path / "readings")
    (tmp_path / "rule.py").write_text(RULE)
    (tmp_path / "changed.py").write_text(CHANGED)
    return tmp_path


@pytest.fixture
def live(spark: Any, lake: Path) -> Path:
    """With what production has made of it by the same function, live."""
    made: dict[str, Any] = {}
    exec(RULE, made)  # noqa: S102
    paths = {"inputs": {"readings": lake / "readings"}, "trigger": {"availableNow": True}}
    start(spark, made["pipeline"], {"sums": lake / "sums"}, lake / "production", **paths)["sums"].awaitTermination()
    return lake


def again(spark: Any, lake: Path, pipeline: str = "rule.py", into: str = "into", **options: Any) -> Any:
    return replay(spark, lake / pipeline, lake / into, inputs={"readings": lake / "readings"}, **options)


def refused(spark: Any, lake: Path, text: str, **options: Any) -> StrandlineError:
    """The error that a pipeline gets. Nothing was made or changed."""
    (lake / "bad.py").write_text(text)
    before = files(lake / "readings")
    with pytest.raises(StrandlineError) as caught:
        again(spark, lake, "bad.py", "refused", **options)
    assert not (lake / "refused").exists()
    assert files(lake / "readings") == before
    assert not spark.streams.active
    return caught.value


def test_the_same_rule_is_equal_and_a_changed_one_parts_where_it_must(spark: Any, live: Path) -> None:
    before = files(live / "readings") | files(live / "sums")
    same = again(spark, live, against=live / "sums")
    assert same.equal
    assert same.comparisons["sums"].times == 5
    assert same.hints == ()
    assert contents(Path(same.outputs["sums"])) == contents(live / "sums")
    other = again(spark, live, "changed.py", "other", against={"sums": live / "sums"}, by_spark=True)
    (difference,) = other.comparisons["sums"].differences
    assert (other.equal, difference.time, difference.only_a.to_pylist(), difference.only_b.to_pylist()) == (
        *(False, 2),
        *([{"n": 21}], [{"n": 1}]),
    )
    two = again(spark, live, "changed.py", "two", against=live / "rule.py", endingFrontier="4")
    assert [(time, a, b) for time, a, b in two.comparisons["sums"].parted] == [(2, 1, 1)]
    assert two.comparisons["sums"].times == 4
    assert files(live / "readings") | files(live / "sums") == before


def test_a_part_is_compared_with_the_same_part(spark: Any, live: Path) -> None:
    found = again(spark, live, against=live / "sums", startingFrontier="2", endingFrontier="4").comparisons["sums"]
    assert (found.equal, found.times, found.since is not None and found.since.to_json()) == (True, 2, [2])


def test_the_same_command_goes_on_and_another_is_refused(spark: Any, live: Path) -> None:
    first = again(spark, live, against=live / "sums", endingVersion="4")
    version = Channel.open(first.outputs["sums"]).version
    assert again(spark, live, against=live / "sums", endingVersion="4") == first
    assert Channel.open(first.outputs["sums"]).version == version
    for field, options in (("part", {"endingVersion": "3"}), ("pipeline", {"pipeline": "changed.py", "endingVersion": "4"})):
        with pytest.raises(StrandlineError, match=f"STRANDLINE_REPLAY_FOLDER.*has a replay with another {field}"):
            again(spark, live, **options)
    (live / "full").mkdir()
    (live / "full" / "x").touch()
    for into, problem in (("full", "is not empty"), ("readings", "is not apart"), (".", "is not apart"), ("sums/x", "not apart")):
        with pytest.raises(StrandlineError, match=f"STRANDLINE_REPLAY_FOLDER.*{problem}"):
            again(spark, live, into=into, against=live / "sums")


HEAD = "def pipeline(spark, read):\n    rows = read('readings')\n"


WRITES = [
    ("rows.writeStream.format('noop').start()", "DataFrame.writeStream"),
    ("spark.range(1).write.format('delta').mode('append').save('{readings}')", "DataFrame.write"),
    ("spark.range(1).writeTo('x').append()", "DataFrame.writeTo"),
    ("spark.sql('INSERT INTO delta.`{readings}` VALUES (1, null, 2)')", "spark.sql"),
    ("spark.sql('WITH a AS (SELECT 1) INSERT INTO delta.`{readings}` SELECT 1, null, 2')", "spark.sql"),
    ("spark.sql('DELETE FROM delta.`{readings}`')", "spark.sql"),
    ("from strandline.channel import Channel; Channel.open('{readings}').producer('a')", "Channel.producer"),
    ("import deltalake, pyarrow; deltalake.write_deltalake('{readings}', pyarrow.table({{'n': [1]}}))", "write_deltalake"),
    ("from deltalake.writer import write_deltalake as w; w('{readings}', None)", "write_deltalake"),
    ("from deltalake import DeltaTable; DeltaTable('{readings}').delete()", "DeltaTable.delete"),
    ("from deltalake import DeltaTable; DeltaTable('{readings}').vacuum(0, dry_run=False)", "DeltaTable.vacuum"),
]


def test_a_pipeline_that_writes_is_refused_before_it_writes(spark: Any, lake: Path) -> None:
    for line, how in WRITES:
        text = f"{HEAD}    {line.format(readings=lake / 'readings')}\n    return {{'sums': rows}}\n"
        error = refused(spark, lake, text)
        assert (error.condition, how in error.what) == ("STRANDLINE_PIPELINE_WRITES", True), error


@pytest.mark.parametrize("text", ["{", "[]", "null", '"x"', ""])
def test_a_damaged_record_of_a_folder_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "replay.json").write_text(text)
    with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_FOLDER"):
        ReplayFolder(tmp_path).begin({"part": {}})


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_FOLDER"):
        ReplayFolder(tmp_path / "file" / "sub").begin({"part": {}})


def test_a_pipeline_may_still_look_and_writes_work_afterwards(spark: Any, lake: Path) -> None:
    text = f"{HEAD}    assert spark.sql('SELECT 1 AS x').collect()\n    return {{'sums': rows.select('time', 'n')}}\n"
    (lake / "looks.py").write_text(text)
    assert again(spark, lake, "looks.py").equal
    spark.range(1).write.format("noop").mode("append").save()
    assert spark.sql("SHOW TABLES") is not None
    say(Channel.open(lake / "readings"), "a", then=[9])


def test_an_original_may_go_on_and_be_compacted_meanwhile(spark: Any, live: Path) -> None:
    """A producer writes on, and files are rewritten, while the replay runs."""
    told: list[tuple[Any, ...]] = []

    def meanwhile(*said: Any) -> None:
        told.append(said)
        if len(told) == 1:
            say(Channel.open(live / "readings"), "a", (7, 70), then=[8])
            DeltaTable(live / "readings").optimize.compact()

    found = again(spark, live, against=live / "sums", endingVersion="5", speed="100000x", progress=meanwhile)
    assert found.equal
    assert told[-1] == ("sums", 6, 6)
    assert any("went on while the replay ran" in hint for hint in found.hints)


def test_a_write_that_nobody_could_refuse_is_found(spark: Any, lake: Path) -> None:
    """The rows come while the replay runs, from code that runs in a task."""
    text = (
        "from pyspark.sql import functions as F\ndef pipeline(spark, read):\n    rows = read('readings')\n"
        "    @F.udf('int')\n    def bad(n):\n        import os, shutil\n"
        f"        from deltalake import DeltaTable\n        table = DeltaTable({str(lake / 'readings')!r})\n"
        "        if table.version() < 99 and n == 1: table.delete('n = 1')\n        return 1\n"
        "    return {'sums': rows.select('time', bad('n').alias('n'))}\n"
    )
    (lake / "bad.py").write_text(text)
    with pytest.raises(StrandlineError, match=r"STRANDLINE_(ORIGINAL_CHANGED|CHANNEL_CHANGES|REPLAY_FAILED)"):
        again(spark, lake, "bad.py")


NO_INPUTS = [
    ("spark.readStream.format('rate').load()", "STRANDLINE_INPUT_UNRECORDED", "of the format rate"),
    ("spark.readStream.format('delta').load('{plain}')", "STRANDLINE_INPUT_UNRECORDED", "of the format delta"),
    ("spark.readStream.format('strandline').load('{readings}')", "STRANDLINE_INPUT_UNRECORDED", "a stream of its own"),
    ("read('{plain}')", "STRANDLINE_INPUT_UNRECORDED", "is no channel"),
    ("read('{plain}-none')", "STRANDLINE_INPUT_UNRECORDED", "is no channel"),
    ("spark.range(3)", "STRANDLINE_PIPELINE_INVALID", "something else than a stream"),
    ("1 / 0", "STRANDLINE_PIPELINE_INVALID", "ZeroDivisionError"),
    ("spark._jdf_of_nobody", "STRANDLINE_PIPELINE_INVALID", "AttributeError"),
]


def test_what_cannot_be_replayed_is_refused(spark: Any, lake: Path) -> None:
    write_deltalake(lake / "plain", pa.table({"n": [1]}))
    for stream, condition, what in NO_INPUTS:
        text = f"{HEAD}    return {{'sums': {stream.format(plain=lake / 'plain', readings=lake / 'readings')}}}\n"
        error = refused(spark, lake, text)
        assert (error.condition, what in error.what) == (condition, True), error


def test_other_pipelines_that_are_none_are_refused(spark: Any, live: Path) -> None:
    for text, what in (
        ("x = 1", "no function"),
        ("def pipeline(spark, read): return 1", "has returned int"),
        ("def pipeline(spark, read): return {'../sums': read('readings')}", "no name of a folder"),
        ("def pipeline(:", "SyntaxError"),
    ):
        assert what in refused(spark, live, text).what
    error = refused(spark, live, RULE, startingFrontier="yesterday")
    assert (error.condition, "startingFrontier" in error.what) == ("STRANDLINE_OPTION_INVALID", True), error
    with pytest.raises(StrandlineError, match="STRANDLINE_PIPELINE_INVALID.*cannot be read"):
        again(spark, live, "none.py")
    with pytest.raises(StrandlineError, match="STRANDLINE_REPLAY_OUTPUTS.*no output 'days'.*sums"):
        again(spark, live, against={"days": live / "sums"})


def test_a_recording_with_a_gap_is_refused(spark: Any, lake: Path) -> None:
    DeltaTable(lake / "readings").create_checkpoint()
    for version in (0, 1):
        (lake / "readings" / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(StrandlineError, match="STRANDLINE_RECORDING_INCOMPLETE"):
        again(spark, lake)
    with pytest.raises(StrandlineError, match="STRANDLINE_RECORDING_END_MISSING"):
        again(spark, lake, into="end", endingFrontier="99", startingVersion="3")


def test_what_varies_is_named(spark: Any, lake: Path) -> None:
    text = (
        "from pyspark.sql import functions as F\ndef pipeline(spark, read):\n    rows = read('readings')\n"
        "    return {'sums': rows.groupBy('time').agg(F.sum('n').alias('n')).withColumn('r', F.rand())}\n"
    )
    (lake / "varies.py").write_text(text)
    found = again(spark, lake, "varies.py", against=lake / "varies.py")
    assert not found.equal
    assert "varies.py has rand() in output sums: two runs may differ." in found.hints
    from pyspark.sql import functions as F

    rows = spark.readStream.format("strandline").load(str(lake / "readings"))
    odd = F.udf(lambda n: n, "long").asNondeterministic()
    for column, name in (
        (F.rand(7), "rand()"),
        (F.expr("uuid()"), "uuid()"),
        (F.current_timestamp(), "current_timestamp()"),
        (F.current_date(), "current_date()"),
        (F.expr("now()"), "now()"),
        (odd("n"), "<lambda>()"),
        (F.monotonically_increasing_id(), "monotonically_increasing_id()"),
    ):
        assert varying_parts(rows.select("time", F.when(F.col("n") > 0, column).alias("x"))) == [name]
    assert varying_parts(rows.where("rand() < 0.5")) == ["rand()"]
    assert varying_parts(rows.groupBy("time").agg(F.sum("n"))) == []
    assert varying_parts(rows.select("time", F.udf(lambda n: n, "long")("n"))) == []


def test_several_channels_at_one_cut(spark: Any, lake: Path) -> None:
    recorded(lake / "more", hours=4)
    text = (
        "def pipeline(spark, read):\n    streams = read.together({'a': 'readings', 'b': 'more'})\n"
        "    return {'both': streams['a'].union(streams['b'])}\n"
    )
    (lake / "both.py").write_text(text)
    paths = {name: lake / name for name in ("readings", "more")}
    found = replay(spark, lake / "both.py", lake / "into", inputs=paths, endingFrontier="3")
    assert {Path(each.path).name for each in found.inputs} == {"readings", "more"}
    assert Channel.open(found.outputs["both"]).frontier.to_json() == [3]


# ---- the command -----------------------------------------------------------------------------------------------------------


def command(lake: Path, *arguments: str) -> list[str]:
    return ["replay", str(lake / "rule.py"), "--into", str(lake / "into"), "--input", f"readings={lake / 'readings'}", *arguments]


def test_the_command_says_it_as_text_as_json_and_as_a_page(spark: Any, live: Path) -> None:
    (live / "rule.py").write_text(CHANGED)
    page = live / "page.html"
    arguments = command(live, "--against", str(live / "sums"), "--until", "4", "--html", str(page))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1, done.output
    assert "They differ at 1 of these times, first at 2." in done.output
    assert "first different at 2" in page.read_text()
    again = CliRunner().invoke(app, [*arguments, "--json"])
    body = json.loads(again.stdout)
    check("replay", body)
    assert (again.exit_code, body["equal"], body["comparisons"]["sums"]["first"]) == (1, False, "2")
    assert body["part"] == {"endingFrontier": "4", "speed": "max"}
    assert CliRunner().invoke(app, ["compare", str(live / "sums"), str(live / "sums"), "--spark"]).exit_code == 0


PROGRAM = "import sys; from strandline.cli.__main__ import run; run()"


@pytest.mark.drawn("processes")
def test_a_replay_that_is_killed_goes_on_when_the_command_is_typed_again(live: Path) -> None:
    """It waits between two recorded commits when it is killed."""
    log = live / "readings" / "_delta_log"
    for version, file in enumerate(sorted(log.glob("*.json"))):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = 1000 + (version > 3) * 3_600_000
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK_"))}
    given = command(live, "--against", str(live / "sums"), "--conf", "spark.master=local[1]")
    arguments = [sys.executable, "-c", PROGRAM, *given]
    running = subprocess.Popen([*arguments, "--speed", "realtime"], env=environment, start_new_session=True)
    try:
        until = time.monotonic() + 90
        sums = live / "into" / "channels" / "sums"
        while time.monotonic() < until and len(list((sums / "_delta_log").glob("*.json"))) < 2:
            time.sleep(0.2)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    half = contents(sums)
    assert 0 < len(half) < 5
    done = subprocess.run([*arguments, "--json"], env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["comparisons"]["sums"]["times"] == 5
    assert contents(sums) == contents(live / "sums")
