"""Channels: creating, opening, registering, sealing, refreshing, reading, time travel and upkeep; and what is no channel."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from strandline.channel import (
    CapabilityError,
    Channel,
    ChannelError,
    Log,
    LogError,
    ProducerError,
    StatementError,
)
from strandline.channel.statements.statement import REGISTRAR
from strandline.delta.storage import commit_name
from strandline.delta.table import CHECKPOINT_INTERVAL
from strandline.errors import TimeDomainError, TimeError
from strandline.time.antichain import Antichain
from strandline.time.arrow import time_field
from strandline.time.domain import int64, lex, product, timestamp, uint64

PAIR = product(epoch="int64", iter="int64")
Create = Callable[..., Channel]


def at(*times: Any) -> Antichain:
    return Antichain(int64, times)


# ---- creating and opening


@pytest.mark.parametrize(
    "domain",
    [int64, timestamp, PAIR, lex(tick="int64", stratum="int32"), product(at="timestamp", loop=lex(tick="int64", iter="int64"))],
)
def test_a_new_channel_opens_with_its_domain_and_holds_everything_open(path: str, make: Any, domain: Any) -> None:
    made = Channel.create(path, make.schema(domain), producers=["a"])
    opened = Channel.open(path)
    assert opened.domain == made.domain == domain
    assert opened.time_column == "time"
    assert opened.schema == make.schema(domain)
    assert opened.frontier == Antichain.least(domain)
    assert opened.table_id == made.table_id
    assert opened.version == 0
    assert Channel.exists(path)


def test_with_producers_it_is_sealed_and_without_it_is_open(tmp_path: Path, make: Any) -> None:
    sealed = Channel.create(tmp_path / "1", make.schema(), producers=["a"], at=3)
    assert (sealed.sealed, sealed.registrar, list(sealed.producers), sealed.frontier) == (True, at(), ["a"], at(3))
    open_ = Channel.create(tmp_path / "2", make.schema(), at=3)
    assert (open_.sealed, open_.registrar, list(open_.producers), open_.frontier) == (False, at(3), [], at(3))
    both = Channel.create(tmp_path / "3", make.schema(), producers=["a"], sealed=False)
    assert (both.sealed, list(both.producers)) == (False, ["a"])
    closed = Channel.create(tmp_path / "4", make.schema(), sealed=True)
    assert closed.frontier == at()


def test_the_time_column_may_have_another_name_and_its_domain_be_given(path: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("when", pa.timestamp("us", "UTC"))])
    channel = Channel.create(path, schema, time="when", domain=timestamp)
    assert (channel.time_column, channel.domain) == ("when", timestamp)


def test_the_domain_may_be_given_as_its_text(path: str) -> None:
    schema = pa.schema([("time", pa.timestamp("us", "UTC"))])
    assert Channel.create(path, schema, domain="timestamp").domain == timestamp


def test_only_the_time_column_keeps_a_domain_and_every_column_is_nullable(path: str) -> None:
    schema = pa.schema(
        [
            time_field("time", int64),
            time_field("other", timestamp),
            pa.field("n", pa.int64(), nullable=False),
            pa.field("s", pa.struct([pa.field("x", pa.int8(), nullable=False)]), nullable=False),
        ]
    )
    channel = Channel.create(path, schema)
    assert channel.schema.field("other").metadata is None
    assert channel.schema.field("n").nullable
    assert channel.schema.field("s").nullable
    assert channel.schema.field("s").type.field(0).nullable


def test_the_only_marked_column_is_the_time(path: str) -> None:
    schema = pa.schema([("n", pa.int64()), time_field("hour", int64)])
    assert Channel.create(path, schema).time_column == "hour"
    assert Channel.create(f"{path}-2", pa.schema([("time", pa.int64()), *schema]), domain=int64).time_column == "time"


def test_a_time_column_without_a_domain_or_missing_is_refused(path: str) -> None:
    schema = pa.schema([("time", pa.int64())])
    with pytest.raises(TimeDomainError, match=r"STRANDLINE_TIME_DOMAIN_MISSING.*'time'.*time_field"):
        Channel.create(path, schema)
    with pytest.raises(TimeDomainError, match=r"STRANDLINE_TIME_COLUMN_MISSING.*'when'.*\['time'\]"):
        Channel.create(path, schema, time="when", domain=int64)
    with pytest.raises(TimeDomainError, match=r"STRANDLINE_TIME_DOMAIN_MISMATCH.*int64.*timestamp"):
        Channel.create(path, schema, domain=timestamp)
    assert not Path(path).exists()


def test_what_delta_cannot_store_is_refused_before_anything_is_made(path: str) -> None:
    with pytest.raises(TimeDomainError, match=r"STRANDLINE_TIME_DOMAIN_UNSTORABLE.*uint64.*int64"):
        Channel.create(path, pa.schema([time_field("time", uint64)]))
    for names, why in ((["my n"], "'my n'.*' '"), (["n", "N"], "'N'.*'n' only in case"), ([""], "is empty")):
        with pytest.raises(ChannelError, match=f"STRANDLINE_COLUMN_NAME_INVALID.*{why}"):
            Channel.create(path, pa.schema([time_field("time", int64), *((name, pa.int64()) for name in names)]))
    with pytest.raises(TimeError, match=r"STRANDLINE_TIME_INVALID.*at is"):
        Channel.create(path, pa.schema([time_field("time", int64)]), at="now")
    for name in ("", "$registrar", "x" * 2000, 7):
        with pytest.raises(ProducerError, match="STRANDLINE_PRODUCER_NAME_INVALID"):
            Channel.create(path, pa.schema([time_field("time", int64)]), producers=[name])  # type: ignore[list-item]
    assert not Path(path).exists()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (pa.timestamp("ns", tz="UTC"), "'odd' .*not nanoseconds"),
        (pa.list_(pa.timestamp("ns")), "'odd.element'.*not nanoseconds"),
        (pa.map_(pa.string(), pa.timestamp("us")), "without time zone inside a map"),
        (pa.map_(pa.timestamp("us"), pa.string()), "without time zone inside a map"),
        (pa.map_(pa.string(), pa.struct([("at", pa.timestamp("us"))])), "without time zone inside a map"),
        (pa.duration("us"), "Invalid data type for Delta Lake: Duration"),
        (pa.struct([("at", pa.time32("s"))]), "'odd.at'.*Invalid data type for Delta Lake: Time32"),
        (pa.list_(pa.struct([])), "'odd.element'.*a struct without fields"),
        (pa.list_(pa.uuid()), "'odd.element'.*Uuid"),
    ],
    ids=str,
)
def test_a_column_of_a_type_that_cannot_be_stored_is_refused_by_name(path: str, kind: pa.DataType, says: str) -> None:
    schema = pa.schema([time_field("hour", int64), ("odd", kind)])
    with pytest.raises(ChannelError, match=rf"STRANDLINE_COLUMN_TYPE_UNSUPPORTED.*{says}"):
        Channel.create(path, schema, time="hour")
    assert not Path(path).exists()
    if "inside a map" in says:  # beside another one, deltalake notices
        assert Channel.create(path, schema.append(pa.field("even", pa.timestamp("us"))), time="hour").schema.names[1:] == [
            "odd",
            "even",
        ]


@pytest.mark.parametrize("where", ["column", "field"])
def test_a_name_with_a_null_byte_is_refused_by_name_here_and_in_a_log(tmp_path: Path, where: str) -> None:
    kinds = {"column": ("a\0b", pa.int64()), "field": ("s", pa.struct([("a\0b", pa.int64())]))}
    name, kind = kinds[where]
    schema = pa.schema([time_field("time", int64), (name, kind)])
    with pytest.raises(ChannelError, match="STRANDLINE_COLUMN"):
        Channel.create(tmp_path / "own", schema)
    plain = pa.schema(
        [
            time_field("time", int64),
            (name.replace("\0", "x"), pa.int64() if where == "column" else pa.struct([("axb", pa.int64())])),
        ]
    )
    Channel.create(tmp_path / "other", plain)
    first = tmp_path / "other" / commit_name(0)
    first.write_text(first.read_text().replace("axb", "a\\\\u0000b"))
    with pytest.raises(ChannelError, match="STRANDLINE_TABLE_UNREADABLE.*name"):
        Channel.open(tmp_path / "other")


def test_a_failed_creation_does_not_say_that_the_channel_exists(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.channel.write.create._refuse_type", lambda column, schema: None)
    schema = pa.schema([time_field("hour", int64), ("odd", pa.map_(pa.string(), pa.timestamp("us")))])
    with pytest.raises(ChannelError, match="STRANDLINE_TABLE_UNREADABLE.*timestampNtz"):
        Channel.create(path, schema, time="hour")


def test_creating_twice_is_refused_or_opens_what_is_there(path: str, create: Create, make: Any) -> None:
    made = create()
    with pytest.raises(ChannelError, match="STRANDLINE_CHANNEL_EXISTS"):
        create()
    assert create(exist_ok=True).table_id == made.table_id
    with pytest.raises(ChannelError, match=r"STRANDLINE_SCHEMA_MISMATCH.*time int64, n int64 .*time int64, m int8"):
        Channel.create(path, pa.schema([time_field("time", int64), ("m", pa.int8())]), exist_ok=True)
    with pytest.raises(ChannelError, match="STRANDLINE_SCHEMA_MISMATCH"):
        Channel.create(path, make.schema(timestamp), exist_ok=True)


def test_creating_again_with_types_that_delta_stores_otherwise_is_the_same_schema(path: str) -> None:
    schema = pa.schema([time_field("time", int64), ("s", pa.large_string()), ("l", pa.list_(pa.int32()))])
    Channel.create(path, schema)
    assert Channel.create(path, schema, exist_ok=True).version == 0


def test_a_path_without_a_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match=r"STRANDLINE_NOT_A_TABLE.*nowhere.*Channel.create"):
        Channel.open(tmp_path / "nowhere")
    assert not Channel.exists(tmp_path / "nowhere")
    assert not Channel.exists(tmp_path)


def test_a_delta_table_that_is_no_channel_is_told_which_kind(tmp_path: Path, make: Any) -> None:
    write_deltalake(tmp_path / "1", pa.table({"time": [1]}))
    with pytest.raises(TimeDomainError, match=r"STRANDLINE_TIME_DOMAIN_MISSING.*'time'"):
        Channel.open(tmp_path / "1")
    write_deltalake(tmp_path / "2", make.rows([1]))
    with pytest.raises(ChannelError, match=r"STRANDLINE_NOT_A_CHANNEL.*none of its commits has a progress statement"):
        Channel.open(tmp_path / "2")
    assert not Channel.exists(tmp_path / "1")
    assert not Channel.exists(tmp_path / "2")


def test_partitioned_tables_and_features_that_change_what_files_mean_are_refused(tmp_path: Path, make: Any) -> None:
    def table(name: str, **options: Any) -> Path:
        DeltaTable.create(tmp_path / name, schema=make.schema(), **options)
        return tmp_path / name

    with pytest.raises(ChannelError, match=r"STRANDLINE_PARTITIONED.*\['n'\]"):
        Channel.open(table("1", partition_by=["n"]))
    for property_, condition in {
        "delta.enableDeletionVectors": "STRANDLINE_DELETION_VECTORS",
        "delta.enableChangeDataFeed": "STRANDLINE_TABLE_FEATURE.*delta.enableChangeDataFeed",
    }.items():
        with pytest.raises(ChannelError, match=condition):
            Channel.open(table(property_, configuration={property_: "true"}))
    with pytest.raises(ChannelError, match=r"STRANDLINE_COLUMN_MAPPING.*by name"):
        Channel.open(table("2", configuration={"delta.columnMapping.mode": "name"}))


def test_a_table_that_forgets_transactions_is_refused_also_by_a_running_writer(create: Create) -> None:
    """A replayed batch would be written twice."""
    channel = create(producers=["q"], at=0)
    append: dict[str, Any] = {"statements": {"q": [0]}, "owner": "q", "always": True}
    channel.append([], transaction=("query", 3), **append)
    forgets = {"delta.setTransactionRetentionDuration": "interval 1 seconds"}
    DeltaTable(channel.path).alter.set_table_properties(forgets, raise_if_not_exists=False)
    match = "STRANDLINE_TABLE_FEATURE.*delta.setTransactionRetentionDuration = interval 1 seconds.*UNSET"
    with pytest.raises(ChannelError, match=match):
        channel.append([], transaction=("query", 4), **append)
    with pytest.raises(ChannelError, match=match):
        Channel.open(channel.path)


# ---- registering and sealing


def test_thousands_of_producers_register_in_one_commit(create: Create) -> None:
    channel = create(producers=[], at=3)
    names = [f"p{i}" for i in range(5000)]
    assert channel.register(names) == 1
    assert list(Channel.open(channel.path).producers) == names
    assert channel.register(["later"], at=9) == 2
    assert channel.producers["later"].holds == at(9)
    assert channel.frontier == at(3)


def test_registering_below_the_registrar_twice_or_when_sealed_is_refused(create: Create) -> None:
    channel = create(producers=["a"], sealed=False, at=3)
    with pytest.raises(CapabilityError, match=r"STRANDLINE_TIME_NOT_HELD.*cannot join at 2.*\{3\}"):
        channel.register(["b"], at=2)
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_EXISTS.*'a'"):
        channel.register(["b", "a"])
    assert list(channel.producers) == ["a"]
    assert channel.register(["b", "a"], exist_ok=True) == 1
    assert channel.register(["b", "a"], exist_ok=True) is None
    assert channel.seal() == 2
    assert channel.seal() is None
    with pytest.raises(ProducerError, match=r"STRANDLINE_CHANNEL_SEALED.*'c' cannot join"):
        channel.register(["c"])
    with pytest.raises(ProducerError, match=r"STRANDLINE_PRODUCER_UNKNOWN.*no producer 'c'. Its producers: a, b"):
        channel.producer("c")


def test_a_registration_that_races_with_sealing_loses_cleanly(create: Create) -> None:
    channel = create(producers=[], at=0)
    other = Channel.open(channel.path)
    other.seal()  # after `channel` last looked
    with pytest.raises(ProducerError, match="STRANDLINE_CHANNEL_SEALED"):
        channel.register(["late"])
    assert channel.version == 1
    assert channel.frontier == at()


def test_the_registrar_holds_the_frontier_of_an_open_channel_until_it_moves(create: Create) -> None:
    channel = create(producers=[], at=0)
    with channel.producer("a") as a:
        a.delay(7)
    assert channel.frontier == at(0)
    channel.delay_registrar(5)
    assert (channel.frontier, channel.registrar) == (at(5), at(5))
    assert channel.delay_registrar(5) is None
    with pytest.raises(CapabilityError, match=r"STRANDLINE_CAPABILITY_BACKWARDS.*registrar.*cannot move to 4"):
        channel.delay_registrar(4)
    assert channel.producer("b").holds == at(5)
    channel.seal()
    assert channel.frontier == at(5)
    with pytest.raises(ProducerError, match="STRANDLINE_CHANNEL_SEALED"):
        channel.delay_registrar(9)


# ---- refreshing and time travel


def test_refresh_reads_new_commits_only(create: Create, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = create()
    with Channel.open(channel.path).producer("a") as a:
        for i in range(20):
            a.send(make.rows([i]))
            a.delay(i)
            a.commit()
    first = channel.refresh()
    assert [c.version for c in first] == list(range(1, channel.version + 1))
    read: list[int] = []
    plain = Log.read
    monkeypatch.setattr(Log, "read", lambda self, version: (read.append(version), plain(self, version))[1])
    assert channel.refresh() == []
    assert read == [channel.version + 1]


def test_the_frontier_at_any_version_is_what_it_was_then(create: Create, make: Any) -> None:
    channel = create()
    seen = {0: channel.frontier}
    with channel.producer("a") as a, channel.producer("b") as b:
        for i in range(30):
            producer = a if i % 3 else b
            producer.send(make.rows([i]))
            producer.delay(i)
            producer.commit()
            seen[channel.version] = channel.frontier
    fresh = Channel.open(channel.path)
    assert {version: fresh.frontier_at(version) for version in seen} == seen
    assert fresh.progress_at(2).producers["b"].holds == at(0)
    for missing in (-1, fresh.version + 1):
        with pytest.raises(
            LogError, match=rf"STRANDLINE_VERSION_UNKNOWN.*no version {missing}; its newest version is {fresh.version}"
        ):
            fresh.frontier_at(missing)


def test_with_few_producers_the_newest_commit_alone_tells_the_frontier(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = create()
    for i in range(1, 20):
        with channel.producer("a") as a:
            a.delay(i)
    read: list[int] = []
    plain = Log.read
    monkeypatch.setattr(Log, "read", lambda self, version: (read.append(version), plain(self, version))[1])
    assert Channel.open(channel.path).producers["a"].holds == at(19)
    assert len(read) <= 3  # it, the one before to compare, and whether there is a next


def test_with_many_producers_copies_are_rare_and_the_way_back_short(create: Create) -> None:
    channel = create(producers=[f"p{i}" for i in range(50)], at=0)
    a = channel.producer("p7")
    for i in range(1, 205):
        a.delay(i)
        a.commit()
    commits = [commit for commit in channel.log.tail(1) if commit.statement is not None]
    copies = [commit.version for commit in commits if commit.statement is not None and commit.statement.known is not None]
    assert max(after - before for before, after in pairwise(copies)) == 49
    assert len(copies) <= 204 // 49 + 204 // CHECKPOINT_INTERVAL + 1
    assert {CHECKPOINT_INTERVAL, 2 * CHECKPOINT_INTERVAL} <= {*copies}  # so that cleaning up to a checkpoint loses nobody
    assert Channel.open(channel.path).frontier == at(0)
    for version in range(2 * CHECKPOINT_INTERVAL):
        Path(channel.path, commit_name(version)).unlink()
    fresh = Channel.open(channel.path)
    assert fresh.progress == channel.progress
    assert fresh.producers["p7"].holds == at(204)


def test_a_plain_append_is_a_violation_for_readers_and_named(create: Create, make: Any) -> None:
    channel = create()
    write_deltalake(channel.path, make.rows([1]), mode="append")
    with pytest.raises(LogError, match=r"STRANDLINE_STATEMENT_MISSING.*Commit 1 \(WRITE\)"):
        channel.refresh()
    assert Channel.open(channel.path).frontier == at(0)  # the statements stand
    with Channel.open(channel.path).producer("a") as a:  # and producers can go on
        a.delay(4)


def test_a_statement_that_breaks_the_protocol_stops_every_reader(create: Create, make: Any) -> None:
    channel = create()
    text = '{"strandline":{"version":1,"statements":{"stranger":{"seq":0,"holds":[1]}}}}'
    make.write_commit(channel.path, 1, make.info(text))
    with pytest.raises(StatementError, match=r"STRANDLINE_STATEMENT_REGRESSION.*commit 1 adds the producer 'stranger'"):
        channel.refresh()
    make.write_commit(channel.path, 1, make.info('{"strandline":{"version":9}}'))
    with pytest.raises(StatementError, match=r"STRANDLINE_PROTOCOL_NEWER.*Commit 1 "):
        Channel.open(channel.path)


def test_another_writers_own_metadata_is_no_matter(create: Create, make: Any) -> None:
    channel = create()
    properties = CommitProperties(custom_metadata={"userMetadata": '{"owner": "the lake team"}'})
    DeltaTable(channel.path).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 1 days"}, commit_properties=properties
    )
    assert [commit.rearranges_only for commit in channel.refresh()] == [True]
    assert channel.producer("a").holds == at(0)


def test_a_column_that_is_added_is_taken_up_and_a_replaced_table_refused(create: Create, make: Any, tmp_path: Path) -> None:
    channel = create()
    with channel.producer("a") as a:
        a.send(make.rows([1]))
    DeltaTable(channel.path).alter.add_columns(Field("more", PrimitiveType("string"), nullable=True))
    channel.refresh()
    assert channel.schema.names == ["time", "n", "more"]
    assert channel.read().column("more").to_pylist() == [None]
    with (
        channel.producer("a") as a,
        pytest.raises(ChannelError, match=r"STRANDLINE_SCHEMA_MISMATCH.*lack the columns \['more'\]"),
    ):
        a.send(make.rows([1]))
    write_deltalake(channel.path, make.rows([1], timestamp), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ChannelError, match=r"STRANDLINE_CHANNEL_REPLACED.*int64.*timestamp"):
        channel.refresh()


def test_columns_are_added_once_and_rows_from_before_have_nulls(create: Create, make: Any) -> None:
    channel = create()
    with channel.producer("a") as a:
        a.send(make.rows([1]))
    other = Channel.open(channel.path)
    added = pa.schema([("more", pa.string()), ("place", pa.struct([("x", pa.float64())]))])
    version = channel.add_columns(added)
    assert version == channel.version
    assert other.add_columns(added) is None
    assert other.add_columns([pa.field("n", pa.int64()), pa.field("more", pa.large_string())]) is None
    assert [opened.schema.names for opened in (channel, other)] == [["time", "n", "more", "place"]] * 2
    with channel.producer("a") as a:
        rows = make.rows([2])
        a.send(rows.append_column("more", pa.array(["x"])).append_column("place", pa.array([{"x": 1.5}])))
    assert channel.read().column("more").to_pylist() == [None, "x"]
    assert channel.frontier_at(version) == channel.frontier_at(version - 1)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("n", pa.string())], r"'n' \(string\).*has 'n' \(int64\)"),
        ([("N", pa.int64())], r"'N' \(int64\).*has 'n' \(int64\)"),
        ([("x", pa.int64()), ("X", pa.int64())], r"'X' \(int64\).*has 'x' \(int64\)"),
        ([pa.field("x", pa.int64(), nullable=False)], "not nullable"),
        ([time_field("then", int64)], "another one"),
        ([("a b", pa.int64())], "STRANDLINE_COLUMN_NAME_INVALID"),
        ([("x", pa.timestamp("ns", "UTC"))], "STRANDLINE_COLUMN_TYPE_UNSUPPORTED"),
    ],
)
def test_a_column_that_cannot_be_added_is_refused(create: Create, fields: list[Any], problem: str) -> None:
    channel = create()
    with pytest.raises(ChannelError, match=problem):
        channel.add_columns(pa.schema(fields))
    assert (Channel.open(channel.path).version, channel.schema.names) == (0, ["time", "n"])


# ---- rows


def test_rows_are_read_back_by_version_and_column(create: Create, make: Any) -> None:
    channel = create()
    with channel.producer("a") as a:
        a.send(make.rows([5, 6]))
        first = a.commit()
        a.send(make.rows([7]))
    assert channel.read().column("time").to_pylist() == [5, 6, 7]
    assert channel.read(first).column("time").to_pylist() == [5, 6]
    assert channel.read(0).num_rows == 0
    assert channel.read(columns=["n"]).schema.names == ["n"]
    assert [file.rows for file in channel.snapshot_files()] == [2, 1]


def test_a_deleted_data_file_is_told_by_name(create: Create, make: Any) -> None:
    channel = create()
    with channel.producer("a") as a:
        a.send(make.rows([5]))
    (file,) = channel.snapshot_files()
    Path(channel.path, file.path).unlink()
    with pytest.raises(ChannelError, match=rf"STRANDLINE_FILE_MISSING.*{file.path}.*newest version names it.*backup"):
        channel.read()


# ---- upkeep


def test_checkpoints_are_written_by_themselves(create: Create, path: str) -> None:
    channel = create()
    with channel.producer("a") as a:
        for i in range(CHECKPOINT_INTERVAL + 5):
            a.delay(i)
            a.commit()
    assert Path(path, "_delta_log", f"{CHECKPOINT_INTERVAL:020d}.checkpoint.parquet").exists()
    assert channel.log.store.last_checkpoint() == CHECKPOINT_INTERVAL


def test_after_cleaning_the_log_everything_goes_on(create: Create, make: Any) -> None:
    channel = create(producers=[f"p{i}" for i in range(100)], at=0)  # too many for a copy in every commit
    behind = Channel.open(channel.path)
    with channel.producer("p1") as a:
        for i in range(10):
            a.send(make.rows([i]))
            a.delay(i)
            a.commit()
    assert channel.clean_log() == 0  # nothing is old enough
    copy = channel.checkpoint()
    with channel.producer("p1") as a:
        a.send(make.rows([10]))
    assert channel.clean_log(timedelta(0)) == copy
    fresh = Channel.open(channel.path)
    assert fresh.version == channel.version == copy + 2
    assert fresh.progress == channel.progress
    assert fresh.read().num_rows == 11
    assert fresh.producer("p2").holds == at(0)
    with pytest.raises(LogError, match="STRANDLINE_LOG_TRUNCATED"):
        behind.refresh()
    with pytest.raises(LogError, match=r"STRANDLINE_LOG_TRUNCATED.*Commit 3 "):
        fresh.frontier_at(3)


def test_delta_does_not_clean_a_channels_log_by_itself(create: Create) -> None:
    properties = DeltaTable(create().path).metadata().configuration
    assert properties["delta.enableExpiredLogCleanup"] == "false"
    assert properties["delta.checkpointInterval"] == str(CHECKPOINT_INTERVAL)


def test_repeated_statements_name_each_owner_once(create: Create) -> None:
    channel = create(producers=[f"p{i}" for i in range(30)], at=0)
    sessions = [channel.producer(f"p{i}", owner="one query") for i in range(30)]
    assert len(sessions) == 30
    commit = channel.log.require(channel.version)
    assert commit.info["userMetadata"].count("one query") == 1
    assert REGISTRAR in commit.info["userMetadata"]


@pytest.mark.drawn
def test_a_commit_costs_the_same_however_large_the_table(create: Create, make: Any) -> None:
    """The guard against a handle whose upkeep grows with commits and files (deltalake's took 65 ms at 10 000)."""
    channel = create()
    with channel.producer("a") as a:
        durations = []
        for i in range(300):
            a.send(make.rows([i]))
            started = time.thread_time()
            a.commit()
            durations.append(time.thread_time() - started)
    early, late = sorted(durations[10:90])[40], sorted(durations[210:290])[40]
    assert late < 4 * early
