"""What an update sees is a function of where it stands in the run."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

from transformer.config import Config
from transformer.data.corpus import EncodedCorpus, encode_corpus, load_corpora, prepare_tokenizers
from transformer.data.tokenizer import Tokenizers
from transformer.data.updates import START, Update, iterate_updates, settle_steps
from transformer.errors import UserError
from transformer.training.optimizer import learning_rate

SAMPLING = (
    "tokenizer.source_sampling=0.3",
    "tokenizer.target_sampling=0.3",
    "training.batch_tokens=256",
    "training.max_tokens=256",
)
NUM_UPDATES = 20
R_DROP = "training.r_drop=1"


@pytest.fixture
def prepared(make_config: Callable[..., Config]) -> tuple[EncodedCorpus, Tokenizers]:
    """The small task, encoded."""
    config = make_config()
    raw = load_corpora(config.data.train, config.data)
    tokenizers = prepare_tokenizers(config, raw)
    return encode_corpus(raw, tokenizers, config.data, filters=True), tokenizers


def ids(update: Update) -> list[list[int]]:
    return [x.flatten().tolist() for _, batch in update.batches for x in (batch.src, batch.labels)]


def first_updates(prepared: tuple[EncodedCorpus, Tokenizers], config: Config) -> list[Update]:
    updates = iterate_updates(*prepared, config, START)
    return [next(updates) for _ in range(NUM_UPDATES)]


def test_sampling_ends_with_its_share_of_the_updates(
    prepared: tuple[EncodedCorpus, Tokenizers], make_config: Callable[..., Config]
) -> None:
    steps = f"training.max_steps={NUM_UPDATES}"
    always, until, never = (
        first_updates(prepared, make_config(steps, *settings))
        for settings in (
            SAMPLING,
            (*SAMPLING, "tokenizer.sampling_until=0.6"),
            (*SAMPLING, "tokenizer.sampling_until=0"),
        )
    )
    plain = first_updates(prepared, make_config(steps, *SAMPLING[2:]))
    assert max(update.after.epoch for update in until[:12]) > 1
    for step in range(1, NUM_UPDATES + 1):
        sampled, seen, usual = (ids(x[step - 1]) for x in (always, until, plain))
        assert sampled != usual
        assert seen == (sampled if step <= 12 else usual)
        assert ids(never[step - 1]) == usual
        assert np.array_equal(always[step - 1].examples, plain[step - 1].examples)


def test_sentences_pass_twice_from_a_share_of_the_updates_on(
    prepared: tuple[EncodedCorpus, Tokenizers], make_config: Callable[..., Config]
) -> None:
    steps = (f"training.max_steps={NUM_UPDATES}", "data.max_length=100")
    once, twice, late = (
        first_updates(prepared, make_config(*steps, *settings))
        for settings in ((), (R_DROP,), (R_DROP, "training.second_pass_from=0.6"))
    )
    assert ids(once[0]) != ids(twice[0])
    for step in range(1, NUM_UPDATES + 1):
        assert ids(late[step - 1]) == ids((once if step <= 12 else twice)[step - 1])
        assert late[step - 1].num_tokens == once[step - 1].num_tokens


def test_an_update_is_the_same_from_wherever_the_run_goes_on(
    prepared: tuple[EncodedCorpus, Tokenizers], make_config: Callable[..., Config]
) -> None:
    changes = ("tokenizer.sampling_until=0.6", R_DROP, "training.second_pass_from=0.3")
    config = make_config(
        f"training.max_steps={NUM_UPDATES}", "data.max_length=100", *SAMPLING, *changes
    )
    whole = first_updates(prepared, config)
    for step in range(1, NUM_UPDATES):
        again = next(iterate_updates(*prepared, config, whole[step - 1].after, step))
        assert ids(again) == ids(whole[step])
        assert again.after == whole[step].after


def segmentations(
    prepared: tuple[EncodedCorpus, Tokenizers], config: Config
) -> list[dict[int, list[int]]]:
    """Returns the source ids of each example in each of three epochs."""
    by_epoch: dict[int, dict[int, list[int]]] = {1: {}, 2: {}, 3: {}}
    config = settle_steps(config, prepared[0].lengths)
    updates = iterate_updates(*prepared, config, START)
    for update in islice(updates, config.training.total_steps):
        rows = [row[row > 0].tolist() for _, batch in update.batches for row in batch.src]
        texts = prepared[1].source.decode([row[:-1] for row in rows])
        by_text = dict(zip(texts, rows, strict=True))
        for example, text in zip(
            update.examples.tolist(), prepared[0].texts(update.examples)[0], strict=True
        ):
            by_epoch[update.after.epoch][example] = by_text[text]
    return list(by_epoch.values())


def test_each_epoch_segments_its_examples_anew(
    prepared: tuple[EncodedCorpus, Tokenizers], make_config: Callable[..., Config]
) -> None:
    config = make_config("training.max_epochs=3", *SAMPLING)
    first, second, third = segmentations(prepared, config)
    assert first.keys() == second.keys() == third.keys()
    differ = [len({tuple(e[i]) for e in (first, second, third)}) for i in first]
    assert sum(number > 1 for number in differ) > 0.8 * len(differ)


def test_another_seed_segments_otherwise(
    prepared: tuple[EncodedCorpus, Tokenizers], make_config: Callable[..., Config]
) -> None:
    config = ("training.max_epochs=3", *SAMPLING)
    one, again, other = (
        segmentations(prepared, make_config(*config, f"seed={seed}"))[0] for seed in (3, 3, 4)
    )
    assert one == again
    assert sum(one[i] != other[i] for i in one) > 0.8 * len(one)


LENGTHS = np.array([40, 30, 20, 10] * 25)  # 2,500 tokens
BY_EPOCHS = ("training.batch_tokens=1000", "data.max_length=60", "training.schedule=cosine")


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ((), 300),
        (("training.max_epochs=1",), 3),
        (("training.max_epochs=20",), 60),
        (("training.max_epochs=20", "training.min_steps=59"), 60),
        (("training.max_epochs=20", "training.min_steps=90"), 90),
        (("training.max_epochs=20", "training.min_steps=900"), 300),
        (("training.max_epochs=1000",), 300),
    ],
)
def test_epochs_end_a_run_between_its_least_and_its_most_updates(
    make_config: Callable[..., Config], settings: tuple[str, ...], steps: int
) -> None:
    config = make_config(*BY_EPOCHS, "training.max_steps=300", "training.warmup_steps=0", *settings)
    training = settle_steps(config, LENGTHS).training
    assert training.total_steps == steps
    assert learning_rate(steps, training, 32) == 0 < learning_rate(steps - 1, training, 32)
    assert training.descent == max(1, steps // 5)


def test_a_share_of_the_updates_is_one_of_those_that_there_will_be(
    make_config: Callable[..., Config],
) -> None:
    late = (R_DROP, "training.second_pass_from=0.5", "training.max_epochs=20")
    config = make_config(*BY_EPOCHS, *late, "training.max_steps=300")
    training = settle_steps(config, LENGTHS).training
    assert [training.at(step).num_passes for step in (1, 30, 31, 60)] == [1, 1, 2, 2]


def test_too_few_epochs_for_the_warm_up_are_said(make_config: Callable[..., Config]) -> None:
    config = make_config(*BY_EPOCHS, "training.max_epochs=2", "training.warmup_steps=7")
    with pytest.raises(
        UserError, match=r"training: max_epochs 2 is too few: there are 6 .* takes 7; lower"
    ):
        settle_steps(config, LENGTHS)


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        (("training.max_epochs=20",), "max_epochs 20"),
        (("training.max_epochs=20", "training.min_steps=90"), "min_steps 90"),
        (("training.max_epochs=20", "training.min_steps=900"), "max_steps 300"),
        ((), "max_steps 300"),
    ],
)
def test_the_setting_that_ends_a_run_is_named(
    make_config: Callable[..., Config], settings: tuple[str, ...], limit: str
) -> None:
    config = make_config(*BY_EPOCHS, "training.max_steps=300", "training.warmup_steps=0", *settings)
    assert settle_steps(config, LENGTHS).training.limit == limit


def test_how_long_a_run_lasts_is_not_known_before_its_data(
    make_config: Callable[..., Config],
) -> None:
    with pytest.raises(ValueError, match="not known"):
        _ = make_config("training.max_epochs=2").training.total_steps
