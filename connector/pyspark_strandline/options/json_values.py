"""Parsers of options whose values are JSON objects. Functions of this package make them, not users."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, get_args

from pyspark_strandline.options import errors
from pyspark_strandline.options.parsers import invalid
from strandline.delta.storage import location_of
from strandline.loop import LoopQuery
from strandline.replay.restamp import StampedBy

__all__ = ["CHANNEL", "OutputPlace", "channels", "feedback", "outputs", "passing", "queries", "restamp"]

CHANNEL = "_channel"
"""The column of a source of several channels that names the channel of a row."""


@dataclass(frozen=True)
class OutputPlace:
    """One of several outputs.

    Attributes:
        path: The path of its channel.
        column: The column of the query with its rows, which is a struct.
        fields: For each column of the channel, the field of the struct.
        time: The channel's time column.
        domain: The domain of its times.
        restamped: Whether it is a looping link that gives its rows new times.
    """

    path: str
    column: str
    fields: dict[str, str]
    time: str
    domain: str
    restamped: bool = False


def _object(name: str, value: str, rule: str) -> dict[str, Any]:
    """Read a JSON object that is not empty and has no empty name."""
    try:
        body = json.loads(value)
    except (ValueError, RecursionError):
        raise invalid(name, value, rule) from None
    if not isinstance(body, dict) or not body or not all(body):
        raise invalid(name, value, rule)
    return body


def outputs(name: str, value: str) -> dict[str, OutputPlace]:
    """Read the places of several outputs, by name."""
    rule = "a JSON object with path, column, fields, time and domain for each output's name"
    body = _object(name, value, rule)
    texts = ("path", "column", "time", "domain")
    for entry in body.values():
        if not isinstance(entry, dict) or {*entry} - {"restamped"} != {*texts, "fields"} or not isinstance(entry["fields"], dict):
            raise invalid(name, value[:300], rule)
        if type(entry.get("restamped", False)) is not bool:
            raise invalid(name, value[:300], rule)
        each = [*(entry[text] for text in texts), *entry["fields"].values()]
        if entry["time"] not in entry["fields"] or any(not isinstance(text, str) or not text for text in each):
            raise invalid(name, value[:300], rule)
    places: dict[str, str] = {}
    for output, entry in body.items():
        path = entry["path"]
        location = location_of(path)
        other = places.setdefault(location if "://" in location else os.path.realpath(location), output)
        if other != output:
            raise errors.outputs_invalid(other, output, path)
    return {output: OutputPlace(**entry) for output, entry in body.items()}


def channels(name: str, value: str) -> dict[str, str]:
    """Read the paths of several channels, by name."""
    rule = "a JSON object with the path of each channel by its name"
    body = _object(name, value, rule)
    if any(not isinstance(path, str) or not path for path in body.values()):
        raise invalid(name, value, rule)
    lower = [each.lower() for each in body]  # Spark's columns, which have these names, are the same in any case
    if CHANNEL in lower:
        raise invalid(name, value, f"without the name {CHANNEL}, which is a column of the source")
    if len(set(lower)) < len(lower):
        raise invalid(name, value, "with names that differ not only in case")
    return body


def feedback(name: str, value: str) -> dict[str, dict[str, int]]:
    """Read by how much each coordinate advances on the way around, by feedback channel."""
    rule = "a JSON object: for each feedback channel, by how much each coordinate of its times advances"
    body = _object(name, value, rule)
    if any(not isinstance(by, dict) or any(type(distance) is not int for distance in by.values()) for by in body.values()):
        raise invalid(name, value[:300], rule)
    return body


def restamp(name: str, value: str) -> dict[str, tuple[str, str]]:
    """Read how looping links give their rows new times, by feedback channel: the way, and the column with an event's instant."""
    rule = "a JSON object: for each such feedback channel, clock, earliest or event, and the column with an event's instant"
    body = _object(name, value, rule)
    for each in body.values():
        if not isinstance(each, list) or len(each) != 2 or any(not isinstance(text, str) for text in each):
            raise invalid(name, value[:300], rule)
        if each[0] not in get_args(StampedBy) or (each[0] == "event") != bool(each[1]):
            raise invalid(name, value[:300], rule)
    return {channel: (by, at) for channel, (by, at) in body.items()}


def passing(name: str, value: str) -> tuple[str, ...]:
    """Read the names of the channels of a loop whose rows no operator keeps to emit something later."""
    rule = "a JSON list of names of channels"
    try:
        body = json.loads(value)
    except (ValueError, RecursionError):
        raise invalid(name, value, rule) from None
    if not isinstance(body, list) or any(not isinstance(each, str) or not each for each in body):
        raise invalid(name, value[:300], rule)
    return tuple(body)


def queries(name: str, value: str) -> dict[str, LoopQuery]:
    """Read the queries of a loop, by name."""
    rule = "a JSON object: for each query of the loop, what it reads and writes"
    body = _object(name, value, rule)
    for query in body.values():
        if not isinstance(query, dict) or set(query) != {"reads", "writes"} or not isinstance(query["reads"], list):
            raise invalid(name, value[:300], rule)
        by_channel = query["writes"].values() if isinstance(query["writes"], dict) else [None]
        if any(not isinstance(by, dict) or any(type(distance) is not int for distance in by.values()) for by in by_channel):
            raise invalid(name, value[:300], rule)
        if any(not isinstance(channel, str) for channel in query["reads"]):
            raise invalid(name, value[:300], rule)
    return {query: LoopQuery(each["reads"], each["writes"]) for query, each in body.items()}
