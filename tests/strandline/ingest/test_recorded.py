"""What a log states for ingests, as somebody who can write to it may change it: refused by name, and nothing of it is run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from channel_mutations import ingest_batch, make_ingested, restate, use_ingest
from ingest_bench import Bench
from strandline.channel import Channel
from strandline.channel.statements.statement import REGISTRAR
from strandline.errors import IngestError, PolicyError, TimeError
from strandline.ingest import Policy, idle, ordered, parse_policy, release_parked, status
from strandline.ingest.policies.parser import recorded_policy

PARKED = "strandline:parked"
HUGE = (1 << 63) - 1


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ingested")
    make_ingested(folder / "channel")
    return folder


@pytest.fixture
def path(ingested: Path, tmp_path: Path) -> Path:
    for name in ("channel", "channel_late"):
        shutil.copytree(ingested / name, tmp_path / name)
    return tmp_path / "channel"


def within(*way: Any, value: Any) -> Callable[[Any], Any]:
    """A change of one value in a state."""

    def change(state: Any) -> Any:
        inner = state
        for key in way[:-1]:
            inner = inner[key]
        inner[way[-1]] = value(inner[way[-1]]) if callable(value) else value
        return state

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (REGISTRAR, within("query", "clock", "listened", value=HUGE)),
        (REGISTRAR, lambda state: {**state, "query": {**state["query"], "fenced": {"id": 5}}}),
        (REGISTRAR, lambda state: {**state, "\ud800": {}}),
        (REGISTRAR, lambda state: {**state, "query": {**state["query"], "moved": [3, 2]}}),
        (REGISTRAR, within("query", "clock", "planned", value=-HUGE)),
        ("a", within("at", value=HUGE)),
        ("a", within("aside", value=HUGE)),
        ("m3", within("own", "came", value=lambda came: came * 2)),
        (PARKED, within("parked", 0, 3, value=HUGE)),
        (PARKED, within("parked", value=lambda parked: [parked[0], parked[0]])),
        (PARKED, within("parked", 0, 0, 0, 0, value="_ahead/../x.parquet")),
        ("strandline:corrections", within("late", "query", value=[[5, 3]])),
    ],
)
def test_a_strange_state_is_refused_and_nothing_is_written(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    restate(path, name, change)
    before = Channel.open(path).version
    with pytest.raises(IngestError, match="STRANDLINE_INGEST_STATE_INVALID"):
        use_ingest(path)
    assert Channel.open(path).version == before


@pytest.mark.parametrize("damage", [b"", b"PAR1 no Parquet PAR1", None])
def test_a_parked_file_that_is_damaged_is_refused_by_name(path: Path, damage: bytes | None) -> None:
    """``None``: a column has another type. The file is as large as the log says."""
    version = Channel.open(path).version
    parked = path / Channel.open(path).producers[PARKED].state["parked"][0][0][0][0]
    table, size = pq.read_table(parked), parked.stat().st_size
    if damage is None:
        text = table.set_column(table.column_names.index("n"), "n", table["n"].cast(pa.string()))
        pq.write_table(text, parked, store_schema=False)
        restate(path, PARKED, within("parked", 0, 0, 0, 1, value=parked.stat().st_size))
    else:
        parked.write_bytes(damage.ljust(size, b" ") if damage else damage)
    with pytest.raises(IngestError, match="STRANDLINE_(PARKED_FILE_DIFFERS|INGEST_STATE_INVALID)"):
        release_parked(str(path), take_over=True)
    assert Channel.open(path).version <= version + 1


@pytest.mark.parametrize("what", ["rows", "bounds", "a file of the table"])
def test_a_parked_file_must_be_what_the_log_says(path: Path, what: str) -> None:
    channel = Channel.open(path)
    data = channel.snapshot_files()[0]
    changes: dict[str, Callable[[Any], Any]] = {
        "rows": within("parked", 0, 0, 0, 2, value=2),
        "bounds": lambda state: within("parked", 0, 1, value=[5000, 0])(within("parked", 0, 2, value=[5000, 0])(state)),
        "a file of the table": within("parked", 0, 0, 0, value=[data.path, data.size, data.rows]),
    }
    restate(path, PARKED, changes[what])
    with pytest.raises(IngestError, match=r"STRANDLINE_(PARKED_FILE_DIFFERS|INGEST_STATE_INVALID)"):
        release_parked(str(path), take_over=True)
    assert Channel.open(path).version == channel.version


@pytest.mark.parametrize("policy", ["strandline_payload:x()", "idle(strandline_payload:x(), 5)", "*: strandline_payload:x()"])
def test_no_policy_in_a_log_is_imported(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    (tmp_path / "strandline_payload.py").write_text("raise SystemExit('it runs')")
    monkeypatch.syspath_prepend(str(tmp_path))
    restate(path, REGISTRAR, within("query", "policy", value=policy))
    ingest_batch(path, 5, [(250, "a")], 75)
    assert "strandline_payload" not in sys.modules
    assert recorded_policy(policy) is None


@pytest.mark.parametrize(
    "state", [{"idle": 5}, {"idle": {"was": ["noon"], "since": 0}}, {"idle": {"was": [3], "since": 0}}, [1], {"at": HUGE}, "text"]
)
def test_the_state_of_a_users_own_producer_is_its_own_affair(tmp_path: Path, state: Any) -> None:
    bench = Bench(tmp_path, idle(ordered(), "10 seconds"))
    bench.run((5, "a", 0), now=1, run="r", to_end=True)
    with bench.channel.producer("own") as producer:
        producer.state = state
        producer.drop()
    bench.run((9, "a", 1), (9, "b", 2), now=2, run="r", to_end=True)
    bench.run((10, "b", 3), now=20_000, run="r", to_end=True)
    assert bench.holds() == {"a": [], "b": [10], "own": []}
    assert "own" in {partition.name for partition in status(str(bench.channel.path)).partitions}


def test_rows_may_wait_for_forty_years(tmp_path: Path) -> None:
    forty_years = 40 * 365 * 86_400_000_000
    bench = Bench(tmp_path, ordered(), max_ahead=forty_years)
    bench.run((1, "a", 0), now=1)
    bench.run((2, "a", 1), (forty_years + 90, "b", 2), now=2)
    bench.run((3, "a", 3), now=3)
    assert status(str(bench.channel.path)).parked_rows == 1


class Fails(Policy):
    """A policy of a user, whose making fails in the way that its argument says."""

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> Policy:
        raise {"value": ValueError("no such flight"), "key": KeyError("x"), "ours": TimeError("STRANDLINE_TIME", "odd")}[
            arguments[0]
        ]

    def arguments(self) -> list[str]:
        raise NotImplementedError

    def promise(self, seen: Any, state: Any) -> Any:
        raise NotImplementedError


class Picky(Fails):
    """A policy of a user that has lost an argument, and whose making has a defect."""

    from_arguments = classmethod(Policy.from_arguments.__func__)  # type: ignore[attr-defined, assignment]

    def __init__(self, first: str) -> None:
        self.least = len(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", ["value", "key", "ours"])
@pytest.mark.parametrize("within_ours", [False, True])
def test_what_a_loaded_policy_raises_has_a_name_and_its_cause(path: Path, error: str, within_ours: bool) -> None:
    text = f"{Fails.name()}({error})"
    text = f"idle({text}, 5 s)" if within_ours else text
    for call in (
        lambda: recorded_policy(text),
        *([lambda: parse_policy(text)] if error != "ours" else []),
    ):
        with pytest.raises(
            PolicyError, match=r"STRANDLINE_POLICY_FAILED.*Fails raised (ValueError|KeyError|TimeError): "
        ) as caught:
            call()
        assert isinstance(caught.value.__cause__, ValueError | KeyError)


def test_what_a_policys_module_raises_has_a_name_and_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strandline_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PolicyError, match=r"STRANDLINE_POLICY_FAILED.*ZeroDivisionError") as caught:
        parse_policy("strandline_broken:Policy()")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("text", [5, None, ["ordered()"], "bounded(never)", "ordered(", "no:Such()"])
def test_what_is_no_policy_of_ours_or_of_a_loaded_class_is_none(text: object) -> None:
    assert recorded_policy(text) is None


def test_arguments_that_a_class_has_no_more_are_told_from_a_defect_of_it() -> None:
    assert recorded_policy(f"{Picky.name()}(1, 2)") is None
    with pytest.raises(PolicyError, match="STRANDLINE_POLICY_INVALID"):
        parse_policy(f"{Picky.name()}(1, 2)")
    for parse in (recorded_policy, parse_policy):
        with pytest.raises(PolicyError, match=r"STRANDLINE_POLICY_FAILED.*TypeError: object of type 'int'"):
            parse(f"{Picky.name()}(1)")
