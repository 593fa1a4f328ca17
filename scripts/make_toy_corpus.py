"""Write the toy corpus: English sentences and their German translations from one small grammar.

    python scripts/make_toy_corpus.py [--output FOLDER] [--check]

The output depends on nothing but this file, ``toy_lexicon.py`` and ``toy_lexicon.tsv``. Some
combinations of two words are held out: no training sentence holds one, every sentence of the
other two sets does. ``data/README.md`` says more.
"""

import argparse
import random
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from toy_lexicon import (
    CASES,
    DER_WORDS,
    QUANTITIES,
    RELATIVE,
    Adjective,
    Lexicon,
    Noun,
    Slot,
    Time,
    Verb,
    adjective_ending,
    cell,
    contract,
    fits,
    german_determiner,
    load_lexicon,
    split_classes,
)

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "data" / "toy"
SEED = 20240607
SIZES = {"train": 20_000, "valid": 500, "test": 500}
WORDS = range(4, 17)  # permitted lengths of a sentence, either side
HELD_OUT_SHARE = 9  # one combination in nine is held out
SEEN_OFTEN = 6  # how often train shows each word form of the other sets, at least

Item = TypeVar("Item")
Both = tuple[str, str]  # the same words in English and in German
Forms = dict[str, str]  # case to German form


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


@dataclass(frozen=True)
class Modal:
    """A modal verb: forms in the order 3s, other, past; ``lexical`` if English says ``does``."""

    english: tuple[str, str, str]
    linker: str
    german: tuple[str, str, str]
    lexical: bool = False


MODALS = (
    Modal(("can", "can", "could"), "", ("kann", "können", "konnte")),
    Modal(("should", "should", ""), "", ("sollte", "sollten", "")),
    Modal(("wants", "want", "wanted"), "to", ("will", "wollen", "wollte"), True),
    Modal(("has", "have", "had"), "to", ("muss", "müssen", "musste"), True),
    Modal(("is", "are", "was"), "allowed to", ("darf", "dürfen", "durfte")),
)
WANTS = MODALS[2]

NO_FORMS: Forms = dict.fromkeys(CASES, "")
GAP = Phrase("", "", NO_FORMS, kind="gap")
PLURAL_GAP = replace(GAP, agreement="3p")


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
# ``it`` by the German gender of what it stands for.
IT = {
    "m": pronoun("it", "it", "er ihn ihm", "3s"),
    "f": pronoun("it", "it", "sie sie ihr", "3s"),
    "n": pronoun("it", "it", "es es ihm", "3s"),
}
VIELE = {"acc": "viele", "dat": "vielen"}
THEY = PRONOUNS["they"]
WEATHER = replace(IT["n"], gender="")
WHO = Phrase("who", "whom", {"nom": "wer", "acc": "wen", "dat": "wem"}, "3s")
WHAT = Phrase("what", "what", {"nom": "was", "acc": "was"}, "3s")
POSSESSIVES = {"I": "my", "he": "his", "she": "her", "we": "our", "they": "their"}


def words(*parts: str) -> str:
    """The parts that are not empty, with a space between."""
    return " ".join(part for part in parts if part)


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
    after: Both = ("", ""),
) -> Phrase:
    """A noun with its determiner, adjective, possessor and what follows it."""
    gender = "p" if plural else noun.gender
    english = noun.english_plural if plural else noun.english
    pairs = frozenset({f"{adjective.english}+{noun.english}"}) if adjective else frozenset()
    if adjective:
        english = f"{adjective.superlative if superlative else adjective.english} {english}"
    english = with_article(determiner, english)
    if possessor:
        english = f"{possessor.subject_form}'s {english}"
        pairs |= possessor.pairs

    def german(case: str, word: str) -> str:
        adjectival = ""
        if adjective:
            adjectival = adjective.decline(adjective_ending(word, case, gender), superlative)
        owner = possessor.german["gen"] if possessor else ""
        is_name = possessor is not None and possessor.noun is None
        article = german_determiner(word, case, gender)
        core = words(article, adjectival, noun.decline(case, plural))
        return words(owner, core) if is_name else words(core, owner, after[1])

    owned_by_noun = possessor is not None and possessor.noun is not None
    german_word = "the" if owned_by_noun else determiner
    text = words(english, after[0])
    return Phrase(
        subject_form=text,
        object_form=text,
        german={case: german(case, german_word) for case in CASES},
        agreement="3p" if plural else "3s",
        definite=bool(possessor) or determiner not in ("a", "", *QUANTITIES),
        german_negative={case: german(case, "no") for case in CASES}
        if determiner in ("a", "")
        else {},
        noun=noun,
        gender=gender,
        pairs=pairs,
    )


def name_phrase(name: str, gender: str) -> Phrase:
    """A person's name."""
    forms = {"nom": name, "acc": name, "dat": name, "gen": name + "s"}
    return Phrase(name, name, forms, gender=gender)


def it_for(phrase: Phrase) -> Phrase:
    """The pronoun that stands for a thing or things."""
    return THEY if phrase.gender == "p" else IT[phrase.gender]


@dataclass(frozen=True)
class Clause:
    """What a clause says, before either language puts it in order."""

    subject: Phrase
    verb: Verb
    tense: str = "present"
    modal: Modal | None = None
    negated: bool = False
    objects: tuple[tuple[Slot, Phrase], ...] = ()
    manner: Both = ("", "")
    company: Both = ("", "")
    place: Both = ("", "")
    direction: Both = ("", "")
    predicate: Both = ("", "")
    time: Time | None = None
    front: str = ""

    @property
    def pairs(self) -> frozenset[str]:
        """The combinations of two words that the clause holds."""
        found = set(self.subject.pairs)
        for _, phrase in self.objects:
            found |= phrase.pairs
            if phrase.noun:
                found.add(f"{self.verb.key}+{phrase.noun.english}")
        return frozenset(found)

    # English

    def english_verb(self, with_auxiliary: bool) -> Both:
        """The auxiliary ('' if none) and the rest of the verb group."""
        agreement, verb = self.subject.agreement, self.verb
        if self.modal:
            third, other, past = self.modal.english
            finite = past if self.tense == "past" else third if agreement == "3s" else other
            if other == "are":
                finite = {"is": "is", "are": "are", "was": "was"}[finite]
                finite = "am" if (agreement, finite) == ("1s", "are") else finite
                finite = "were" if finite == "was" and agreement in ("1p", "3p") else finite
            rest = words(self.modal.linker, verb.english)
            if not self.modal.lexical:
                return finite, rest
            if not with_auxiliary:
                return "", words(finite, rest)
            return self.do_form(), words(other, rest)
        if self.tense == "perfect":
            return "has" if agreement == "3s" else "have", verb.participle
        if self.tense == "future":
            return "will", verb.english
        if verb.english == "be":
            return verb.english_form(self.tense, agreement), ""
        if with_auxiliary:
            return self.do_form(), verb.english
        return "", verb.english_form(self.tense, agreement)

    def do_form(self) -> str:
        """The form of ``do`` that questions and negation take."""
        if self.tense == "past":
            return "did"
        return "does" if self.subject.agreement == "3s" else "do"

    def english_rest(self) -> str:
        """Everything after the verb group, less what is fronted."""
        particle = self.verb.particle
        parts = []
        pending = particle
        for slot, phrase in self.objects:
            shown = words(slot.english, phrase.object_form)
            splits = phrase.kind == "pronoun" and particle not in ("for", "to", "forward")
            parts += [shown, pending] if splits else [pending, shown]
            pending = ""
        parts += [pending, self.predicate[0], self.direction[0], self.manner[0], self.company[0]]
        parts.append(self.place[0] if self.front != "place" else "")
        if self.time and not self.time.is_mid and self.front != "time":
            parts.append(self.time.english)
        return words(*parts)

    def english(self, question: bool = False) -> str:
        """The clause as a statement, or with its auxiliary first as a question."""
        auxiliary, verb = self.english_verb(with_auxiliary=question or self.negated)
        mid = self.time.english if self.time and self.time.is_mid and self.front != "time" else ""
        negation = "not" if self.negated else ""
        subject = self.subject.subject_form
        if question:
            return words(auxiliary, subject, negation, mid, verb, self.english_rest())
        if self.negated and auxiliary == "can":
            auxiliary, negation = "cannot", ""
        front = ""
        if self.front == "time" and self.time:
            front = self.time.english
        elif self.front == "place":
            front = self.place[0]
        return words(front, subject, auxiliary, negation, mid, verb, self.english_rest())

    def english_infinitive(self) -> str:
        """The clause as an infinitive without ``to``."""
        return words(self.verb.english, self.english_rest())

    # German

    def german_verb(self) -> Both:
        """The finite verb and what closes the clause."""
        verb, agreement = self.verb, self.subject.agreement
        singular = agreement in ("1s", "3s")
        infinitive = verb.prefix + verb.infinitive
        if self.modal:
            one, many, past = self.modal.german
            if self.tense == "past":
                return past if singular else past + "n", infinitive
            return one if singular else many, infinitive
        if self.tense == "perfect":
            forms = {"haben": ("habe", "hat", "haben"), "sein": ("bin", "ist", "sind")}
            return forms[verb.auxiliary][("1s", "3s").index(agreement) if singular else 2], (
                verb.german_participle
            )
        if self.tense == "future":
            return {"1s": "werde", "3s": "wird"}.get(agreement, "werden"), infinitive
        return verb.german_form(self.tense, agreement), verb.prefix

    def german_objects(self) -> dict[str, str]:
        """The objects by the field of the German clause that they stand in."""
        fields: dict[str, list[str]] = {}
        for slot, phrase in self.objects:
            form = phrase.german[slot.case]
            if phrase.kind == "gap":
                continue
            if slot.german:
                field_name, form = "end", contract(slot.german, form)
            elif phrase.kind == "pronoun":
                field_name = "pronoun " + slot.case
            elif phrase.noun is None:
                field_name = "name"
            elif slot.case == "dat":
                field_name = "dat" if phrase.definite else "indefinite dat"
            elif phrase.definite:
                field_name = "acc"
            else:
                field_name = "indefinite acc"
                form = phrase.german_negative["acc"] if self.negated else form
            fields.setdefault(field_name, []).append(form)
        return {name: " ".join(forms) for name, forms in fields.items()}

    def german_middle(self, with_subject: bool) -> str:
        """What stands between the finite verb's first place and the end of the clause.

        Pronouns and names, time, definite dative, ``oft`` and its like, definite accusative,
        ``nicht`` or ``nie`` and its like, manner, company, place, indefinite accusative, object
        with preposition or direction. All adverbs stand before an indefinite dative.
        """
        subject, reflexive = self.subject, ""
        if self.verb.reflexive:
            reflexive = {"1s": "mich", "1p": "uns"}.get(subject.agreement, "sich")
        shown = subject.german["nom"] if with_subject else ""
        first = (shown, reflexive) if subject.kind == "pronoun" else (reflexive, shown)
        fields = self.german_objects()
        if self.verb.infinitive == "gefallen" and with_subject:
            return words(*fields.values(), shown)
        time = self.time if self.front != "time" else None
        mid = time.german if time and time.is_mid else ""
        indefinite_dative = fields.get("indefinite dat", "")
        is_early = bool(time and "early" in time.tenses and not indefinite_dative)
        return words(
            *first,
            *(fields.get(name, "") for name in ("pronoun acc", "pronoun dat", "name")),
            time.german if time and not time.is_mid else "",
            mid if indefinite_dative else "",
            fields.get("dat", indefinite_dative),
            mid if is_early else "",
            fields.get("acc", ""),
            "" if indefinite_dative or is_early else mid,
            "nicht" if self.negated and "indefinite acc" not in fields else "",
            self.manner[1],
            self.company[1],
            self.place[1] if self.front != "place" else "",
            fields.get("indefinite acc", ""),
            fields.get("end", ""),
            self.direction[1],
            self.predicate[1],
        )

    def german(self, lead: str | None = None) -> str:
        """The clause with its verb second, after the lead if one is given ('' for a question)."""
        finite, close = self.german_verb()
        if lead is None and self.front:
            lead = self.time.german if self.front == "time" and self.time else self.place[1]
        if lead is None:
            return words(self.subject.german["nom"], finite, self.german_middle(False), close)
        return words(lead, finite, self.german_middle(True), close)

    def german_verb_last(self) -> str:
        """The clause with its finite verb at the end, a separable prefix before it."""
        finite, close = self.german_verb()
        joined = close + finite if close and close == self.verb.prefix else words(close, finite)
        return words(self.german_middle(True), joined)

    def german_infinitive(self) -> str:
        """The clause as an infinitive with ``zu``."""
        return words(self.german_middle(False), self.verb.with_zu())


