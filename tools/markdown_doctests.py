"""A Markdown extension for ``make docs``: a doctest becomes a block of code.

Without it, Markdown would read a doctest as quotations and links.
"""

from __future__ import annotations

import re

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor


class _Doctests(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        made: list[str] = []
        inside = fenced = False
        for line in lines:
            fenced ^= bool(re.match(r"\s*```", line))
            begins = not fenced and not inside and line.startswith(">>> ")
            ends = inside and not line.strip()
            if begins or ends:
                made.append("```pycon" if begins else "```")
                inside = begins
            made.append(line)
        return [*made, "```"] if inside else made


class Doctests(Extension):
    """Puts fences around each run of lines that begins with ``>>>`` and ends with an empty line."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(_Doctests(md), "doctests", 40)  # before fences are processed (25)


def makeExtension(**settings: object) -> Doctests:  # noqa: N802
    """Return the extension. Markdown looks for a function of this name."""
    return Doctests(**settings)
