"""Texts that translations contain or do not contain, however these are cut into tokens."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace

from transformer.data.tokenizer import Tokenizer
from transformer.decoding.beams import Hypothesis
from transformer.decoding.constraints import Constraints
from transformer.decoding.parts import Part
from transformer.decoding.wording import contains

MOST_SEARCHES = 20
"""After so many, translations that still contain what they must not are left out."""

Search = Callable[[Sequence[int], Sequence[Constraints]], list[list[Hypothesis]]]


def search_parts(
    search: Search, parts: Sequence[Part], tokenizer: Tokenizer
) -> list[list[Hypothesis]]:
    """Searches for translations of parts that contain, and do not contain, what they should.

    Nothing is forced upon translations that are as they should be of themselves. Where one does not
    contain a text, the part is searched again for translations that say its tokens: as a word of
    its own and, if it may touch what stands before it, without a space. The best of all that
    contain the text are given.

    Args:
        search: takes the numbers of parts, and the constraints of each.
        parts: whose translations are sought.
        tokenizer: of the target.
    """
    numbers = range(len(parts))
    free = [Constraints(part.prefix) for part in parts]
    found = _search_without(search, numbers, free, parts, tokenizer)
    lacking = []
    for i in (i for i, part in enumerate(parts) if part.included):
        good = [h for h in found[i] if _includes(h, parts[i], tokenizer)]
        if len(good) < max(1, len(found[i])):
            found[i] = good
            lacking.append(i)
    for form in range(max((len(parts[i].forms) for i in lacking), default=0)):
        rows = [i for i in lacking if form < len(parts[i].forms)]
        own = [Constraints(parts[i].prefix, include=parts[i].forms[form]) for i in rows]
        forced = _search_without(search, rows, own, parts, tokenizer)
        for i, hypotheses in zip(rows, forced, strict=True):
            every = {tuple(h.ids): h for h in (*found[i], *hypotheses)}
            most = max(len(found[i]), len(hypotheses))
            found[i] = heapq.nlargest(most, every.values(), key=lambda h: h.score)
    return found


def _includes(hypothesis: Hypothesis, part: Part, tokenizer: Tokenizer) -> bool:
    text = tokenizer.decode([hypothesis.ids])[0]
    return all(contains(text, wanted) for wanted in part.included)


def _search_without(
    search: Search,
    numbers: Sequence[int],
    constraints: Sequence[Constraints],
    parts: Sequence[Part],
    tokenizer: Tokenizer,
) -> list[list[Hypothesis]]:
    """Searches for translations none of which contains one of the texts that it must not.

    What was found is read, and where it contains such a text the tokens that say it are kept out,
    and the part is searched again: the model may come to another way to say it. Texts of the prefix
    are allowed.

    Args:
        search: takes the numbers of parts, and the constraints of each.
        numbers: of the parts that are sought; one may come several times.
        constraints: for each of them.
        parts: all.
        tokenizer: of the target.
    """
    own = list(constraints)
    found: list[list[Hypothesis]] = [[] for _ in own]
    texts = [parts[i].excluded for i in numbers]
    rows = list(range(len(own)))
    for _ in range(MOST_SEARCHES):
        if not rows:
            return found
        again = []
        for i, hypotheses in zip(
            rows, search([numbers[i] for i in rows], [own[i] for i in rows]), strict=True
        ):
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


def _sayings(
    ids: Sequence[int], own: Constraints, texts: Sequence[str], tokenizer: Tokenizer
) -> list[tuple[int, ...]]:
    """Returns for each text that a translation contains behind its prefix the tokens that say it
    first.
    """
    start, whole = len(own.prefix), list(ids[:-1])
    given = tokenizer.decode([whole[:start]])[0] if start else ""
    found = []
    for text in texts:
        if not contains(tokenizer.decode([whole])[0], text, len(given)):
            continue
        last = next(
            i
            for i in range(start, len(whole) + 1)
            if contains(tokenizer.decode([whole[:i]])[0], text, len(given))
        )
        first = next(
            i for i in range(last, -1, -1) if contains(tokenizer.decode([whole[i:last]])[0], text)
        )
        found.append(tuple(whole[first:last]))
    return found
