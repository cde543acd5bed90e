"""Commands that a text names, typed as an operator types them: a shell splits them, and the command line runs them."""

from __future__ import annotations

import re
import subprocess

from strandline.cli.__main__ import main

__all__ = ["commands_in", "typed"]

_COMMAND = re.compile(r"strandline (?:hold|drop|forget|rejoin|seal|cancel|readmit|publish-late|release-parked|end-corrections)\b")


def commands_in(text: str) -> list[list[str]]:
    """Return the words of each command that a text names. A command ends with its sentence."""
    found = []
    for match in _COMMAND.finditer(text):
        line = text[match.start() :].split("\n")[0]
        line = re.split(r"; |, |\. |\.$|\)|`", line)[0]
        words = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True).stdout
        found.append(words.rstrip("\0").split("\0")[1:])
    return found


def typed(text: str, command: str) -> int:
    """Run the first command of a name that a text has, without its question. Return the exit code."""
    words = next(words for words in commands_in(text) if words[0] == command)
    return main([words[0], "--yes", *words[1:]])