@dataclass(frozen=True)
class Sentence:
    """A sentence, its translation and the combinations of two words that it holds."""

    english: str
    german: str
    pairs: frozenset[str]
    plan: str = ""


def finish(text: str, mark: str) -> str:
    """The text with its commas in place, its first letter capital and its closing mark."""
    for _ in range(2):
        text = text.replace(" ,", ",").replace(",,", ",")
    text = text.rstrip(", ")
    return text[0].upper() + text[1:] + mark


def sentence(english: str, german: str, pairs: frozenset[str], mark: str = ".") -> Sentence:
    """A finished sentence from the words of both languages."""
    return Sentence(finish(english, mark), finish(german, mark), pairs)


def is_held_out(pair: str) -> bool:
    """Whether a combination of two words is kept out of the training set."""
    return zlib.crc32(pair.encode()) % HELD_OUT_SHARE == 0


OWNABLE, _ = split_classes(
    "portable furniture vehicle device pet kin mine home room garden edible drink prepared "
    "story song question"
)
CLOTHING = ("put on", "take off", "try on")
PASSING_STATES = ("wet", "dirty", "broken", "empty", "full")
FOR_ANY_STATE = ("wash", "clean", "repair", "find", "throw away", "take off", "look for", "carry")


def able(verb: Verb, subject: Phrase) -> bool:
    """Whether it makes sense that the subject does this."""
    if subject.noun:
        return fits(subject.noun, verb.subject.classes, verb.subject.excluded)
    return bool(verb.subject.classes & {"person", "role"})


