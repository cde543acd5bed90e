"""What surrounds a run of a plan: Spark's settings, and how the run reads and takes; drawn anew for each start of the query.

:data:`SETTINGS` is the catalogue. ``docs/environments.md`` shows it, and a test holds the page to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from random import Random

CHANGES, KEEPS, STAYS = "may change", "the checkpoint's value stays", "must not change"
"""What Spark makes of another value at a restart: takes it, goes on with the logged one, or says that it must not be."""

QUERIES = "queries in the session"
"""Beside the plan's own: the same again, or one of Spark's own sources and watermark."""
TWO_ALIKE, AND_A_PLAIN_ONE = "two alike", "one and a plain one"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
TIME_ZONE = "spark.sql.session.timeZone"
ANSI = "spark.sql.ansi.enabled"
CASE_SENSITIVE = "spark.sql.caseSensitive"
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"
FILE_MANAGERS = (
    "strandline.spark.checkpoint.LocalCheckpointFileManager",  # by configure
    "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
)


@dataclass(frozen=True)
class Setting:
    """A setting of the catalogue; the first of its values is the one that a plan has by default."""

    name: str
    values: tuple[str, ...]
    restart: str = CHANGES
    refused: str = ""
    """What is refused under it, for people to read; operators say it for the check (``Operator.refusals``)."""

    @property
    def default(self) -> str:
        """What a plan runs under when nothing is drawn."""
        return self.values[0]

    @property
    def of_spark(self) -> bool:
        """Whether Spark has it under this name; the others are of the reader and of the test."""
        return self.name.startswith("spark.")


SWITCHED_ON, SWITCHED_OFF = ("true", "false"), ("false", "true")

SETTINGS = (
    Setting("spark.sql.adaptive.enabled", SWITCHED_ON),
    Setting("spark.sql.adaptive.streaming.stateless.enabled", SWITCHED_ON),
    Setting("spark.sql.adaptive.forceApply", SWITCHED_OFF),
    Setting("spark.sql.autoBroadcastJoinThreshold", ("10MB", "-1")),
    Setting("spark.sql.cbo.enabled", SWITCHED_OFF),
    Setting("spark.sql.cbo.joinReorder.enabled", SWITCHED_OFF),
    Setting(
        ANSI,
        SWITCHED_ON,
        refused="off: joins with a sum or difference of integers as a bound: `STRANDLINE_OPERATOR_UNSUPPORTED`",
    ),
    Setting(CASE_SENSITIVE, SWITCHED_OFF, refused="columns in another case: Spark's `UNRESOLVED_COLUMN.WITH_SUGGESTION`"),
    Setting("spark.sql.codegen.wholeStage", SWITCHED_ON),
    Setting("spark.sql.codegen.factoryMode", ("FALLBACK", "NO_CODEGEN", "CODEGEN_ONLY")),
    Setting("spark.sql.optimizer.nestedSchemaPruning.enabled", SWITCHED_ON),
    Setting("spark.sql.parquet.enableVectorizedReader", SWITCHED_ON),
    Setting("spark.sql.execution.pythonUDF.arrow.enabled", SWITCHED_ON),
    Setting(
        TIME_ZONE,
        ("UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"),
        refused="where clocks change, joins bounded in days or by a difference of two times: `STRANDLINE_OPERATOR_UNSUPPORTED`",
    ),
    Setting(PARTITIONS, ("1", "2", "3"), KEEPS),
    Setting(PROVIDER, ("org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider", ROCKS), KEEPS),
    Setting("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", SWITCHED_OFF),
    Setting("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", SWITCHED_ON),
    Setting("spark.strandline.taskRows.pages", ("4", "0")),
    Setting(CHECKPOINT_FORMAT, ("1", "2"), STAYS, "2 without RocksDB, by Spark; so it is only tried with RocksDB"),
    Setting("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGERS),
    Setting(NO_DATA, SWITCHED_ON),
    Setting("spark.sql.streaming.multipleWatermarkPolicy", ("min", "max"), KEEPS),
    Setting("nativeScan", ("auto", "off")),
    Setting("actions in foreachBatch", ("1", "2")),
    Setting(QUERIES, ("one", TWO_ALIKE, AND_A_PLAIN_ONE)),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}

CLOCK_CHANGES: tuple[tuple[str, datetime], ...] = (
    ("America/New_York", datetime(2013, 11, 3, 6, tzinfo=timezone.utc)),
    ("America/New_York", datetime(2013, 3, 10, 7, tzinfo=timezone.utc)),
    ("Europe/Berlin", datetime(2013, 10, 27, 1, tzinfo=timezone.utc)),
    ("Europe/Berlin", datetime(2013, 3, 31, 1, tzinfo=timezone.utc)),
    ("Australia/Lord_Howe", datetime(2013, 4, 6, 15, tzinfo=timezone.utc)),  # by half an hour
    ("Australia/Lord_Howe", datetime(2013, 10, 5, 15, 30, tzinfo=timezone.utc)),
)
"""When the clocks of a zone are changed; some histories begin a few seconds before."""


@dataclass(frozen=True)
class Environment:
    """One run's settings: those that are not as by default."""

    changed: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, name: str) -> str:
        return dict(self.changed).get(name, BY_NAME[name].default)

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.changed) or "the defaults"

    def with_setting(self, name: str, value: str) -> Environment:
        """The same but for one setting."""
        changed = dict(self.changed) | {name: value}
        return Environment(tuple((s.name, changed[s.name]) for s in SETTINGS if changed.get(s.name, s.default) != s.default))

    @property
    def rocks(self) -> bool:
        """Whether the state is in RocksDB, as far as this run decides it."""
        return self[PROVIDER] == ROCKS

    @property
    def begins(self) -> bool:
        """Whether a query can begin under it; one that goes on has the store of its checkpoint."""
        return self.rocks or self[CHECKPOINT_FORMAT] == BY_NAME[CHECKPOINT_FORMAT].default

    @property
    def clocks_change(self) -> bool:
        """Whether the session's zone has changes of clocks."""
        return self[TIME_ZONE] != "UTC"


