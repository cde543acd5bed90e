"""Switches the columnar forms on everywhere or off everywhere. The plain forms are their specification."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from strandline.channel.progress import producer_state_columns, progress
from strandline.channel.write import append
from strandline.ingest.decide import decision_columns
from strandline.ingest.task import partition_stats


@contextmanager
def columns_for(*, all_: bool) -> Iterator[None]:
    """Columns even for a single producer, or none at all."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (producer_state_columns, append, decision_columns):
            patch.setattr(module, "MIN_COLUMNAR", 1)
        if not all_:
            for module in (progress, partition_stats):
                patch.setattr(module, "fits_table", lambda _: False)
        yield
