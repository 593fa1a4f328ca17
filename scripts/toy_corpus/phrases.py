"""Noun phrases, names and pronouns in both languages."""

from dataclasses import dataclass, field

from toy_corpus.inflection import (
    CASES,
    QUANTITIES,
    adjective_ending,
    contract,
    german_determiner,
)
from toy_corpus.lexicon import Adjective, Noun, combination

Both = tuple[str, str]  # the same words in English and in German
Forms = dict[str, str]  # case to German form

NOTHING: Both = ("", "")


@dataclass(frozen=True, eq=False)
class Phrase:
    """A noun phrase, pronoun or the gap that a fronted phrase leaves, in both languages."""

    subject_form: str
    object_form: str
    german: Forms
    agreement: str = "3s"
    kind: str = "noun"
    definite: bool = True
    german_negative: Forms = field(default_factory=dict)
    noun: Noun | None = None
    gender: str = ""
    pairs: frozenset[str] = frozenset()

    @property
    def is_universal(self) -> bool:
        """Whether it begins with ``all`` or ``every``, which negation would turn round."""
        return self.subject_form.startswith(("all ", "every "))


def words(*parts: str) -> str:
    """The parts that are not empty, with a space between."""
    return " ".join(part for part in parts if part)


def gap(noun: Noun | None, plural: bool = False) -> Phrase:
    """The gap that a question or a relative clause about the noun leaves."""
    return Phrase("", "", dict.fromkeys(CASES, ""), "3p" if plural else "3s", "gap", noun=noun)


def pronoun(subject: str, other: str, german: str, agreement: str, gender: str = "") -> Phrase:
    """A personal pronoun from its English forms and its German nom, acc and dat."""
    forms = dict(zip(("nom", "acc", "dat"), german.split(), strict=True))
    return Phrase(subject, other, forms, agreement, "pronoun", gender=gender)


PRONOUNS = {
    "I": pronoun("I", "me", "ich mich mir", "1s"),
    "he": pronoun("he", "him", "er ihn ihm", "3s", "m"),
    "she": pronoun("she", "her", "sie sie ihr", "3s", "f"),
    "we": pronoun("we", "us", "wir uns uns", "1p"),
    "they": pronoun("they", "them", "sie sie ihnen", "3p", "p"),
}
THEY = PRONOUNS["they"]
# ``it`` by the German gender of what it stands for.
IT = {
    "m": pronoun("it", "it", "er ihn ihm", "3s"),
    "f": pronoun("it", "it", "sie sie ihr", "3s"),
    "n": pronoun("it", "it", "es es ihm", "3s"),
}
WHO = Phrase("who", "whom", {"nom": "wer", "acc": "wen", "dat": "wem"})
WHAT = Phrase("what", "what", {"nom": "was", "acc": "was"})


def it_for(phrase: Phrase) -> Phrase:
    """The pronoun that stands for a thing or things."""
    return THEY if phrase.gender == "p" else IT[phrase.gender]


def pronoun_for(person: Phrase) -> Phrase:
    """The pronoun that stands for a person or persons."""
    if person.kind == "pronoun":
        return person
    return {"m": PRONOUNS["he"], "f": PRONOUNS["she"], "p": THEY}[person.gender]


def name_phrase(name: str, gender: str) -> Phrase:
    """A person's name."""
    forms = {"nom": name, "acc": name, "dat": name, "gen": name + "s"}
    return Phrase(name, name, forms, gender=gender)


def with_article(determiner: str, rest: str) -> str:
    """An English determiner before the rest of its phrase; ``a`` becomes ``an`` as it must."""
    if determiner == "a" and rest[0] in "aeiou":
        determiner = "an"
    return words(determiner, rest)


def noun_phrase(
    noun: Noun,
    determiner: str = "the",
    plural: bool = False,
    adjective: Adjective | None = None,
    superlative: bool = False,
    possessor: Phrase | None = None,
    after: Both = NOTHING,
) -> Phrase:
    """A noun with its determiner, adjective, possessor and what follows it."""
    gender = "p" if plural else noun.gender
    english = noun.english_plural if plural else noun.english
    pairs: frozenset[str] = frozenset()
    if adjective:
        pairs = frozenset({combination(adjective.english, noun.english)})
        english = f"{adjective.superlative if superlative else adjective.english} {english}"
    english = with_article(determiner, english)
    if possessor:
        english = f"{possessor.subject_form}'s {english}"
        pairs |= possessor.pairs
    owned_by_noun = possessor is not None and possessor.noun is not None

    def german(case: str, word: str) -> str:
        adjectival = ""
        if adjective:
            adjectival = adjective.decline(adjective_ending(word, case, gender), superlative)
        owner = possessor.german["gen"] if possessor else ""
        article = german_determiner(word, case, gender)
        core = words(article, adjectival, noun.decline(case, plural))
        if possessor and not owned_by_noun:  # a name stands before what it owns
            return words(owner, core)
        return words(core, owner, after[1])

    german_word = "the" if owned_by_noun else determiner
    text = words(english, after[0])
    negatable = determiner in ("a", "")
    return Phrase(
        subject_form=text,
        object_form=text,
        german={case: german(case, german_word) for case in CASES},
        agreement="3p" if plural else "3s",
        definite=bool(possessor) or determiner not in ("a", "", *QUANTITIES),
        german_negative={case: german(case, "no") for case in CASES} if negatable else {},
        noun=noun,
        gender=gender,
        pairs=pairs,
    )


def prepositional(english: str, german: str, phrase: Phrase, case: str) -> Both:
    """A preposition before a phrase."""
    return f"{english} {phrase.object_form}", contract(german, phrase.german[case])
