"""Words of a command line that is printed for people: what they copy from the screen is what the shell takes."""

from __future__ import annotations

from shlex import quote

from strandline.errors import printable

__all__ = ["drop_command", "shell_word"]


def shell_word(text: str) -> str:
    """Return a text as one word for the shell. Characters that a screen does not show are written as escapes.

    Raises ``UnicodeEncodeError`` for half a character, unless it stands for a byte of a file's name.

    >>> print(shell_word("a b"), shell_word("it's\\ta tab"), shell_word("/lake/flights"))
    'a b' $'it\\'s\\ta tab' /lake/flights
    """
    if printable(text) == text and not set("\n\t\r") & set(text):
        return quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def drop_command(path: str, *names: str) -> str:
    """Return the command that drops producers, as a shell takes it: a name is from a log, and may be anything.

    No command line takes half a character, which JSON can have. Then this says so.

    >>> drop_command("/lake/flights", "a; rm -rf ~"), drop_command("-lake", "a")
    ("strandline drop /lake/flights -- 'a; rm -rf ~'", 'strandline drop ./-lake a')
    >>> drop_command("/lake/flights", "\\ud800")
    'drop it in a program: no command line takes its name, which has half a character'
    """
    try:
        words = [shell_word(f"./{path}" if path.startswith("-") else path), *map(shell_word, names)]
    except UnicodeEncodeError:
        return "drop it in a program: no command line takes its name, which has half a character"
    return f"strandline drop {words[0]} {'' if all(map(str.isalnum, names)) else '-- '}{' '.join(words[1:])}"


def _escaped(char: str) -> str:
    named = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if char in named:
        return named[char]
    if char.isprintable() and printable(char) == char:
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
