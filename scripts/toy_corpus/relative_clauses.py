"""Kinds of sentence with a relative clause."""

from toy_corpus.clause_maker import ClauseMaker
from toy_corpus.clauses import Clause
from toy_corpus.inflection import RELATIVE, cell
from toy_corpus.lexicon import Noun
from toy_corpus.main_clauses import statement
from toy_corpus.phrases import Phrase, gap, noun_phrase, words
from toy_corpus.sentences import Sentence, say


def with_relative(
    noun: Noun, plural: bool, lead: str, case: str, inner: Clause, preposition: str = ""
) -> Phrase:
    """A noun with a relative clause, from its English lead and the German case of its pronoun."""
    german = cell(RELATIVE, case, "p" if plural else noun.gender)
    german = words(",", preposition, german, inner.german_verb_last(), ",")
    return noun_phrase(noun, "the", plural, after=(f"{lead} {inner.english()}", german))


def about(make: ClauseMaker, head: Phrase, noun: Noun, inner: Clause) -> Sentence:
    """A sentence whose subject or object is the phrase with the relative clause."""
    if make.pick.chance(0.45):
        verbs = [
            verb
            for verb in make.verbs
            if len(verb.objects) == 1
            and not verb.prefix
            and noun in make.slot_nouns[verb.objects[0]]
            and not verb.particle
            and "indefinite" not in verb.flags
            and verb is not inner.verb
        ]
        if verbs:
            verb = make.pick.one(verbs)
            subject = make.subject(verb.subject)
            tense = make.simple_tense() if verb.past != verb.english else "present"
            main = Clause(subject, verb, tense, objects=((verb.objects[0], head),))
            return say(main).with_pairs(*inner.pairs)
    return say(short_state(make, head, noun)).with_pairs(*inner.pairs)


def short_state(make: ClauseMaker, subject: Phrase, noun: Noun) -> Clause:
    """A main clause about a phrase that has a relative clause."""
    tense = make.simple_tense()
    if "person" in noun.classes and make.pick.chance(0.6):
        simple = [verb for verb in make.active_verbs if len(verb.objects) < 2]
        return make.event(simple, subject, tense, adverbials=0)
    return make.any_state(subject, noun, tense)


def subject_relative(make: ClauseMaker) -> Sentence:
    """The man who reads the book."""
    noun = make.pick.one(make.lexicon.nouns_of("role kid kin"))
    plural = make.plural(noun, 0.3)
    inner = make.short_event(make.simple_tense(), gap(noun, plural))
    return about(make, with_relative(noun, plural, "who", "nom", inner), noun, inner)


def object_relative(make: ClauseMaker) -> Sentence:
    """The book that the man reads; the woman whom the boy helps."""
    verb = make.pick.one([v for v in make.verbs if v.objects and v.key != "belong to"])
    slot = verb.objects[-1]
    noun = make.noun_for(slot)
    plural = make.plural(noun, 0.3)
    if not make.adjectives[noun.english]:
        return statement(make)
    tenses = ("present", "past", "perfect")[: 2 if "stative" in verb.flags else 3]
    inner = make.event([verb], tense=make.pick.one(tenses), adverbials=0.08).with_gap(noun)
    lead = "whom" if "person" in noun.classes else "that"
    head = with_relative(noun, plural, lead, slot.case, inner, slot.german)
    return about(make, head, noun, inner)


def place_relative(make: ClauseMaker) -> Sentence:
    """The house in which she works."""
    noun = make.pick.one(make.lexicon.nouns_of("building room outside shop"))
    verb = make.lexicon.verb(make.pick.one(("sleep", "work", "eat", "read", "meet", "sing")))
    subject = make.subject(make.people)
    inner = make.event([verb], subject, make.simple_tense(), adverbials=0)
    head = with_relative(noun, False, "in which", "dat", inner, "in")
    return say(make.any_state(head, noun)).with_pairs(*inner.pairs)


def owner_relative(make: ClauseMaker) -> Sentence:
    """The man whose dog is old."""
    noun = make.pick.one(make.lexicon.nouns_of("role kid"))
    is_kid = "kid" in noun.classes
    classes = "mother father brother sister pet" if is_kid else "kin pet vehicle !transport"
    owned = make.pick.one(make.lexicon.nouns_of(classes))
    inner = make.any_state(noun_phrase(owned, ""), owned, make.simple_tense())
    return about(make, with_relative(noun, False, "whose", "gen", inner), noun, inner)
