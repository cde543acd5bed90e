"""An ingest said in options alone, over a query in SQL: the page's code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.spark


@pytest.mark.drawn("pages")
def test_the_page_prints_what_it_says(run_page: Callable[..., tuple[str, str]]) -> None:
    printed, said = run_page("index")
    assert printed == said
