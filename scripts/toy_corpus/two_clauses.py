"""Kinds of sentence with two clauses: subordinate, infinitive and coordinate."""

from dataclasses import replace

from toy_corpus.clause_maker import ClauseMaker
from toy_corpus.clauses import HAS_TO, WANTS, Clause
from toy_corpus.lexicon import Adjective, Noun, combination
from toy_corpus.likely_deeds import DESPITE_STATES, PURPOSES, STATES
from toy_corpus.main_clauses import statement
from toy_corpus.phrases import NOTHING, Phrase, it_for, noun_phrase, prepositional
from toy_corpus.sentences import Sentence, coordinated, subordinated, with_infinitive

BECAUSE = ("because", "weil")
ALTHOUGH = ("although", "obwohl")
IF = ("if", "wenn")
WHEN = ("when", "als")

# The adjectives of a thing that are a reason to do something with it.
REASONS = {
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
}
WITH_REASON = (
    *("buy", "sell", "throw away", "repair", "wash", "clean", "take off", "put on"),
    *("buy", "try on", "eat", "drink"),
)
# Verbs of what nobody tries, promises or sets out to do.
NO_DEEDS = (
    *("see", "hear", "lose", "forget", "cry", "laugh", "fall asleep", "rest", "look for"),
    *("look forward", "wake up"),
)


def because_state(make: ClauseMaker) -> Sentence:
    """Somebody does something because of, or in spite of, how they are or what it is like."""
    person, again = make.person_with_pronoun()
    tense = make.simple_tense()
    link = make.pick.weighted([(BECAUSE, 2), (ALTHOUGH, 1)])
    if make.pick.chance(0.7):
        state, keys = make.pick.one(STATES if link is BECAUSE else DESPITE_STATES)
        reason = make.state(again, make.lexicon.adjective(state), tense)
        main = make.deed_of(keys, tense, person)
    else:
        reason = make.weather_clause(tense)
        main = make.deed_in_weather(reason, link is ALTHOUGH, tense, person)
    if main.tense != tense:
        return statement(make)
    return subordinated(main, link, reason, first=make.pick.chance(0.15) and person is again)


def because_it(make: ClauseMaker) -> Sentence:
    """Somebody does something with a thing because it is such; ``it`` takes its gender."""
    verb = make.lexicon.verb(make.pick.one(WITH_REASON))
    person, _ = make.person_with_pronoun()
    slot = verb.objects[0]
    noun = make.noun_for(slot)
    while not reasons(make, verb.key, noun) or "animal" in noun.classes:
        noun = make.noun_for(slot)
    owner = make.owner_of(person)
    plural = make.plural(noun, 0.25)
    article = make.pick.one(("the", owner or "the", "a" if verb.key == "buy" else "the"))
    if article == "a" and (plural or noun.is_mass):
        article = "the"
    tense = make.simple_tense()
    if verb.past == verb.english and person.agreement != "3s":
        tense = "present"
    thing = noun_phrase(noun, article, plural)
    main = Clause(person, verb, tense, objects=((slot, thing),))
    adjective = make.pick.one(reasons(make, verb.key, noun))
    made = subordinated(main, BECAUSE, make.state(it_for(thing), adjective, tense))
    return made.with_pairs(combination(adjective.english, noun.english))


def reasons(make: ClauseMaker, key: str, noun: Noun) -> list[Adjective]:
    """The adjectives of a thing that are a reason to do this with it."""
    return [a for a in make.adjectives[noun.english] if a.english in REASONS[key].split()]


def two_events(make: ClauseMaker) -> Sentence:
    """One thing happens while, before or when another does."""
    tense = make.simple_tense()
    links = [("while", "während"), ("before", "bevor"), WHEN if tense == "past" else IF]
    link = make.pick.one(links)
    main = make.short_event(tense, adverbials=0)
    other = make.short_event(tense, adverbials=0)
    if make.pick.chance(0.15):
        other = make.weather_clause(tense)
    if "perfect" in (main.tense, other.tense):
        return because_state(make)
    return subordinated(main, link, other)