class Chooser:
    """Random choices that depend on the seed alone, in every Python version."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def one(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[int(self._random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def weighted(self, items: Sequence[tuple[Item, int]]) -> Item:
        """One of the items, in proportion to its weight."""
        point = self._random() * sum(weight for _, weight in items)
        for item, weight in items:
            point -= weight
            if point < 0:
                return item
        return items[-1][0]


class Phrases:
    """Makes random noun phrases and clauses that make sense."""

    def __init__(self, lexicon: Lexicon, chooser: Chooser) -> None:
        self.lexicon = lexicon
        self.pick = chooser
        self.names = [name_phrase(*name) for name in lexicon.names]
        self.adjectives = {
            noun.english: tuple(a for a in lexicon.adjectives if a.fits(noun))
            for noun in lexicon.nouns
        }
        self.slot_nouns = {
            slot: tuple(noun for noun in lexicon.nouns if fits(noun, slot.classes, slot.excluded))
            for verb in lexicon.verbs
            for slot in (verb.subject, *verb.objects)
        }

    def adjective(self, noun: Noun, chance: float) -> Adjective | None:
        """An adjective that fits the noun, or none."""
        options = self.adjectives[noun.english]
        return self.pick.one(options) if options and self.pick.chance(chance) else None

    def determiner(self, noun: Noun, plural: bool, owner: str, definite: bool | None) -> str:
        """A determiner that fits; ``owner`` is the subject's possessive where it has one."""
        kin = "kin" in noun.classes
        owner = owner if noun.classes & OWNABLE else ""
        rare = 0 if kin or "edible" in noun.classes else 1
        known = [("the", 2 if kin else 8), (owner, (8 if kin else 2) if owner else 0)]
        if plural:
            known += [("these", 0 if kin else 1), ("all", 0 if kin else 1)]
            fresh = [("", 4), *((quantity, 1) for quantity in QUANTITIES)]
        elif noun.is_mass:
            known += [("this", 1)]
            fresh = [("", 5)]
        else:
            known += [
                ("this", rare),
                ("every", rare),
            ]
            fresh = [("a", 7)]
        if kin or "occasion" in noun.classes or "cause" in noun.classes:
            definite = True
        options = {True: known, False: fresh, None: known + fresh}[definite]
        return self.pick.weighted([option for option in options if option[1]])

    def thing(
        self,
        noun: Noun,
        owner: str = "",
        definite: bool | None = None,
        adjective: float = 0.4,
        negated: bool = False,
        unfit: Sequence[str] = (),
    ) -> Phrase:
        """A phrase with this noun; in a negated clause only with words that can be negated."""
        plural = not noun.is_mass and "single" not in noun.classes and self.pick.chance(0.3)
        determiner = self.determiner(noun, plural, owner, definite)
        if negated and determiner in (*QUANTITIES, "every", "all"):
            determiner = "these" if plural and definite else "" if plural else "the"
        chosen = self.adjective(noun, adjective / 2 if determiner in DER_WORDS else adjective)
        if chosen and chosen.english in unfit:
            chosen = None
        superlative = bool(
            chosen and chosen.superlative and determiner == "the" and self.pick.chance(0.12)
        )
        return noun_phrase(noun, determiner, plural, chosen, superlative)

    def owned(self, noun: Noun) -> Phrase:
        """A phrase whose owner is a person: ``Anna's dog``, ``the dog of the neighbour``."""
        adjective = self.adjective(noun, 0.2)
        plural = "single" not in noun.classes and self.pick.chance(0.2)
        if self.pick.chance(0.5):
            return noun_phrase(noun, "", plural, adjective, possessor=self.pick.one(self.names))
        owner = self.pick.one(self.lexicon.nouns_of("role kin !queen"))
        mine = self.pick.one(("my", "our", "her", "his")) if "kin" in owner.classes else "the"
        return noun_phrase(noun, "", plural, adjective, possessor=noun_phrase(owner, mine))

    def object_noun(self, slot: Slot) -> Noun:
        """A noun that fits a slot; names and places inside ``all`` classes count alike."""
        return self.pick.one(self.slot_nouns[slot])

    def subject(self, slot: Slot) -> Phrase:
        """A subject: a name, a pronoun or a noun phrase."""
        if "person" in slot.classes:
            kind = self.pick.weighted([("name", 3), ("pronoun", 3), ("noun", 5)])
            if kind == "name":
                return self.pick.one(self.names)
            if kind == "pronoun":
                return self.pick.one(tuple(PRONOUNS.values()))
        noun = self.object_noun(slot)
        owner = self.pick.one(("my", "our", "his", "her")) if "kin" in noun.classes else ""
        definite = None if self.pick.chance(0.2) else True
        return self.thing(noun, owner, definite, adjective=0.3)

    def owner_of(self, subject: Phrase) -> str:
        """The possessive that refers to the subject ('' where its sex is not plain)."""
        by_agreement = {"1s": "my", "1p": "our", "3p": "their"}
        if subject.agreement in by_agreement:
            return by_agreement[subject.agreement]
        is_person = subject.noun is None or "person" in subject.noun.classes
        return {"m": "his", "f": "her"}.get(subject.gender, "") if is_person else ""

    def argument(self, verb: Verb, slot: Slot, subject: Phrase, negated: bool) -> Phrase:
        """An object for a slot of the verb."""
        noun = self.object_noun(slot)
        if verb.key in CLOTHING and subject.gender == "m" and noun.english in ("dress", "skirt"):
            noun = self.lexicon.noun("coat")
        if subject.noun and "kid" in subject.noun.classes and noun.english in ("beer", "wine"):
            noun = self.lexicon.noun("juice")
        if slot.case == "dat" and not slot.english and len(verb.objects) > 1:
            is_short = self.pick.chance(0.45)
        else:
            is_short = "person" in noun.classes and self.pick.chance(0.25)
        if "person" in noun.classes and is_short:
            others = [p for p in PRONOUNS.values() if p.agreement[0] + subject.agreement[0] != "11"]
            same = (subject, THEY if subject.agreement == "3p" else subject)
            return self.pick.one(
                [p for p in (*self.names, *others) if not any(p is q for q in same)]
            )
        definite: bool | None = None
        if (negated and slot.case == "dat") or "definite" in verb.flags or slot.english:
            definite = True
        if "indefinite" in verb.flags:
            definite = False
        if not slot.english and noun.classes & {"kin", "mine", "pet"} and self.pick.chance(0.15):
            return self.owned(noun)
        unfit: tuple[str, ...] = () if verb.key in FOR_ANY_STATE else PASSING_STATES
        if verb.key in ("wash", "clean", "tidy up"):
            unfit = ("clean", "full", "empty")
        owner = self.owner_of(subject)
        return self.thing(noun, owner, definite, negated=negated, unfit=unfit)

    def place(self, preposition: str = "in") -> Both:
        """A place where something happens."""
        if preposition == "at":
            noun = self.pick.one(self.lexicon.nouns_of("at"))
            return f"at the {noun.english}", contract("an", f"{noun_phrase(noun).german['dat']}")
        if preposition == "shop":
            noun = self.lexicon.noun("shop")
        elif preposition == "lake":
            noun = self.lexicon.noun("lake")
        else:
            noun = self.pick.one(
                self.lexicon.nouns_of("room outside restaurant library hotel !bathroom")
            )
        adjective = None if preposition == "lake" else self.adjective(noun, 0.12)
        phrase = noun_phrase(noun, "the", adjective=adjective)
        return f"in {phrase.object_form}", contract("in", phrase.german["dat"])

    def time(self, tense: str, verb: Verb, mid_allowed: bool) -> Time | None:
        """An adverbial of time for the tense; what happens once does not happen often."""
        if "stative" in verb.flags:
            return None
        options = [
            time
            for time in self.lexicon.times
            if tense in time.tenses
            and not ("once" in verb.flags and "frequent" in time.tenses)
            and ("season" in verb.flags or "season" not in time.tenses)
            and (mid_allowed or not time.is_mid)
        ]
        return self.pick.one(options) if options else None

    def company(self, subject: Phrase) -> Both:
        """Someone to do it with."""
        noun = self.pick.one(self.lexicon.nouns_of("kin kid friend neighbour colleague"))
        phrase = self.thing(noun, self.owner_of(subject), True, adjective=0.1)
        return f"with {phrase.object_form}", f"mit {phrase.german['dat']}"

    def event(
        self,
        verbs: Sequence[Verb] = (),
        subject: Phrase | None = None,
        tense: str = "",
        adverbials: float = 0.4,
        negated: bool = False,
    ) -> Clause:
        """A clause in which somebody does something."""
        verbs = verbs or self.lexicon.verbs_of("verb")
        if subject:
            verbs = [verb for verb in verbs if able(verb, subject)] or verbs
        verb = self.pick.one(verbs)
        while subject is None or (negated and subject.subject_form.startswith(("all ", "every "))):
            subject = self.subject(verb.subject)
        if not tense:
            tenses = [("present", 5), ("past", 5)]
            tenses += [] if verb.flags & {"stative"} else [("perfect", 3), ("future", 2)]
            tense = self.pick.weighted(tenses)
        if tense == "past" and verb.past == verb.english and subject.agreement != "3s":
            tense = "present" if verb.flags & {"stative"} else "perfect"
        objects = tuple((s, self.argument(verb, s, subject, negated)) for s in verb.objects)
        clause = Clause(subject, verb, tense, negated=negated, objects=objects)
        return self.with_adverbials(clause, adverbials)

    def with_adverbials(self, clause: Clause, chance: float) -> Clause:
        """The clause with adverbials of manner, place and time, each with this chance."""
        verb, pick = clause.verb, self.pick
        late = any(not phrase.definite and not slot.german for slot, phrase in clause.objects)
        if verb.manner and not late and pick.chance(chance * 0.6):
            manner = pick.one(verb.manner)
            clause = replace(clause, manner=(manner, self.lexicon.manner[manner]))
        places = [flag for flag in ("in", "at", "lake", "shop") if flag in verb.flags]
        nouns = [p.noun for p in (clause.subject, *(p for _, p in clause.objects)) if p.noun]
        at_home = not any("animal" in noun.classes for noun in nouns) or not clause.objects
        at_home = at_home and not any("wild" in noun.classes for noun in nouns)
        if places and at_home and pick.chance(chance):
            clause = replace(clause, place=self.place(places[0]))
        if pick.chance(chance * 1.2):
            time = self.time(clause.tense, verb, mid_allowed=not clause.negated)
            if not (
                time and clause.negated and (time.english == "soon" or "frequent" in time.tenses)
            ):
                clause = replace(clause, time=time)
        return clause

    def with_front(self, clause: Clause, chance: float = 0.4) -> Clause:
        """The clause with its adverbial of time or place at the front, perhaps."""
        if not self.pick.chance(chance):
            return clause
        time = clause.time
        if time and (not time.is_mid or time.english == "sometimes"):
            return replace(clause, front="time")
        return replace(clause, front="place") if clause.place[0] else clause

    def predicate(self, subject: Phrase, noun: Noun | None, tense: str = "present") -> Clause:
        """A clause that says how somebody or something is."""
        person = self.lexicon.noun("friend")
        noun = noun or person
        options = [a for a in self.adjectives[noun.english] if a.english not in ("poor", "rich")]
        adjective = self.pick.one(options)
        words_ = (adjective.english, adjective.german)
        return Clause(subject, self.lexicon.verb("be"), tense, predicate=words_)


