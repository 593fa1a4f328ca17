"""Kinds of sentence with one main clause: statements, negation, modal verbs, questions, states."""

from dataclasses import replace

from toy_corpus.clause_maker import ClauseMaker
from toy_corpus.lexicon import Noun, Slot
from toy_corpus.phrase_maker import OWNABLE
from toy_corpus.phrases import WHAT, WHO, Phrase, noun_phrase, words
from toy_corpus.sentences import Sentence, ask, say

QUESTION_ADVERBS = (("when", "wann"), ("why", "warum"), ("where", "wo"), ("where", "wohin"))
# Classes of nouns that are compared with one another.
COMPARED = (
    *("kid role kin", "animal", "wear", "tool vessel", "furniture", "vehicle", "fruit"),
    *("building", "town", "container"),
)


def statement(make: ClauseMaker) -> Sentence:
    """Somebody does something."""
    return say(make.with_front(make.event()))


def negation(make: ClauseMaker) -> Sentence:
    """Somebody does not do something: ``nicht`` or ``kein``."""
    return say(make.event(negated=True, adverbials=0.2))


def modal(make: ClauseMaker) -> Sentence:
    """A modal verb."""
    clause = make.modal_clause(negated=make.pick.chance(0.3))
    return say(clause if clause.negated else make.with_front(clause, 0.3))


# Questions, none of which is about ``I`` or ``we``


def yes_no_question(make: ClauseMaker) -> Sentence:
    """A question without a question word."""
    clause = make.event(adverbials=0.25)
    if make.pick.chance(0.25):
        clause = make.modal_clause()
    return say(clause) if clause.subject.agreement[0] == "1" else ask(clause)


def which_question(make: ClauseMaker) -> Sentence:
    """A question about an object: which one, how many, what or whom."""
    clause = make.event(adverbials=0.1)
    while (
        not clause.objects
        or clause.objects[-1][1].kind == "pronoun"
        or clause.subject.agreement[0] == "1"
    ):
        clause = make.event(adverbials=0.1)
    slot = clause.objects[-1][0]
    noun = make.noun_for(slot)
    kind = make.pick.weighted([("which", 4), ("how many", 2), ("bare", 2)])
    if "single" in noun.classes:
        return statement(make)
    asked = asked_object(make, kind, noun, slot)
    lead = (asked.object_form, words(slot.german, asked.german[slot.case]))
    return ask(clause.with_gap(asked.noun), lead)


def asked_object(make: ClauseMaker, kind: str, noun: Noun, slot: Slot) -> Phrase:
    """What a question about an object of the verb begins with."""
    bare = WHO if "person" in noun.classes else WHAT
    if kind == "bare" and not slot.german and slot.case in bare.german:
        return bare
    if kind == "how many" and not noun.is_mass:
        asked = noun_phrase(noun, "", True)
        viele = {"acc": "viele", "dat": "vielen"}
        german = {case: f"wie {many} {asked.german[case]}" for case, many in viele.items()}
        return replace(asked, object_form=f"how many {asked.object_form}", german=german)
    return noun_phrase(noun, "which", make.plural(noun, 0.25))


def who_question(make: ClauseMaker) -> Sentence:
    """A question about the subject."""
    verb = make.pick.one([verb for verb in make.verbs if verb.key != "belong to"])
    asked = WHO
    if make.pick.chance(0.3):
        noun = make.pick.one(make.lexicon.nouns_of("role kid"))
        asked = noun_phrase(noun, "which", make.plural(noun, 0.3))
    return say(make.event([verb], asked, adverbials=0.4), "?")


def adverb_question(make: ClauseMaker) -> Sentence:
    """A question that begins with when, where or why."""
    word, german = make.pick.one(QUESTION_ADVERBS)
    verbs = make.active_verbs
    if german == "wohin":
        verbs = [verb for verb in make.lexicon.verbs_of("motion") if verb.key != "come"]
    elif german == "wo":
        verbs = [verb for verb in verbs if verb.flags & {"in", "shop"}]
    clause = make.event(verbs, adverbials=0)
    while clause.subject.agreement[0] == "1" or (word, clause.tense) == ("when", "perfect"):
        clause = make.event(verbs, adverbials=0)
    return ask(clause, (word, german))


# How somebody or something is


def quality(make: ClauseMaker) -> Sentence:
    """Somebody or something is or was such."""
    classes = "person animal thing edible drink building room outside town shop"
    noun = make.pick.one([n for n in make.lexicon.nouns_of(classes) if make.adjectives[n.english]])
    owner = make.possessive()
    subject = make.thing(noun, owner, True, 0.12)
    while subject.is_universal:
        subject = make.thing(noun, owner, True, 0.12)
    tense = make.pick.weighted([("present", 5), ("past", 4)])
    clause = make.any_state(subject, noun, tense)
    clause = replace(clause, negated=make.pick.chance(0.2))
    return ask(clause) if make.pick.chance(0.25) and not clause.negated else say(clause)


def comparison(make: ClauseMaker) -> Sentence:
    """Something is bigger than, or as big as, something of its kind."""
    nouns = make.lexicon.nouns_of(make.pick.one(COMPARED))
    first = make.pick.one(nouns)
    adjective = make.pick.one([a for a in make.adjectives[first.english] if a.comparative])
    others = [noun for noun in nouns if adjective.fits(noun) and noun is not first]
    second = make.pick.one(others or [first])
    left, right = compared_phrases(make, first, second)
    predicate = (
        f"{adjective.comparative} than {right.subject_form}",
        f"{adjective.german_comparative} als {right.german['nom']}",
    )
    if make.pick.chance(0.3):
        predicate = (
            f"as {adjective.english} as {right.subject_form}",
            f"so {adjective.german} wie {right.german['nom']}",
        )
    return say(make.state(left, adjective, predicate=predicate))


def compared_phrases(make: ClauseMaker, first: Noun, second: Noun) -> tuple[Phrase, Phrase]:
    """The two sides of a comparison."""
    left = make.pick.one(("the", "this"))
    right = make.pick.one(("my", "our")) if second is first else "the"
    if "kin" in first.classes or (second is not first and make.pick.chance(0.3)):
        left = make.possessive()
    if not first.classes & OWNABLE:
        left = make.pick.one(("the", "this"))
    if "kin" in second.classes:
        right = make.possessive()
    return noun_phrase(first, left), noun_phrase(second, right)
