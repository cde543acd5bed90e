"""Refinements: how the times of a nested scope are derived from those around it, and summarised back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strandline.time.domain import Lex, Product, Time, TimeDomain, parse_domain, product
from strandline.time.path.summary import LexSummary, PathSummary, ProductSummary, advance, identity, to_minimum
from strandline.tracker import errors

__all__ = ["Refinement"]


@dataclass(frozen=True)
class Refinement:
    """Inner times refine outer ones (timely's ``Refines``): entering a scope adds a coordinate, leaving drops it.

    Laws: ``to_outer(to_inner(t)) = t``; both are monotone; the result of ``summarize(s)`` is ≤ that of
    entering, then ``s``, then leaving.

    >>> from strandline.time.domain import uint64
    >>> loop = Refinement.nested(uint64, "iter", outer_name="epoch")
    >>> loop.inner == product(epoch="uint64", iter="uint64"), loop.to_inner(3), loop.to_outer((3, 8))
    (True, (3, 0), 3)
    >>> deeper = Refinement.nested(loop.inner, "round")
    >>> deeper.to_inner((3, 8)), str(deeper.feedback())
    ((3, 8, 0), '(round+1)')
    """

    outer: TimeDomain
    inner: TimeDomain
    coordinate: str | None
    """The inner domain's own coordinate, which is its last; ``None`` when the scope adds none (a region)."""
    flat: bool
    """Whether the coordinate is appended to the outer tuple, or paired with the outer time."""

    @classmethod
    def same(cls, domain: TimeDomain) -> Refinement:
        """Return the refinement of a region: a scope that groups operators and leaves times as they are."""
        return cls(domain, domain, None, False)

    @classmethod
    def nested(
        cls,
        outer: TimeDomain,
        coordinate: str = "iter",
        domain: TimeDomain | str = "uint64",
        *,
        order: Callable[..., Product | Lex] = product,
        outer_name: str = "outer",
    ) -> Refinement:
        """Return the refinement of a scope with its own coordinate, in the product or (``order=lex``) lexicographic order.

        An outer domain of the same kind is extended by the coordinate. Any other outer domain is paired with it, under the name
        ``outer_name``.

        Args:
            outer: The domain of the outer times.
            coordinate: The name of the scope's own coordinate.
            domain: The domain of this coordinate.
            order: ``product`` or ``lex``.
            outer_name: The name of the outer time, if it is paired with the coordinate.

        >>> from strandline.time.domain import lex
        >>> str(Refinement.nested(lex(tick="int64", stratum="int64"), "iter", order=lex).inner)
        'lex(tick int64, stratum int64, iter uint64)'
        """
        own = parse_domain(domain) if isinstance(domain, str) else domain
        kind = type(order(**{coordinate: own}))
        if isinstance(outer, kind):
            return cls(outer, kind((*outer.coordinates, (coordinate, own))), coordinate, True)
        return cls(outer, kind(((outer_name, outer), (coordinate, own))), coordinate, False)

    def to_inner(self, time: Time) -> Time:
        """Return the least inner time of an outer time. A message enters at this time."""
        if self.coordinate is None:
            return time
        least = self.inner.coordinates[-1][1].minimum
        return (*time, least) if self.flat else (time, least)

    def to_inner_greatest(self, time: Time) -> Time:
        """Return the greatest inner time of an outer time. An inner time is ≤ it exactly when its outer time is ≤ ``time``."""
        if self.coordinate is None:
            return time
        greatest = self.inner.coordinates[-1][1].maximum
        return (*time, greatest) if self.flat else (time, greatest)

    def to_outer(self, time: Time) -> Time:
        """Return the outer time of an inner time. A message leaves at this time."""
        if self.coordinate is None:
            return time
        return time[:-1] if self.flat else time[0]

    def feedback(self, by: int = 1) -> PathSummary:
        """Return the summary of the scope's feedback edge. It advances the scope's own coordinate."""
        if self.coordinate is None:
            raise errors.summary_invalid_region(self.outer)
        return advance(self.inner, self.coordinate, by)

    def summarize(self, path: PathSummary) -> PathSummary:
        """Return an inner path's summary as the outside sees it."""
        if self.coordinate is None:
            return path
        if isinstance(path, ProductSummary):
            if self.flat and isinstance(self.outer, Product):
                return ProductSummary(self.outer, path.parts[:-1])
            return path.parts[0]
        if isinstance(path, LexSummary):
            own = len(path.domain.parts) - 1
            if path.at is None or path.part is None or path.at == own:
                return identity(self.outer)
            if self.flat and isinstance(self.outer, Lex):
                return LexSummary(self.outer, path.at, path.part, path.rest[:-1])
            return path.part
        raise errors.summary_invalid_path(path, self.inner)

    def around(self, path: PathSummary) -> PathSummary:
        """Return the summary of an outside path, from leaving the scope to entering it again, as the inside sees it.

        On this path the scope's own coordinate starts again.

        >>> from strandline.time.domain import uint64
        >>> loop = Refinement.nested(uint64, "iter", outer_name="epoch")
        >>> str(loop.around(advance(uint64))), loop.around(advance(uint64)).results_in((3, 8))
        ('(epoch+1, iter=0)', (4, 0))
        """
        if self.coordinate is None:
            return path
        own = self.inner.coordinates[-1][1]
        if isinstance(self.inner, Product):
            outer = path.parts if self.flat and isinstance(path, ProductSummary) else (path,)
            return ProductSummary(self.inner, (*outer, to_minimum(own)))
        if isinstance(self.inner, Lex):
            if path.is_identity:
                return LexSummary(self.inner, len(self.inner.parts) - 1, to_minimum(own), ())
            if self.flat and isinstance(path, LexSummary):
                return LexSummary(self.inner, path.at, path.part, (*path.rest, own.minimum))
            return LexSummary(self.inner, 0, path, (own.minimum,))
        raise errors.summary_invalid_domain(self.inner)
