"""What commands print with ``--json``, compared with the schemas in docs/schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from helpers import ROOT

SCHEMAS = ROOT / "docs" / "schemas"
_LINES = ("watch", "serve")


def schema_of(name: str) -> Any:
    """A schema by its name, such as that of a command."""
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))


@cache
def validator(name: str) -> Draft202012Validator:
    """The validator of a schema. It finds the other schemas of the folder."""
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    # Schemas refer to each other by the names of their files.
    registry: Any = Registry(retrieve=lambda uri: Resource.from_contents(json.loads((SCHEMAS / uri).read_text(encoding="utf-8"))))
    return Draft202012Validator(schema, registry=registry)


def check(name: str, value: Any) -> None:
    """Fail unless a value is as the schema says."""
    validator(name).validate(value)


def check_printed(arguments: Sequence[str], out: str, err: str) -> None:
    """Fail unless what a command has printed is as its schema says. Without ``--json`` everything is right."""
    if "--json" not in arguments:
        return
    for text in out.splitlines() if arguments[0] in _LINES else [out] * bool(out):
        check(arguments[0], json.loads(text))
    for line in err.splitlines():
        if line.startswith('{"error"'):
            check("error", json.loads(line))
