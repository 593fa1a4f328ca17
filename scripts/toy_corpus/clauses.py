"""A clause: what it says, and the order of its words in English and in German."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toy_corpus.inflection import auxiliary_form, be_form, contract
from toy_corpus.lexicon import Adjective, Noun, Slot, Time, Verb, combination
from toy_corpus.phrases import NOTHING, Both, Phrase, gap, words


@dataclass(frozen=True)
class Modal:
    """A modal verb: forms in the order 3s, other, past; ``lexical`` if English says ``does``."""

    english: tuple[str, str, str]
    linker: str
    german: tuple[str, str, str]
    lexical: bool = False

    @property
    def has_past(self) -> bool:
        """Whether it is used in the past."""
        return bool(self.german[2])


CAN = Modal(("can", "can", "could"), "", ("kann", "können", "konnte"))
SHOULD = Modal(("should", "should", ""), "", ("sollte", "sollten", ""))
WANTS = Modal(("wants", "want", "wanted"), "to", ("will", "wollen", "wollte"), True)
HAS_TO = Modal(("has", "have", "had"), "to", ("muss", "müssen", "musste"), True)
IS_ALLOWED = Modal(("is", "are", "was"), "allowed to", ("darf", "dürfen", "durfte"))
MODALS = (CAN, SHOULD, WANTS, HAS_TO, IS_ALLOWED)


@dataclass(frozen=True)
class Clause:
    """What a clause says, before either language puts it in order."""

    subject: Phrase
    verb: Verb
    tense: str = "present"
    modal: Modal | None = None
    negated: bool = False
    objects: tuple[tuple[Slot, Phrase], ...] = ()
    manner: Both = NOTHING
    company: Both = NOTHING
    place: Both = NOTHING
    direction: Both = NOTHING
    predicate: Both = NOTHING
    adjective: Adjective | None = None  # what the predicate says of the subject
    time: Time | None = None
    front: str = ""  # "time" or "place" if that comes first

    @property
    def pairs(self) -> frozenset[str]:
        """The combinations of two words that the clause holds."""
        found = set(self.subject.pairs)
        if self.adjective and self.subject.noun:
            found.add(combination(self.adjective.english, self.subject.noun.english))
        for _, phrase in self.objects:
            found |= phrase.pairs
            if phrase.noun:
                found.add(combination(self.verb.key, phrase.noun.english))
        return frozenset(found)

    @property
    def fronted(self) -> Both:
        """What stands before the subject."""
        if self.front == "time" and self.time:
            return self.time.english, self.time.german
        return self.place if self.front == "place" else NOTHING

    def inner_time(self, mid: bool) -> Both:
        """The adverbial of time, unless it is fronted, if its English place is mid or is not."""
        if not self.time or self.front == "time" or self.time.is_mid != mid:
            return NOTHING
        return self.time.english, self.time.german

    @property
    def inner_place(self) -> Both:
        """The adverbial of place, unless it is fronted."""
        return self.place if self.front != "place" else NOTHING

    def with_gap(self, noun: Noun | None) -> Clause:
        """The clause without its last object, which is about this noun and stands elsewhere."""
        *others, (slot, _) = self.objects
        return replace(self, objects=(*others, (slot, gap(noun))))

    # English

    def english_verb(self, with_auxiliary: bool) -> Both:
        """The auxiliary ('' if none) and the rest of the verb group."""
        agreement, verb = self.subject.agreement, self.verb
        if self.modal:
            return self.english_modal(self.modal, with_auxiliary)
        if self.tense == "perfect":
            return "has" if agreement == "3s" else "have", verb.participle
        if self.tense == "future":
            return "will", verb.english
        if verb.english == "be":
            return verb.english_form(self.tense, agreement), ""
        if with_auxiliary:
            return self.do_form(), verb.english
        return "", verb.english_form(self.tense, agreement)

    def english_modal(self, modal: Modal, with_auxiliary: bool) -> Both:
        """The auxiliary ('' if none) and the rest of a verb group with a modal."""
        third, other, past = modal.english
        finite = (
            past if self.tense == "past" else third if self.subject.agreement == "3s" else other
        )
        if modal is IS_ALLOWED:
            finite = be_form(self.tense, self.subject.agreement)
        rest = words(modal.linker, self.verb.english)
        if not modal.lexical:
            return finite, rest
        return (self.do_form(), words(other, rest)) if with_auxiliary else ("", words(finite, rest))

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
        parts += [self.inner_place[0], self.inner_time(mid=False)[0]]
        return words(*parts)

    def english(self, question: bool = False) -> str:
        """The clause as a statement, or with its auxiliary first as a question."""
        auxiliary, verb = self.english_verb(with_auxiliary=question or self.negated)
        mid = self.inner_time(mid=True)[0]
        negation = "not" if self.negated else ""
        subject = self.subject.subject_form
        if question:
            return words(auxiliary, subject, negation, mid, verb, self.english_rest())
        if self.negated and auxiliary == "can":
            auxiliary, negation = "cannot", ""
        group = words(auxiliary, negation, mid, verb)
        return words(self.fronted[0], subject, group, self.english_rest())

    def english_infinitive(self) -> str:
        """The clause as an infinitive without ``to``."""
        return words(self.verb.english, self.english_rest())

    # German

    def german_verb(self) -> Both:
        """The finite verb and what closes the clause."""
        verb, agreement = self.verb, self.subject.agreement
        infinitive = verb.prefix + verb.infinitive
        if self.modal:
            singular = agreement in ("1s", "3s")
            one, many, past = self.modal.german
            if self.tense == "past":
                return past if singular else past + "n", infinitive
            return one if singular else many, infinitive
        if self.tense == "perfect":
            return auxiliary_form(verb.auxiliary, agreement), verb.german_participle
        if self.tense == "future":
            return auxiliary_form("werden", agreement), infinitive
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
        mid = self.inner_time(mid=True)[1]
        indefinite_dative = fields.get("indefinite dat", "")
        is_early = bool(self.time and "early" in self.time.tenses and not indefinite_dative)
        return words(
            *first,
            *(fields.get(name, "") for name in ("pronoun acc", "pronoun dat", "name")),
            self.inner_time(mid=False)[1],
            mid if indefinite_dative else "",
            fields.get("dat", indefinite_dative),
            mid if is_early else "",
            fields.get("acc", ""),
            "" if indefinite_dative or is_early else mid,
            "nicht" if self.negated and "indefinite acc" not in fields else "",
            self.manner[1],
            self.company[1],
            self.inner_place[1],
            fields.get("indefinite acc", ""),
            fields.get("end", ""),
            self.direction[1],
            self.predicate[1],
        )

    def german(self, lead: str | None = None) -> str:
        """The clause with its verb second, after the lead if one is given ('' for a question)."""
        finite, close = self.german_verb()
        if lead is None and self.front:
            lead = self.fronted[1]
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
