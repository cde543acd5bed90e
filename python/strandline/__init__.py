"""Strandline's core: times, antichains, capabilities, the progress tracker, scopes and channels. No Spark in it.

What may be imported from here is listed in ``__all__``; channels are imported from ``strandline.channel``.
"""

from strandline.antichain import Antichain
from strandline.errors import StrandlineError, TimeDomainError, TimeError
from strandline.order import Lex, Product, Scalar, Time, TimeDomain, int64, lex, parse_domain, product, timestamp, uint64

__version__ = "0.1.0"

__all__ = [
    "Antichain",
    "Lex",
    "Product",
    "Scalar",
    "StrandlineError",
    "Time",
    "TimeDomain",
    "TimeDomainError",
    "TimeError",
    "int64",
    "lex",
    "parse_domain",
    "product",
    "timestamp",
    "uint64",
]
