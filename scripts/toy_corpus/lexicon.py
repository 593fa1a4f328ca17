"""The words of the toy corpus, read from ``lexicon.tsv``, and each word's own forms."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from toy_corpus.inflection import (
    AUXILIARIES,
    auxiliary_form,
    be_form,
    first_person,
    regular_past,
    regular_third,
)

LEXICON_FILE = Path(__file__).with_name("lexicon.tsv")


def combination(word: str, noun: str) -> str:
    """The name of an adjective or verb together with a noun, by their English base forms."""
    return f"{word}+{noun}"


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun; a mass noun has no plural."""

    english: str
    english_plural: str
    gender: str
    german: str
    genitive: str
    plural: str
    classes: frozenset[str]

    @property
    def is_mass(self) -> bool:
        """Whether the noun has no plural and takes no ``a``."""
        return not self.plural

    @property
    def has_plural(self) -> bool:
        """Whether it makes sense to speak of several."""
        return not self.is_mass and "single" not in self.classes

    @property
    def is_weak(self) -> bool:
        """Whether the noun ends in -n everywhere but in the nominative singular."""
        same = self.genitive == self.plural
        return same and self.gender == "m" and self.genitive.endswith("n")

    def decline(self, case: str, plural: bool) -> str:
        """The German form for a case and number."""
        if plural:
            return self.plural + ("n" if case == "dat" and self.plural[-1] not in "ns" else "")
        if case == "gen" or (case != "nom" and self.is_weak):
            return self.genitive
        return self.german


def fits(noun: Noun, classes: frozenset[str], excluded: frozenset[str]) -> bool:
    """Whether a noun is of one of the classes and of none excluded."""
    return bool(noun.classes & classes) and not noun.classes & excluded


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective with its degrees; one without a comparative is not compared."""

    english: str
    comparative: str
    superlative: str
    german: str
    stem: str
    german_comparative: str
    german_superlative: str
    classes: frozenset[str]
    excluded: frozenset[str]

    @property
    def predicative(self) -> tuple[str, str]:
        """The English and the German form after ``be``."""
        return self.english, self.german

    def decline(self, ending: str, superlative: bool = False) -> str:
        """The German form before a noun."""
        return (self.german_superlative if superlative else self.stem) + ending

    def fits(self, noun: Noun) -> bool:
        """Whether it makes sense to say this of the noun."""
        return fits(noun, self.classes, self.excluded)


@dataclass(frozen=True, eq=False)
class Slot:
    """An object of a verb: its case, its prepositions if any, and the nouns that make sense."""

    english: str
    german: str
    case: str
    classes: frozenset[str]
    excluded: frozenset[str]


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb, its principal parts in both languages and what goes with it."""

    kind: str
    english: str
    third: str
    past: str
    participle: str
    particle: str
    infinitive: str
    prefix: str
    reflexive: bool
    german_third: str
    preterite: str
    german_participle: str
    auxiliary: str
    subject: Slot
    objects: tuple[Slot, ...]
    manner: tuple[str, ...]
    flags: frozenset[str]

    @cached_property
    def key(self) -> str:
        """The verb's name in a combination, such as ``turn on``."""
        return f"{self.english} {self.particle}".strip()

    def english_form(self, tense: str, agreement: str) -> str:
        """The English form of the simple present or past."""
        if self.english == "be":
            return be_form(tense, agreement)
        if tense == "past":
            return self.past
        return self.third if agreement == "3s" else self.english

    def german_form(self, tense: str, agreement: str) -> str:
        """The German form of the present or preterite, without a separable prefix."""
        if self.infinitive in AUXILIARIES and tense == "present":
            return auxiliary_form(self.infinitive, agreement)
        if tense == "past":
            if agreement in ("1s", "3s"):
                return self.preterite
            return self.preterite + ("n" if self.preterite.endswith("e") else "en")
        if agreement == "3s":
            return self.german_third
        if agreement == "1s":
            return "weiß" if self.infinitive == "wissen" else first_person(self.infinitive)
        return self.infinitive

    def with_zu(self) -> str:
        """The infinitive with ``zu``, which goes between a separable prefix and the verb."""
        return f"{self.prefix}zu{self.infinitive}" if self.prefix else f"zu {self.infinitive}"


