"""Recognises texts that cannot be written as UTF-8."""


def is_utf8(text: str) -> bool:
    """Whether a text has no lone surrogate: Python's stand-in for a byte that is not UTF-8, as in a name."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
