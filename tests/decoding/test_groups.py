"""Groups of a beam against the algorithm written out, and what they are for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from transformer.decoding.beams import Hypothesis
from transformer.decoding.options import SearchOptions
from transformer.decoding.search import beam_search
from transformer.ids import BOS, EOS, PAD, UNK
from transformer.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = tuple[int, ...]
SOURCES = [[4, 5, 4, EOS], [5, EOS], [4, 4, UNK, 5, 5, EOS]]
MOST = 5


def batch(sources: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, sources))
    return torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in sources])


class Asks:
    """Log-probabilities of the next token from whole forward passes, each prefix asked for once."""

    def __init__(self, model: Transformer, source: Sequence[int]) -> None:
        self.model, self.source = model, source
        self.known: dict[Ids, list[float]] = {}

    @torch.no_grad()
    def about(self, prefixes: Sequence[Ids]) -> None:
        """Asks about prefixes of one length."""
        new = sorted(set(prefixes) - set(self.known))
        if new:
            logits = self.model(batch([self.source] * len(new)), batch([[BOS, *x] for x in new]))
            logs = logits[:, -1].log_softmax(-1).tolist()
            self.known.update(zip(new, logs, strict=True))


def textbook_groups(asks: Asks, options: SearchOptions) -> list[tuple[float, Ids]]:
    """Diverse beam search of one sentence (Vijayakumar et al. 2018, algorithm 1, Hamming distance)
    in plain loops, each group a beam search as ours: its best candidates that end are finished, its
    best others go on, and it finishes no more once it has as many as places. All stop together.
    """
    size = options.beam_size // options.beam_groups
    live: list[list[tuple[float, Ids]]] = [[(0.0, ())] for _ in range(options.beam_groups)]
    finished: list[dict[Ids, float]] = [{} for _ in live]
    for length in range(MOST + 1):
        asks.about([ids for group in live for _, ids in group])
        said: list[int] = []
        for g, group in enumerate(live):
            candidates = []
            for total, ids in group:
                for token, log_prob in enumerate(asks.known[ids]):
                    if token == EOS if length == MOST else token not in (PAD, BOS):
                        step = total + log_prob
                        lost = options.diversity * said.count(token)
                        candidates.append((step - lost, step, (*ids, token)))
            candidates.sort(key=lambda x: -x[0])
            if len(finished[g]) < size:
                ended = [x for x in candidates[:size] if x[2][-1] == EOS]
                finished[g].update({ids: total / len(ids) for _, total, ids in ended})
            live[g] = [(x[1], x[2]) for x in candidates if x[2][-1] != EOS][:size]
            said += [ids[-1] for _, ids in live[g]]
        if all(len(each) >= size for each in finished):
            break
    distinct = {ids: score for each in finished for ids, score in each.items()}
    return sorted(((score, ids) for ids, score in distinct.items()), reverse=True)


@pytest.mark.parametrize(("size", "num_groups"), [(1, 3), (2, 2), (3, 2)])
def test_groups_find_what_the_textbook_finds(make_model: Make, size: int, num_groups: int) -> None:
    total = size * num_groups
    plain = SearchOptions(total, total, max_length=MOST, max_length_ratio=0.0)
    for seed in range(3):
        model = make_model(seed, vocab_size=9)
        asked = [Asks(model, source) for source in SOURCES]
        for diversity in (0.0, 1.0, 5.0):
            options = replace(plain, beam_groups=num_groups, diversity=diversity)
            found = beam_search([model], batch(SOURCES), options)
            for asks, hypotheses in zip(asked, found, strict=True):
                expected = textbook_groups(asks, options)[:total]
                for more in textbook_groups(asks, replace(options, beam_groups=1)):
                    if len(expected) < total and more not in expected:
                        expected.append(more)
                expected.sort(reverse=True)
                assert [tuple(h.ids) for h in hypotheses] == [ids for _, ids in expected]
                scores = [score for score, _ in expected]
                assert [h.score for h in hypotheses] == pytest.approx(scores, abs=1e-10)


def test_as_many_come_as_were_asked_for_though_groups_find_the_same(make_model: Make) -> None:
    model = make_model(2, vocab_size=20)
    options = SearchOptions(4, 4, max_length=MOST, max_length_ratio=0.0, beam_groups=4)
    found = beam_search([model], batch(SOURCES), replace(options, diversity=0.0))
    for hypotheses in found:
        assert len({tuple(h.ids) for h in hypotheses}) == 4
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)


def test_the_first_group_finds_what_a_beam_of_its_size_finds(make_model: Make) -> None:
    """Nothing was said before it, so it is a search of its own."""
    model = make_model(2, vocab_size=20)
    small = SearchOptions(2, 2, max_length=MOST, max_length_ratio=0.0)
    alone = beam_search([model], batch(SOURCES), small)
    options = replace(small, beam_size=6, n_best=6, beam_groups=3, diversity=2.0)
    for own, every in zip(alone, beam_search([model], batch(SOURCES), options), strict=True):
        assert {tuple(h.ids) for h in own} <= {tuple(h.ids) for h in every}


def test_diversity_makes_translations_differ_more(make_model: Make) -> None:
    model = make_model(2, vocab_size=20)
    sources = [[(7 * i + j * j) % 16 + 4 for j in range(i % 7 + 1)] + [EOS] for i in range(9)]

    def first_words(found: Sequence[Sequence[Hypothesis]]) -> float:
        return sum(len({h.ids[0] for h in hypotheses}) for hypotheses in found) / len(found)

    plain = SearchOptions(4, 4, max_length=6)
    diverse = replace(plain, beam_groups=4, diversity=5.0)
    more = first_words(beam_search([model], batch(sources), diverse))
    assert more > first_words(beam_search([model], batch(sources), plain)) + 1
