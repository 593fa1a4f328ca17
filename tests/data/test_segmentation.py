"""Random segmentations, held against SentencePiece and against the formulas of their papers."""

import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import pytest
import sentencepiece

from transformer.config import TokenizerConfig
from transformer.data.segmentation import SPACE
from transformer.data.tokenizer import UNK, Tokenizer
from transformer.data.tokenizer_training import train_tokenizer

SYLLABLES = [
    "ka",
    "lo",
    "mi",
    "ten",
    "ra",
    "sch",
    "ung",
    "ver",
    "ein",
    "hau",
    "bro",
    "ä",
    "öl",
    "ß",
]
RATES = {"bpe": 0.3, "unigram": 0.5}


def sentences(count: int) -> list[str]:
    rng = random.Random(0)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 5))) for _ in range(1000)]
    return [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(count)]


def trained(kind: Literal["bpe", "unigram"], **settings: object) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab_size=360, **settings)
    return train_tokenizer(sentences(400), config, print)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return trained(request.param, user_symbols=["<2de>", "<2d"])


@pytest.fixture
def rate(tokenizer: Tokenizer) -> float:
    return RATES["bpe" if tokenizer._pieces.is_bpe else "unigram"]


LINES = [
    *sentences(2000),
    "",
    "  two  spaces ",
    "<2de> the dog<2de>x <2d y",
    "unknown Ωmega 犬 \x00\t😀",
    "a </s> b <unk>",
    "groß" * 40,
]


def test_without_chance_it_is_what_sentencepiece_gives(tokenizer: Tokenizer) -> None:
    certain = 0.0 if tokenizer._pieces.is_bpe else 1e4
    sampled = tokenizer.encode_sampled(LINES, certain, range(len(LINES)))
    assert sampled == tokenizer.encode(LINES)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_without_byte_fallback_unknown_characters_are_one_unknown(
    kind: Literal["bpe", "unigram"],
) -> None:
    tokenizer = trained(kind, byte_fallback=False)
    certain = 0.0 if kind == "bpe" else 1e4
    lines = ["the 犬犬 dog 犬x", "犬犬", "dogΩΩdog Ω Ω"]
    sampled = tokenizer.encode_sampled(lines, certain, [0, 0, 0])
    assert sampled == tokenizer.encode(lines)
    assert sampled[1].count(UNK) == 1


def test_every_segmentation_decodes_to_its_line(tokenizer: Tokenizer, rate: float) -> None:
    lines = [line for line in LINES if "<2d" not in line]
    for value in (rate, 1.0):
        assert tokenizer.decode(tokenizer.encode_sampled(lines, value, range(len(lines)))) == [
            line.replace("\n", " ") for line in lines
        ]


def test_a_user_symbol_is_never_split(tokenizer: Tokenizer, rate: float) -> None:
    symbol = tokenizer.encode(["<2de>"])[0][-2]
    for ids in tokenizer.encode_sampled(["<2de> the dogs"] * 200, rate, range(200)):
        assert ids.count(symbol) == 1
        assert tokenizer.decode([ids]) == ["the dogs"]


def test_the_seed_alone_decides(tokenizer: Tokenizer, rate: float) -> None:
    lines, seeds = LINES[:300], list(range(300))
    together = tokenizer.encode_sampled(lines, rate, seeds)
    fresh = Tokenizer(tokenizer.model)
    backwards = [
        fresh.encode_sampled([x], rate, [s])[0] for x, s in zip(lines, seeds, strict=True)
    ][::-1]
    assert together == backwards[::-1]
    assert together == fresh.encode_sampled(lines, rate, seeds)
    assert together != fresh.encode_sampled(lines, rate, [*seeds[1:], 999])


def test_another_process_segments_alike(tokenizer: Tokenizer, rate: float) -> None:
    code = f"""
import sys
from transformer.data.tokenizer import Tokenizer
tokenizer = Tokenizer(sys.stdin.buffer.read())
print(tokenizer.encode_sampled({LINES[:50]!r}, {rate}, range(50)))
"""
    other = subprocess.run([sys.executable, "-c", code], input=tokenizer.model, capture_output=True)
    here = tokenizer.encode_sampled(LINES[:50], rate, range(50))
    assert other.stdout.decode().strip() == str(here), other.stderr.decode()


def test_training_sees_more_than_one_segmentation_and_all_else_exactly_one(
    tokenizer: Tokenizer, rate: float
) -> None:
    line = "kalomi verhauung"
    assert len({tuple(ids) for ids in tokenizer.encode_sampled([line] * 50, rate, range(50))}) > 1
    assert len({tuple(ids) for ids in tokenizer.encode([line] * 50)}) == 1


def test_bpe_dropout_has_the_distribution_of_sentencepiece() -> None:
    tokenizer = trained("bpe")
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    num_draws = 20_000
    for word in ("kalomi", "verhauung"):
        ours = Counter(
            map(tuple, tokenizer.encode_sampled([word] * num_draws, 0.3, range(num_draws)))
        )
        theirs = Counter(
            tuple(processor.encode(word, enable_sampling=True, alpha=0.3, add_eos=True))
            for _ in range(num_draws)
        )
        assert len(ours) > 3
        for ids in ours | theirs:
            share = (ours[ids] + theirs[ids]) / (2 * num_draws)
            deviation = math.sqrt(2 * num_draws * share * (1 - share))
            assert abs(ours[ids] - theirs[ids]) < 6 * deviation + 1


def test_dropping_every_merge_leaves_characters() -> None:
    tokenizer = trained("bpe")
    ids = tokenizer.encode_sampled(["kalo mi"], 1.0, [1])[0]
    assert tokenizer.pieces(ids) == [*f"{SPACE}kalo{SPACE}mi", "</s>"]


def segmentations(word: str, scores: dict[str, float]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yields each way to cut a word into pieces with the sum of its scores."""
    if not word:
        yield (), 0.0
    for end in range(1, len(word) + 1):
        if word[:end] in scores:
            for rest, score in segmentations(word[end:], scores):
                yield (word[:end], *rest), scores[word[:end]] + score


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_unigram_sampling_has_probabilities_to_the_power_of_alpha(alpha: float) -> None:
    tokenizer = trained("unigram")
    scores = {piece: score for piece, (_, score) in tokenizer._pieces.normal.items()}
    ways = dict(segmentations(f"{SPACE}kaverhau", scores))
    total = sum(math.exp(alpha * score) for score in ways.values())
    num_draws = 20_000
    drawn = Counter(
        tuple(tokenizer.pieces(ids[:-1]))
        for ids in tokenizer.encode_sampled(["kaverhau"] * num_draws, alpha, range(num_draws))
    )
    assert len(ways) > 3
    assert set(drawn) <= set(ways)
    for way, score in ways.items():
        share = math.exp(alpha * score) / total
        deviation = math.sqrt(num_draws * share * (1 - share))
        assert abs(drawn[way] - num_draws * share) < 5 * deviation + 1
