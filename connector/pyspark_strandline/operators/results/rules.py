"""What a single Python value must be to become a value of an Arrow type, exactly."""

from __future__ import annotations

import array
import math
import reprlib
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["MOST_EXACT", "MisfitError", "Rule", "is_missing", "other_fields", "rule", "same", "same_key", "shown", "type_name"]

Rule = Callable[[Any], Any]
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 60
_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation, Overflow])
_MISSING = {"NaTType", "NAType"}
# Beyond it two integers may be the same float.
MOST_EXACT = 2**53


class MisfitError(Exception):
    """A value that is no value of its type. ``path`` says where it is: ``a.b[3]``. ``what`` says what is wrong with it."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what, self.path = what, path

    def within(self, step: str) -> MisfitError:
        """Return the misfit as that of the value around it."""
        rest = f".{self.path}" if self.path and not self.path.startswith("[") else self.path
        return MisfitError(self.what, step + rest)

    def __str__(self) -> str:
        return f"{self.path} {self.what}" if self.path else self.what


def rule(field: pa.Field) -> Rule:
    """Return the check of the values of ``field``.

    It returns a value as Arrow would give it back: a ``dict`` for a struct or a map, a ``list`` for an array. Scalars of NumPy,
    Arrow and pandas are taken if they have the value exactly. It raises :class:`MisfitError` for any other value.

    >>> check = rule(pa.field("n", pa.list_(pa.int8())))
    >>> check((1, None, 3))
    [1, None, 3]
    >>> check([1, 300])
    Traceback (most recent call last):
    pyspark_strandline.operators.results.rules.MisfitError: [1] is 300, which is outside tinyint (-128 to 127)
    """
    of = _rule_of(field.type)

    def check(value: Any) -> Any:
        if value is None:
            return nothing(value)
        try:
            return of(value)
        except MisfitError:
            if type(value).__name__ in _MISSING:  # of pandas
                return nothing(value)
            if isinstance(value, pa.Scalar):
                return check(value.as_py())
            raise

    def nothing(value: Any) -> None:
        if not field.nullable:
            raise MisfitError(f"is {value}, but it may not be null")

    return check


def same(a: Any, b: Any) -> bool:
    """Return whether two values that rules returned are the same, which for ``-0.0`` and ``NaN`` is not what ``==`` says.

    >>> same({"x": [0.0]}, {"x": [-0.0]}), same({"x": [math.nan]}, {"x": [-math.nan]})
    (False, True)
    """
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) if a == b else a != a and b != b
    if isinstance(a, dict):
        return len(a) == len(b) and all(key in b and same(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def is_missing(value: Any) -> bool:
    """Return whether a value is one that pandas has for null."""
    return value is None or type(value).__name__ in _MISSING or (isinstance(value, float) and value != value)


def shown(value: Any) -> str:
    """Return a value and its type for a message, shortened."""
    try:
        text = _SHOWN.repr(value)
    except Exception:  # the value's own repr
        text = "a value"
    return f"{text} ({type(value).__name__})"


def type_name(type_: pa.DataType) -> str:
    """Return Spark's name of a type, as in a schema.

    >>> type_name(pa.list_(pa.int64()))
    'array<bigint>'
    """
    from pyspark.sql.pandas.types import from_arrow_type  # only for a message

    try:
        return str(from_arrow_type(type_, prefer_timestamp_ntz=True).simpleString())
    except Exception:  # a type that Spark does not have
        return str(type_)


def _rule_of(type_: pa.DataType) -> Rule:
    t = pa.types
    for fits, make in (
        (t.is_integer, _integer),
        (t.is_floating, _floating),
        (t.is_boolean, _boolean),
        (t.is_decimal, _decimal),
        (lambda x: t.is_string(x) or t.is_large_string(x), _string),
        (lambda x: t.is_binary(x) or t.is_large_binary(x), _binary),
        (t.is_date32, _date),
        (t.is_timestamp, _timestamp),
        (t.is_duration, _duration),
        (t.is_time, _time),
        (t.is_struct, _struct),
        (t.is_map, _map),
        (lambda x: t.is_list(x) or t.is_large_list(x), _list),
    ):
        if fits(type_):
            return make(type_)
    return _other(type_)


def _refusal(value: Any, type_: pa.DataType, why: str = "") -> MisfitError:
    return MisfitError(f"is {shown(value)}, not a value of {type_name(type_)}{why}")


def _outside(value: Any, type_: pa.DataType, bounds: str = "") -> MisfitError:
    return MisfitError(f"is {shown(value).rsplit(' (', 1)[0]}, which is outside {type_name(type_)}{bounds}")


def _integer(type_: pa.DataType) -> Rule:
    bits = type_.bit_width
    low, high = (0, 2**bits - 1) if pa.types.is_unsigned_integer(type_) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    def check(value: Any) -> int:
        if type(value) is not int:
            value = _as_int(value, type_)
        if low <= value <= high:
            return int(value)
        raise _outside(value, type_, f" ({low} to {high})")

    return check


def _as_int(value: Any, type_: pa.DataType) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
        return int(value)
    raise _refusal(value, type_)


def _floating(type_: pa.DataType) -> Rule:
    single = {16: "<e", 32: "<f"}.get(type_.bit_width)

    def check(value: Any) -> float:
        number = value if type(value) is float else _as_float(value, type_)
        if single is None:
            return number
        try:
            # The nearest value of the type, as Spark takes it, but none for a number that is beyond all of them.
            nearest: float = struct.unpack(single, struct.pack(single, number))[0]
        except OverflowError:
            raise _outside(value, type_) from None
        if nearest != number and isinstance(value, (int, np.integer)):
            raise _refusal(value, type_, ", which does not have it exactly")
        return nearest

    return check


def _as_float(value: Any, type_: pa.DataType) -> float:
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if number == value or number != number:
            return number
    elif isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
        try:
            number = float(int(value))
        except OverflowError:
            raise _outside(value, type_) from None
        if number == int(value):
            return number
    else:
        raise _refusal(value, type_)
    raise _refusal(value, type_, ", which does not have it exactly")


def _boolean(type_: pa.DataType) -> Rule:
    def check(value: Any) -> bool:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        raise _refusal(value, type_)

    return check


def _decimal(type_: pa.DataType) -> Rule:
    step, most = Decimal(1).scaleb(-type_.scale), 10**type_.precision

    def check(value: Any) -> Decimal:
        number = value if isinstance(value, Decimal) else Decimal(_as_int(value, type_))
        if not number.is_finite():
            raise _refusal(value, type_)
        if number.adjusted() > type_.precision:
            raise _outside(value, type_)
        try:
            scaled = number.quantize(step, context=_EXACT)
        except DecimalException:
            raise _refusal(value, type_, f", which has {type_.scale} digits after the point") from None
        if abs(scaled.scaleb(type_.scale, context=_EXACT)) >= most:
            raise _outside(value, type_)
        return scaled or abs(scaled)  # no -0

    return check


def _string(type_: pa.DataType) -> Rule:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise _refusal(value, type_)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _refusal(value, type_, ", because it has half of a surrogate pair") from None
        return value if type(value) is str else str.__str__(value)

    return check


def _binary(type_: pa.DataType) -> Rule:
    def check(value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise _refusal(value, type_)

    return check


def _date(type_: pa.DataType) -> Rule:
    def check(value: Any) -> date:
        if isinstance(value, np.datetime64):
            value = _of_numpy(value, "datetime64[D]", type_)
        if isinstance(value, date) and not isinstance(value, datetime):
            return value if type(value) is date else date(value.year, value.month, value.day)
        raise _refusal(value, type_)

    return check


def _timestamp(type_: pa.TimestampType) -> Rule:
    def check(value: Any) -> Any:
        if isinstance(value, np.datetime64):
            value = _of_numpy(value, "datetime64[us]", type_)
        if not isinstance(value, datetime) or type(value).__name__ in _MISSING:
            raise _refusal(value, type_)
        if (value.utcoffset() is None) != (type_.tz is None):
            why = ", because it has no time zone" if type_.tz else ", because it has a time zone"
            raise _refusal(value, type_, why)
        return _by_arrow(_whole(value, type_), type_)

    return check


def _duration(type_: pa.DataType) -> Rule:
    def check(value: Any) -> Any:
        if isinstance(value, np.timedelta64):
            value = _of_numpy(value, "timedelta64[us]", type_)
        if isinstance(value, timedelta) and type(value).__name__ not in _MISSING:
            return _by_arrow(_whole(value, type_), type_)
        raise _refusal(value, type_)

    return check


def _time(type_: pa.DataType) -> Rule:
    def check(value: Any) -> Any:
        if isinstance(value, time) and value.tzinfo is None:
            return _by_arrow(value, type_)
        raise _refusal(value, type_)

    return check


def _of_numpy(value: Any, unit: str, type_: pa.DataType) -> Any:
    """Return a date, a time or a duration of NumPy as Python's, if it has one of that unit."""
    if np.isnat(value):
        raise _refusal(value, type_, ". Give None for a missing value")
    there = value.astype(unit)
    python = there.item()
    if there != value or isinstance(python, int):
        raise _refusal(value, type_)
    return python


