"""A record: a JSON object of a state, with a typed field for each known key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from strandline.ingest import errors
from strandline.ingest.state.readers import Reader, Unfit
from strandline.json_value import JsonObject

__all__ = ["Key", "Record"]

_R = TypeVar("_R", bound="Record")


class Key(NamedTuple):
    """A key of a record: the field that has its value, and how the value is read."""

    field: str
    read: Reader
    required: bool = False


@dataclass(frozen=True)
class Record:
    """A JSON object with known keys. A field is ``None`` where the object lacks its key.

    :meth:`to_json` returns what :meth:`from_json` read: the keys in their order, and the keys that are not known too. A key that
    is set for the first time comes last.

    Attributes:
        more: The values of the keys that are not known.
        order: All keys that the object has, in their order.
    """

    KEYS: ClassVar[Mapping[str, Key]] = {}
    """The known keys."""
    _KEY_OF: ClassVar[Mapping[str, str]] = {}
    _REQUIRED: ClassVar[tuple[str, ...]] = ()

    more: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    order: tuple[str, ...] = field(default=(), kw_only=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._KEY_OF = {known.field: key for key, known in cls.KEYS.items()}
        cls._REQUIRED = tuple(key for key, known in cls.KEYS.items() if known.required)

    @classmethod
    def from_json(cls: type[_R], value: Any, what: str) -> _R:
        """Read an object; ``None`` is one without keys.

        Args:
            value: The object.
            what: What the object is, for the error.

        Raises:
            IngestError: ``STRANDLINE_INGEST_STATE_INVALID``. The value is not such an object.
        """
        if value is None:
            return cls()
        if not isinstance(value, dict):
            raise errors.ingest_state_invalid_object(what, value)
        try:
            return cls._parse(value)
        except _Wrong as wrong:
            key = wrong.key
            if key not in value:
                raise errors.ingest_state_invalid_lacking(what, key) from None
            raise errors.ingest_state_invalid(what, value[key], key) from None

    @classmethod
    def inner(cls: type[_R], value: Any) -> _R:
        """Read an object within another one. Raises :class:`Unfit`."""
        if not isinstance(value, dict):
            raise Unfit
        try:
            return cls._parse(value)
        except _Wrong:
            raise Unfit from None

    @classmethod
    def _parse(cls: type[_R], value: JsonObject) -> _R:
        for key in cls._REQUIRED:
            if key not in value:
                raise _Wrong(key)
        fields: dict[str, Any] = {}
        more: JsonObject = {}
        for key, each in value.items():
            known = cls.KEYS.get(key)
            try:
                read = None if known is None else known.read(each)
            except Unfit:
                raise _Wrong(key) from None
            if known is None or read is None:
                more[key] = each
            else:
                fields[known.field] = read
        return cls._with({**fields, "more": more, "order": tuple(value)})

    @classmethod
    def _with(cls: type[_R], fields: Mapping[str, Any]) -> _R:
        """Return a record with these fields. There may be very many records, and this is faster than the class itself."""
        self = object.__new__(cls)
        self.__dict__.update(fields)
        return self

    def to_json(self) -> JsonObject:
        """Return the object."""
        result = {}
        for key in self.order:
            if key in self.more:
                result[key] = self.more[key]
            else:
                value = getattr(self, self.KEYS[key].field)
                result[key] = value.to_json() if isinstance(value, Record) else value
        return result

    def changed(self: _R, **changes: Any) -> _R:
        """Return a copy with other values of some fields; ``None`` removes a key."""
        if not self.more and all((self._KEY_OF[name] in self.order) == (changes[name] is not None) for name in changes):
            return self._with({**self.__dict__, **changes})  # the keys stay: most changes, and there may be very many
        keys = {self._KEY_OF[name]: value for name, value in changes.items()}
        order = tuple(key for key in self.order if keys.get(key, key) is not None)
        order += tuple(key for key, value in keys.items() if value is not None and key not in order)
        more = {key: value for key, value in self.more.items() if key not in keys} if self.more else self.more
        return self._with({**self.__dict__, **changes, "more": more, "order": order})

    def placed_last(self: _R, **changes: Any) -> _R:
        """Return a copy with other values of some fields, whose keys come last."""
        keys = tuple(self._KEY_OF[name] for name in changes)
        if self.order[-len(keys) :] == keys:
            return self.changed(**changes)
        return self.changed(**dict.fromkeys(changes)).changed(**changes)

    def __bool__(self) -> bool:
        return bool(self.order)


class _Wrong(Exception):  # noqa: N818
    """A key has no value that fits."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key