def random_environments(r: Random, first: Environment, phases: int, zone: str | None) -> tuple[Environment, ...]:
    """One for each start of a query. ``zone``: the one whose clocks change in the data, which then is often the session's."""
    stay = [(s, r.choice(s.values[1:])) for s in SETTINGS if s.restart == STAYS and r.random() < 0.5]
    found: list[Environment] = []
    for _ in range(phases):
        environment = first
        for setting in SETTINGS:
            if setting.restart != STAYS and r.random() < 0.25:
                environment = environment.with_setting(setting.name, r.choice(setting.values[1:]))
        if zone is not None and r.random() < 0.7:
            environment = environment.with_setting(TIME_ZONE, zone)
        found.append(environment)
    return consistent([_with(environment, stay) for environment in found])


def consistent(environments: Sequence[Environment]) -> tuple[Environment, ...]:
    """Without checkpoint ids where the state is not in RocksDB: the first run decides on the store."""
    if environments[0].rocks:
        return tuple(environments)
    return tuple(environment.with_setting(CHECKPOINT_FORMAT, BY_NAME[CHECKPOINT_FORMAT].default) for environment in environments)


def _with(environment: Environment, settings: Sequence[tuple[Setting, str]]) -> Environment:
    for setting, value in settings:
        environment = environment.with_setting(setting.name, value)
    return environment


def table() -> str:
    """The catalogue as the documentation has it."""
    lines = ["| setting | values tried, the default first | at a restart | what is refused |", "|---|---|---|---|"]
    for setting in SETTINGS:
        name = f"`{setting.name}`" if setting.of_spark or setting.name == "nativeScan" else setting.name
        values = ", ".join(f"`{value.rsplit('.', 1)[-1]}`" for value in setting.values)
        lines.append(f"| {name} | {values} | {setting.restart} | {setting.refused or 'nothing'} |")
    return "\n".join(lines)
