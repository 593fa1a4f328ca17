"""Sentences made of clauses: statements, questions and pairs of clauses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toy_corpus.clauses import Clause
from toy_corpus.phrases import NOTHING, Both, words


@dataclass(frozen=True)
class Sentence:
    """A sentence, its translation and the combinations of two words that it holds."""

    english: str
    german: str
    pairs: frozenset[str]
    plan: str = ""

    def with_pairs(self, *pairs: str) -> Sentence:
        """The sentence with more combinations."""
        return replace(self, pairs=self.pairs | set(pairs))


def finish(text: str, mark: str) -> str:
    """The text with its commas in place, its first letter capital and its closing mark."""
    for _ in range(2):
        text = text.replace(" ,", ",").replace(",,", ",")
    text = text.rstrip(", ")
    return text[0].upper() + text[1:] + mark


def sentence(english: str, german: str, pairs: frozenset[str], mark: str = ".") -> Sentence:
    """A finished sentence from the words of both languages."""
    return Sentence(finish(english, mark), finish(german, mark), pairs)


def say(clause: Clause, mark: str = ".") -> Sentence:
    """The clause with its subject first, or after what it has at its front."""
    return sentence(clause.english(), clause.german(), clause.pairs, mark)


def ask(clause: Clause, lead: Both = NOTHING) -> Sentence:
    """The clause as a question, after the question word or phrase if there is one."""
    english = words(lead[0], clause.english(question=True))
    return sentence(english, clause.german(lead[1]), clause.pairs, "?")


def subordinated(main: Clause, link: Both, other: Clause, first: bool = False) -> Sentence:
    """A main clause and a subordinate one, which may come first."""
    english = f"{link[0]} {other.english()}"
    german = f"{link[1]} {other.german_verb_last()}"
    pairs = main.pairs | other.pairs
    if first:
        return sentence(f"{english} , {main.english()}", main.german(f"{german} ,"), pairs)
    return sentence(f"{main.english()} {english}", f"{main.german()} , {german}", pairs)


def with_infinitive(main: Clause, link: Both, other: Clause) -> Sentence:
    """A main clause and an infinitive."""
    english = words(main.english(), link[0], other.english_infinitive())
    german = words(main.german(), ",", link[1], other.german_infinitive())
    return sentence(english, german, main.pairs | other.pairs)


def coordinated(first: Clause, link: Both, second: Clause) -> Sentence:
    """Two main clauses."""
    english = f"{first.english()} {link[0]} {second.english()}"
    german = f"{first.german()} {link[1]} {second.german()}"
    return sentence(english, german, first.pairs | second.pairs)
