"""Words of a command line that is printed for people: what they copy from the screen is what the shell takes."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from shlex import quote

from strandline.errors import printable

__all__ = ["SHARED_OPTIONS", "command", "drop_command", "shell_word"]

SHARED_OPTIONS: ContextVar[tuple[str, ...]] = ContextVar("SHARED_OPTIONS", default=())
"""The options that every command needs to open the channels, as words: those that the command that runs was given."""


def shell_word(text: str) -> str:
    """Return a text as one word for the shell. Characters that a screen does not show are written as escapes.

    Raises ``UnicodeEncodeError`` for half a character, unless it stands for a byte of a file's name.

    >>> print(shell_word("a b"), shell_word("it's\\ta tab"), shell_word("/lake/flights"))
    'a b' $'it\\'s\\ta tab' /lake/flights
    """
    if printable(text) == text and not set("\n\t\r") & set(text):
        return quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def command(name: str, path: str, *words: str, options: Sequence[str] = ()) -> str:
    """Return a command of ``strandline`` for a channel, as a shell takes it: words are from a log, and may be anything.

    No command line takes half a character, which JSON can have. Then this says so.

    Args:
        name: The command.
        path: The channel's path.
        words: Its further arguments.
        options: Its options, as words. Those of :data:`SHARED_OPTIONS` follow.

    >>> command("drop", "/lake/flights", "a; rm -rf ~"), command("drop", "-lake", "a"), command("seal", "/lake")
    ("strandline drop /lake/flights 'a; rm -rf ~'", 'strandline drop ./-lake a', 'strandline seal /lake')
    >>> command("drop", "/lake/flights", "-x")
    'strandline drop /lake/flights -- -x'
    >>> command("publish-late", "/lake/flights", options=["--late-path", "/moved here"])
    "strandline publish-late /lake/flights --late-path '/moved here'"
    >>> command("drop", "/lake/flights", "\\ud800")
    'drop it in a program: no command line takes its name, which has half a character'
    """
    end_of_options = ["--"] if any(word.startswith("-") for word in words) else []
    line = [f"./{path}" if path.startswith("-") else path, *options, *SHARED_OPTIONS.get(), *end_of_options, *words]
    try:
        return f"strandline {name} {' '.join(map(shell_word, line))}"
    except UnicodeEncodeError:
        return f"{name} it in a program: no command line takes its name, which has half a character"


def drop_command(path: str, *names: str) -> str:
    """Return the command that drops producers."""
    return command("drop", path, *names)


def _escaped(char: str) -> str:
    named = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if char in named:
        return named[char]
    if char.isprintable() and printable(char) == char:
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