class Plans:
    """The kinds of sentence; each method makes a random one."""

    def __init__(self, lexicon: Lexicon, seed: int) -> None:
        self.lexicon = lexicon
        self.pick = Chooser(seed)
        self.make = Phrases(lexicon, self.pick)
        self.people = lexicon.verb("sing").subject
        self.weighted: list[tuple[Callable[[], Sentence], int]] = [
            (self.statement, 22),
            (self.negation, 9),
            (self.modal, 9),
            (self.yes_no_question, 7),
            (self.which_question, 5),
            (self.who_question, 3),
            (self.adverb_question, 3),
            (self.property, 5),
            (self.comparison, 4),
            (self.because_state, 5),
            (self.because_it, 5),
            (self.two_events, 5),
            (self.front_clause, 4),
            (self.content_clause, 6),
            (self.try_to, 3),
            (self.in_order_to, 3),
            (self.subject_relative, 4),
            (self.object_relative, 5),
            (self.place_relative, 1),
            (self.owner_relative, 2),
            (self.coordination, 4),
            (self.liking, 5),
            (self.moving, 5),
            (self.putting, 4),
            (self.resting, 3),
            (self.existence, 3),
            (self.exclamation, 3),
            (self.cost, 2),
            (self.age, 1),
            (self.genitive, 3),
            (self.weather, 1),
            (self.clock, 3),
            (self.dwelling, 2),
            (self.of_thing, 2),
        ]

    def any(self) -> Sentence:
        """A sentence of any kind."""
        plan = self.pick.weighted(self.weighted)
        return replace(plan(), plan=plan.__name__)

    # One main clause

    def say(self, clause: Clause) -> Sentence:
        """The clause as a statement."""
        return sentence(clause.english(), clause.german(), clause.pairs)

    def statement(self) -> Sentence:
        """Somebody does something."""
        return self.say(self.make.with_front(self.make.event()))

    def negation(self) -> Sentence:
        """Somebody does not do something: ``nicht`` or ``kein``."""
        return self.say(self.make.event(negated=True, adverbials=0.2))

    def modal_clause(self, subject: Phrase | None = None, negated: bool = False) -> Clause:
        """Somebody can, should, wants to, has to or may do something."""
        active = [v for v in self.lexicon.verbs_of("verb") if "stative" not in v.flags]
        active = [v for v in active if v.key not in ("forget", "lose", "fall asleep", "belong to")]
        modal = self.pick.one(MODALS)
        tense = self.pick.one(("present", "past")) if modal.german[2] else "present"
        clause = self.make.event(active, subject, tense, adverbials=0.2, negated=negated)
        time = clause.time if clause.time and not clause.time.is_mid else None
        return replace(clause, tense=tense, modal=modal, time=time)

    def modal(self) -> Sentence:
        """A modal verb."""
        clause = self.modal_clause(negated=self.pick.chance(0.3))
        return self.say(clause if clause.negated else self.make.with_front(clause, 0.3))

    def yes_no_question(self) -> Sentence:
        """A question without a question word."""
        clause = self.make.event(adverbials=0.25)
        if self.pick.chance(0.25):
            clause = self.modal_clause()
        if clause.subject.agreement[0] == "1":
            return self.say(clause)
        return sentence(clause.english(question=True), clause.german(""), clause.pairs, "?")

    def which_question(self) -> Sentence:
        """A question about an object: which one, how many, what or whom."""
        clause = self.make.event(adverbials=0.1)
        while (
            not clause.objects
            or clause.objects[-1][1].kind == "pronoun"
            or clause.subject.agreement[0] == "1"
        ):
            clause = self.make.event(adverbials=0.1)
        slot = clause.objects[-1][0]
        noun = self.make.object_noun(slot)
        kind = self.pick.weighted([("which", 4), ("how many", 2), ("bare", 2)])
        if "single" in noun.classes:
            return self.statement()
        if noun.is_mass and kind == "how many":
            kind = "which"
        if kind == "bare":
            asked = WHO if "person" in noun.classes else WHAT
            if slot.german or (asked is WHAT and slot.case == "dat"):
                kind = "which"
        if kind == "which":
            asked = noun_phrase(noun, "which", not noun.is_mass and self.pick.chance(0.25))
        elif kind == "how many":
            asked = noun_phrase(noun, "", True)
            forms = {case: f"wie {viele} {asked.german[case]}" for case, viele in VIELE.items()}
            asked = replace(asked, object_form=f"how many {asked.object_form}", german=forms)
        gapped = replace(clause, objects=(*clause.objects[:-1], (slot, GAP)))
        german = gapped.german(words(slot.german, asked.german[slot.case]))
        pairs = gapped.pairs | ({f"{clause.verb.key}+{noun.english}"} if asked.noun else set())
        return sentence(f"{asked.object_form} {gapped.english(question=True)}", german, pairs, "?")

    def who_question(self) -> Sentence:
        """A question about the subject."""
        verb = self.pick.one([v for v in self.lexicon.verbs_of("verb") if v.key != "belong to"])
        asked = WHO
        if self.pick.chance(0.3):
            noun = self.pick.one(self.lexicon.nouns_of("role kid"))
            asked = noun_phrase(noun, "which", self.pick.chance(0.3))
        clause = self.make.event([verb], asked, adverbials=0.4)
        return sentence(clause.english(), clause.german(), clause.pairs, "?")

    def adverb_question(self) -> Sentence:
        """A question that begins with when, where, why or how."""
        word, german = self.pick.one(
            (("when", "wann"), ("why", "warum"), ("where", "wo"), ("where", "wohin"))
        )
        if german == "wohin":
            verbs = [v for v in self.lexicon.verbs_of("motion") if v.key != "come"]
        else:
            verbs = [v for v in self.lexicon.verbs_of("verb") if not v.flags & {"stative"}]
            if german == "wo":
                verbs = [v for v in verbs if v.flags & {"in", "shop"}]
        clause = self.make.event(verbs, adverbials=0)
        while clause.subject.agreement[0] == "1" or (word, clause.tense) == ("when", "perfect"):
            clause = self.make.event(verbs, adverbials=0)
        english = f"{word} {clause.english(question=True)}"
        return sentence(english, clause.german(german), clause.pairs, "?")

    def property(self) -> Sentence:
        """Somebody or something is, was or will be such."""
        classes = "person animal thing edible drink building room outside town shop"
        noun = self.pick.one(
            [n for n in self.lexicon.nouns_of(classes) if self.make.adjectives[n.english]]
        )
        owner = self.pick.one(("my", "our", "his", "her"))
        subject = self.make.thing(noun, owner, True, 0.12)
        while subject.subject_form.startswith(("every ", "all ")):
            subject = self.make.thing(noun, owner, True, 0.12)
        tense = self.pick.weighted([("present", 5), ("past", 4)])
        clause = self.make.predicate(subject, noun, tense)
        clause = replace(clause, negated=self.pick.chance(0.2))
        pair = f"{clause.predicate[0]}+{noun.english}"
        english = clause.english()
        german = clause.german()
        if self.pick.chance(0.25) and not clause.negated:
            question = clause.english(question=True)
            return sentence(question, clause.german(""), clause.pairs | {pair}, "?")
        return sentence(english, german, clause.pairs | {pair})

    def comparison(self) -> Sentence:
        """Something is bigger than, or as big as, something of its kind."""
        kinds = ("kid role kin", "animal", "wear", "tool vessel", "furniture", "vehicle", "fruit")
        nouns = self.lexicon.nouns_of(self.pick.one((*kinds, "building", "town", "container")))
        first = self.pick.one(nouns)
        options = [a for a in self.make.adjectives[first.english] if a.comparative]
        adjective = self.pick.one(options)
        others = [noun for noun in nouns if adjective.fits(noun) and noun is not first]
        second = self.pick.one(others or [first])
        left = noun_phrase(first, self.pick.one(("the", "this")))
        right = noun_phrase(second, self.pick.one(("my", "our")) if not others else "the")
        if "kin" in first.classes or (others and self.pick.chance(0.3)):
            left = noun_phrase(first, self.pick.one(("my", "our", "his", "her")))
        if not left.noun or not first.classes & OWNABLE:
            left = noun_phrase(first, self.pick.one(("the", "this")))
        if "kin" in second.classes:
            right = noun_phrase(second, self.pick.one(("my", "our", "his", "her")))
        predicate = (
            f"{adjective.comparative} than {right.subject_form}",
            f"{adjective.german_comparative} als {right.german['nom']}",
        )
        if self.pick.chance(0.3):
            predicate = (
                f"as {adjective.english} as {right.subject_form}",
                f"so {adjective.german} wie {right.german['nom']}",
            )
        clause = Clause(left, self.lexicon.verb("be"), predicate=predicate)
        return self.with_pairs(self.say(clause), f"{adjective.english}+{first.english}")

    @staticmethod
    def with_pairs(made: Sentence, *pairs: str) -> Sentence:
        """The sentence with more combinations."""
        return replace(made, pairs=made.pairs | set(pairs))

    # Two clauses

    def joined(self, main: Clause, link: Both, other: Clause, first: bool = False) -> Sentence:
        """A main clause and a subordinate one, which may come first."""
        last = f"{link[1]} {other.german_verb_last()}"
        pairs = main.pairs | other.pairs
        if first:
            english = f"{link[0]} {other.english()} , {main.english()}"
            return sentence(english, main.german(f"{last} ,"), pairs)
        return sentence(
            f"{main.english()} {link[0]} {other.english()}", f"{main.german()} , {last}", pairs
        )

    def person_with_pronoun(self) -> tuple[Phrase, Phrase]:
        """A person and the pronoun that stands for that person."""
        if self.pick.chance(0.4):
            person = self.pick.one(self.make.names)
        elif self.pick.chance(0.2):
            person = self.pick.one(tuple(PRONOUNS.values()))
        else:
            noun = self.pick.one([n for n in self.lexicon.nouns_of("role kin") if n.gender != "n"])
            person = self.make.thing(noun, self.pick.one(("my", "our")), True, 0.15)
        if person.kind == "pronoun":
            return person, person
        by_gender = {"m": PRONOUNS["he"], "f": PRONOUNS["she"], "p": THEY}
        return person, by_gender[person.gender]

    def short_event(
        self, tense: str, subject: Phrase | None = None, adverbials: float = 0.06
    ) -> Clause:
        """A clause with few adverbials and no verb of state."""
        active = [v for v in self.lexicon.verbs_of("verb") if "stative" not in v.flags]
        verbs = [v for v in active if v.key != "belong to"]
        return self.make.event(verbs, subject, tense, adverbials=adverbials)

    def weather_clause(self, tense: str) -> Clause:
        """It rains, or it is cold."""
        kind = self.pick.one(("rain", "snow", "be"))
        predicate = self.pick.one(
            (("cold", "kalt"), ("hot", "heiß"), ("warm", "warm"), ("dark", "dunkel"))
        )
        verb = self.lexicon.verb(kind)
        return Clause(WEATHER, verb, tense, predicate=predicate if kind == "be" else ("", ""))

    def because_state(self) -> Sentence:
        """Somebody does something because of, or in spite of, how they are or what it is like."""
        person, again = self.person_with_pronoun()
        tense = self.pick.one(("present", "past"))
        link = self.pick.weighted([(("because", "weil"), 2), (("although", "obwohl"), 1)])
        if self.pick.chance(0.7):
            states = STATES if link[0] == "because" else DESPITE_STATES
            state, keys = self.pick.one(states)
            adjective = self.lexicon.adjective(state)
            predicate = (adjective.english, adjective.german)
            reason = Clause(again, self.lexicon.verb("be"), tense, predicate=predicate)
            main = self.deed_of(keys, tense, person)
        else:
            reason = self.weather_clause(tense)
            main = self.deed_of(self.deeds_in_weather(reason, link[0]), tense, person)
        if main.tense != tense:
            return self.statement()
        return self.joined(main, link, reason, first=self.pick.chance(0.15) and person is again)

    def deed_of(self, keys: str, tense: str, person: Phrase | None = None) -> Clause:
        """A clause with one of the verbs named, separated by commas."""
        wanted = self.pick.one(keys.split(", "))
        verbs = [v for v in self.lexicon.verbs_of("verb") if v.key == wanted]
        clause = self.make.event([self.pick.one(verbs)], person, tense, adverbials=0.1)
        if clause.time and "frequent" in clause.time.tenses:
            clause = replace(clause, time=None)
        return replace(clause, place=("", ""))

    @staticmethod
    def deeds_in_weather(reason: Clause, link: str) -> str:
        """The verbs of what one does because of the weather, or in spite of it."""
        kind = reason.predicate[0] or "wet"
        return (WEATHER_DEEDS if link == "because" else DESPITE_WEATHER)[kind]

    def because_it(self) -> Sentence:
        """Somebody does something with a thing because it is such; ``it`` takes its gender."""
        keys = ("buy", "sell", "throw away", "repair", "wash", "clean", "take off", "put on")
        verb = self.lexicon.verb(self.pick.one((*keys, "buy", "try on", "eat", "drink")))
        person, _ = self.person_with_pronoun()
        slot = verb.objects[0]
        noun = self.make.object_noun(slot)
        reasons = self.reasons(verb.key, noun)
        while not reasons or "animal" in noun.classes:
            noun = self.make.object_noun(slot)
            reasons = self.reasons(verb.key, noun)
        owner = self.make.owner_of(person)
        plural = not noun.is_mass and self.pick.chance(0.25)
        article = self.pick.one(("the", owner or "the", "a" if verb.key == "buy" else "the"))
        if article == "a" and (plural or noun.is_mass):
            article = "the"
        tense = self.pick.one(("present", "past"))
        if verb.past == verb.english and person.agreement != "3s":
            tense = "present"
        thing = noun_phrase(noun, article, plural)
        main = Clause(person, verb, tense, objects=((slot, thing),))
        adjective = self.pick.one(reasons)
        predicate = (adjective.english, adjective.german)
        reason = Clause(it_for(thing), self.lexicon.verb("be"), tense, predicate=predicate)
        made = self.joined(main, ("because", "weil"), reason)
        return self.with_pairs(made, f"{adjective.english}+{noun.english}")

    def reasons(self, key: str, noun: Noun) -> list[Adjective]:
        """The adjectives of a thing that are a reason to do this with it."""
        because = {
            "buy": "beautiful cheap modern interesting fresh delicious",
            "sell": "old ugly",
            "throw away": "old ugly broken",
            "repair": "broken",
            "wash": "dirty",
            "clean": "dirty",
            "take off": "wet dirty",
            "put on": "warm clean beautiful new",
            "try on": "beautiful cheap",
            "eat": "delicious fresh sweet",
            "drink": "cold hot fresh sweet",
        }[key]
        options = self.make.adjectives[noun.english]
        return [adjective for adjective in options if adjective.english in because.split()]

    def two_events(self) -> Sentence:
        """One thing happens while, before or when another does."""
        tense = self.pick.one(("present", "past"))
        links = [("while", "während"), ("before", "bevor")]
        link = self.pick.one(
            [*links, ("when", "als")] if tense == "past" else [*links, ("if", "wenn")]
        )
        main = self.short_event(tense, adverbials=0)
        other = self.short_event(tense, adverbials=0)
        if self.pick.chance(0.15):
            other = self.weather_clause(tense)
        if "perfect" in (main.tense, other.tense):
            return self.because_state()
        return self.joined(main, link, other)

    def front_clause(self) -> Sentence:
        """The subordinate clause comes first, and the verb of the main clause after it."""
        tense = self.pick.one(("present", "past"))
        if tense == "present":
            link = self.pick.one((("if", "wenn"), ("because", "weil"), ("although", "obwohl")))
        else:
            link = self.pick.one((("when", "als"), ("because", "weil"), ("although", "obwohl")))
        other = self.weather_clause(tense)
        if link[0] in ("if", "when") and self.pick.chance(0.5):
            other = self.short_event(tense, adverbials=0)
            main = self.short_event(tense, adverbials=0)
        else:
            cause = "although" if link[0] == "although" else "because"
            main = self.deed_of(self.deeds_in_weather(other, cause), tense)
        if "perfect" in (main.tense, other.tense):
            return self.because_state()
        return self.joined(main, link, other, first=True)

    def content_clause(self) -> Sentence:
        """Somebody says that something is so, or asks whether it is."""
        verb = self.pick.one(self.lexicon.verbs_of("speech"))
        subject = self.plain_person()
        tense = "present" if verb.english == "hope" else self.pick.one(("present", "past"))
        negated = verb.english == "know" and tense == "present" and self.pick.chance(0.5)
        main = Clause(subject, verb, tense, negated=negated)
        inner = self.pick.one(("past", "perfect", "future")) if tense == "present" else "past"
        other = self.short_event(inner)
        if self.pick.chance(0.25):
            other = replace(self.modal_clause(), time=None)
            if tense == "past" and other.modal and other.modal.german[2]:
                other = replace(other, tense="past")
        elif tense == "past" and other.tense != "past":
            return self.statement()
        whether = "whether" in verb.flags or negated
        link = ("whether", "ob") if whether else ("that", "dass")
        return self.joined(main, link, other)

    def try_to(self) -> Sentence:
        """Somebody tries, promises or forgets to do something."""
        verb = self.pick.one(self.lexicon.verbs_of("infinitive"))
        subject = self.make.subject(self.people)
        main = Clause(subject, verb, self.pick.one(("present", "past")))
        inner = self.deed(subject)
        german = f"{main.german()} , {inner.german_infinitive()}"
        english = f"{main.english()} to {inner.english_infinitive()}"
        return sentence(english, german, main.pairs | inner.pairs)

    def deed(self, subject: Phrase) -> Clause:
        """A deed that one can try, promise or set out to do."""
        unfit = ("see", "hear", "lose", "forget", "cry", "laugh", "fall asleep", "rest", "look for")
        active = [v for v in self.lexicon.verbs_of("verb") if "stative" not in v.flags]
        deeds = [v for v in active if v.key not in (*unfit, "belong to", "look forward", "wake up")]
        return replace(self.make.event(deeds, subject, "future", adverbials=0.1), time=None)

    def in_order_to(self) -> Sentence:
        """Somebody goes somewhere in order to do something, or because they want or have to."""
        place, keys = self.pick.one(PURPOSES)
        verb = self.pick.one([v for v in self.lexicon.verbs_of("motion") if v.key != "travel"])
        tense = self.pick.one(("present", "past"))
        noun = self.lexicon.noun(place)
        if verb.key == "drive" and "goal" not in noun.classes:
            verb = self.lexicon.verb("go")
        person, again = self.person_with_pronoun()
        goal = noun_phrase(noun)
        direction = (f"into {goal.object_form}", contract("in", goal.german["acc"]))
        if noun.classes & {"goal", "role"}:
            direction = (f"to {goal.object_form}", contract("zu", goal.german["dat"]))
        main = Clause(person, verb, tense, direction=direction)
        inner = self.deed_of(keys, "future", again)
        inner = replace(inner, time=None, manner=("", ""))
        if self.pick.chance(0.4):
            reason = replace(inner, tense=tense, modal=self.pick.one((WANTS, MODALS[3])))
            return self.joined(main, ("because", "weil"), reason)
        german = f"{main.german()} , um {inner.german_infinitive()}"
        english = f"{main.english()} in order to {inner.english_infinitive()}"
        return sentence(english, german, main.pairs | inner.pairs)

    def coordination(self) -> Sentence:
        """Two main clauses with and or but."""
        tense = self.pick.one(("present", "past"))
        first, second = self.short_event(tense), self.short_event(tense)
        is_ambiguous = first.verb.key == "help"  # "they help two men and three boys sing"
        if first.tense != second.tense or is_ambiguous:
            return self.statement()
        if self.pick.chance(0.6):
            english = f"{first.english()} and {second.english()}"
            return sentence(
                english, f"{first.german()} und {second.german()}", first.pairs | second.pairs
            )
        other = self.modal_clause(negated=True)
        same = tense if other.modal and other.modal.german[2] else "present"
        other = replace(other, time=None, tense=same)
        english = f"{first.english()} , but {other.english()}"
        return sentence(
            english, f"{first.german()} , aber {other.german()}", first.pairs | other.pairs
        )

    # Relative clauses

    def with_relative(self, noun: Noun, plural: bool, english: str, german: str) -> Phrase:
        """A noun with a relative clause."""
        return noun_phrase(noun, "the", plural, after=(english, f", {german} ,"))

    def short_state(self, subject: Phrase, noun: Noun) -> Clause:
        """A main clause about a phrase that has a relative clause."""
        tense = self.pick.one(("present", "past"))
        if "person" in noun.classes and self.pick.chance(0.6):
            verbs = [v for v in self.lexicon.verbs_of("verb") if "stative" not in v.flags]
            simple = [v for v in verbs if len(v.objects) < 2 and v.key != "belong to"]
            return self.make.event(simple, subject, tense, adverbials=0)
        return self.make.predicate(subject, noun, tense)

    def subject_relative(self) -> Sentence:
        """The man who reads the book."""
        noun = self.pick.one(self.lexicon.nouns_of("role kid kin"))
        plural = "single" not in noun.classes and self.pick.chance(0.3)
        gap = replace(PLURAL_GAP if plural else GAP, noun=noun)
        inner = self.short_event(self.pick.one(("present", "past")), gap)
        lead = cell(RELATIVE, "nom", "p" if plural else noun.gender)
        head = self.with_relative(
            noun, plural, f"who {inner.english()}", f"{lead} {inner.german_verb_last()}"
        )
        return self.about(head, noun, inner)

    def about(self, head: Phrase, noun: Noun, inner: Clause) -> Sentence:
        """A sentence whose subject or object is the phrase with the relative clause."""
        if self.pick.chance(0.45) and "person" in noun.classes | {"person"}:
            slots = [
                v
                for v in self.lexicon.verbs_of("verb")
                if len(v.objects) == 1
                and not v.prefix
                and noun in self.make.slot_nouns[v.objects[0]]
                and not v.particle
                and "indefinite" not in v.flags
                and v is not inner.verb
            ]
            if slots:
                verb = self.pick.one(slots)
                subject = self.make.subject(verb.subject)
                tense = (
                    self.pick.one(("present", "past")) if verb.past != verb.english else "present"
                )
                main = Clause(subject, verb, tense, objects=((verb.objects[0], head),))
                return self.with_pairs(self.say(main), *inner.pairs)
        state = self.short_state(head, noun)
        pairs = {f"{state.predicate[0]}+{noun.english}"} if state.predicate[0] else set()
        return self.with_pairs(self.say(state), *inner.pairs, *pairs)

    def object_relative(self) -> Sentence:
        """The book that the man reads; the woman whom the boy helps."""
        verbs = [v for v in self.lexicon.verbs_of("verb") if v.objects and v.key != "belong to"]
        verb = self.pick.one(verbs)
        slot = verb.objects[-1]
        noun = self.make.object_noun(slot)
        plural = not noun.is_mass and "single" not in noun.classes and self.pick.chance(0.3)
        if not self.make.adjectives[noun.english]:
            return self.statement()
        tenses = ("present", "past", "perfect")[: 2 if "stative" in verb.flags else 3]
        inner = self.make.event([verb], tense=self.pick.one(tenses), adverbials=0.08)
        inner = replace(inner, objects=(*inner.objects[:-1], (slot, GAP)))
        relative = cell(RELATIVE, slot.case, "p" if plural else noun.gender)
        lead = words(slot.german, relative)
        that = "whom" if "person" in noun.classes else "that"
        head = self.with_relative(
            noun, plural, f"{that} {inner.english()}", f"{lead} {inner.german_verb_last()}"
        )
        made = self.about(head, noun, inner)
        return self.with_pairs(made, f"{verb.key}+{noun.english}")

    def place_relative(self) -> Sentence:
        """The house in which she works."""
        noun = self.pick.one(self.lexicon.nouns_of("building room outside shop"))
        verb = self.lexicon.verb(self.pick.one(("sleep", "work", "eat", "read", "meet", "sing")))
        subject = self.make.subject(self.people)
        inner = self.make.event([verb], subject, self.pick.one(("present", "past")), adverbials=0)
        lead = cell(RELATIVE, "dat", noun.gender)
        head = self.with_relative(
            noun, False, f"in which {inner.english()}", f"in {lead} {inner.german_verb_last()}"
        )
        clause = self.make.predicate(head, noun)
        pairs = inner.pairs | {f"{clause.predicate[0]}+{noun.english}"}
        return self.with_pairs(self.say(clause), *pairs)

    def owner_relative(self) -> Sentence:
        """The man whose dog sleeps."""
        noun = self.pick.one(self.lexicon.nouns_of("role kid"))
        relatives = (
            "mother father brother sister pet" if "kid" in noun.classes else "kin pet vehicle"
        )
        owned = self.pick.one(self.lexicon.nouns_of(f"{relatives} !transport"))
        lead = cell(RELATIVE, "gen", noun.gender)
        subject = replace(GAP, kind="noun", noun=owned)
        state = self.make.predicate(subject, owned, self.pick.one(("present", "past")))
        adjective, german_adjective = state.predicate
        finite, german_finite = state.english(), state.german_verb()[0]
        relative = f"{lead} {owned.german} {german_adjective} {german_finite}"
        head = self.with_relative(noun, False, f"whose {owned.english} {finite}", relative)
        return self.with_pairs(self.about(head, noun, state), f"{adjective}+{owned.english}")

    # Kinds of verb with an order of their own

    def liking(self) -> Sentence:
        """What somebody likes, which in German pleases them."""
        verb = self.lexicon.verb("like")
        person = self.plain_person()
        while not person.definite:
            person = self.plain_person()
        noun = self.make.object_noun(verb.objects[0])
        negated = self.pick.chance(0.2)
        thing = self.make.thing(noun, "", True, negated=negated, unfit=PASSING_STATES)
        tense = self.pick.weighted([("present", 3), ("past", 1)])
        english = Clause(person, verb, tense, negated=negated, objects=((verb.objects[0], thing),))
        german = Clause(thing, verb, tense, negated=negated, objects=((DATIVE, person),))
        if self.pick.chance(0.25) and not negated and person.agreement[0] != "1":
            question = english.english(question=True)
            return sentence(question, german.german(""), english.pairs, "?")
        return sentence(english.english(), german.german(), english.pairs)

    def direction(self, verb: Verb) -> Both:
        """Somewhere to go."""
        lexicon, pick = self.lexicon, self.pick
        kind = pick.weighted([("to", 4), ("into", 4), ("out of", 1), ("city", 1), ("person", 1)])
        if kind == "city" and verb.english in ("run", "go"):
            kind = "into"
        if ("city" in verb.flags and pick.chance(0.5)) or kind == "city":
            english, german = pick.one(lexicon.cities)
            return f"to {english}", f"nach {german}"
        if kind == "person" and verb.english != "travel":
            person = noun_phrase(lexicon.noun("doctor"), pick.one(("the", "a")))
            return f"to {person.object_form}", contract("zu", person.german["dat"])
        if kind == "to" or verb.english in ("drive", "travel"):
            far = "goalin lake beach" if verb.english == "travel" else "goal goalin"
            noun = pick.one(lexicon.nouns_of(far))
            goal = noun_phrase(noun, "the", adjective=self.make.adjective(noun, 0.15))
            inside = "goalin" in noun.classes
            german = contract("in" if inside else "zu", goal.german["acc" if inside else "dat"])
            return f"to {goal.object_form}", german
        noun = pick.one(lexicon.nouns_of("inside into"))
        goal = noun_phrase(noun, "the", adjective=self.make.adjective(noun, 0.15))
        if kind == "into":
            return f"into {goal.object_form}", contract("in", goal.german["acc"])
        return f"out of {goal.object_form}", f"aus {goal.german['dat']}"

    def motion_clause(self, tense: str) -> Clause:
        """Somebody goes somewhere."""
        verb = self.pick.one(self.lexicon.verbs_of("motion"))
        return Clause(self.plain_person(), verb, tense, direction=self.direction(verb))

    def plain_person(self) -> Phrase:
        """A person or persons, without ``every`` and ``all``, which negation would turn round."""
        person = self.make.subject(self.people)
        while person.subject_form.startswith(("all ", "every ")):
            person = self.make.subject(self.people)
        return person

    def moving(self) -> Sentence:
        """Somebody goes somewhere, perhaps with somebody or by bus, at some time."""
        pick = self.pick
        clause = self.motion_clause(pick.one(("present", "past", "perfect", "future")))
        if pick.chance(0.25):
            clause = replace(clause, company=self.make.company(clause.subject))
        elif clause.verb.english == "travel":
            ride = pick.one(self.lexicon.nouns_of("bus train"))
            german = f"mit {noun_phrase(ride).german['dat']}"
            clause = replace(clause, company=(f"by {ride.english}", german))
        negated = pick.chance(0.15)
        time = self.make.time(clause.tense, clause.verb, True) if pick.chance(0.5) else None
        if (
            time and (time.english == "soon" or "frequent" in time.tenses)
        ) or clause.tense == "perfect":
            negated = False
        clause = replace(clause, time=time, negated=negated)
        return self.say(clause if negated else self.make.with_front(clause))

    def spot(self, verb: Verb, thing: Noun, case: str) -> Both:
        """Where a thing is put (accusative) or is (dative)."""
        choices = {
            "lay": ["on", "on", "in", "under", "next to"],
            "place": ["on", "on", "next to", "under", "behind"],
            "hang": ["above"] if thing.english in ("picture", "clock") else ["in", "behind"],
            "lie": ["on", "on", "in", "under", "next to"],
            "stand": ["on", "on", "next to", "under", "behind", "in front of"],
            "sit": ["on", "on", "under", "next to", "behind", "in front of"],
        }[verb.english]
        english = self.pick.one(choices)
        nouns = {
            "in": "cupboard" if verb.english == "hang" else "container",
            "on": "surface",
            "under": "table bed chair sofa",
            "above": "table bed sofa piano",
        }.get(
            english,
            "door window" if verb.english == "hang" else "door bed sofa table cupboard tree",
        )
        if verb.english == "hang" and english == "behind":
            nouns = "door"
        options = [n for n in self.lexicon.nouns_of(nouns) if n is not thing]
        noun = self.pick.one(options)
        adjective = self.make.adjective(noun, 0.25)
        determiner = self.pick.weighted([("the", 5), ("a", 1), ("my", 1)])
        if noun.english in ("door", "tree"):
            determiner = "the"
        goal = noun_phrase(noun, determiner, adjective=adjective)
        german = contract(SPOTS[english], goal.german[case])
        return f"{english} {goal.object_form}", german

    def putting(self) -> Sentence:
        """Somebody puts a thing somewhere: the accusative after the preposition."""
        verb = self.pick.one(self.lexicon.verbs_of("put"))
        clause = self.make.event([verb], adverbials=0.15)
        thing = clause.objects[0][1]
        if thing.noun is None:
            return self.statement()
        clause = replace(clause, direction=self.spot(verb, thing.noun, "acc"))
        return self.say(self.make.with_front(clause))

    def resting(self) -> Sentence:
        """A thing or animal is somewhere: the dative after the preposition."""
        verb = self.pick.one(self.lexicon.verbs_of("rest"))
        noun = self.make.object_noun(verb.subject)
        subject = self.make.thing(noun, self.pick.one(("my", "our", "her")), True, 0.3)
        tense = self.pick.one(("present", "past"))
        clause = Clause(subject, verb, tense, direction=self.spot(verb, noun, "dat"))
        clause = replace(clause, negated=self.pick.chance(0.2))
        if self.pick.chance(0.2) and not clause.negated:
            question = clause.english(question=True)
            return sentence(question, clause.german(""), clause.pairs, "?")
        if self.pick.chance(0.15) and not clause.negated:
            asked = replace(clause, direction=("", ""))
            english = f"where {asked.english(question=True)}"
            return sentence(english, asked.german("wo"), asked.pairs, "?")
        return self.say(clause)

    def existence(self) -> Sentence:
        """There is something somewhere."""
        room = self.pick.one(self.lexicon.nouns_of("room outside town"))
        found = {"room": "furniture device vessel", "town": "building bridge shop"}
        kinds = [found[c] for c in sorted(room.classes) if c in found] or ["plant pet"]
        noun = self.pick.one(self.lexicon.nouns_of(kinds[0]))
        thing = self.make.thing(noun, "", False, 0.4)
        adjective = self.make.adjective(room, 0.25)
        place = noun_phrase(room, "the", adjective=adjective)
        past = self.pick.chance(0.4)
        plural = thing.agreement == "3p"
        english_verb = ("were" if plural else "was") if past else ("are" if plural else "is")
        english, german = thing.object_form, thing.german["acc"]
        if self.pick.chance(0.25) and not english.startswith(tuple(QUANTITIES)):
            english = f"no {english.removeprefix('an ').removeprefix('a ')}"
            german = thing.german_negative["acc"]
        where = contract("in", place.german["dat"])
        return sentence(
            f"in {place.object_form} there {english_verb} {english}",
            f"{where} {'gab' if past else 'gibt'} es {german}",
            thing.pairs | place.pairs,
        )

    def exclamation(self) -> Sentence:
        """How beautiful the garden is! What a beautiful garden!"""
        classes = "kid animal wear building outside edible art vehicle plant town"
        noun = self.pick.one(self.lexicon.nouns_of(classes))
        colours = ("red", "blue", "green", "yellow", "white", "black", "grey", "brown", "wet")
        options = [
            a for a in self.make.adjectives[noun.english] if a.english not in (*colours, "new")
        ]
        adjective = self.pick.one(options)
        plural = not noun.is_mass and self.pick.chance(0.3)
        pair = f"{adjective.english}+{noun.english}"
        if self.pick.chance(0.4):
            what = noun_phrase(noun, "" if plural or noun.is_mass else "a", plural, adjective)
            german = f"was für {what.german['nom']}"
            return sentence(f"what {what.subject_form}", german, what.pairs, "!")
        subject = noun_phrase(noun, "the", plural)
        clause = Clause(subject, self.lexicon.verb("be"), self.pick.one(("present", "past")))
        finite = clause.german_verb()[0]
        return sentence(
            f"how {adjective.english} {clause.english()}",
            f"wie {adjective.german} {subject.german['nom']} {finite}",
            frozenset({pair}),
            "!",
        )

    def cost(self) -> Sentence:
        """What a thing costs."""
        verb = self.lexicon.verb("cost")
        noun = self.make.object_noun(verb.subject)
        adjective = self.make.adjective(noun, 0.6)
        if adjective and adjective.english in (*PASSING_STATES, "cheap", "expensive"):
            adjective = None
        subject = noun_phrase(noun, self.pick.one(("the", "this")), False, adjective)
        price = self.pick.one(("20", "50", "100", "200", "300"))
        clause = Clause(subject, verb, self.pick.one(("present", "past")))
        clause = replace(clause, predicate=(f"{price} euros", f"{price} Euro"))
        return self.say(clause)

    def age(self) -> Sentence:
        """How old somebody is."""
        noun = self.pick.one(
            self.lexicon.nouns_of("boy girl child young-kin dog cat horse cow house tree")
        )
        person = noun_phrase(noun, "my" if "kin" in noun.classes else "the")
        if self.pick.chance(0.4):
            person = self.pick.one(self.make.names)
        english, german = self.pick.one(HOURS)
        predicate = (f"{english} years old", f"{german} Jahre alt")
        tense = self.pick.one(("present", "past"))
        return self.say(Clause(person, self.lexicon.verb("be"), tense, predicate=predicate))

    def genitive(self) -> Sentence:
        """Because of the rain, despite the noise, during the meal; before and after it."""
        kind, german, classes, case = self.pick.one(OCCASIONS)
        noun = self.pick.one(self.lexicon.nouns_of(classes))
        phrase = noun_phrase(noun)
        adverbial = Time(
            f"{kind} {phrase.object_form}",
            contract(german, phrase.german[case]),
            False,
            frozenset(),
        )
        clause = self.deed_of(CAUSED[kind], self.pick.one(("present", "past")))
        clause = replace(clause, time=adverbial, manner=("", ""))
        return self.say(self.make.with_front(clause, 0.5))

    def weather(self) -> Sentence:
        """What the weather is like."""
        tense = self.pick.one(("present", "past", "perfect", "future"))
        clause = self.weather_clause(tense)
        if tense == "perfect" and clause.predicate[0]:
            clause = replace(clause, tense="past")
        time = self.make.time(clause.tense, clause.verb, False)
        fitting = {"in summer": ("rain", "hot", "warm"), "in winter": ("snow", "rain", "cold")}
        if time and (clause.predicate[0] or clause.verb.key) not in fitting.get(
            time.english, (clause.predicate[0] or clause.verb.key,)
        ):
            time = None
        clause = replace(clause, time=time)
        return self.say(self.make.with_front(clause, 0.5))

    def clock(self) -> Sentence:
        """At three o'clock, at half past two."""
        index = int(self.pick.one(range(len(HOURS))))
        english, german = f"at {HOURS[index][0]} o'clock", f"um {HOURS[index][1]} Uhr"
        if index and self.pick.chance(0.4):
            english = f"at half past {HOURS[index - 1][0]}"
            german = f"um halb {HOURS[index][1]}"
        time = Time(english, german, False, frozenset())
        clause = self.short_event(self.pick.one(("present", "past", "future")))
        if self.pick.chance(0.4):
            clause = self.motion_clause(self.pick.one(("present", "past", "future")))
        return self.say(self.make.with_front(replace(clause, time=time), 0.4))

    def dwelling(self) -> Sentence:
        """Where somebody lives."""
        subject = self.plain_person()
        noun = self.pick.one(self.lexicon.nouns_of("home town hotel"))
        determiner = self.pick.weighted([("a", 3), ("the", 1), ("this", 1)])
        home = noun_phrase(noun, determiner, adjective=self.make.adjective(noun, 0.85))
        place = (f"in {home.object_form}", contract("in", home.german["dat"]))
        if self.pick.chance(0.15):
            english, german = self.pick.one(self.lexicon.cities)
            place = (f"in {english}", f"in {german}")
        tense = self.pick.one(("present", "past"))
        clause = Clause(subject, self.lexicon.verb("live"), tense, direction=place)
        clause = replace(clause, negated=self.pick.chance(0.15))
        return self.with_pairs(self.say(clause), *home.pairs)

    def of_thing(self) -> Sentence:
        """The door of the house is red."""
        part = self.pick.one(self.lexicon.nouns_of("part"))
        whole = self.pick.one(
            self.lexicon.nouns_of(
                "building room shop town" if part.english == "gate" else "building room shop"
            )
        )
        if part.english == "gate":
            whole = self.pick.one(self.lexicon.nouns_of("school garden park hospital"))
        owner = noun_phrase(whole, "the", adjective=self.make.adjective(whole, 0.25))
        plural = self.pick.chance(0.3)
        after = (f"of {owner.object_form}", owner.german["gen"])
        subject = noun_phrase(part, "the", plural, after=after)
        clause = self.make.predicate(subject, part, self.pick.one(("present", "past")))
        pair = f"{clause.predicate[0]}+{part.english}"
        return self.with_pairs(self.say(clause), pair, *owner.pairs)


