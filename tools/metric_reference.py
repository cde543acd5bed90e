"""Writes the table of metrics in ``docs/progress.md`` from the code.

    python tools/metric_reference.py [--check]

``--check`` writes nothing, and exits with 1 when the table differs from the code.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from strandline.report.progress.metrics import metric_table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "progress.md"
_BETWEEN = re.compile(r"(<!-- metrics -->\n).*?(<!-- /metrics -->)", re.DOTALL)


def written(page: str) -> str:
    """Return the page with the present table between its two marks."""
    return _BETWEEN.sub(lambda marks: f"{marks.group(1)}{metric_table()}\n{marks.group(2)}", page)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        return int(written(page) != page)
    PAGE.write_text(written(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
