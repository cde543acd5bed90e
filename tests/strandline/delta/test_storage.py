"""What a log names is followed below the table and nowhere else."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.channel import Channel, ChannelError, DataFile
from strandline.delta.storage import LocalStore, ObjectStore, Store, commit_name, inside, open_store
from strandline.delta.store_errors import without_secrets

PATHS = st.text(st.sampled_from("ab./\\:% e\0é=-"), max_size=9)
OUTSIDE = (
    *(
        "../salaries.parquet",
        "a/../../salaries.parquet",
        "a/..",
        "..",
        ".",
        "./a",
        "",
        "/etc/passwd",
        "//host/share",
        "a//b",
        "a/",
    ),
    *("file:///etc/passwd", "s3://bucket/key", "S3a://bucket/key", "c:/windows", "a\0b"),
)


@given(PATHS)
@example("a:b")
@example("k=2020-01-01 00:00/part.parquet")
def test_what_is_inside_is_below_the_table(path: str) -> None:
    parts = path.split("/")
    if {"", ".", ".."} & set(parts) or "\0" in path or re.match("[A-Za-z][A-Za-z0-9+.-]*:", path):
        with pytest.raises(ChannelError, match="STRANDLINE_PATH_OUTSIDE_TABLE"):
            inside(path)
    else:
        assert inside(path) == path
        assert os.path.normpath(f"/lake/table/{path}") == f"/lake/table/{path}"


@pytest.mark.parametrize("use", ["size", "read", "open_input", "open_output", "list", "delete"])
@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("kind", [LocalStore, ObjectStore])
def test_no_store_leaves_its_table(tmp_path: Path, use: str, path: str, kind: type[Store]) -> None:
    if use == "list" and not path:
        return  # the table's own folder
    (tmp_path / "table" / "a").mkdir(parents=True)
    (tmp_path / "salaries.parquet").write_bytes(b"secret")
    store = LocalStore(f"{tmp_path}/table") if kind is LocalStore else ObjectStore(f"file://{tmp_path}/table")
    with pytest.raises(ChannelError, match="STRANDLINE_PATH_OUTSIDE_TABLE"):
        getattr(store, use)(*([path, 9] if use == "read" else [path]))
    assert (tmp_path / "salaries.parquet").read_bytes() == b"secret"


def stray(channel: Channel, path: str, size: int) -> Channel:
    """The channel after a commit of a stranger's, who names a file wherever it is."""
    last = channel.log.store.read(commit_name(channel.version), 1 << 20) or b""
    add = {
        "path": path,
        "partitionValues": {},
        "size": size,
        "modificationTime": 1,
        "dataChange": True,
        "stats": '{"numRecords":2}',
    }
    seq = channel.producers["a"].seq
    info = last.split(b"\n")[0].decode().replace(f'\\"seq\\":{seq}', f'\\"seq\\":{seq + 1}')
    text = info + "\n" + json.dumps({"add": add}) + "\n"
    Path(f"{channel.path}/{commit_name(channel.version + 1)}").write_text(text)
    return Channel.open(channel.path)