def _whole(value: Any, type_: pa.DataType) -> Any:
    """Return a time or a duration of pandas, which may have nanoseconds, as Python's."""
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise _refusal(value, type_, ", which has microseconds")
    for plain in ("to_pydatetime", "to_pytimedelta"):
        if hasattr(value, plain):
            return getattr(value, plain)()
    return value


def _by_arrow(value: Any, type_: pa.DataType) -> Any:
    try:
        return pa.scalar(value, type_).as_py()
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        raise _outside(value, type_) from None


def _other(type_: pa.DataType) -> Rule:
    def check(value: Any) -> Any:
        try:
            return pa.scalar(value, type_).as_py()
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            raise _refusal(value, type_) from None

    return check


def _struct(type_: pa.StructType) -> Rule:
    rules = {field.name: rule(field) for field in type_}

    def check(value: Any) -> dict[str, Any]:
        fields = value if type(value) is dict else _as_mapping(value, type_)
        if fields.keys() != rules.keys():
            raise MisfitError(other_fields(fields, list(rules)))
        found = {}
        for name, of in rules.items():
            try:
                found[name] = of(fields[name])
            except MisfitError as misfit:  # noqa: PERF203
                raise misfit.within(name) from None
        return found

    return check


def other_fields(fields: Mapping[Any, Any], names: Sequence[str]) -> str:
    """Return how the fields are not those of the schema."""
    unknown, missing = [name for name in fields if name not in names], [name for name in names if name not in fields]
    parts = [f"has the fields {unknown}, which the schema does not have"] if unknown else []
    parts += [f"lacks the fields {missing}"] if missing else []
    return f"{' and '.join(parts)} (the schema has {list(names)})"


