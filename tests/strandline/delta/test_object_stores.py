"""Channels in object stores: an S3 server and Azure's emulator on this machine, by deltalake and by conditional writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from object_stores import S3, SECRET, Azurite, why_no_azurite
from s3_server import NO_DATA
from strandline.channel import Channel
from strandline.delta import put_if_absent
from strandline.delta.log import DeltaLog
from strandline.delta.storage import LOG_DIR, ObjectStore, open_store
from strandline.delta.table import Table
from strandline.errors import ChannelError, StorageError, StrandlineError
from strandline.ingest.late.late_table import check_storage
from strandline.report.overview import frontiers
from strandline.time.arrow import time_field
from strandline.time.domain import parse_domain

SCHEMA = pa.schema([time_field("hour", parse_domain("int64")), ("n", pa.int64())])
_NEVER_SHOWN = (SECRET, "\x1b", "Debug source")


@dataclass
class Place:
    """A bucket or container: the address of what is in it, by every scheme, and the options that open it."""

    url: str
    options: dict[str, str]
    others: tuple[str, ...] = ()

    def at(self, name: str) -> str:
        return f"{self.url}/{name}"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    if (why := why_no_azurite()) is not None:
        pytest.skip(why)
    with Azurite() as server:
        yield server


@pytest.fixture(scope="module", params=["s3", pytest.param("azure", marks=pytest.mark.soak)])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "s3":
        s3: S3 = request.getfixturevalue("s3")
        bucket = s3.bucket()
        return Place(f"s3://{bucket}", s3.options(), (f"s3a://{bucket}",))
    azurite: Azurite = request.getfixturevalue("azurite")
    container = azurite.container()
    host = f"{azurite.account}.dfs.core.windows.net"
    others = (f"abfss://{container}@{host}", f"abfs://{container}@{host}")
    return Place(f"az://{container}", azurite.options(), others)


def create(path: str, options: Mapping[str, str], producers: tuple[str, ...] = ("a", "b")) -> Channel:
    return Channel.create(path, SCHEMA, time="hour", producers=list(producers), at=0, storage_options=options)


def send(channel: Channel, producer: str, hour: int, *numbers: int) -> None:
    session = channel.producer(producer)
    session.send(pa.table({"hour": [hour] * len(numbers), "n": list(numbers)}))
    session.delay(hour + 1)
    session.commit()
    session.close()


def numbers(channel: Channel) -> list[int]:
    return sorted(channel.read().column("n").to_pylist())


@pytest.mark.drawn
def test_a_channel_lives_in_a_store_and_has_one_identity_by_every_address(place: Place) -> None:
    channel = create(place.at("flights"), place.options)
    send(channel, "a", 1, 1, 2)
    for number, other in enumerate(place.others, start=3):
        same = Channel.open(f"{other}/flights/", place.options)
        assert same.table_id == channel.table_id
        send(same, "b", number, number)
    channel.refresh()
    assert numbers(channel) == [1, 2, *range(3, 3 + len(place.others))]
    assert channel.frontier == Channel.open(place.at("flights"), place.options).frontier


@pytest.mark.drawn
def test_many_writers_race_and_no_row_is_lost_or_doubled(place: Place) -> None:
    path, names = place.at("raced"), ("a", "b", "c", "d")
    create(path, place.options, names)

    def work(name: str) -> None:
        channel = Channel.open(path, place.options)
        session = channel.producer(name)
        for step in range(3):
            session.send(pa.table({"hour": [step], "n": [names.index(name) * 100 + step]}))
            session.delay(step + 1)
            session.commit()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, names))
    assert numbers(Channel.open(path, place.options)) == [100 * who + step for who in range(4) for step in range(3)]
    versions = sorted(DeltaLog[Any](path, place.options).versions())
    assert versions == list(range(len(versions)))


@pytest.mark.drawn
def test_exactly_one_of_several_commits_of_a_version_wins(place: Place) -> None:
    path = place.at("version")
    create(path, place.options)
    for version in range(1, 4):
        tables = [Table(path, place.options) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda table: table.commit(version, [], "x", {}), tables))  # noqa: B023
        assert sorted(done) == [False, False, False, True]


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["plain", "a b", "é+ü", "50%25", "k=v/deeper"])
def test_both_clients_mean_the_same_object_by_an_address(s3: S3, name: str) -> None:
    path = f"s3://{s3.bucket()}/{name}"
    send(create(path, s3.options()), "a", 1, 7)
    assert numbers(Channel.open(path, s3.options())) == [7]


def test_a_commit_is_one_request_and_the_question_before_it_is_three(s3: S3) -> None:
    path = f"s3://{s3.bucket()}/ch"
    s3.requests()
    channel = create(path, s3.options())
    asked = [request for request in s3.requests() if "/_probe/" in request or "?delete" in request]
    assert [request.split()[0] for request in asked] == ["PUT", "PUT", "POST"]
    assert channel.log.store.list("_probe") == []
    s3.requests()
    assert channel._snapshot.table.commit(1, [], "x", {})
    assert len(s3.requests()) == 1


@pytest.mark.drawn
def test_a_store_that_overwrites_is_refused_and_keeps_what_it_has(s3: S3) -> None:
    path, options = f"s3://{s3.bucket('careless')}/ch", s3.options()
    with pytest.raises(ChannelError, match="STRANDLINE_STORE_OVERWRITES.*accepted the same object twice"):
        create(path, options)
    assert open_store(path, options).list("_delta_log") == []
    store = open_store(path, options)
    assert isinstance(store, ObjectStore)
    store._puts = put_if_absent.PutIfAbsent(path, options)
    put_if_absent._proven.add(store._puts._key)  # this is what would happen without the question
    try:
        assert store.create("x", b"first") is put_if_absent.Put.MADE
        assert store.create("x", b"second") is put_if_absent.Put.MADE
        assert store.read("x", 9) == b"second"
        send(create(path, options), "a", 1, 1)
    finally:
        put_if_absent._proven.discard(store._puts._key)
    channel = Channel.open(path, options)
    with pytest.raises(ChannelError, match="STRANDLINE_STORE_OVERWRITES"):
        send(channel, "a", 2, 2)
    assert numbers(Channel.open(path, options)) == [1]  # it can be read


@pytest.mark.drawn
@pytest.mark.parametrize("name", ["conditional_put", "AWS_CONDITIONAL_PUT"])
def test_an_option_that_switches_the_condition_off_is_refused(s3: S3, name: str) -> None:
    path = f"s3://{s3.bucket()}/ch"
    send(create(path, s3.options()), "a", 1, 1)
    with pytest.raises(ChannelError, match="STRANDLINE_STORE_OVERWRITES.*conditional_put"):
        send(Channel.open(path, {**s3.options(), name: "disabled"}), "a", 2, 2)
    assert numbers(Channel.open(path, s3.options())) == [1]


@pytest.mark.drawn
def test_options_that_only_deltalake_knows_change_nothing(s3: S3) -> None:
    path, own = f"s3://{s3.bucket()}/ch", s3.options()
    more = {"AWS_S3_ALLOW_UNSAFE_RENAME": "true", "max_retries": "2", "retry_timeout": "10s", "TIMEOUT": "20s", "other": "x"}
    send(create(path, {**own, **more}), "a", 1, 1)
    channel = Channel.open(path, {name.lower(): value for name, value in own.items()})  # as Spark may give them
    send(channel, "b", 1, 2)
    assert numbers(channel) == [1, 2]


def test_a_misspelt_option_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    options = {"AWS_ACCESS_KEY_IDD": "hidden", "AWS_S3_LOCKING_PROVIDER": "dynamodb", "AWS_REGION": "eu-west-1"}
    for _ in range(2):
        put_if_absent.PutIfAbsent("s3://lake/t", options)
    assert [record.getMessage() for record in caplog.records] == [
        "The storage option AWS_ACCESS_KEY_IDD of s3://lake/t is not known. Did you mean AWS_ACCESS_KEY_ID?"
    ]


def test_a_store_of_which_nothing_is_known_is_not_written() -> None:
    with pytest.raises(ChannelError, match="STRANDLINE_STORE_OVERWRITES.*Nobody knows"):
        create("memory:///ch", {})


def test_keys_may_come_from_the_environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    path, options = f"s3://{s3.bucket()}/ch", s3.options()
    keys = {name: options.pop(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    send(create(path, options), "a", 1, 1)
    assert numbers(Channel.open(path, options)) == [1]


@pytest.mark.drawn
def test_every_failure_of_a_store_has_a_name_and_shows_no_secret(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, options = s3.bucket(), s3.options()
    path = f"s3://{bucket}/ch"
    channel = create(path, options)
    without = {name: value for name, value in options.items() if "KEY" not in name}
    hidden = "SEKRIT-of-the-address"
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def said(condition: str, expected: str, path: str, options: Mapping[str, str], does: Any = Channel.open) -> None:
        with pytest.raises(StrandlineError) as caught:
            does(path, options)
        text = str(caught.value)
        assert caught.value.condition == condition
        assert expected in text
        assert caught.value.__cause__ is None or not isinstance(caught.value, StorageError)
        assert not any(secret in text for secret in (*_NEVER_SHOWN, hidden))

    failed, invalid = "STRANDLINE_STORAGE_FAILED", "STRANDLINE_STORAGE_URL_INVALID"
    said(failed, "The store refuses these credentials", path, s3.options("AKIAUNKNOWN"))
    said(failed, "The store refuses these credentials", f"s3://{bucket}/new", s3.options("AKIAUNKNOWN"), create)
    said(failed, "gives them no right", f"s3://{bucket}/new", s3.reader_options(), create)
    said(failed, "Missing SecretAccessKey. No complete credentials", path, {**without, "AWS_ACCESS_KEY_ID": "x"})
    said(failed, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", path, without)
    said(failed, "NoSuchBucket. Create the bucket", "s3://there-is-none/ch", options)
    said(failed, "Connection refused", path, {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "max_retries": "0"})
    said(failed, "set AWS_ALLOW_HTTP", path, {**options, "AWS_ALLOW_HTTP": "false"})
    said() if 0 else None
    said(invalid, "Unknown scheme: s3n", f"s3n://{bucket}/ch", options)
    said(invalid, "user:***@", f"s3://user:{hidden}@{bucket}/ch", options)
    said(invalid, f"'s3://{bucket}/ch'", f"s3://{bucket}/ch?sig={hidden}", options)
    said(invalid, "a fragment", f"s3://{bucket}/ch#{hidden}", options)
    said("STRANDLINE_NOT_A_TABLE", "no Delta table", f"s3://{bucket}/none", options)
    reader = Channel.open(path, s3.reader_options())
    assert reader.read().num_rows == 0
    with pytest.raises(StorageError, match="gives them no right"):
        send(reader, "a", 1, 1)
    assert channel.frontier == Channel.open(path, options).frontier


def test_a_store_that_fails_while_a_file_is_read_did_not_damage_it(s3: S3) -> None:
    path = f"s3://{s3.bucket()}/ch"
    send(create(path, s3.options()), "a", 1, 1)
    channel = Channel.open(path, s3.options(NO_DATA))
    with pytest.raises(StorageError, match=r"STRANDLINE_STORAGE_FAILED.*\.parquet.*AccessDenied") as caught:
        channel.read()
    assert caught.value.condition == "STRANDLINE_STORAGE_FAILED"
    assert not any(secret in str(caught.value) for secret in _NEVER_SHOWN)


@pytest.mark.soak
def test_a_shared_access_signature_serves(azurite: Azurite) -> None:
    container = azurite.container()
    path, options = f"az://{container}/ch", azurite.sas_options(container)
    send(create(path, options), "a", 1, 1)
    assert numbers(Channel.open(path, options)) == [1]


@pytest.mark.soak
def test_a_wrong_key_of_azure_is_named_and_not_shown(azurite: Azurite) -> None:
    container = azurite.container()
    wrong = {**azurite.options(), "AZURE_STORAGE_ACCOUNT_KEY": "U0VLUklULW9mLWF6dXJl"}
    sas = azurite.sas_options(container)
    wrong_sas = {**sas, "AZURE_STORAGE_SAS_KEY": sas["AZURE_STORAGE_SAS_KEY"].replace("racwdl", "rl")}
    for options, secret in ((wrong, "U0VLUklU"), (wrong_sas, "sig=a"), (wrong_sas, wrong_sas["AZURE_STORAGE_SAS_KEY"][-20:])):
        for does in (Channel.open, create):
            with pytest.raises(StrandlineError) as caught:
                does(f"az://{container}/ch", options)
            assert caught.value.condition in ("STRANDLINE_STORAGE_FAILED", "STRANDLINE_NOT_A_TABLE")
            assert secret not in str(caught.value)


def test_a_late_table_of_the_same_bucket_is_on_the_same_storage_by_either_scheme() -> None:
    assert check_storage("s3://lake/late", "s3a://lake/flights") == "s3://lake/late"


def test_transactions_of_removed_commits_are_not_believed(place: Place) -> None:
    """A .crc file of another engine was left behind, and its version is written again. The log is asked instead."""
    channel = create(path := place.at("crc"), place.options, producers=("a",))
    for batch in range(2):
        channel.append([], statements={"a": [batch]}, transaction=("query", batch), owner="q", always=True)
    founding = channel.log.require(0)
    said = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1, "metadata": founding.metadata}
    said |= {"protocol": founding.protocol, "setTransactions": [{"appId": "other", "version": 7, "lastUpdated": 1}]}
    channel.log.store.create(f"{LOG_DIR}/{1:020d}.crc", json.dumps(said).encode())
    opened = Channel.open(path, place.options)
    assert (opened.transaction_version("other"), opened.transaction_version("query")) == (None, 1)


def test_all_channels_of_a_folder_are_found(place: Place) -> None:
    for name in ("lake/one", "lake/deep/two"):
        create(place.at(name), place.options)
    open_store(place.at("lake"), place.options).create("deep/notes.txt", b"no table")
    found = frontiers(place.at("lake"), place.options).to_pylist()
    assert [(row["channel"], row["timeInt64"], row["error"]) for row in found] == [("deep/two", 0, None), ("one", 0, None)]