# What people do because of how they are, and in spite of it.
STATES = (
    ("tired", "fall asleep, rest, sit down, sleep, get up"),
    ("hungry", "eat, cook, bake, order"),
    ("sad", "cry, call, write, talk"),
    ("happy", "laugh, sing, dance, thank, invite"),
    ("sick", "rest, sleep, sit down"),
    ("polite", "thank, answer, congratulate, help, listen to"),
    ("lazy", "sleep, rest, sit down"),
    ("brave", "help, follow"),
    ("rich", "give, invite"),
)
DESPITE_STATES = (
    ("tired", "work, read, dance, cook, tidy up, write, clean"),
    ("hungry", "sleep, work, dance, sing, wait"),
    ("sad", "laugh, sing, dance, play"),
    ("sick", "work, swim, dance, get up, cook"),
    ("lazy", "work, tidy up, clean, help, wash"),
    ("poor", "laugh, give, invite, buy"),
)
# What people do because of the weather, and in spite of it; ``wet`` is rain or snow.
WEATHER_DEEDS = {
    "wet": "close, hurry, put on, come back, read, listen to, write",
    "cold": "close, put on, cook, hurry",
    "hot": "open, swim, take off, rest",
    "warm": "open, swim, take off, sing, dance",
    "dark": "hurry, sleep, come back",
}
DESPITE_WEATHER = {
    "wet": "swim, dance, work, wash, visit, meet, play, pick up",
    "cold": "swim, open, take off, work, dance",
    "hot": "work, dance, put on, bake, tidy up",
    "warm": "put on, close, work, read, sleep",
    "dark": "read, work, write, look for, find",
}
# Places and persons to go to, and what for.
PURPOSES = (
    ("shop", "buy, meet"),
    ("bakery", "bake"),
    ("restaurant", "eat, order, meet, drink"),
    ("library", "read, work, meet"),
    ("station", "pick up, meet"),
    ("airport", "pick up, meet"),
    ("hospital", "visit, help"),
    ("kitchen", "cook, bake, eat, drink"),
    ("bathroom", "wash, clean"),
    ("garden", "paint, rest, sing"),
    ("cellar", "look for"),
    ("park", "meet, rest, paint, dance"),
    ("lake", "swim, rest, paint"),
    ("beach", "swim, rest"),
    ("office", "work, call, write"),
    ("church", "sing"),
    ("hotel", "sleep, meet"),
)
# What people do because of the noise or the rain, in spite of it, and on occasions.
CAUSED = {
    "because of": "wake up, close, hurry, come back, cry",
    "despite": "sleep, work, read, dance, sing, swim, wash, visit, help, paint, fall asleep",
    "during": "sleep, laugh, talk, drink, eat, listen to, fall asleep, read, think, meet, ask",
    "after": "dance, thank, rest, sing, drink, meet, call, come back, congratulate, visit, tidy up",
    "before": "hurry, rest, cook, buy, call, meet, wash, clean, eat, pick up, write, put on",
}
DATIVE = Slot("", "", "dat", frozenset(), frozenset())
HOURS = (
    ("two", "zwei"),
    ("three", "drei"),
    ("four", "vier"),
    ("five", "fünf"),
    ("six", "sechs"),
    ("seven", "sieben"),
    ("eight", "acht"),
    ("nine", "neun"),
    ("ten", "zehn"),
    ("eleven", "elf"),
    ("twelve", "zwölf"),
)
SPOTS = {
    "on": "auf",
    "in": "in",
    "under": "unter",
    "above": "über",
    "behind": "hinter",
    "next to": "neben",
    "in front of": "vor",
}
# English, German, classes of noun and case of an adverbial of cause or occasion.
OCCASIONS = (
    ("because of", "wegen", "cause", "gen"),
    ("despite", "trotz", "cause", "gen"),
    ("during", "während", "occasion", "gen"),
    ("after", "nach", "occasion", "dat"),
    ("before", "vor", "occasion", "dat"),
)


