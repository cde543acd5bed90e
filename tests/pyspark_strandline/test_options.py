"""Options are checked where they are given: names, values, and which side they are for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_strandline.options import IngestOptions, ReadOptions, WriteOptions
from pyspark_strandline.write.ingest_sink import settings_of
from strandline.errors import StrandlineError


def refused(condition: str, parse: object, options: dict[str, str]) -> str:
    with pytest.raises(StrandlineError) as caught:
        parse(options)  # type: ignore[operator]
    assert caught.value.condition == condition
    return str(caught.value)


def test_names_are_taken_in_any_case_as_spark_gives_them() -> None:
    options = ReadOptions.parse({"PATH": "/c", "maxbytespertrigger": "10m", "failondataloss": "FALSE", "columns": "a, b"})
    assert (options.max_bytes, options.fail_on_data_loss, options.columns) == (10 << 20, False, ("a", "b"))


def test_an_unknown_option_names_the_nearest_and_all_valid_ones() -> None:
    message = refused("STRANDLINE_OPTION_UNKNOWN", ReadOptions.parse, {"path": "/c", "startVersion": "3"})
    assert "startVersion" in message
    assert "Did you mean startingVersion?" in message
    for name in ("maxFilesPerTrigger", "skipChangeCommits", "failOnDataLoss"):
        assert name in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxFilesPerTrigger", "0"),
        ("maxFilesPerTrigger", "-1"),
        ("maxFilesPerTrigger", "ten"),
        ("maxBytesPerTrigger", "10 quintals"),
        ("startingVersion", "-2"),
        ("startingVersion", "newest"),
        ("startingTimestamp", "yesterday"),
        ("failOnDataLoss", "perhaps"),
        ("columns", "a,,b"),
        ("columns", "a,a"),
        ("asOfVersion", "1.5"),
        ("show", "tides"),
        ("path", " "),
    ],
)
def test_a_malformed_value_is_named_with_its_option(name: str, value: str) -> None:
    message = refused("STRANDLINE_OPTION_INVALID", ReadOptions.parse, {"path": "/c", name: value})
    assert name in message
    assert repr(value) in message


@pytest.mark.parametrize("value", ["true", "Stateful", " false "])
def test_a_value_of_the_sinks_resume_is_no_output_of_a_source(value: str) -> None:
    message = refused("STRANDLINE_OPTION_INVALID", ReadOptions.parse, {"path": "/c", "resume": value})
    assert f"resume = {value}, which is a value of the sink" in message
    assert "path at each source" in message
    assert ReadOptions.parse({"path": "/c", "resume": "/lake/true"}).resume == "/lake/true"


def test_options_that_contradict_each_other_are_refused() -> None:
    both = {"path": "/c", "startingVersion": "3", "startingTimestamp": "2026-01-01"}
    refused("STRANDLINE_OPTION_CONFLICT", ReadOptions.parse, both)


def test_stream_and_batch_options_are_not_taken_for_each_other() -> None:
    refused("STRANDLINE_OPTION_UNKNOWN", lambda o: ReadOptions.parse(o).for_stream(), {"path": "/c", "asOfVersion": "3"})
    refused("STRANDLINE_OPTION_UNKNOWN", lambda o: ReadOptions.parse(o).for_batch(), {"path": "/c", "maxFilesPerTrigger": "3"})


def test_a_path_is_needed_on_both_sides() -> None:
    refused("STRANDLINE_PATH_MISSING", ReadOptions.parse, {})
    refused("STRANDLINE_PATH_MISSING", WriteOptions.parse, {"producer": "p"})


def test_the_sink_takes_its_own_options_only() -> None:
    assert WriteOptions.parse({"path": "/c", "takeover": "true", "checkpointLocation": "/x"}).take_over
    message = refused("STRANDLINE_OPTION_UNKNOWN", WriteOptions.parse, {"path": "/c", "overwriteSchema": "true"})
    assert "producer" in message


def test_storage_options_are_passed_on_in_upper_case() -> None:
    assert ReadOptions.parse({"path": "s3://b/c", "storage.aws_region": "eu-west-1"}).storage == {"AWS_REGION": "eu-west-1"}


def test_timestamps_are_utc_unless_they_say_otherwise() -> None:
    parse = ReadOptions.parse
    plain = parse({"path": "/c", "startingTimestamp": "2026-01-01"}).starting_timestamp_ms
    assert plain == parse({"path": "/c", "startingTimestamp": "2026-01-01T01:00:00+01:00"}).starting_timestamp_ms == 1767225600000


@pytest.mark.parametrize(
    "value",
    [
        '{"a": {"path": "/c", "storage_options": {"unfamiliar": "hunter2", "AWS_REGION": "eu-1"}}}',
        '{"a": ["/c", "row", "time", {"AWS_REGION": "eu-1", "unfamiliar": "hunter2"}]}',
        '[{"unfamiliar": "hunter2", "AWS_REGION": "eu-1"}]',
        '{"a": {"unfamiliar": "hunter2", "AWS_REGION": "eu-1", ',
        '{"AWS_REGION": "eu-1", "unfamiliar": "hunter2',
        '{"a": {"AWS_REGION": "eu-1", "unfamiliar": 5551234567}}',
        '{"a": {"AWS_REGION": "eu-1", "unfamiliar": 5551234567',
        "{AWS_REGION: eu-1, unfamiliar: hunter2}",
    ],
)
@pytest.mark.parametrize("name", ["outputs", "channels"])
def test_an_option_that_is_json_shows_no_secret_in_it(name: str, value: str) -> None:
    parse = WriteOptions.parse if name == "outputs" else ReadOptions.parse
    message = refused("STRANDLINE_OPTION_INVALID", parse, {name: value})
    assert "hunter2" not in message
    assert "5551234567" not in message
    assert ("eu-1" in message) == (value[-1] in "}]" and value[1] != "A"), "what is no JSON is not shown"


@pytest.mark.parametrize(
    ("parse", "options", "message"),
    [
        (
            WriteOptions.parse,
            {
                "outputs": json.dumps({"a": dict.fromkeys(("path", "column", "time", "domain"), "t") | {"fields": {"t": "t"}}}),
                "resume": "true",
            },
            "STRANDLINE_RESUME_IMPOSSIBLE.*outputs a",
        ),
        (
            IngestOptions.parse,
            {"path": "/c", "policy": "ordered()", "time": "t", "Resume": "true"},
            "STRANDLINE_RESUME_IMPOSSIBLE.*ingest",
        ),
        (
            ReadOptions.parse,
            {"channels": '{"a": "/a"}', "feedback": '{"a": {"iter": 1}}', "resume": "/o"},
            "STRANDLINE_RESUME_IMPOSSIBLE.*loop",
        ),
        (ReadOptions.parse, {"path": "/c", "producer": "p"}, "STRANDLINE_OPTION_CONFLICT.*resume"),
        (lambda options: ReadOptions.parse(options).for_batch(), {"path": "/c", "resume": "/o"}, "STRANDLINE_OPTION_UNKNOWN"),
        (WriteOptions.parse, {"path": "/c", "resume": "/o"}, "STRANDLINE_OPTION_INVALID.*true, stateful, changed or false"),
    ],
)
def test_what_cannot_be_resumed_is_refused_where_it_is_given(
    parse: Callable[[dict[str, str]], Any], options: dict[str, str], message: str
) -> None:
    with pytest.raises(StrandlineError, match=message):
        parse(options)


@pytest.mark.parametrize("text", ["1795099900000", "1795012300000", "20260101", "0", "1.5e12"])
def test_a_number_since_1970_is_no_starting_timestamp(text: str) -> None:
    with pytest.raises(StrandlineError, match="STRANDLINE_OPTION_INVALID.*startingTimestamp.*is a number.*timestamp_millis"):
        ReadOptions.parse({"path": "/c", "startingTimestamp": text})


def test_a_starting_timestamp_is_the_first_millisecond_not_before_it() -> None:
    def ms(text: str) -> int | None:
        return ReadOptions.parse({"path": "/c", "startingTimestamp": text}).starting_timestamp_ms

    assert (ms("1970-01-01T00:00:01.0005Z"), ms("1970-01-01T00:00:01.000Z"), ms("1969-12-31T23:59:59.9995Z")) == (1001, 1000, 0)


def test_a_partition_column_with_a_collation_is_refused() -> None:
    schema = StructType([StructField("t", LongType()), StructField("p", StringType("UTF8_LCASE"))])
    options = IngestOptions.parse({"path": "/c", "policy": "ordered()", "time": "t", "partition": "p"})
    with pytest.raises(StrandlineError, match="STRANDLINE_PARTITION_COLUMN_INVALID.*'p' has the collation UTF8_LCASE") as refused:
        settings_of(options, schema)
    assert """df.withColumn("p", F.expr("collate(`p`, 'UTF8_BINARY')"))""" in str(refused.value)
