"""Packing: real tokens only, and nothing lost on the way there and back."""

import numpy as np
import pytest
import torch
from torch import Tensor

from transformer.config import ModelConfig
from transformer.data.batching import collate
from transformer.ids import PAD
from transformer.model.attention import Attention
from transformer.model.packing import Packing
from transformer.model.transformer import Transformer
from transformer.training.loss import batch_loss

EXACT = {"rtol": 0, "atol": 1e-12}
LENGTHS = [[3, 1, 2], [4, 4], [0, 2], [0]]


def packing_of(lengths: list[int]) -> Packing:
    width = max(1, *lengths) if len(lengths) > 1 else 2
    return Packing.of(torch.arange(width) < torch.tensor(lengths)[:, None])


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_pack_keeps_the_real_tokens_in_order(lengths: list[int]) -> None:
    packing = packing_of(lengths)
    x = torch.randn(*packing.mask.shape, 5)
    expected = [x[b, t] for b, length in enumerate(lengths) for t in range(length)]
    assert packing.pack(x).tolist() == [token.tolist() for token in expected]
    assert packing.num_tokens == sum(lengths)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_pad_puts_them_back_and_zeros_elsewhere(lengths: list[int]) -> None:
    packing = packing_of(lengths)
    x = torch.randn(*packing.mask.shape, 2, 3)
    there_and_back = packing.pad(packing.pack(x))
    assert torch.equal(there_and_back, x * packing.mask[:, :, None, None])


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_gradients_are_those_of_finite_differences(lengths: list[int]) -> None:
    packing = packing_of(lengths)
    whole = torch.randn(*packing.mask.shape, 3, dtype=torch.float64, requires_grad=True)
    packed = torch.randn(packing.num_tokens, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(packing.pack, whole)
    assert torch.autograd.gradcheck(packing.pad, packed)


@pytest.mark.parametrize("options", [{}, {"rotary": True, "qk_norm": True}], ids=str)
def test_packed_attention_is_attention(options: dict) -> None:
    torch.manual_seed(0)
    attention = Attention(16, 4, **options).double()
    src, tgt = packing_of([5, 2, 3]), packing_of([1, 4, 2])
    memory = torch.randn(*src.mask.shape, 16, dtype=torch.float64)
    x = torch.randn(*tgt.mask.shape, 16, dtype=torch.float64)
    expected = attention(x, memory, memory, src.attention_mask)
    packed = src.pack(memory)
    seen = attention.keys_values(packed, packed, packing=src)
    found = attention.attend(tgt.pack(x), seen, src.attention_mask, packing=tgt)
    torch.testing.assert_close(found, tgt.pack(expected), **EXACT)


def ids(lengths: list[int], width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(4, 20, (len(lengths), width), generator=generator)
    return drawn.masked_fill(torch.arange(width) >= torch.tensor(lengths)[:, None], PAD)


def test_hidden_is_what_the_logits_of_the_real_tokens_are_made_of() -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(d_model=16, num_heads=2, d_ff=32), 20, 20).double().eval()
    src, tgt = ids([5, 9, 2], 9, 0), ids([7, 1, 4], 7, 1)
    logits = model.hidden(src, tgt) @ model.output.weight.T
    torch.testing.assert_close(logits, model(src, tgt)[tgt != PAD], **EXACT)


def test_dropout_does_not_depend_on_padding() -> None:
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, num_heads=2, d_ff=32, dropout=0.3, activation_dropout=0.3)
    model = Transformer(config, 20, 20).double()
    found = []
    for width in (9, 30):
        torch.manual_seed(1)
        found.append(model.hidden(ids([5, 9, 2], 9, 0), ids([7, 1, 4], 9, 1)))
        torch.manual_seed(1)
        src, tgt = (
            torch.nn.functional.pad(ids(*x), (0, width - 9), value=PAD)
            for x in (([5, 9, 2], 9, 0), ([7, 1, 4], 9, 1))
        )
        found.append(model.hidden(src, tgt))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], **EXACT)


@pytest.mark.parametrize("multiple", [2, 8, 64])
def test_padding_that_stays_for_a_round_number_changes_neither_loss_nor_gradient(
    multiple: int,
) -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(d_model=16, num_heads=2, d_ff=32, dropout=0.0), 20, 20).double()
    pairs = [(4, 7), (9, 3), (5, 5), (1, 2)]
    sides = zip(*pairs, strict=True)
    src, tgt = ([np.arange(4, 4 + n) for n in lengths] for lengths in sides)
    batch = collate(src, tgt)
    rounded = batch.rounded(multiple)
    for packing in (rounded.src_packing, rounded.tgt_packing):
        size = packing.places.numel()
        assert size % multiple == 0 or size == packing.mask.numel()
    assert rounded.num_tokens == batch.num_tokens == sum(n for _, n in pairs)
    found = []
    for b in (batch, rounded, rounded.rounded(1)):
        model.zero_grad()
        loss = batch_loss(model, b, 0.1)
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters())])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], **EXACT)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_a_batch_without_enough_padding_keeps_all_it_has(lengths: list[int]) -> None:
    packing = packing_of(lengths).rounded(64)
    x = torch.randn(*packing.mask.shape, 5)
    num_rows = 0 if sum(lengths) == 0 else packing.mask.numel()
    assert packing.pack(x).shape == (num_rows, 5)
    assert packing.real(packing.pack(x)).tolist() == x[packing.mask].tolist()
    assert torch.equal(packing.pad(packing.pack(x)), x * packing.mask[:, :, None])
