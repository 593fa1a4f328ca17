"""Random noun phrases that make sense."""

from collections.abc import Sequence

from toy_corpus.chooser import Chooser
from toy_corpus.inflection import DER_WORDS, QUANTITIES
from toy_corpus.lexicon import Adjective, Lexicon, Noun, Slot, Verb, fits, split_classes
from toy_corpus.phrases import (
    PRONOUNS,
    THEY,
    Both,
    Phrase,
    name_phrase,
    noun_phrase,
    prepositional,
)

OWNABLE, _ = split_classes(
    "portable furniture vehicle device pet kin mine home room garden edible drink prepared "
    "story song question"
)
CLOTHING = ("put on", "take off", "try on")
PASSING_STATES = ("wet", "dirty", "broken", "empty", "full")
FOR_ANY_STATE = ("wash", "clean", "repair", "find", "throw away", "take off", "look for", "carry")


class PhraseMaker:
    """Makes random noun phrases that make sense."""

    def __init__(self, lexicon: Lexicon, seed: int) -> None:
        self.lexicon = lexicon
        self.pick = Chooser(seed)
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

    def plural(self, noun: Noun, chance: float) -> bool:
        """Whether to speak of several, with this chance if that makes sense."""
        return noun.has_plural and self.pick.chance(chance)

    def possessive(self) -> str:
        """A possessive that refers to somebody outside the sentence."""
        return self.pick.one(("my", "our", "his", "her"))

    def determiner(self, noun: Noun, plural: bool, owner: str, definite: bool | None) -> str:
        """A determiner that fits; ``owner`` is the subject's possessive where it has one."""
        kin = "kin" in noun.classes
        owner = owner if noun.classes & OWNABLE else ""
        known = [("the", 2 if kin else 8), (owner, (8 if kin else 2) if owner else 0)]
        if plural:
            known += [("these", 0 if kin else 1), ("all", 0 if kin else 1)]
            fresh = [("", 4), *((quantity, 1) for quantity in QUANTITIES)]
        elif noun.is_mass:
            known += [("this", 1)]
            fresh = [("", 5)]
        else:
            rare = 0 if kin or "edible" in noun.classes else 1
            known += [("this", rare), ("every", rare)]
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
        plural = self.plural(noun, 0.3)
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

    def the(self, noun: Noun, adjective: float, determiner: str = "the") -> Phrase:
        """A singular with ``the`` or another determiner, perhaps with an adjective."""
        return noun_phrase(noun, determiner, adjective=self.adjective(noun, adjective))

    def owned(self, noun: Noun) -> Phrase:
        """A phrase whose owner is a person: ``Anna's dog``, ``the dog of the neighbour``."""
        adjective = self.adjective(noun, 0.2)
        plural = self.plural(noun, 0.2)
        if self.pick.chance(0.5):
            return noun_phrase(noun, "", plural, adjective, possessor=self.pick.one(self.names))
        owner = self.pick.one(self.lexicon.nouns_of("role kin !queen"))
        mine = self.pick.one(("my", "our", "her", "his")) if "kin" in owner.classes else "the"
        return noun_phrase(noun, "", plural, adjective, possessor=noun_phrase(owner, mine))

    def noun_for(self, slot: Slot) -> Noun:
        """A noun that fits a slot."""
        return self.pick.one(self.slot_nouns[slot])

    def subject(self, slot: Slot) -> Phrase:
        """A subject: a name, a pronoun or a noun phrase."""
        if "person" in slot.classes:
            kind = self.pick.weighted([("name", 3), ("pronoun", 3), ("noun", 5)])
            if kind == "name":
                return self.pick.one(self.names)
            if kind == "pronoun":
                return self.pick.one(tuple(PRONOUNS.values()))
        noun = self.noun_for(slot)
        owner = self.possessive() if "kin" in noun.classes else ""
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
        noun = self.suitable_noun(verb, slot, subject)
        is_person = "person" in noun.classes
        if slot.case == "dat" and not slot.english and len(verb.objects) > 1:
            is_short = self.pick.chance(0.45)
        else:
            is_short = is_person and self.pick.chance(0.25)
        if is_person and is_short:
            return self.another_person(subject)
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

    def suitable_noun(self, verb: Verb, slot: Slot, subject: Phrase) -> Noun:
        """A noun that fits a slot of the verb and what the subject wears and drinks."""
        noun = self.noun_for(slot)
        if verb.key in CLOTHING and subject.gender == "m" and noun.english in ("dress", "skirt"):
            return self.lexicon.noun("coat")
        if subject.noun and "kid" in subject.noun.classes and noun.english in ("beer", "wine"):
            return self.lexicon.noun("juice")
        return noun

    def another_person(self, subject: Phrase) -> Phrase:
        """A name or pronoun for somebody who is not the subject."""
        others = [p for p in PRONOUNS.values() if p.agreement[0] + subject.agreement[0] != "11"]
        same = (subject, THEY if subject.agreement == "3p" else subject)
        return self.pick.one([p for p in (*self.names, *others) if p not in same])

    def place(self, preposition: str) -> Both:
        """A place where something happens, after the preposition or in the place that it names."""
        if preposition == "at":
            noun = self.pick.one(self.lexicon.nouns_of("at"))
            return prepositional("at", "an", noun_phrase(noun), "dat")
        if preposition == "lake":
            return prepositional("in", "in", noun_phrase(self.lexicon.noun("lake")), "dat")
        if preposition == "shop":
            noun = self.lexicon.noun("shop")
        else:
            noun = self.pick.one(
                self.lexicon.nouns_of("room outside restaurant library hotel !bathroom")
            )
        return prepositional("in", "in", self.the(noun, 0.12), "dat")

    def company(self, subject: Phrase) -> Both:
        """Someone to do it with."""
        noun = self.pick.one(self.lexicon.nouns_of("kin kid friend neighbour colleague"))
        phrase = self.thing(noun, self.owner_of(subject), True, adjective=0.1)
        return prepositional("with", "mit", phrase, "dat")
