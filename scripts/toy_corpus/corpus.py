"""The three sets of the corpus and the combinations of words that are held out of training."""

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from toy_corpus.clause_maker import ClauseMaker
from toy_corpus.lexicon import Lexicon, combination, load_lexicon
from toy_corpus.plans import any_sentence
from toy_corpus.sentences import Sentence

SEED = 20240607
SIZES = {"train": 20_000, "valid": 500, "test": 500}
WORDS = range(4, 17)  # permitted lengths of a sentence, either side
HELD_OUT_SHARE = 9  # one combination in nine is held out
SEEN_OFTEN = 6  # how often train shows each word form of the other sets, at least


def is_held_out(pair: str) -> bool:
    """Whether a combination of two words is kept out of the training set."""
    return zlib.crc32(pair.encode()) % HELD_OUT_SHARE == 0


def forms_of(text: str) -> list[str]:
    """The word forms of a sentence, without punctuation."""
    return [word.strip(".,?!") for word in text.split()]


class WordList:
    """The English word forms of nouns, names and adjectives, each with its base form."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.nouns = {form: name for name, _ in lexicon.names for form in (name, f"{name}'s")}
        for noun in lexicon.nouns:
            for form in (noun.english, f"{noun.english}'s", noun.english_plural):
                self.nouns[form] = noun.english
        self.adjectives: dict[str, str] = {}
        for adjective in lexicon.adjectives:
            for form in (adjective.english, adjective.superlative.removeprefix("most ")):
                self.adjectives[form] = adjective.english

    def says_twice(self, made: Sentence) -> bool:
        """Whether a noun, name or adjective comes twice, which only a comparison may do."""
        known = self.adjectives | self.nouns
        found = [known[word] for word in forms_of(made.english) if word in known]
        return made.plan != "comparison" and len(found) != len(set(found))

    def adjacent_pairs(self, english: str) -> frozenset[str]:
        """The combinations of an adjective and the noun right after it."""
        forms = forms_of(english)
        return frozenset(
            combination(self.adjectives[first], self.nouns[second])
            for first, second in pairwise(forms)
            if first in self.adjectives and second in self.nouns
        )


def has_good_length(made: Sentence) -> bool:
    """Whether both sides have a permitted number of words."""
    return all(len(text.split()) in WORDS for text in (made.english, made.german))


def distinct_sentences(lexicon: Lexicon, seed: int) -> Iterator[Sentence]:
    """Sentences without end, all different in English; the same English must mean one German."""
    make = ClauseMaker(lexicon, seed)
    word_list = WordList(lexicon)
    made: dict[str, str] = {}
    while True:
        new = any_sentence(make)
        if not has_good_length(new) or word_list.says_twice(new):
            continue
        old = made.get(new.english)
        if old is None:
            made[new.english] = new.german
            yield replace(new, pairs=new.pairs | word_list.adjacent_pairs(new.english))
        elif old != new.german:
            raise ValueError(f"two translations: {new.english} {old} {new.german}")


def make_corpus(seed: int = SEED) -> dict[str, list[Sentence]]:
    """The three sets: train without, valid and test with held-out combinations."""
    train: list[Sentence] = []
    others: list[Sentence] = []
    for made in distinct_sentences(load_lexicon(), seed):
        (others if any(map(is_held_out, made.pairs)) else train).append(made)
        if len(train) == SIZES["train"]:
            break
    seen: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for made in train:
        seen[0].update(forms_of(made.english))
        seen[1].update(forms_of(made.german))

    def is_known(made: Sentence) -> bool:
        """Whether train often shows each word form of the sentence."""
        sides = zip(seen, (made.english, made.german), strict=True)
        return all(count[word] >= SEEN_OFTEN for count, text in sides for word in forms_of(text))

    known = list(filter(is_known, others))
    end = SIZES["test"] + SIZES["valid"]
    return {"train": train, "valid": known[SIZES["test"] : end], "test": known[: SIZES["test"]]}


def files_of(corpus: dict[str, list[Sentence]]) -> dict[str, str]:
    """The content of each file by its name."""
    return {
        f"{name}.{suffix}": "".join(f"{getattr(s, language)}\n" for s in sentences)
        for name, sentences in corpus.items()
        for language, suffix in (("english", "en"), ("german", "de"))
    }