def _as_mapping(value: Any, type_: pa.DataType) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        # A row of Spark, or a named tuple.
        for name in ("asDict", "_asdict"):
            try:
                return dict(getattr(value, name)())
            except (AttributeError, TypeError):  # noqa: PERF203
                continue
    raise _refusal(value, type_)


def _list(type_: pa.ListType) -> Rule:
    of = rule(type_.value_field)

    def check(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple, array.array)) and not (isinstance(value, np.ndarray) and value.ndim):
            raise _refusal(value, type_)
        found: list[Any] = []
        try:
            found.extend(map(of, value))
        except MisfitError as misfit:
            raise misfit.within(f"[{len(found)}]") from None
        return found

    return check


def _map(type_: pa.MapType) -> Rule:
    key_of, item_of = rule(type_.key_field), rule(type_.item_field)
    is_plain = not pa.types.is_nested(type_.key_type)

    def check(value: Any) -> Any:
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list) or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
            raise _refusal(value, type_)
        found = []
        for key, item in pairs:
            try:
                found.append((key_of(key), item_of(item)))
            except MisfitError as misfit:  # noqa: PERF203
                raise misfit.within(f"[{_SHOWN.repr(key)}]") from None
        if len({same_key(key) for key, _ in found}) != len(found):
            raise MisfitError(f"is {shown(value)}, which has a key twice")
        return dict(found) if is_plain else found  # a nested key can be in no dict

    return check


def same_key(key: Any) -> Hashable:
    """Return what is equal for keys that are one for Spark: each NaN is the same, and -0.0 is 0.0.

    >>> same_key(float("nan")) == same_key(float("nan")), same_key([0.0, None]) == same_key([-0.0, None])
    (True, True)
    """
    if isinstance(key, float) and math.isnan(key):
        return "NaN", float
    if isinstance(key, Mapping):
        return tuple((name, same_key(each)) for name, each in key.items())
    return tuple(map(same_key, key)) if isinstance(key, (list, tuple)) else key
