"""Translation of statements and text for PostgreSQL's driver."""

import re
from functools import lru_cache

NAMED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|::|:([a-z_]\w*)|%", re.IGNORECASE)
"""Matches quoted text, a cast, a parameter (group 1 is its name), or the sign `%`, which the driver reads as
the beginning of a parameter."""

ESCAPE = "\x1a"
"""The control character "substitute", which begins an escape: before itself it stands for itself, before `0`
for NUL."""


@lru_cache(maxsize=512)
def translated(statement: str) -> str:
    """Write a statement's parameters as the driver does: `:name` as `%(name)s`, and `%` as `%%`.

    Names within quotes stay, and so do casts (`::`).
    """

    def one(found: re.Match[str]) -> str:
        return f"%({found[1]})s" if found[1] else found[0].replace("%", "%%")

    return NAMED.sub(one, statement)


def escaped(text: str) -> str:
    """Write a text so that PostgreSQL accepts it: NUL as two characters. `unescaped` undoes it exactly."""
    if "\0" not in text and ESCAPE not in text:
        return text
    return text.replace(ESCAPE, ESCAPE * 2).replace("\0", f"{ESCAPE}0")


def unescaped(text: str) -> str:
    """Undo `escaped`."""
    if ESCAPE not in text:
        return text
    return re.sub(f"{ESCAPE}(.)", lambda found: "\0" if found[1] == "0" else found[1], text)
