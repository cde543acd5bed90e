"""What the shim publishes of a batch, in the local property ``strandline.output`` (docs/protocol.md): read by the sink."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark_strandline.errors import extension_missing_for_frontier
from pyspark_strandline.operators import errors
from pyspark_strandline.operators.summary_steps import steps_from
from strandline.channel.batch.table_reads import TableRead
from strandline.channel.statements.beginning import Beginning
from strandline.channel.statements.inputs import Input
from strandline.delta.storage import location_of
from strandline.errors import StrandlineError
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain, parse_domain

__all__ = ["checkpoint_of", "has_roundings", "inputs_of", "output_frontier", "tables_of"]


def output_frontier(published: str, domain: TimeDomain, name: str = "") -> Antichain:
    """Return the output frontier after the batch, as the shim published it.

    Args:
        published: The text of the local property ``strandline.output`` (docs/protocol.md).
        domain: The domain of the time column.
        name: The name of the output, empty for a query's only one.

    Raises:
        StrandlineError: The session has no extension, or the frontier is unknown; the error says why.
    """
    if not published:
        raise extension_missing_for_frontier()
    body: Mapping[str, Any] = json.loads(published)
    if name:
        body = body.get("outputs", {}).get(name, body)
    if "error" in body:
        raise errors.output_frontier_unknown(name, body["error"])
    if "domain" not in body:
        raise errors.output_frontier_unknown_unpublished(name)
    if parse_domain(body["domain"]) != domain:
        raise errors.time_domain_mismatch(body["domain"], domain)
    return Antichain.from_json(domain, body["end"], "output frontier")


def checkpoint_of(published: str) -> str | None:
    """Return the path of the query's checkpoint, as the shim published it.

    >>> checkpoint_of('{"summary": [], "checkpoint": "file:/lake/checkpoints/hours"}')
    'file:/lake/checkpoints/hours'
    >>> checkpoint_of("")
    """
    body = json.loads(published) if published else {}
    found = body.get("checkpoint")
    return found if isinstance(found, str) else None


def inputs_of(published: str, name: str = "") -> list[Input]:
    """Return how far the query has read each of its input channels after the batch, as the shim published it.

    A path with a password in its address is left out, because the log would show it.

    Args:
        published: The text of the local property ``strandline.output`` (docs/protocol.md).
        name: The name of the output, empty for a query's only one.

    >>> found = inputs_of('{"positions": [{"table": "7c1f", "commit": 3, "file": 0, "path": "s3://key:secret@lake/a"}]}')
    >>> [(each.table, each.commit, each.path) for each in found]
    [('7c1f', 3, None)]
    >>> inputs_of("")
    []
    """
    body: dict[str, Any] = json.loads(published) if published else {}
    summary = (body.get("outputs", {}).get(name, body) if name else body).get("summary")
    found = []
    for each in body.get("positions", ()):
        path = None
        with suppress(StrandlineError):
            path = location_of(each["path"]) if "path" in each else None
        snapshot = each.get("snapshot")
        if snapshot is not None and snapshot < 0:
            snapshot = None  # the first snapshot was not chosen yet
        steps = tuple(steps_from(summary, each.get("input"))) if isinstance(summary, list) else None
        domain, after = (known if isinstance(known := each.get(key), str) else None for key in ("domain", "after"))
        began = Beginning.from_json(each.get("began"))
        if began is not None and each.get("lossy"):
            began = began._replace(lossy=True)  # the batch is repeated with another option than it was planned with
        name_of_input = each.get("input")
        found.append(
            Input(each["table"], each["commit"], each["file"], path, steps, domain, after, snapshot, began, name_of_input)
        )
    return found


def has_roundings(published: str) -> bool:
    """Return whether a repeated batch may have other roundings, or lists in another order, as the shim published it.

    >>> has_roundings('{"rounding": true}'), has_roundings('{"summary": []}')
    (True, False)
    """
    return '"rounding"' in published and json.loads(published).get("rounding") is True


def tables_of(published: str) -> list[TableRead]:
    """Return the tables that the batch has read beside its streams, each at a version, as the shim published them.

    A path with a password in its address is left out, because the log would show it.

    >>> tables_of('{"tables": [{"table": "7c1f", "version": 3, "path": "file:/lake/devices"}]}')
    [TableRead(table='7c1f', version=3, path='/lake/devices')]
    >>> tables_of("")
    []
    """
    body: dict[str, Any] = json.loads(published) if published else {}
    found = []
    for each in body.get("tables", ()):
        path = None
        with suppress(StrandlineError):
            path = location_of(each["path"])
        found.append(TableRead(each["table"], each["version"], path))
    return found