@dataclass(frozen=True)
class Time:
    """An adverbial of time, the tenses it goes with and its place in an English clause."""

    english: str
    german: str
    is_mid: bool = False
    tenses: frozenset[str] = frozenset()

    @property
    def is_frequent(self) -> bool:
        """Whether it says that something happens more than once."""
        return "frequent" in self.tenses

    @property
    def suits_negation(self) -> bool:
        """Whether a negated clause may hold it."""
        return self.english != "soon" and not self.is_frequent


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Everything that ``lexicon.tsv`` holds."""

    nouns: tuple[Noun, ...]
    adjectives: tuple[Adjective, ...]
    verbs: tuple[Verb, ...]
    times: tuple[Time, ...]
    names: tuple[tuple[str, str], ...]
    cities: tuple[tuple[str, str], ...]
    manner: dict[str, str]
    _nouns: dict[str, tuple[Noun, ...]] = field(default_factory=dict, repr=False)
    _verbs: dict[str, tuple[Verb, ...]] = field(default_factory=dict, repr=False)

    def noun(self, english: str) -> Noun:
        """The noun with this English singular."""
        return next(noun for noun in self.nouns if noun.english == english)

    def adjective(self, english: str) -> Adjective:
        """The adjective with this English base form."""
        return next(adjective for adjective in self.adjectives if adjective.english == english)

    def verb(self, key: str) -> Verb:
        """The first verb with this name, such as ``turn on``."""
        return next(verb for verb in self.verbs if verb.key == key)

    def verbs_of(self, kind: str) -> tuple[Verb, ...]:
        """All verbs of a kind: ``verb motion put rest frame speech infinitive``."""
        if kind not in self._verbs:
            self._verbs[kind] = tuple(verb for verb in self.verbs if verb.kind == kind)
        return self._verbs[kind]

    def nouns_of(self, classes: str) -> tuple[Noun, ...]:
        """All nouns of the classes named, less those of the classes named after ``!``."""
        if classes not in self._nouns:
            slot = split_classes(classes)
            self._nouns[classes] = tuple(noun for noun in self.nouns if fits(noun, *slot))
        return self._nouns[classes]

    def __len__(self) -> int:
        words = (self.nouns, self.adjectives, self.verbs, self.times, self.names, self.cities)
        return sum(map(len, words)) + len(self.manner)


def split_classes(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The classes named in a text, and those excluded after ``!``."""
    wanted, _, excluded = text.partition("!")
    return frozenset(wanted.split()), frozenset(excluded.split())


def parse_slot(label: str, classes: str) -> Slot:
    """A slot from its label, such as ``acc`` or ``for/auf+acc``, and its classes."""
    prepositions, _, case = label.rpartition("+")
    english, _, german = prepositions.partition("/")
    return Slot(english, german, case, *split_classes(classes))


def parse_slots(text: str) -> tuple[Slot, ...]:
    """The slots of a verb, written ``dat:person acc:read wear !letter``."""
    slots: list[list[str]] = []
    for word in text.split():
        label, colon, first = word.rpartition(":")
        if colon:
            slots.append([label, first])
        else:
            slots[-1].append(word)
    return tuple(parse_slot(label, " ".join(classes)) for label, *classes in slots)


def parse_verb(row: list[str]) -> Verb:
    """A verb from its row."""
    kind, base, third, past, participle, particle, infinitive = row[:7]
    german_third, preterite, german_participle, auxiliary, subject, objects, manner, flags = row[7:]
    past = regular_past(base) if past == "-" else past
    reflexive = infinitive.startswith("sich ")
    prefix, bar, stem = infinitive.removeprefix("sich ").partition("|")
    return Verb(
        kind=kind,
        english=base,
        third=regular_third(base) if third == "-" else third,
        past=past,
        participle=past if participle == "-" else participle,
        particle=particle.strip("-"),
        infinitive=stem if bar else prefix,
        prefix=prefix if bar else "",
        reflexive=reflexive,
        german_third=german_third,
        preterite=preterite,
        german_participle=german_participle,
        auxiliary=auxiliary,
        subject=parse_slot("nom", subject),
        objects=parse_slots(objects.strip("-")),
        manner=tuple(manner.strip("-").split()),
        flags=frozenset(flags.strip("-").split()),
    )


def parse_noun(row: list[str], implied: dict[str, list[str]]) -> Noun:
    """A noun from its row, with all classes that follow from those named."""
    classes = {row[1], *row[7].split()}
    while more := {c for known in classes for c in implied.get(known, [])} - classes:
        classes |= more
    english, plural, gender, german, genitive, german_plural = (c.strip("-") for c in row[1:7])
    return Noun(english, plural, gender, german, genitive, german_plural, frozenset(classes))


def parse_adjective(row: list[str]) -> Adjective:
    """An adjective from its row."""
    english, comparative, superlative, german, stem, german_comparative, german_superlative = (
        column.strip("-") for column in row[1:8]
    )
    return Adjective(
        english,
        comparative,
        superlative,
        german,
        stem,
        german_comparative,
        german_superlative,
        *split_classes(row[8]),
    )


def load_lexicon(path: Path = LEXICON_FILE) -> Lexicon:
    """Read the lexicon file."""
    rows: dict[str, list[list[str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            row = line.split("\t")
            rows.setdefault(row[0], []).append(row)
    implied: dict[str, list[str]] = {row[1]: row[2].split() for row in rows["implies"]}
    kinds = ("verb", "motion", "put", "rest", "frame", "speech", "infinitive")
    return Lexicon(
        nouns=tuple(parse_noun(row, implied) for row in rows["noun"]),
        adjectives=tuple(map(parse_adjective, rows["adjective"])),
        verbs=tuple(parse_verb(row) for kind in kinds for row in rows[kind]),
        times=tuple(
            Time(row[1], row[2], row[3] == "mid", frozenset(row[4].split())) for row in rows["time"]
        ),
        names=tuple((row[1], row[2]) for row in rows["name"]),
        cities=tuple((row[1], row[-1]) for row in rows["city"]),
        manner={row[1]: row[2] for row in rows["manner"]},
    )
