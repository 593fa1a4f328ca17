"""What it is for a text to stand in another one."""

from __future__ import annotations

import re

UNSPACED = re.compile("[\u2e80-\ua4cf\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
"""Signs of Chinese and Japanese, which put no space between words."""


def is_unspaced(letter: str) -> bool:
    """Tells whether a letter is of a script that puts no space between words."""
    return UNSPACED.match(letter) is not None


def contains(text: str, wanted: str, behind: int = 0) -> bool:
    """Tells whether a text contains another one as whole words; in Chinese, Japanese and Korean
    anywhere, since words do not stand alone there.

    Args:
        text: where to look.
        wanted: what for.
        behind: only what ends behind so many characters counts.
    """
    if any(ord(letter) >= 0x2E80 for letter in wanted):
        return text.find(wanted, max(0, behind - len(wanted) + 1)) >= 0
    before, after = (r"(?<!\w)", r"(?!\w)")  # but punctuation may touch a word
    before, after = before * _is_word(wanted[0]), after * _is_word(wanted[-1])
    found = re.finditer(before + re.escape(wanted) + after, text)
    return any(match.end() > behind for match in found)


def may_touch(text: str) -> bool:
    """Tells whether a text may follow another one without a space between: punctuation does, and
    words of scripts that have none.
    """
    return is_unspaced(text[0]) or not _is_word(text[0])


def _is_word(letter: str) -> bool:
    return re.match(r"\w", letter) is not None
