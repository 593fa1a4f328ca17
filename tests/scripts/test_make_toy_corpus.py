"""The toy corpus: its German, what its test set holds out, and its committed files."""

import os
import subprocess
import sys
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
DATA = ROOT / "data" / "toy"
sys.path.insert(0, str(SCRIPTS))

import make_toy_corpus  # noqa: E402
from toy_corpus.clauses import CAN, Clause  # noqa: E402
from toy_corpus.corpus import (  # noqa: E402
    distinct_sentences,
    files_of,
    forms_of,
    is_held_out,
    make_corpus,
)
from toy_corpus.inflection import RELATIVE, cell, contract  # noqa: E402
from toy_corpus.lexicon import combination, load_lexicon  # noqa: E402
from toy_corpus.phrases import PRONOUNS, it_for, noun_phrase  # noqa: E402
from toy_corpus.sentences import Sentence  # noqa: E402

LEXICON = load_lexicon()


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Sentence]]:
    """The corpus, made afresh."""
    return make_corpus()


def lines(name: str) -> list[str]:
    """The lines of a committed file."""
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def clause(subject: str, verb: str, noun: str, **more: object) -> Clause:
    """A clause whose subject and object have ``the``."""
    found = LEXICON.verb(verb)
    thing = noun_phrase(LEXICON.noun(noun))
    person = noun_phrase(LEXICON.noun(subject))
    return Clause(person, found, objects=((found.objects[0], thing),), **more)  # type: ignore[arg-type]


def test_committed_files_equal_what_the_generator_writes(
    corpus: dict[str, list[Sentence]],
) -> None:
    for name, content in files_of(corpus).items():
        assert (DATA / name).read_bytes() == content.encode(), name


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_sentences_do_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    program = (
        "from itertools import islice; from toy_corpus.corpus import distinct_sentences;"
        "from toy_corpus.lexicon import load_lexicon;"
        "made = islice(distinct_sentences(load_lexicon(), 3), 400);"
        "print(ascii([(s.english, s.german, sorted(s.pairs)) for s in made]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        cwd=SCRIPTS,
        env=environment,
        capture_output=True,
        text=True,
    )
    made = islice(distinct_sentences(LEXICON, 3), 400)
    here = ascii([(s.english, s.german, sorted(s.pairs)) for s in made])
    assert done.stdout.strip() == here