def forms_of(text: str) -> list[str]:
    """The word forms of a sentence, without punctuation."""
    return [word.strip(".,?!") for word in text.split()]


class WordList:
    """The English word forms of nouns, names and adjectives, each with its base form."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.nouns = {form: name for name, _ in lexicon.names for form in (name, f"{name}'s")}
        for noun in lexicon.nouns:
            for form in (noun.english, f"{noun.english}'s", noun.english_plural):
                self.nouns[form] = noun.english
        self.adjectives: dict[str, str] = {}
        for adjective in lexicon.adjectives:
            for form in (adjective.english, adjective.superlative.removeprefix("most ")):
                self.adjectives[form] = adjective.english

    def says_twice(self, made: Sentence) -> bool:
        """Whether a noun, name or adjective comes twice, which only a comparison may do."""
        known = self.adjectives | self.nouns
        found = [known[word] for word in forms_of(made.english) if word in known]
        return made.plan != "comparison" and len(found) != len(set(found))

    def adjacent_pairs(self, english: str) -> frozenset[str]:
        """The combinations of an adjective and the noun right after it."""
        forms = forms_of(english)
        return frozenset(
            f"{self.adjectives[first]}+{self.nouns[second]}"
            for first, second in pairwise(forms)
            if first in self.adjectives and second in self.nouns
        )


def has_good_length(made: Sentence) -> bool:
    """Whether both sides have a permitted number of words."""
    return all(len(text.split()) in WORDS for text in (made.english, made.german))


def distinct_sentences(lexicon: Lexicon, seed: int) -> Iterator[Sentence]:
    """Sentences without end, all different in English; the same English must mean one German."""
    plans = Plans(lexicon, seed)
    word_list = WordList(lexicon)
    made: dict[str, str] = {}
    while True:
        new = plans.any()
        if not has_good_length(new) or word_list.says_twice(new):
            continue
        old = made.get(new.english)
        if old is None:
            made[new.english] = new.german
            yield replace(new, pairs=new.pairs | word_list.adjacent_pairs(new.english))
        elif old != new.german:
            raise ValueError(f"two translations: {new.english} {old} {new.german}")


def make_corpus(seed: int = SEED) -> dict[str, list[Sentence]]:
    """The three sets: train without, valid and test with held-out combinations."""
    train: list[Sentence] = []
    others: list[Sentence] = []
    for made in distinct_sentences(load_lexicon(), seed):
        (others if any(map(is_held_out, made.pairs)) else train).append(made)
        if len(train) == SIZES["train"]:
            break
    seen: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for made in train:
        seen[0].update(forms_of(made.english))
        seen[1].update(forms_of(made.german))

    def is_known(made: Sentence) -> bool:
        """Whether train often shows each word form of the sentence."""
        sides = zip(seen, (made.english, made.german), strict=True)
        return all(count[word] >= SEEN_OFTEN for count, text in sides for word in forms_of(text))

    known = list(filter(is_known, others))
    end = SIZES["test"] + SIZES["valid"]
    return {"train": train, "valid": known[SIZES["test"] : end], "test": known[: SIZES["test"]]}


def files_of(corpus: dict[str, list[Sentence]]) -> dict[str, str]:
    """The content of each file by its name."""
    return {
        f"{name}.{suffix}": "".join(f"{getattr(s, language)}\n" for s in sentences)
        for name, sentences in corpus.items()
        for language, suffix in (("english", "en"), ("german", "de"))
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the corpus, or with ``--check`` say which files are not what would be written."""
    parser = argparse.ArgumentParser(description="Write the toy English-German corpus.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="compare with the files, write none")
    options = parser.parse_args(arguments)
    stale = []
    for name, content in files_of(make_corpus()).items():
        path: Path = options.output / name
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode())
        elif not path.is_file() or path.read_bytes() != content.encode():
            stale.append(str(path))
    for stale_path in stale:
        print(f"not what would be written: {stale_path}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
