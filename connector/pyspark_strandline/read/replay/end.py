"""Where a replay ends: the option ``endingFrontier``."""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark_strandline.read import errors
from strandline.channel import Channel
from strandline.errors import TimeError
from strandline.time.antichain import Antichain
from strandline.time.path.entry import Entry
from strandline.time.time_text import parse_time

__all__ = ["end_of_replay"]


def end_of_replay(frontier: str | None, channel: Channel, entry: Entry | None) -> Callable[[Antichain], bool] | None:
    """Return what says for a channel's frontier whether a replay ends there: it closes all times before the given one.

    Args:
        frontier: A time as text, or a JSON list of several; ``None`` if the replay does not end so.
        channel: The channel.
        entry: How its times enter the domain of a source of several channels, in which the frontier is.

    Raises:
        StrandlineError: ``STRANDLINE_OPTION_INVALID``.
    """
    if frontier is None:
        return None
    entry = entry or Entry(channel.domain, channel.domain)
    try:
        texts = json.loads(frontier)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        texts = [frontier]
    try:
        wanted = Antichain(entry.inner, [parse_time(entry.inner, text, "endingFrontier") for text in texts])
    except TimeError as error:
        raise errors.option_invalid_end(frontier, error) from error
    return lambda reached: wanted.dominates(entry.antichain(reached))