def test_check_tells_a_changed_file_from_the_right_ones(
    tmp_path: Path,
    corpus: dict[str, list[Sentence]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(make_toy_corpus, "make_corpus", lambda: corpus)
    arguments = ["--output", str(tmp_path / "new")]
    assert make_toy_corpus.main([*arguments, "--check"]) == 1
    assert make_toy_corpus.main(arguments) == 0
    assert make_toy_corpus.main([*arguments, "--check"]) == 0
    (tmp_path / "new" / "test.de").write_text("Hallo.\n", encoding="utf-8")
    capsys.readouterr()
    assert make_toy_corpus.main([*arguments, "--check"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"not what would be written: {tmp_path / 'new' / 'test.de'}"
    ]


def test_sizes() -> None:
    for name, size in {"train": 20_000, "valid": 500, "test": 500}.items():
        assert len(lines(f"{name}.en")) == len(lines(f"{name}.de")) == size
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= 2_000_000


def test_sentences_have_4_to_16_words_and_closing_punctuation() -> None:
    for path in DATA.iterdir():
        for line in lines(path.name):
            assert 4 <= len(line.split()) <= 16, line
            assert line[-1] in ".?!", line
            assert line[0].isupper(), line
            assert line == " ".join(line.split()), line
            assert " ," not in line, line
            assert ",," not in line, line


def test_no_source_sentence_comes_twice() -> None:
    sources = [line for name in ("train", "valid", "test") for line in lines(f"{name}.en")]
    assert len(sources) == len(set(sources))


def test_held_out_combinations_are_absent_from_train_and_in_every_other_sentence(
    corpus: dict[str, list[Sentence]],
) -> None:
    assert not any(is_held_out(pair) for made in corpus["train"] for pair in made.pairs)
    for made in corpus["valid"] + corpus["test"]:
        assert any(map(is_held_out, made.pairs)), made


def test_no_held_out_adjective_stands_before_its_noun_in_the_text_of_train() -> None:
    adjectives = {a.english: a.english for a in LEXICON.adjectives}
    nouns = {n.english: n.english for n in LEXICON.nouns}
    nouns |= {n.english_plural: n.english for n in LEXICON.nouns}
    found = set()
    for line in lines("train.en"):
        for first, second in pairwise(forms_of(line)):
            if first in adjectives and second in nouns:
                found.add(combination(first, nouns[second]))
    assert len(found) > 500
    assert not any(map(is_held_out, found))


@pytest.mark.parametrize("suffix", ["en", "de"])
def test_train_holds_each_word_form_of_the_other_sets_at_least_five_times(suffix: str) -> None:
    seen = Counter(word for line in lines(f"train.{suffix}") for word in forms_of(line))
    for name in ("valid", "test"):
        for line in lines(f"{name}.{suffix}"):
            assert all(seen[word] >= 5 for word in forms_of(line)), line


@pytest.mark.parametrize(
    ("adjective", "noun", "determiner", "plural", "case", "german"),
    [
        ("small", "boy", "the", False, "acc", "den kleinen Jungen"),
        ("old", "dog", "a", False, "dat", "einem alten Hund"),
        ("old", "dog", "a", False, "nom", "ein alter Hund"),
        ("small", "child", "a", False, "nom", "ein kleines Kind"),
        ("small", "child", "the", True, "dat", "den kleinen Kindern"),
        ("cold", "milk", "", False, "dat", "kalter Milch"),
        ("cold", "water", "", False, "nom", "kaltes Wasser"),
        ("fresh", "egg", "three", True, "nom", "drei frische Eier"),
        ("expensive", "car", "the", False, "gen", "des teuren Autos"),
        ("dark", "forest", "this", False, "dat", "diesem dunklen Wald"),
        ("polite", "colleague", "my", False, "gen", "meines höflichen Kollegen"),
        ("blue", "shoe", "our", True, "nom", "unsere blauen Schuhe"),
        ("dangerous", "bear", "every", False, "acc", "jeden gefährlichen Bären"),
        ("young", "student", "many", True, "dat", "vielen jungen Studenten"),
        ("tired", "neighbour", "all", True, "nom", "alle müden Nachbarn"),
    ],
)
def test_articles_adjectives_and_nouns_agree(
    adjective: str, noun: str, determiner: str, plural: bool, case: str, german: str
) -> None:
    phrase = noun_phrase(LEXICON.noun(noun), determiner, plural, LEXICON.adjective(adjective))
    assert phrase.german[case] == german


@pytest.mark.parametrize(
    ("preposition", "noun", "case", "german"),
    [
        ("wegen", "rain", "gen", "wegen des Regens"),
        ("trotz", "cold", "gen", "trotz der Kälte"),
        ("in", "garden", "dat", "im Garten"),
        ("in", "house", "acc", "ins Haus"),
        ("zu", "station", "dat", "zum Bahnhof"),
        ("zu", "school", "dat", "zur Schule"),
        ("von", "dog", "dat", "vom Hund"),
        ("auf", "table", "acc", "auf den Tisch"),
        ("auf", "table", "dat", "auf dem Tisch"),
    ],
)
def test_prepositions_take_their_case_and_contract(
    preposition: str, noun: str, case: str, german: str
) -> None:
    phrase = noun_phrase(LEXICON.noun(noun))
    assert contract(preposition, phrase.german[case]) == german


def test_a_separable_prefix_ends_a_main_clause_and_joins_the_verb_elsewhere() -> None:
    opens = clause("man", "open", "door")
    assert opens.german() == "der Mann macht die Tür auf"
    assert opens.german_verb_last() == "der Mann die Tür aufmacht"
    assert opens.german_infinitive() == "die Tür aufzumachen"
    done = clause("man", "open", "door", tense="perfect")
    assert done.german() == "der Mann hat die Tür aufgemacht"
    assert done.german_verb_last() == "der Mann die Tür aufgemacht hat"


def test_a_relative_clause_keeps_preposition_and_article_apart() -> None:
    assert contract("von", "dem Hund , der lacht ,") == "von dem Hund , der lacht ,"


def test_the_verb_comes_second_after_a_fronted_adverbial() -> None:
    yesterday = next(time for time in LEXICON.times if time.english == "yesterday")
    fronted = clause("student", "read", "letter", tense="past", time=yesterday, front="time")
    assert fronted.english() == "yesterday the student read the letter"
    assert fronted.german() == "gestern las der Student den Brief"


def test_negation_is_nicht_or_kein() -> None:
    negated = clause("woman", "read", "letter", negated=True)
    assert negated.english() == "the woman does not read the letter"
    assert negated.german() == "die Frau liest den Brief nicht"
    letter = noun_phrase(LEXICON.noun("letter"), "a")
    verb = LEXICON.verb("read")
    none = Clause(PRONOUNS["she"], verb, negated=True, objects=((verb.objects[0], letter),))
    assert none.german() == "sie liest keinen Brief"


def test_dative_verbs_and_verbs_of_motion() -> None:
    assert clause("girl", "help", "farmer").german() == "das Mädchen hilft dem Bauern"
    followed = clause("girl", "follow", "boy", tense="perfect")
    assert followed.german() == "das Mädchen ist dem Jungen gefolgt"


def test_modal_question_and_relative_clause() -> None:
    can = clause("cook", "turn off", "radio", modal=CAN)
    assert can.english(question=True) == "can the cook turn off the radio"
    assert can.german("") == "kann der Koch das Radio ausmachen"
    assert cell(RELATIVE, "dat", "p") == "denen"
    assert cell(RELATIVE, "gen", "f") == "deren"


def test_a_pronoun_takes_the_gender_of_the_thing_it_stands_for() -> None:
    things = {"lamp": "sie", "coat": "er", "book": "es"}
    for noun, german in things.items():
        assert it_for(noun_phrase(LEXICON.noun(noun))).german["nom"] == german
