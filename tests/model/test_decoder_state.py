"""Decoding state is a value: tokens given at once, one by one or in chunks say the same."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_model import V, tokens
from torch import Tensor

from transformer.config import ModelConfig
from transformer.ids import PAD
from transformer.model.transformer import DecoderState, Transformer

EXACT = {"rtol": 0.0, "atol": 1e-12}
POSITIONS = ["sinusoidal", "learned", "rotary"]
CHANGES = [
    {},
    {"norm_first": False},
    {"qk_norm": True},
    {"norm": "rms", "activation": "swiglu"},
    {"norm_first": False, "qk_norm": True, "norm": "rms", "activation": "swiglu"},
]
VARIANTS = [
    {"positions": positions, **change}
    for positions, change in itertools.product(POSITIONS, CHANGES)
]


def make(**changes: object) -> Transformer:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 4, "d_ff": 32, "max_positions": 10}
    config = ModelConfig(**{**sizes, "num_encoder_layers": 1, "num_decoder_layers": 2, **changes})
    return Transformer(config, V, V).double().eval()


def sources() -> Tensor:
    return tokens(3, 9).masked_fill(torch.arange(9) >= torch.tensor([9, 4, 6])[:, None], PAD)


def in_chunks(model: Transformer, src: Tensor, tgt: Tensor, lengths: list[int]) -> Tensor:
    state, logits = model.start(src), []
    for chunk in tgt.split(lengths, dim=1):
        assert state.length == sum(piece.size(1) for piece in logits)
        out, state = model.decode(chunk, state)
        logits.append(out)
    return torch.cat(logits, dim=1)


def contents(state: DecoderState) -> list[Tensor]:
    """Returns copies of all tensors that a state holds."""
    pairs = [*state.memory, *state.prefix]
    return [x.clone() for pair in pairs for x in (pair.keys, pair.values)] + [
        state.memory_mask.clone()
    ]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@torch.no_grad()
def test_token_by_token_equals_the_whole(variant: dict) -> None:
    model, src, tgt = make(**variant), sources(), tokens(3, 12, seed=1)
    torch.testing.assert_close(in_chunks(model, src, tgt, [1] * 12), model(src, tgt), **EXACT)


@pytest.mark.parametrize("positions", POSITIONS)
@settings(max_examples=15, deadline=None)
@given(cuts=st.sets(st.integers(1, 11), max_size=11))
@torch.no_grad()
def test_chunks_of_any_size_equal_the_whole(positions: str, cuts: set[int]) -> None:
    model, src, tgt = make(positions=positions), sources(), tokens(3, 12, seed=1)
    ends = [0, *sorted(cuts), 12]
    lengths = [end - start for start, end in itertools.pairwise(ends)]
    torch.testing.assert_close(in_chunks(model, src, tgt, lengths), model(src, tgt), **EXACT)


@pytest.mark.parametrize("positions", POSITIONS)
def test_gradients_through_chunks_equal_those_of_the_whole(positions: str) -> None:
    model, src, tgt = make(positions=positions), sources(), tokens(3, 12, seed=1)
    gradients = []
    for lengths in ([12], [5, 1, 6]):
        loss = in_chunks(model, src, tgt, lengths).log_softmax(-1)[..., 7].sum()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    for whole, chunked in zip(*gradients, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("rows", [[2, 0, 0, 1, 2], [1], [2, 1, 0], [0, 0, 0]], ids=str)
@pytest.mark.parametrize("num_seen", [0, 3])
@torch.no_grad()
def test_selected_rows_go_on_as_those_sentences_alone(
    positions: str, rows: list[int], num_seen: int
) -> None:
    model, src, seen = make(positions=positions), sources(), tokens(3, 3, seed=1)[:, :num_seen]
    state = model.start(src)
    if num_seen:
        _, state = model.decode(seen, state)
    following = tokens(len(rows), 5, seed=2)
    logits, after = model.decode(following, state.select(torch.tensor(rows)))
    assert after.length == num_seen + 5
    for i, row in enumerate(rows):
        target = torch.cat((seen[row], following[i]))[None]
        alone = model(src[row : row + 1], target)[:, num_seen:]
        torch.testing.assert_close(logits[i : i + 1], alone, **EXACT)


@pytest.mark.parametrize("variant", [*VARIANTS[::5], {"positions": "rotary", "qk_norm": True}])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
@torch.no_grad()
def test_hypotheses_that_come_go_and_repeat_go_on_as_they_would_alone(
    variant: dict, data: st.DataObject
) -> None:
    """Any rows are selected, then chunks of any size read; some states twice, as a tree."""
    model, src = make(**variant), sources()
    states = [(model.start(src), [(i, src[:0, 0]) for i in range(3)])]
    for step in range(4):
        state, past = data.draw(st.sampled_from(states))
        chosen = data.draw(st.lists(st.integers(0, len(past) - 1), min_size=1, max_size=7))
        if data.draw(st.booleans()):  # as search does: as many of each sentence
            chosen = [i for i in sorted(set(chosen)) for _ in range(3)]
        following = tokens(len(chosen), data.draw(st.integers(1, 3)), seed=step)
        logits, after = model.decode(following, state.select(torch.tensor(chosen)))
        longer = []
        for row, i in enumerate(chosen):
            sentence, seen = past[i]
            longer.append((sentence, torch.cat((seen, following[row]))))
            alone = model(src[sentence][None], longer[-1][1][None])[:, len(seen) :]
            torch.testing.assert_close(logits[row : row + 1], alone, **EXACT)
        states.append((after, longer))


@torch.no_grad()
def test_what_belongs_to_a_sentence_is_there_once() -> None:
    """Not once for each of its hypotheses."""
    model, src = make(), sources()
    _, state = model.decode(tokens(3, 2), model.start(src))
    state = state.select(torch.arange(3).repeat_interleave(4))
    for step in range(3):
        _, state = model.decode(tokens(12, 1, seed=step), state)
        state = state.select(torch.tensor([1, 1, 0, 2, 4, 7, 5, 6, 11, 10, 9, 8]))
    for keys_values in state.memory:
        assert keys_values.keys.shape == (3, 4, 9, 4)
    for keys_values in state.prefix:
        assert keys_values.keys.shape == (3, 4, 2 + 3 * 4, 4)
    assert state.select(torch.tensor([4, 5, 6, 7])).memory[0].keys.shape[0] == 1


@torch.no_grad()
def test_a_state_is_never_changed() -> None:
    model, src, tgt = make(), sources(), tokens(3, 12, seed=1)
    _, state = model.decode(tgt[:, :4], model.start(src))
    before = contents(state)
    first, _ = model.decode(tgt[:, 4:7], state)
    model.decode(tgt[:, 9:], state)  # another continuation of the same state
    state.select(torch.tensor([1, 1]))
    again, _ = model.decode(tgt[:, 4:7], state)
    assert torch.equal(first, again)
    assert all(torch.equal(x, y) for x, y in zip(before, contents(state), strict=True))
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.prefix = []  # type: ignore[misc]


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_lines_far_longer_than_any_table_are_decoded(positions: str) -> None:
    model = make(positions=positions, max_positions=10)
    src, tgt = tokens(1, 500), tokens(1, 600, seed=1)
    logits = model(src, tgt)
    assert torch.isfinite(logits).all()
    _, state = model.decode(tgt[:, :-1], model.start(src))
    last, _ = model.decode(tgt[:, -1:], state)
    torch.testing.assert_close(last, logits[:, -1:], **EXACT)
