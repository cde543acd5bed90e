"""Statements, states and facts as columns wherever they can be, or nowhere: the fast form, and its plain specification."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from strandline.channel.progress import producer_state_columns, progress
from strandline.channel.write import append
from strandline.ingest.decide import decision_columns, facts


@contextmanager
def columns_for(*, all_: bool) -> Iterator[None]:
    """Columns even for a single producer, or none at all."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (producer_state_columns, append, decision_columns):
            patch.setattr(module, "FEWEST", 1)
        if not all_:
            for module in (progress, facts):
                patch.setattr(module, "fits_table", lambda _: False)
        yield
