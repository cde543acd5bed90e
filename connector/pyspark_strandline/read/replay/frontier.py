"""Frontiers in options: ``startingFrontier`` and ``endingFrontier``."""

from __future__ import annotations

import json

from pyspark_strandline.read import errors
from strandline.errors import TimeError
from strandline.time.antichain import Antichain
from strandline.time.domain import TimeDomain
from strandline.time.time_text import parse_time

__all__ = ["SINCE_KEY", "parse_frontier"]

SINCE_KEY = "strandline.since"
"""The metadata key of the time column that tells the shim which rows to leave out."""


def parse_frontier(name: str, text: str, domain: TimeDomain) -> Antichain:
    """Read the frontier that an option gives: a time as text, or a JSON list of several.

    Raises:
        StrandlineError: ``STRANDLINE_OPTION_INVALID``.

    >>> from strandline.time.domain import product
    >>> parse_frontier("endingFrontier", '["(a=0, b=3)", "[1, 0]"]', product(a="int64", b="int64")).to_json()
    [[0, 3], [1, 0]]
    """
    try:
        texts = json.loads(text)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) for each in texts):
        texts = [text]
    try:
        return Antichain(domain, [parse_time(domain, each, name) for each in texts])
    except TimeError as error:
        raise errors.option_invalid_frontier(name, text, error) from error
