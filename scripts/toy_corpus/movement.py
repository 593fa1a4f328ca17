"""Kinds of sentence about where somebody goes and where things are put, are or live."""

from dataclasses import replace

from toy_corpus.clause_maker import ClauseMaker
from toy_corpus.clauses import Clause
from toy_corpus.inflection import QUANTITIES, be_form
from toy_corpus.lexicon import Noun, Verb
from toy_corpus.main_clauses import statement
from toy_corpus.phrases import NOTHING, Both, noun_phrase, prepositional
from toy_corpus.sentences import Sentence, ask, say, sentence

SPOTS = {
    "on": "auf",
    "in": "in",
    "under": "unter",
    "above": "über",
    "behind": "hinter",
    "next to": "neben",
    "in front of": "vor",
}
# Where things are put or are, by verb; what comes twice is likelier.
SPOTS_BY_VERB = {
    "lay": ("on", "on", "in", "under", "next to"),
    "place": ("on", "on", "next to", "under", "behind"),
    "hang": ("in", "behind"),
    "lie": ("on", "on", "in", "under", "next to"),
    "stand": ("on", "on", "next to", "under", "behind", "in front of"),
    "sit": ("on", "on", "under", "next to", "behind", "in front of"),
}


def direction(make: ClauseMaker, verb: Verb) -> Both:
    """Somewhere to go."""
    lexicon, pick = make.lexicon, make.pick
    kind = pick.weighted([("to", 4), ("into", 4), ("out of", 1), ("city", 1), ("person", 1)])
    if kind == "city" and verb.english in ("run", "go"):
        kind = "into"
    if ("city" in verb.flags and pick.chance(0.5)) or kind == "city":
        english, german = pick.one(lexicon.cities)
        return f"to {english}", f"nach {german}"
    if kind == "person" and verb.english != "travel":
        person = noun_phrase(lexicon.noun("doctor"), pick.one(("the", "a")))
        return prepositional("to", "zu", person, "dat")
    if kind == "to" or verb.english in ("drive", "travel"):
        far = "goalin lake beach" if verb.english == "travel" else "goal goalin"
        noun = pick.one(lexicon.nouns_of(far))
        german, case = ("in", "acc") if "goalin" in noun.classes else ("zu", "dat")
        return prepositional("to", german, make.the(noun, 0.15), case)
    goal = make.the(pick.one(lexicon.nouns_of("inside into")), 0.15)
    if kind == "into":
        return prepositional("into", "in", goal, "acc")
    return prepositional("out of", "aus", goal, "dat")


def motion_clause(make: ClauseMaker, tense: str) -> Clause:
    """Somebody goes somewhere."""
    verb = make.pick.one(make.lexicon.verbs_of("motion"))
    return Clause(make.plain_person(), verb, tense, direction=direction(make, verb))


def moving(make: ClauseMaker) -> Sentence:
    """Somebody goes somewhere, perhaps with somebody or by bus, at some time."""
    pick = make.pick
    clause = motion_clause(make, pick.one(("present", "past", "perfect", "future")))
    if pick.chance(0.25):
        clause = replace(clause, company=make.company(clause.subject))
    elif clause.verb.english == "travel":
        ride = pick.one(make.lexicon.nouns_of("bus train"))
        german = f"mit {noun_phrase(ride).german['dat']}"
        clause = replace(clause, company=(f"by {ride.english}", german))
    negated = pick.chance(0.15)
    time = make.time(clause.tense, clause.verb, True) if pick.chance(0.5) else None
    if clause.tense == "perfect" or (time and not time.suits_negation):
        negated = False
    clause = replace(clause, time=time, negated=negated)
    return say(clause if negated else make.with_front(clause))


