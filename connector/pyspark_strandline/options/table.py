"""Options as tables: a frozen dataclass whose fields say each option's name, parser, default, place and doc, once."""

from __future__ import annotations

import dataclasses
import difflib
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

from pyspark_strandline.options import errors
from pyspark_strandline.options.parsers import text

__all__ = [
    "ABOVE",
    "EXTENSION",
    "SINCE",
    "Channels",
    "Method",
    "Option",
    "fields",
    "option",
    "parse",
    "required",
    "rows",
    "storage_options",
]

EXTENSION = "strandline.extension"
"""The shim sets this option. It shows the Python reader that the session has the extension."""
SINCE = "strandline.since"
"""The shim sets this option to what ``startingFrontier`` was. It shows the Python reader that the plan leaves out other rows."""

ABOVE = ""
"""The doc of an option that the row above describes too."""

_T = TypeVar("_T")
_METADATA = "strandline.option"
_STORAGE = "storage."
_TABLE = "provider"
"""A property that every table of a catalog has. Spark gives all of a table's properties as options when it creates one."""


class Method(enum.Enum):
    """By which method of Spark an option can be given."""

    ANY = enum.auto()
    BATCH = enum.auto()
    STREAM = enum.auto()


class Channels(enum.Enum):
    """Sources of which channels have an option."""

    ANY = enum.auto()
    ONE = enum.auto()
    SEVERAL = enum.auto()
    LOOP = enum.auto()
    NO_LOOP = enum.auto()


@dataclasses.dataclass(frozen=True)
class Option:
    """One row of a table.

    Attributes:
        name: The name as users write it.
        parse: Returns the value of a text, or raises. It gets the name and the text. ``None`` for ``storage.NAME``.
        field: The field of the dataclass.
        method: By which method of Spark it can be given.
        channels: Sources of which channels have it.
        doc: Its text in docs/options.md, :data:`ABOVE`, or ``None`` if the page does not have it.
    """

    name: str
    parse: Callable[[str, str], Any] | None
    field: str = ""
    method: Method = Method.ANY
    channels: Channels = Channels.ANY
    doc: str | None = None


@overload
def option(name: str, parse: Callable[[str, str], _T], default: _T, **row: Any) -> _T: ...
@overload
def option(name: str, parse: Callable[[str, str], _T], default: None = None, **row: Any) -> _T | None: ...
def option(name: str, parse: Callable[[str, str], Any], default: Any = None, **row: Any) -> Any:
    """Declare a field of a table: the option ``name`` with a default. ``row`` has other attributes of :class:`Option`."""
    made = {"default_factory": default.copy} if isinstance(default, dict) else {"default": default}
    return dataclasses.field(**made, metadata={_METADATA: Option(name, parse, **row)})


def required(name: str, parse: Callable[[str, str], _T], **row: Any) -> _T:
    """Declare a field of a table: an option without a default."""
    declared: Any = dataclasses.field(metadata={_METADATA: Option(name, parse, **row)})
    return declared  # type: ignore[no-any-return]


def storage_options(doc: str | None = None) -> dict[str, str] | None:
    """Declare the field of the options ``storage.NAME``, which are those of the object store. No ``repr`` shows them."""
    declared: Any = dataclasses.field(
        default=None, repr=False, metadata={_METADATA: Option(f"{_STORAGE}NAME", parse=None, doc=doc)}
    )
    return declared  # type: ignore[no-any-return]


def rows(table: type[Any]) -> Iterator[Option]:
    """Yield the options of a table, in its order."""
    for field in dataclasses.fields(table):
        if _METADATA in field.metadata:
            yield dataclasses.replace(field.metadata[_METADATA], field=field.name)


def parse(table: type[Any], options: Mapping[str, str], what: str, passed: Sequence[str] = ()) -> dict[str, Any]:
    """Read options by the rows of a table. Spark passes names in lower case, and accepts them in any case.

    Args:
        table: The dataclass with the rows.
        options: The texts by name.
        what: What has the options, for messages.
        passed: Further options, which only Spark or the shim reads.

    Returns:
        The values of the options that are given, by name.

    Raises:
        StrandlineError: An option is unknown or has an invalid value, or there is not one path.
    """
    known = {row.name: row.parse for row in rows(table) if row.parse is not None} | dict.fromkeys(passed, text)
    proper = {name.lower(): name for name in known}
    if any(key.lower() == _TABLE for key in options):
        options = {key: value for key, value in options.items() if key.lower() in proper or key.lower().startswith(_STORAGE)}
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key.lower().startswith(_STORAGE):
            continue
        name = proper.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), proper, n=1)
            hint = f"Did you mean {proper[near[0]]}? " if near else ""
            valid = ", ".join(sorted((n for n in known if n not in (EXTENSION, SINCE)), key=str.lower))
            raise errors.option_unknown(key, what, hint, valid)
        values[name] = known[name](name, value)
    several = next((name for name in ("outputs", "channels") if name in values), None)
    if several is not None and "path" in values:
        raise errors.option_conflict_path(values["path"], several)
    if "path" not in values and several is None:
        raise errors.path_missing(what)
    return values


def fields(table: type[Any], values: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that make a table of the values of :func:`parse`, with the options of the object store.

    Delta-rs has the names of these options in upper case, and Spark may have lowered them.
    """
    storage = {key[len(_STORAGE) :].upper(): value for key, value in options.items() if key.lower().startswith(_STORAGE)}
    return {row.field: values[row.name] for row in rows(table) if row.name in values} | {"storage": storage or None}
