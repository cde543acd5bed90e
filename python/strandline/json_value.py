"""JSON values, such as the states that producers keep in a log. Whoever does not interpret one names it by these types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

__all__ = ["Json", "JsonObject"]

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""Any JSON value. A tuple is written as a list."""
JsonObject: TypeAlias = "dict[str, Json]"
"""A JSON object."""
