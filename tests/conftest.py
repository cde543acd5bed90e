"""What all tests share: one Spark session, and directories of a test's own."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import build_shim
from drawn import SEED, left_out
from helpers import ROOT, shared_session, stop_shared_session

# Each run draws other examples, so many runs see many.
settings.register_profile(
    "strandline", max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("strandline")

if "STRANDLINE_DELTA_JARS" not in os.environ:  # set by make; found here when pytest is run by hand
    os.environ["STRANDLINE_DELTA_JARS"] = os.pathsep.join(map(str, sorted((ROOT / ".build" / "jars").glob("delta-*.jar"))))
if bare := list(Path(os.environ["STRANDLINE_DELTA_JARS"].split(os.pathsep)[0]).parent.glob("hadoop-bare-*.jar")):
    os.environ["SPARK_DIST_CLASSPATH"] = str(bare[0])  # the end of the class path of each JVM


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--plan-seed", help="run the random plan of this seed alone (test_plans.py)")
    parser.addoption("--draw", type=int, default=1, metavar="N", help="run one of N of the tests that are marked as drawn")
    parser.addoption("--plan-changes", default="", help="changes to that plan, as a shrunk failure prints them")


LONGEST = (
    "test_loops",
    "test_loop_queries",
    "test_kill",
    "test_plans",
    "test_completion_processes",
    "test_with_delta_spark",
    "test_run",
    "test_session",
    "test_outputs",
)
"""Modules of Spark that begin first, so that none of them runs on alone at the end."""


NEED_JAR = "pyspark_strandline.session"
"""The module whose doctests need the shim's jar."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore the modules of which `make test` selects nothing. To import them all takes much longer than to read them."""
    if collection_path.suffix != ".py" or config.option.markexpr not in ("not soak and spark", "not soak and not spark"):
        return None
    text = collection_path.read_text()
    if config.option.markexpr == "not soak and spark":
        needs_jar = ".".join(collection_path.with_suffix("").parts[-2:]) == NEED_JAR
        return None if "mark.spark" in text or needs_jar else True
    return True if re.search(r"^pytestmark = .*mark\.spark\b", text, re.MULTILINE) else None


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1_000_000)))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if (share := config.option.draw) > 1:
        terminalreporter.write_line(f"one of {share} of the long tests ran, drawn by {SEED}={os.environ[SEED]}")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        if item.name.startswith(f"{NEED_JAR}."):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
    yield  # pytest selects by markers
    if out := left_out(items, config.option.draw):
        config.hook.pytest_deselected(items=out)
        gone = set(out)
        items[:] = [item for item in items if item not in gone]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Test no jar but that of these sources."""
    if any(item.get_closest_marker("spark") for item in session.items) and not session.config.option.collectonly:
        try:
            build_shim.check()
        except SystemExit as error:
            pytest.exit(str(error), returncode=4)


def pytest_unconfigure() -> None:
    stop_shared_session()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The Spark session, set up by ``pyspark_strandline.configure``; what a module sets in it is unset after the module."""
    with shared_session(tmp_path_factory.mktemp("spark")) as session:
        yield session
