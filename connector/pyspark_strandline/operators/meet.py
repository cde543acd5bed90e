"""``meet``: a join across times. Rows with equal keys meet once, at the least upper bound of their times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from pyspark_strandline.operators import errors
from pyspark_strandline.operators.completion import hold
from pyspark_strandline.operators.operator_marker import MARK, checked_key, input_time, mark_metadata
from pyspark_strandline.schema import quoted
from strandline.time.domain import TimeDomain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["How", "Keep", "distinct_for_good", "meet", "met"]

How = Literal["inner", "left_semi", "left_anti"]
Keep = Literal["within", "always"]
_LEFT, _RIGHT, _HASH = f"{MARK}_left", f"{MARK}_right", f"{MARK}_hash"


def meet(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str] | Mapping[str, str],
    *,
    how: How = "inner",
    within: str | Sequence[str] | None = None,
) -> DataFrame:
    """Join two streams across times: each pair of rows with equal keys meets once, at the least upper bound of their times.

    A Spark join of two streams joins rows of equal times. Here a row meets all rows of the other side, earlier and later ones,
    and the pair has the least time that is at or after both: the later one, where times have an order. Rows wait in the state
    store. What waits holds no time open: a pair comes out in the batch in which its later row arrives. A null in a key equals
    nothing.

    Without ``within``, rows are kept for good, each distinct row of a side once, at its least time. So that no row comes before
    the same row of an earlier time, both sides wait first until their times are closed (:func:`pyspark_strandline.hold`).
    With ``within``, only rows with equal outer coordinates meet, also equal rows each, and they are forgotten when the outer
    time closes.

    Args:
        left: A stream with a time column.
        right: A stream with times of the same domain, under any name. It may be the same stream: ``meet(paths, paths, …)``.
        on: The key's columns: a name, several names, or a mapping from columns of ``left`` to columns of ``right``. With none of
            them (``[]``), all rows meet, in one task.
        how: ``inner``; ``left_semi``: each row of ``left`` once, at the least time at which it has a partner; ``left_anti``: each
            row of ``left`` that has no partner at its own time or before. It comes out when its time is closed.
        within: The first coordinates of the times, by name: ``"tick"``.

    Returns:
        For ``inner``, the columns of ``left``, then those of ``right`` without its time and key. Otherwise those of ``left``.

    Raises:
        StrandlineError: ``STRANDLINE_MEET_INVALID`` if the domains or the keys' types differ, a column would be there twice,
            ``within`` is not the first coordinates, or ``left_semi`` is asked over times without an order;
            ``STRANDLINE_KEY_INVALID`` if a column is no key; ``STRANDLINE_NOT_A_STREAM`` for a batch.

    ``meet(clicks, impressions, on="ad", within="day")``, ``meet(paths, edges, on={"to": "from"})``
    """
    _, domain = input_time(left)
    names = [within] if isinstance(within, str) else list(within or ())
    count = _outer(domain, names)
    if how == "left_semi" and not _is_ordered(domain, count):
        raise errors.meet_invalid_semi(domain, names)
    if how != "left_anti" and (count == 0 or how == "left_semi"):
        left, right = hold(left, by=_keys(on)), hold(right, by=_keys(on, of_right=True))
    keep: Keep = "within" if count else "always"
    return met(left, right, on, how=how, within=count, keep=(keep, keep))


def met(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str] | Mapping[str, str],
    *,
    how: How = "inner",
    within: int = 0,
    keep: tuple[Keep, Keep] = ("always", "always"),
) -> DataFrame:
    """Return what meets, at once, as :func:`meet`. Rows that are kept for good may come in any order of their times.

    Then a row that comes again at an earlier time passes again, so what reads the result keeps the least time of equal rows.

    Args:
        left: A stream.
        right: A stream.
        on: The key, as for :func:`meet`.
        how: As for :func:`meet`.
        within: How many first coordinates are the outer time.
        keep: How long the rows of each side are kept. Where one is kept within an outer time and the other for good, a row of
            the first meets the rows of the second at its own outer time and before.
    """
    (time, domain), (other, others_domain) = input_time(left), input_time(right)
    for df in (left, right):
        if not df.isStreaming:
            raise errors.not_a_stream_to_meet()
    if domain != others_domain:
        raise errors.meet_invalid_domains(domain, others_domain)
    keys = _checked_on(left, right, on, time.name, other.name)
    rest = [name for name in right.columns if name not in (other.name, *keys.values())]
    own = {name.lower() for name in left.columns}  # Delta does not look at the case
    if how == "inner" and (twice := [name for name in rest if name.lower() in own]):
        raise errors.meet_invalid_columns(twice)
    a = _Side(_LEFT, time.name, list(keys), [name for name in left.columns if name not in (time.name, *keys)])
    b = _Side(_RIGHT, other.name, list(keys.values()), rest if how == "inner" else [])
    fields = {side.column: cast(StructType, df.select(side.payload).schema[0].dataType) for side, df in ((a, left), (b, right))}
    both = a.rows(left, a, fields).unionByName(b.rows(right, a, fields))
    form = _form(how, within, keep)
    rows = _marked(both, form, a.time, a.keys)
    order = {name: F.col(quoted(name)) for name in (a.time, *a.keys)}
    order |= {name: F.col(_LEFT).getField(name) for name in a.others} | {name: F.col(_RIGHT).getField(name) for name in b.others}
    columns = [*left.columns, *(b.others if how == "inner" else [])]
    return rows.select(*(order[name] if name in (a.time, *a.keys) else order[name].alias(name) for name in columns))


def distinct_for_good(df: DataFrame) -> DataFrame:
    """Return each distinct row once, at its least times among those that have come. Rows are kept for good.

    A row that comes again at an earlier time passes again. After :func:`pyspark_strandline.hold` none does.
    """
    time, _ = input_time(df)
    side = _Side(_LEFT, time.name, [], [name for name in df.columns if name != time.name])
    # The key spreads the rows over the tasks: equal rows are in one.
    spread = F.xxhash64(*(F.col(quoted(name)) for name in side.others)).alias(_HASH)
    none = _null(StructType([StructField(MARK, BooleanType())]), time.name).alias(_RIGHT)
    form = _form("distinct", 0, ("always", "always"))
    kept = _marked(df.select(F.col(quoted(time.name)), spread, side.payload, none), form, time.name, [_HASH])
    return kept.select(
        *(F.col(quoted(name)) if name == time.name else F.col(_LEFT).getField(name).alias(name) for name in df.columns)
    )


@dataclass(frozen=True)
class _Side:
    column: str
    time: str
    keys: list[str]
    others: list[str]

    @property
    def payload(self) -> Column:
        """The struct of all columns but the time and the key. It is never null, so it says of which side a row is."""
        fields = [F.col(quoted(name)).alias(name) for name in self.others]
        return F.struct(*(fields or [F.lit(True).alias(MARK)])).alias(self.column)

    def rows(self, df: DataFrame, as_: _Side, fields: Mapping[str, StructType]) -> DataFrame:
        """Return the side's rows with the columns that both sides have, under the names of ``as_``."""
        named = [F.col(quoted(self.time)).alias(as_.time)] if self.time != as_.time else [F.col(quoted(self.time))]
        named += [F.col(quoted(mine)).alias(its) for mine, its in zip(self.keys, as_.keys, strict=True)]
        structs = [self.payload if name == self.column else _null(kind, self.time).alias(name) for name, kind in fields.items()]
        return df.select(*named, *structs)