def front_clause(make: ClauseMaker) -> Sentence:
    """The subordinate clause comes first, and the verb of the main clause after it."""
    tense = make.simple_tense()
    when = IF if tense == "present" else WHEN
    link = make.pick.one((when, BECAUSE, ALTHOUGH))
    other = make.weather_clause(tense)
    if link is when and make.pick.chance(0.5):
        other = make.short_event(tense, adverbials=0)
        main = make.short_event(tense, adverbials=0)
    else:
        main = make.deed_in_weather(other, link is ALTHOUGH, tense)
    if "perfect" in (main.tense, other.tense):
        return because_state(make)
    return subordinated(main, link, other, first=True)


def content_clause(make: ClauseMaker) -> Sentence:
    """Somebody says that something is so, or asks whether it is."""
    verb = make.pick.one(make.lexicon.verbs_of("speech"))
    subject = make.plain_person()
    tense = "present" if verb.english == "hope" else make.simple_tense()
    negated = verb.english == "know" and tense == "present" and make.pick.chance(0.5)
    main = Clause(subject, verb, tense, negated=negated)
    inner = make.pick.one(("past", "perfect", "future")) if tense == "present" else "past"
    other = make.short_event(inner)
    if make.pick.chance(0.25):
        other = replace(make.modal_clause(), time=None)
        if tense == "past" and other.modal and other.modal.has_past:
            other = replace(other, tense="past")
    elif tense == "past" and other.tense != "past":
        return statement(make)
    whether = "whether" in verb.flags or negated
    return subordinated(main, ("whether", "ob") if whether else ("that", "dass"), other)


def try_to(make: ClauseMaker) -> Sentence:
    """Somebody tries, promises or forgets to do something."""
    verb = make.pick.one(make.lexicon.verbs_of("infinitive"))
    subject = make.subject(make.people)
    main = Clause(subject, verb, make.simple_tense())
    return with_infinitive(main, ("to", ""), deed(make, subject))


def deed(make: ClauseMaker, subject: Phrase) -> Clause:
    """A deed that one can try, promise or set out to do."""
    deeds = [verb for verb in make.active_verbs if verb.key not in NO_DEEDS]
    return replace(make.event(deeds, subject, "future", adverbials=0.1), time=None)


def in_order_to(make: ClauseMaker) -> Sentence:
    """Somebody goes somewhere in order to do something, or because they want or have to."""
    place, keys = make.pick.one(PURPOSES)
    verb = make.pick.one([v for v in make.lexicon.verbs_of("motion") if v.key != "travel"])
    tense = make.simple_tense()
    noun = make.lexicon.noun(place)
    if verb.key == "drive" and "goal" not in noun.classes:
        verb = make.lexicon.verb("go")
    person, again = make.person_with_pronoun()
    direction = prepositional("into", "in", noun_phrase(noun), "acc")
    if "goal" in noun.classes:
        direction = prepositional("to", "zu", noun_phrase(noun), "dat")
    main = Clause(person, verb, tense, direction=direction)
    inner = replace(make.deed_of(keys, "future", again), time=None, manner=NOTHING)
    if make.pick.chance(0.4):
        modal = make.pick.one((WANTS, HAS_TO))
        return subordinated(main, BECAUSE, replace(inner, tense=tense, modal=modal))
    return with_infinitive(main, ("in order to", "um"), inner)


def coordination(make: ClauseMaker) -> Sentence:
    """Two main clauses with and or but."""
    tense = make.simple_tense()
    first, second = make.short_event(tense), make.short_event(tense)
    is_ambiguous = first.verb.key == "help"  # "they help two men and three boys sing"
    if first.tense != second.tense or is_ambiguous:
        return statement(make)
    if make.pick.chance(0.6):
        return coordinated(first, ("and", "und"), second)
    other = make.modal_clause(negated=True)
    same = tense if other.modal and other.modal.has_past else "present"
    return coordinated(first, (", but", ", aber"), replace(other, time=None, tense=same))
