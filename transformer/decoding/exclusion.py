"""Texts that translations do not contain, however these are cut into tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from transformer.data.tokenizer import Tokenizer
from transformer.decoding.beams import Hypothesis
from transformer.decoding.constraints import Constraints

MOST_SEARCHES = 20
"""After so many, translations that still contain what they must not are left out."""

Search = Callable[[Sequence[int], Sequence[Constraints]], list[list[Hypothesis]]]


def search_without(
    search: Search,
    constraints: Sequence[Constraints],
    texts: Sequence[Sequence[str]],
    tokenizer: Tokenizer,
) -> list[list[Hypothesis]]:
    """Searches for translations of sentences, none of which contains one of its texts.

    A phrase of tokens that is not said keeps out one way to write a text, and the model may come to
    another one. So what was found is read, and where it contains a text the tokens that say it are
    kept out as well, and that sentence is searched again. Texts of the prefix are allowed.

    Args:
        search: takes the numbers of sentences, and the constraints of each.
        constraints: of each sentence.
        texts: what the translations of each sentence must not contain.
        tokenizer: of the target.
    """
    own = list(constraints)
    found: list[list[Hypothesis]] = [[] for _ in own]
    rows = list(range(len(own)))
    for _ in range(MOST_SEARCHES):
        if not rows:
            return found
        again = []
        for i, hypotheses in zip(rows, search(rows, [own[i] for i in rows]), strict=True):
            said = {
                phrase: None  # a dict keeps their order
                for h in hypotheses
                for phrase in _sayings(h.ids, own[i], texts[i], tokenizer)
            }
            found[i] = hypotheses
            if said:
                own[i] = replace(own[i], exclude=(*own[i].exclude, *said))
                again.append(i)
        rows = again
    for i in rows:
        found[i] = [h for h in found[i] if not _sayings(h.ids, own[i], texts[i], tokenizer)]
    return found


def contains(text: str, wanted: str) -> bool:
    """Tells whether a text contains another one as whole words; in scripts that put no space
    between words, anywhere.
    """
    if any(ord(letter) >= 0x2E80 for letter in wanted):  # from here on Chinese, Japanese, Korean
        return wanted in text
    before, after = (r"(?<!\w)", r"(?!\w)")  # but punctuation may touch a word
    before, after = before * _is_word(wanted[0]), after * _is_word(wanted[-1])
    return re.search(before + re.escape(wanted) + after, text) is not None


def _is_word(letter: str) -> bool:
    return re.match(r"\w", letter) is not None


def _sayings(
    ids: Sequence[int], own: Constraints, texts: Sequence[str], tokenizer: Tokenizer
) -> list[tuple[int, ...]]:
    """Returns for each text that a translation contains behind its prefix the tokens that say it
    first.
    """
    start, whole = len(own.prefix), list(ids[:-1])
    given = tokenizer.decode([whole[:start]])[0] if start else ""
    found = []
    for text in (x.strip() for x in texts):
        if contains(given, text) or not contains(tokenizer.decode([whole])[0], text):
            continue
        last = next(
            i for i in range(len(whole) + 1) if contains(tokenizer.decode([whole[:i]])[0], text)
        )
        first = next(
            i for i in range(last, -1, -1) if contains(tokenizer.decode([whole[i:last]])[0], text)
        )
        found.append(tuple(whole[first:last]))
    return found
