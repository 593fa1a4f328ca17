"""Random clauses that make sense."""

from collections.abc import Sequence
from dataclasses import replace

from toy_corpus.clauses import MODALS, Clause
from toy_corpus.lexicon import Adjective, Lexicon, Noun, Time, Verb, fits
from toy_corpus.likely_deeds import DESPITE_WEATHER, WEATHER_DEEDS
from toy_corpus.phrase_maker import PhraseMaker
from toy_corpus.phrases import IT, NOTHING, PRONOUNS, Both, Phrase, pronoun_for

WEATHER = IT["n"]


def able(verb: Verb, subject: Phrase) -> bool:
    """Whether it makes sense that the subject does this."""
    if subject.noun:
        return fits(subject.noun, verb.subject.classes, verb.subject.excluded)
    return bool(verb.subject.classes & {"person", "role"})


class ClauseMaker(PhraseMaker):
    """Makes random clauses that make sense."""

    def __init__(self, lexicon: Lexicon, seed: int) -> None:
        super().__init__(lexicon, seed)
        self.people = lexicon.verb("sing").subject
        self.verbs = lexicon.verbs_of("verb")
        self.active_verbs = [verb for verb in self.verbs if "stative" not in verb.flags]

    # Persons and times

    def plain_person(self) -> Phrase:
        """A person or persons, without ``every`` and ``all``."""
        person = self.subject(self.people)
        while person.is_universal:
            person = self.subject(self.people)
        return person

    def person_with_pronoun(self) -> tuple[Phrase, Phrase]:
        """A person and the pronoun that stands for that person."""
        if self.pick.chance(0.4):
            person = self.pick.one(self.names)
        elif self.pick.chance(0.2):
            person = self.pick.one(tuple(PRONOUNS.values()))
        else:
            noun = self.pick.one([n for n in self.lexicon.nouns_of("role kin") if n.gender != "n"])
            person = self.thing(noun, self.pick.one(("my", "our")), True, 0.15)
        return person, pronoun_for(person)

    def simple_tense(self) -> str:
        """The present or the past."""
        return self.pick.one(("present", "past"))

    def time(self, tense: str, verb: Verb, mid_allowed: bool) -> Time | None:
        """An adverbial of time for the tense; what happens once does not happen often."""
        if "stative" in verb.flags:
            return None
        options = [
            time
            for time in self.lexicon.times
            if tense in time.tenses
            and not ("once" in verb.flags and time.is_frequent)
            and ("season" in verb.flags or "season" not in time.tenses)
            and (mid_allowed or not time.is_mid)
        ]
        return self.pick.one(options) if options else None

    # Somebody does something

    def event(
        self,
        verbs: Sequence[Verb] = (),
        subject: Phrase | None = None,
        tense: str = "",
        adverbials: float = 0.4,
        negated: bool = False,
    ) -> Clause:
        """A clause in which somebody does something."""
        verbs = verbs or self.verbs
        if subject:
            verbs = [verb for verb in verbs if able(verb, subject)] or verbs
        verb = self.pick.one(verbs)
        while subject is None or (negated and subject.is_universal):
            subject = self.subject(verb.subject)
        is_stative = "stative" in verb.flags
        if not tense:
            tenses = [("present", 5), ("past", 5)]
            tenses += [] if is_stative else [("perfect", 3), ("future", 2)]
            tense = self.pick.weighted(tenses)
        if tense == "past" and verb.past == verb.english and subject.agreement != "3s":
            tense = "present" if is_stative else "perfect"
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
            if time and (time.suits_negation or not clause.negated):
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

    def short_event(
        self, tense: str, subject: Phrase | None = None, adverbials: float = 0.06
    ) -> Clause:
        """A clause with few adverbials and no verb of state."""
        return self.event(self.active_verbs, subject, tense, adverbials)

    def modal_clause(self, negated: bool = False) -> Clause:
        """Somebody can, should, wants to, has to or may do something."""
        unfit = ("forget", "lose", "fall asleep")
        verbs = [verb for verb in self.active_verbs if verb.key not in unfit]
        modal = self.pick.one(MODALS)
        tense = self.simple_tense() if modal.has_past else "present"
        clause = self.event(verbs, None, tense, adverbials=0.2, negated=negated)
        time = clause.time if clause.time and not clause.time.is_mid else None
        return replace(clause, tense=tense, modal=modal, time=time)

    def deed_of(self, keys: str, tense: str, person: Phrase | None = None) -> Clause:
        """A clause with one of the verbs named, separated by commas."""
        wanted = self.pick.one(keys.split(", "))
        verb = self.pick.one([verb for verb in self.verbs if verb.key == wanted])
        clause = self.event([verb], person, tense, adverbials=0.1)
        if clause.time and clause.time.is_frequent:
            clause = replace(clause, time=None)
        return replace(clause, place=NOTHING)

    # How somebody or something is

    def state(
        self,
        subject: Phrase,
        adjective: Adjective,
        tense: str = "present",
        predicate: Both | None = None,
    ) -> Clause:
        """A clause that says that the subject is such, in the words of the predicate if given."""
        shown = adjective.predicative if predicate is None else predicate
        be = self.lexicon.verb("be")
        return Clause(subject, be, tense, predicate=shown, adjective=adjective)

    def any_state(self, subject: Phrase, noun: Noun, tense: str = "present") -> Clause:
        """A clause that says how the noun's subject is."""
        options = [a for a in self.adjectives[noun.english] if a.english not in ("poor", "rich")]
        return self.state(subject, self.pick.one(options), tense)

    def weather_clause(self, tense: str) -> Clause:
        """It rains, or it is cold."""
        kind = self.pick.one(("rain", "snow", "be"))
        predicate = self.pick.one(
            (("cold", "kalt"), ("hot", "heiß"), ("warm", "warm"), ("dark", "dunkel"))
        )
        verb = self.lexicon.verb(kind)
        return Clause(WEATHER, verb, tense, predicate=predicate if kind == "be" else NOTHING)

    def deed_in_weather(
        self, weather: Clause, despite: bool, tense: str, person: Phrase | None = None
    ) -> Clause:
        """What somebody does because of the weather, or in spite of it."""
        deeds = DESPITE_WEATHER if despite else WEATHER_DEEDS
        return self.deed_of(deeds[weather.predicate[0] or "wet"], tense, person)