def spot(make: ClauseMaker, verb: Verb, thing: Noun, case: str) -> Both:
    """Where a thing is put (accusative) or is (dative)."""
    hangs = verb.english == "hang"
    choices = SPOTS_BY_VERB[verb.english]
    if hangs and thing.english in ("picture", "clock"):
        choices = ("above",)
    english = make.pick.one(choices)
    classes = {
        "in": "cupboard" if hangs else "container",
        "on": "surface",
        "under": "table bed chair sofa",
        "above": "table bed sofa piano",
    }.get(english, "door" if hangs else "door bed sofa table cupboard tree")
    noun = make.pick.one([n for n in make.lexicon.nouns_of(classes) if n is not thing])
    adjective = make.adjective(noun, 0.25)
    determiner = make.pick.weighted([("the", 5), ("a", 1), ("my", 1)])
    if noun.english in ("door", "tree"):
        determiner = "the"
    goal = noun_phrase(noun, determiner, adjective=adjective)
    return prepositional(english, SPOTS[english], goal, case)


def putting(make: ClauseMaker) -> Sentence:
    """Somebody puts a thing somewhere: the accusative after the preposition."""
    verb = make.pick.one(make.lexicon.verbs_of("put"))
    clause = make.event([verb], adverbials=0.15)
    thing = clause.objects[0][1]
    if thing.noun is None:
        return statement(make)
    clause = replace(clause, direction=spot(make, verb, thing.noun, "acc"))
    return say(make.with_front(clause))


def resting(make: ClauseMaker) -> Sentence:
    """A thing or animal is somewhere: the dative after the preposition."""
    verb = make.pick.one(make.lexicon.verbs_of("rest"))
    noun = make.noun_for(verb.subject)
    subject = make.thing(noun, make.pick.one(("my", "our", "her")), True, 0.3)
    tense = make.simple_tense()
    clause = Clause(subject, verb, tense, direction=spot(make, verb, noun, "dat"))
    clause = replace(clause, negated=make.pick.chance(0.2))
    if make.pick.chance(0.2) and not clause.negated:
        return ask(clause)
    if make.pick.chance(0.15) and not clause.negated:
        return ask(replace(clause, direction=NOTHING), ("where", "wo"))
    return say(clause)


def existence(make: ClauseMaker) -> Sentence:
    """There is something somewhere."""
    room = make.pick.one(make.lexicon.nouns_of("room outside town"))
    found = {"room": "furniture device vessel", "town": "building bridge shop"}
    kinds = [found[c] for c in sorted(room.classes) if c in found] or ["plant pet"]
    noun = make.pick.one(make.lexicon.nouns_of(kinds[0]))
    thing = make.thing(noun, "", False, 0.4)
    place = make.the(room, 0.25)
    where = prepositional("in", "in", place, "dat")
    past = make.pick.chance(0.4)
    verb = be_form("past" if past else "present", thing.agreement)
    english, german = thing.object_form, thing.german["acc"]
    if make.pick.chance(0.25) and not english.startswith(tuple(QUANTITIES)):
        english = f"no {english.removeprefix('an ').removeprefix('a ')}"
        german = thing.german_negative["acc"]
    return sentence(
        f"{where[0]} there {verb} {english}",
        f"{where[1]} {'gab' if past else 'gibt'} es {german}",
        thing.pairs | place.pairs,
    )


def dwelling(make: ClauseMaker) -> Sentence:
    """Where somebody lives."""
    subject = make.plain_person()
    noun = make.pick.one(make.lexicon.nouns_of("home town hotel"))
    determiner = make.pick.weighted([("a", 3), ("the", 1), ("this", 1)])
    home = make.the(noun, 0.85, determiner)
    place = prepositional("in", "in", home, "dat")
    if make.pick.chance(0.15):
        english, german = make.pick.one(make.lexicon.cities)
        place = (f"in {english}", f"in {german}")
    clause = Clause(subject, make.lexicon.verb("live"), make.simple_tense(), direction=place)
    clause = replace(clause, negated=make.pick.chance(0.15))
    return say(clause).with_pairs(*home.pairs)
