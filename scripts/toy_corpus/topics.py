"""Kinds of sentence about one topic: liking, price, age, cause, weather, the clock, parts."""

from dataclasses import replace

from toy_corpus.clause_maker import ClauseMaker
from toy_corpus.clauses import Clause
from toy_corpus.lexicon import Slot, Time
from toy_corpus.likely_deeds import CAUSED
from toy_corpus.movement import motion_clause
from toy_corpus.phrase_maker import PASSING_STATES
from toy_corpus.phrases import NOTHING, noun_phrase, prepositional
from toy_corpus.sentences import Sentence, say, sentence

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
# English, German, classes of noun and case of an adverbial of cause or occasion.
OCCASIONS = (
    ("because of", "wegen", "cause", "gen"),
    ("despite", "trotz", "cause", "gen"),
    ("during", "während", "occasion", "gen"),
    ("after", "nach", "occasion", "dat"),
    ("before", "vor", "occasion", "dat"),
)
WEATHER_OF_TIME = {"in summer": ("rain", "hot", "warm"), "in winter": ("snow", "rain", "cold")}
UNREMARKABLE = ("red", "blue", "green", "yellow", "white", "black", "grey", "brown", "wet", "new")


def liking(make: ClauseMaker) -> Sentence:
    """What somebody likes, which in German pleases them."""
    verb = make.lexicon.verb("like")
    person = make.plain_person()
    while not person.definite:
        person = make.plain_person()
    slot = verb.objects[0]
    noun = make.noun_for(slot)
    negated = make.pick.chance(0.2)
    thing = make.thing(noun, "", True, negated=negated, unfit=PASSING_STATES)
    tense = make.pick.weighted([("present", 3), ("past", 1)])
    likes = Clause(person, verb, tense, negated=negated, objects=((slot, thing),))
    pleases = Clause(thing, verb, tense, negated=negated, objects=((DATIVE, person),))
    if make.pick.chance(0.25) and not negated and person.agreement[0] != "1":
        return sentence(likes.english(question=True), pleases.german(""), likes.pairs, "?")
    return sentence(likes.english(), pleases.german(), likes.pairs)


def exclamation(make: ClauseMaker) -> Sentence:
    """How beautiful the garden is! What a beautiful garden!"""
    classes = "kid animal wear building outside edible art vehicle plant town"
    noun = make.pick.one(make.lexicon.nouns_of(classes))
    options = [a for a in make.adjectives[noun.english] if a.english not in UNREMARKABLE]
    adjective = make.pick.one(options)
    plural = make.plural(noun, 0.3)
    if make.pick.chance(0.4):
        what = noun_phrase(noun, "" if plural or noun.is_mass else "a", plural, adjective)
        german = f"was für {what.german['nom']}"
        return sentence(f"what {what.subject_form}", german, what.pairs, "!")
    subject = noun_phrase(noun, "the", plural)
    clause = make.state(subject, adjective, make.simple_tense(), predicate=NOTHING)
    return sentence(
        f"how {adjective.english} {clause.english()}",
        f"wie {adjective.german} {clause.german_verb_last()}",
        clause.pairs,
        "!",
    )


def cost(make: ClauseMaker) -> Sentence:
    """What a thing costs."""
    verb = make.lexicon.verb("cost")
    noun = make.noun_for(verb.subject)
    adjective = make.adjective(noun, 0.6)
    if adjective and adjective.english in (*PASSING_STATES, "cheap", "expensive"):
        adjective = None
    subject = noun_phrase(noun, make.pick.one(("the", "this")), adjective=adjective)
    price = make.pick.one(("20", "50", "100", "200", "300"))
    predicate = (f"{price} euros", f"{price} Euro")
    return say(Clause(subject, verb, make.simple_tense(), predicate=predicate))


def age(make: ClauseMaker) -> Sentence:
    """How old somebody is."""
    noun = make.pick.one(
        make.lexicon.nouns_of("boy girl child young-kin dog cat horse cow house tree")
    )
    person = noun_phrase(noun, "my" if "kin" in noun.classes else "the")
    if make.pick.chance(0.4):
        person = make.pick.one(make.names)
    english, german = make.pick.one(HOURS)
    predicate = (f"{english} years old", f"{german} Jahre alt")
    return say(Clause(person, make.lexicon.verb("be"), make.simple_tense(), predicate=predicate))


def genitive(make: ClauseMaker) -> Sentence:
    """Because of the rain, despite the noise, during the meal; before and after it."""
    kind, german, classes, case = make.pick.one(OCCASIONS)
    noun = make.pick.one(make.lexicon.nouns_of(classes))
    time = Time(*prepositional(kind, german, noun_phrase(noun), case))
    clause = make.deed_of(CAUSED[kind], make.simple_tense())
    return say(make.with_front(replace(clause, time=time, manner=NOTHING), 0.5))


def weather(make: ClauseMaker) -> Sentence:
    """What the weather is like."""
    tense = make.pick.one(("present", "past", "perfect", "future"))
    clause = make.weather_clause(tense)
    if tense == "perfect" and clause.predicate[0]:
        clause = replace(clause, tense="past")
    time = make.time(clause.tense, clause.verb, False)
    said = clause.predicate[0] or clause.verb.key
    if time and said not in WEATHER_OF_TIME.get(time.english, (said,)):
        time = None
    return say(make.with_front(replace(clause, time=time), 0.5))


def clock(make: ClauseMaker) -> Sentence:
    """At three o'clock, at half past two."""
    index = make.pick.one(range(len(HOURS)))
    time = Time(f"at {HOURS[index][0]} o'clock", f"um {HOURS[index][1]} Uhr")
    if index and make.pick.chance(0.4):
        time = Time(f"at half past {HOURS[index - 1][0]}", f"um halb {HOURS[index][1]}")
    clause = make.short_event(make.pick.one(("present", "past", "future")))
    if make.pick.chance(0.4):
        clause = motion_clause(make, make.pick.one(("present", "past", "future")))
    return say(make.with_front(replace(clause, time=time)))


def of_thing(make: ClauseMaker) -> Sentence:
    """The door of the house is red."""
    part = make.pick.one(make.lexicon.nouns_of("part"))
    whole = make.pick.one(make.lexicon.nouns_of("building room shop"))
    if part.english == "gate":
        whole = make.pick.one(make.lexicon.nouns_of("school garden park hospital"))
    owner = make.the(whole, 0.25)
    plural = make.plural(part, 0.3)
    after = (f"of {owner.object_form}", owner.german["gen"])
    subject = noun_phrase(part, "the", plural, after=after)
    return say(make.any_state(subject, part, make.simple_tense())).with_pairs(*owner.pairs)
