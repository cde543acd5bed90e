"""Makes the notebook of the tutorial from its page.

``python tools/notebook.py`` writes ``docs/tutorial.ipynb``. A test compares both, and runs the notebook's code.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, NOTEBOOK = DOCS / "tutorial.md", DOCS / "tutorial.ipynb"
_BLOCK = re.compile(r"```python\n(.*?)\n```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def of_page() -> dict[str, Any]:
    """Return the notebook in Jupyter's format 4.5: the page's code in cells, with what the page prints below it."""
    text = PAGE.read_text(encoding="utf-8")
    cells, at = [], 0
    for block in _BLOCK.finditer(text):
        cells += [_text(text[at : block.start()]), _code(*block.groups())]
        at = block.end()
    cells.append(_text(text[at:]))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
    return {"cells": numbered, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _text(markdown: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(markdown.strip("\n"))}


def _code(source: str, printed: str | None) -> dict[str, Any]:
    outputs = [{"name": "stdout", "output_type": "stream", "text": _lines(printed)}] if printed else []
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": outputs, "source": _lines(source)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    NOTEBOOK.write_text(json.dumps(of_page(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