@pytest.mark.parametrize(
    "path", ["../salaries.parquet", "..%2Fsalaries.parquet", "{folder}/salaries.parquet", "file://{folder}/salaries.parquet"]
)
def test_a_log_leads_nobody_out_of_the_table(make: Any, tmp_path: Path, path: str) -> None:
    channel = Channel.create(tmp_path / "table", make.schema(), producers=["a"])
    with channel.producer("a") as producer:
        producer.send(make.rows([1]))
    pq.write_table(make.rows([7, 7]), tmp_path / "salaries.parquet")
    found = stray(channel, path.format(folder=tmp_path), (tmp_path / "salaries.parquet").stat().st_size)
    files = found.log.require(found.version).files
    with pytest.raises(ChannelError, match="STRANDLINE_PATH_OUTSIDE_TABLE"):
        found.read_files(files)
    # deltalake takes an escaped slash for a letter of the file's name.
    with pytest.raises(ChannelError, match="STRANDLINE_(PATH_OUTSIDE_TABLE|FILE_MISSING)"):
        found.read()


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(make: Any, tmp_path: Path) -> None:
    channel = Channel.create(tmp_path / "table", make.schema(), producers=["a"])
    os.mkfifo(f"{channel.path}/pipe.parquet")
    with pytest.raises(ChannelError, match="STRANDLINE_NOT_A_FILE"):
        channel.read_files([DataFile("pipe.parquet", 9, 1)])
    os.mkfifo(f"{channel.path}/{commit_name(channel.version + 1)}")
    with pytest.raises(ChannelError, match="STRANDLINE_NOT_A_FILE"):
        channel.log.read(channel.version + 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_SESSION_TOKEN", "secret\n"),
        ("AWS_SESSION_TOKEN", "sec\rret"),
        ("AWS_ENDPOINT_URL", " "),
        ("AWS_ALLOW_HTTP", True),
        ("timeout", 5),
        ("AWS_SECRET_ACCESS_KEY", None),
    ],
)
def test_options_that_no_request_may_have_are_refused_by_name_and_not_shown(name: str, value: Any) -> None:
    with pytest.raises(ChannelError, match=f"STRANDLINE_STORAGE_OPTION_INVALID.*{name}") as caught:
        open_store("s3://bucket/path", {name: value})
    assert "sec" not in str(caught.value).replace("AWS_SECRET", "").replace("seconds", "")


def test_a_key_of_several_lines_is_an_option() -> None:
    with pytest.raises(ChannelError, match="STRANDLINE_STORAGE_FAILED"):  # the key lacks fields, and its form is accepted
        open_store("gs://bucket/path", {"GOOGLE_SERVICE_ACCOUNT_KEY": '{"a":\n1}'})


def test_a_secret_that_begins_with_another_options_value_is_hidden_whole() -> None:
    options = {"AWS_ACCESS_KEY_ID": "minio", "AWS_SECRET_ACCESS_KEY": "minio123secret"}
    assert "123" not in without_secrets("the store said minio123secret", options)


UNFAMILIAR = [
    "my_bucket_password",
    "endpoint_secret",
    "AWS_ALLOW_KEY",
    "region_token",
    "retry_credential",
    "sas_url",
    "proxy_url",
    "container_authorization_token",
    "timeouts",
]


@pytest.mark.parametrize("name", UNFAMILIAR)
def test_only_values_of_names_that_are_known_to_be_harmless_are_shown(name: str) -> None:
    assert "hunter2" not in without_secrets("the store said hunter2", {name: "hunter2"})


@pytest.mark.parametrize(
    "name", ["AWS_REGION", "azure_storage_account_name", "AWS_ENDPOINT_URL", "endpoint", "google_bucket", "timeout"]
)
def test_values_of_harmless_names_are_shown(name: str) -> None:
    assert "hunter2" in without_secrets("the store said hunter2", {name: "hunter2"})


@pytest.mark.parametrize("name", ["GOOGLE_SERVICE_ACCOUNT_KEY", "storage_options", "endpoint_options"])
def test_what_is_within_an_option_that_is_json_is_hidden(name: str) -> None:
    again = json.dumps({"x": "hunter5"})
    value = json.dumps({"private_key": "hun/ter2\n", "more": [{"odd": "hunter3"}, "hunter4"], "again": again, "region": "eu-1"})
    said = without_secrets("hun/ter2\n, hun/ter2\\n, hun%2Fter2, hunter3, hunter4 and hunter5 in eu-1", {name: value})
    assert "ter" not in said.replace("hun%2Fter2", "")
    assert "eu-1" in said


def test_a_secret_is_hidden_in_every_form_in_which_it_may_be_shown() -> None:
    secret = 'a/b+c"d é='  # noqa: S105
    forms = [secret, json.dumps(secret)[1:-1], quote(secret), quote(secret, safe="")]
    assert without_secrets(" ".join(forms), {"AWS_SECRET_ACCESS_KEY": secret}) == " ".join(["***"] * 4)
