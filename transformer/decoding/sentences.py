"""Where the sentences of a line end."""

from __future__ import annotations

import re

_END = re.compile(
    r"""[.!?…؟۔।]+ ["'”“’‘»«)\]]* (?P<gap>\s+) (?=["'“‘„«»(\[¿¡–—-]*(?P<next>\w))"""
    r"""| [。！？]+ [」』”’）]* (?P<wide_gap>\s*) (?=\S)""",
    re.VERBOSE,
)
_ABBREVIATION = re.compile(
    r"""
    (?: ^ | [\s("'„“] )
    (?: [^\W\d_] | (?: [^\W\d_]\. )+ [^\W\d_] | \d{1,3}      # of J. Smith, z.B., am 3. Mai
      | Mr | Mrs | Ms | Dr | Prof | St | Jr | Sr | vs | No | Nr | Mt | Fig
      | Hr | Fr | bzw | usw | etc | ca | vgl | approx | evtl | Mme | Mlle | Sra? | Dra
    ) \. $
    """,
    re.VERBOSE | re.IGNORECASE,
)


def split_sentences(line: str) -> list[tuple[str, str]]:
    """Returns the sentences of a line, each with the space that follows it; joined, they are the
    line.

    A sentence ends with a full stop, an exclamation or question mark, with closing quotation marks
    or brackets, before a space and a word that begins with no small letter; with a full stop, not
    after an initial, a small number or a common abbreviation. A line that has no capital at all
    tells nothing by them. Chinese and Japanese marks need no space.
    """
    has_capitals = line != line.lower()
    found, start = [], 0
    for match in _END.finditer(line):
        gap = match["gap"] if match["gap"] is not None else match["wide_gap"]
        sentence = line[start : match.end() - len(gap)]
        is_small = has_capitals and (match["next"] or "").islower()
        if is_small or _ABBREVIATION.search(sentence):
            continue
        found.append((sentence, gap))
        start = match.end()
    return [*found, (line[start:], "")] if start < len(line) else found