def _null(kind: StructType, time: str) -> Column:
    """Return a null that the optimizer does not know to be one, or it would put it into what is above the operator."""
    fields = [F.lit(None).cast(field.dataType).alias(field.name) for field in kind.fields]
    return F.when(F.isnull(F.col(quoted(time))), F.struct(*fields))


def _form(how: str, within: int, keep: tuple[Keep, Keep]) -> dict[str, object]:
    """Return what the mark says (``MeetForm.scala``)."""
    return {
        "how": how,
        "within": within,
        "left": {"column": _LEFT, "keep": keep[0], "distinct": keep[0] == "always"},
        "right": {"column": _RIGHT, "keep": keep[1], "distinct": keep[1] == "always" or how != "inner"},
    }


def _marked(df: DataFrame, form: Mapping[str, object], time: str, keys: list[str]) -> DataFrame:
    mark = F.lit(0).cast("bigint").alias(MARK, metadata={**mark_metadata("meet"), "strandline.meet": json.dumps(form)})
    return df.select("*", mark).dropDuplicates([time, MARK, *keys]).drop(MARK)


def _keys(on: str | Sequence[str] | Mapping[str, str], *, of_right: bool = False) -> list[str]:
    return [on] if isinstance(on, str) else list(on.values() if of_right and isinstance(on, Mapping) else on)


def _checked_on(
    left: DataFrame, right: DataFrame, on: str | Sequence[str] | Mapping[str, str], time: str, other: str
) -> dict[str, str]:
    mine, its = checked_key(left, _keys(on), time), checked_key(right, _keys(on, of_right=True), other)
    for a, b in zip(mine, its, strict=True):
        kinds = left.schema[a].dataType, right.schema[b].dataType
        if kinds[0].simpleString() != kinds[1].simpleString():  # which says nothing of nulls
            raise errors.meet_invalid_types(a, kinds[0], b, kinds[1])
    return dict(zip(mine, its, strict=True))


def _outer(domain: TimeDomain, names: Sequence[str]) -> int:
    """Return how many coordinates ``names`` are. Raises unless they are the first ones."""
    known = [name for name, _ in domain.coordinates]
    if names and list(names) != known[: len(names)]:
        raise errors.meet_invalid_within(names, domain)
    return len(names)


def _is_ordered(domain: TimeDomain, within: int) -> bool:
    rest = [part for _, part in domain.coordinates[within:]]
    return domain.is_total or (within > 0 and len(rest) <= 1 and all(part.is_total for part in rest))
