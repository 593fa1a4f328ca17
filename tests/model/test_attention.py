"""Attention against the article, torch.nn.MultiheadAttention, and its own two ways of computing."""

import math

import pytest
import torch
from torch import Tensor, nn

from transformer.model.attention import Attention, KeysValues, Positions, causal_mask, is_step

B, T, S, D = 3, 5, 7, 16
EXACT = {"rtol": 0.0, "atol": 1e-12}


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def make(**arguments: object) -> Attention:
    torch.manual_seed(1)
    attention = Attention(**{"d_model": D, **arguments}).double()
    for name, parameter in attention.named_parameters():
        if name.startswith("norm"):  # gains that differ, so that leaving them out is seen
            nn.init.uniform_(parameter, 0.5, 1.5)
    return attention


def padding(*lengths: int, width: int = S) -> Tensor:
    """Returns (B, 1, 1, S), True for real tokens."""
    return (torch.arange(width) < torch.tensor(lengths)[:, None])[:, None, None]


def identity_output(attention: Attention) -> None:
    nn.init.eye_(attention.w_o.weight)
    nn.init.zeros_(attention.w_o.bias)


def article(attention: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The article's forward pass: three projections, softmax of scaled scores, weighted sum."""
    q, k, v = attention.w_q(q), attention.w_k(k), attention.w_v(v)
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def test_the_articles_two_examples_run_as_they_stand() -> None:
    from transformer import Attention

    q = k = v = torch.randn(2, 10, 64)
    attention = Attention(d_model=64)
    output = attention(q, k, v)
    assert output.shape == (2, 10, 64)

    q = torch.randn(2, 10, 64)
    k = v = torch.randn(2, 15, 64)
    output = attention(q, k, v)
    assert output.shape == (2, 10, 64)


@pytest.mark.parametrize("num_keys", [10, 15])
def test_with_identity_output_it_gives_the_articles_numbers(num_keys: int) -> None:
    torch.manual_seed(0)
    attention = Attention(d_model=64).double()
    identity_output(attention)
    q = random(2, 10, 64)
    k = v = q if num_keys == 10 else random(2, num_keys, 64, seed=1)
    torch.testing.assert_close(attention(q, k, v), article(attention, q, k, v), **EXACT)


def multihead_twin(attention: Attention) -> nn.MultiheadAttention:
    twin = nn.MultiheadAttention(D, attention.num_heads, batch_first=True).double()
    parts = [attention.w_q, attention.w_k, attention.w_v]
    with torch.no_grad():
        twin.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        twin.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        twin.out_proj.weight.copy_(attention.w_o.weight)
        twin.out_proj.bias.copy_(attention.w_o.bias)
    return twin


@pytest.mark.parametrize("num_heads", [1, 2, 4, 16])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_output_and_gradients_are_those_of_multihead_attention(
    num_heads: int, padded: bool, masked: bool
) -> None:
    attention = make(num_heads=num_heads)
    twin = multihead_twin(attention)
    real = padding(7, 4, 1) if padded else None
    allowed = torch.rand(T, S, generator=torch.Generator().manual_seed(2)) < 0.6
    allowed[:, 0] = True
    mask = None if real is None else real
    if masked:
        mask = allowed if mask is None else mask & allowed

    ours = [random(B, n, D, seed=i).requires_grad_() for i, n in enumerate((T, S, S))]
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    out = attention(*ours, mask)
    expected, expected_weights = twin(
        *theirs,
        key_padding_mask=None if real is None else ~real[:, 0, 0],
        attn_mask=~allowed if masked else None,
        average_attn_weights=False,
    )
    torch.testing.assert_close(out, expected, **EXACT)
    weights = attention.weights(ours[0], attention.keys_values(ours[1], ours[2]), mask)
    torch.testing.assert_close(weights, expected_weights, **EXACT)

    direction = random(B, T, D, seed=9)
    (out * direction).sum().backward()
    (expected * direction).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, **EXACT)
    projections = [attention.w_q, attention.w_k, attention.w_v]
    for parameter, other in (
        (torch.cat([p.weight.grad for p in projections]), twin.in_proj_weight),
        (torch.cat([p.bias.grad for p in projections]), twin.in_proj_bias),
        (attention.w_o.weight.grad, twin.out_proj.weight),
        (attention.w_o.bias.grad, twin.out_proj.bias),
    ):
        torch.testing.assert_close(parameter, other.grad, **EXACT)


def written_out(
    attention: Attention, q: Tensor, seen: KeysValues, mask: Tensor | None, causal: bool
) -> Tensor:
    weights = attention.weights(q, seen, mask, causal)
    heads = [weights[:, h] @ seen.values[:, h] for h in range(attention.num_heads)]
    return attention.w_o(torch.cat(heads, dim=-1))


VARIANTS = [{}, {"rotary": True}, {"qk_norm": True}, {"rotary": True, "qk_norm": True}]
MASKS = {
    "none": None,
    "padding": padding(7, 4, 1),
    "square": causal_mask(T, S),
    "per sentence": torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(3)) < 0.5,
    "per head": torch.rand(B, 4, T, S, generator=torch.Generator().manual_seed(4)) < 0.5,
}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True])
def test_fused_equals_written_out(variant: dict, mask: str, causal: bool) -> None:
    attention = make(num_heads=4, **variant)
    q = random(B, T, D).requires_grad_()
    memory = random(B, S, D, seed=1).requires_grad_()
    results = []
    for compute in (attention.attend, lambda *args: written_out(attention, *args)):
        out = compute(q, attention.keys_values(memory, memory), MASKS[mask], causal)
        gradients = torch.autograd.grad((out * random(B, T, D, seed=2)).sum(), (q, memory))
        results.append((out, *gradients))
    for fused, written in zip(*results, strict=True):
        torch.testing.assert_close(fused, written, **EXACT)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("padded", [False, True])
def test_a_prefix_then_the_rest_equals_all_at_once(variant: dict, padded: bool) -> None:
    attention = make(num_heads=4, **variant)
    x, mask = random(B, S, D), padding(7, 6, 5) if padded else None
    whole = attention(x, x, x, mask, causal=True)
    for cut in range(1, S):
        prefix = attention.keys_values(x[:, :cut], x[:, :cut])
        seen = prefix.append(
            attention.keys_values(x[:, cut:], x[:, cut:], positions=Positions(cut))
        )
        rest = attention.attend(x[:, cut:], seen, mask, causal=True)
        torch.testing.assert_close(rest, whole[:, cut:], **EXACT)
        rest = written_out(attention, x[:, cut:], seen, mask, causal=True)
        torch.testing.assert_close(rest, whole[:, cut:], **EXACT)


def test_a_query_sees_nothing_after_itself_when_causal() -> None:
    attention = make(num_heads=4)
    x = random(B, S, D)
    weights = attention.weights(x, attention.keys_values(x, x), causal=True)
    assert torch.equal(weights.triu(1), torch.zeros_like(weights))
    for t in range(S):
        later = x.clone()
        later[:, t + 1 :] = random(B, S - t - 1, D, seed=t + 10)
        out = attention(later, later, later, causal=True)
        assert torch.equal(out[:, : t + 1], attention(x, x, x, causal=True)[:, : t + 1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rows_sum_to_one_and_masked_columns_are_zero(dtype: torch.dtype) -> None:
    attention = make(num_heads=4).to(dtype)
    mask = padding(7, 4, 1)
    q, memory = random(B, T, D, scale=30).to(dtype), random(B, S, D, seed=1, scale=30).to(dtype)
    weights = attention.weights(q, attention.keys_values(memory, memory), mask)
    rounding = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        weights.sum(-1), torch.ones(B, 4, T, dtype=dtype), rtol=0, atol=rounding
    )
    assert torch.equal(weights.masked_select(~mask), torch.zeros(4 * T * (3 + 6), dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("training", [False, True])
def test_nothing_to_attend_to_gives_zeros_and_finite_gradients(
    dtype: torch.dtype, training: bool
) -> None:
    attention = make(num_heads=4).to(dtype).train(training)
    q = random(B, T, D).to(dtype).requires_grad_()
    memory = random(B, S, D, seed=1).to(dtype).requires_grad_()
    mask = padding(7, 0, 1)
    out = attention(q, memory, memory, mask)
    assert torch.equal(out[1], attention.w_o.bias.expand(T, D))
    assert torch.isfinite(out).all()
    weights = attention.weights(q, attention.keys_values(memory, memory), mask)
    assert torch.equal(weights[1], torch.zeros(4, T, S, dtype=dtype))
    (out.sum() + weights.square().sum()).backward()
    for gradient in (q.grad, memory.grad, *(p.grad for p in attention.parameters())):
        assert torch.isfinite(gradient).all()
    assert torch.equal(memory.grad[1], torch.zeros(S, D, dtype=dtype))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_few_queries_without_gradients_get_the_same(mask: str, causal: bool) -> None:
    """Their products are written out, where others go through PyTorch's fused operator."""
    attention = make(num_heads=4)
    q, memory = random(B, T, D), random(B, S, D, seed=1)
    expected = attention(q, memory, memory, MASKS[mask], causal)
    with torch.no_grad():
        assert is_step(torch.zeros(B, 4, T, 4))
        found = attention(q, memory, memory, MASKS[mask], causal)
        itself = attention(q, q, q, None, causal)
    torch.testing.assert_close(found, expected, **EXACT)
    torch.testing.assert_close(itself, attention(q, q, q, None, causal), **EXACT)


def test_selected_rows_are_those_sentences() -> None:
    attention = make(num_heads=4)
    q, memory = random(B, T, D), random(B, S, D, seed=1)
    rows = torch.tensor([2, 0, 0])
    seen = attention.keys_values(memory, memory).select(rows)
    again = attention.keys_values(memory, memory).at_rest().select(rows)
    assert again.keys.mT.is_contiguous()
    for each in (seen, again):
        torch.testing.assert_close(
            attention.attend(q, each), attention(q, memory[rows], memory[rows]), **EXACT
        )


def test_rotary_attention_does_not_depend_on_where_a_sentence_starts() -> None:
    attention = make(num_heads=4, rotary=True)
    x, before = random(B, S, D), random(B, 50, D, seed=1)
    shifted = attention.keys_values(before, before).append(
        attention.keys_values(x, x, positions=Positions(before.size(1)))
    )
    hidden = (torch.arange(50 + S) >= 50)[None, None, None]
    expected = attention.weights(x, attention.keys_values(x, x))
    torch.testing.assert_close(attention.weights(x, shifted, hidden)[..., 50:], expected, **EXACT)
    torch.testing.assert_close(attention.attend(x, shifted, hidden), attention(x, x, x), **EXACT)


def test_qk_norm_is_the_formula() -> None:
    attention = make(num_heads=4, qk_norm=True)
    q, memory = random(B, T, D), random(B, S, D, seed=1)

    def normalised(x: Tensor, gain: Tensor) -> list[Tensor]:
        heads = x.split(D // 4, dim=-1)
        return [x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain for x in heads]

    queries = normalised(attention.w_q(q), attention.norm_q.weight)
    keys = normalised(attention.w_k(memory), attention.norm_k.weight)
    weights = attention.weights(q, attention.keys_values(memory, memory))
    for h in range(4):
        scores = queries[h] @ keys[h].transpose(-2, -1) / math.sqrt(D // 4)
        torch.testing.assert_close(weights[:, h], scores.softmax(-1), **EXACT)


def test_qk_norm_keeps_scores_within_the_root_of_the_head_width() -> None:
    torch.manual_seed(0)
    plain, normed = (Attention(D, 4, qk_norm=qk_norm).double() for qk_norm in (False, True))
    q, memory = random(B, T, D, scale=1e6), random(B, S, D, seed=1, scale=1e6)

    def spread(attention: Attention) -> float:
        logs = attention.weights(q, attention.keys_values(memory, memory)).log()
        return (logs.amax(-1) - logs.amin(-1)).max().item()

    assert (
        spread(normed) <= 2 * math.sqrt(D // 4) + 1e-9
    )  # |q| |k| / sqrt(Dh) with |q|² = |k|² = Dh
    assert spread(plain) == math.inf


def test_dropout_takes_away_weights_and_scales_up_the_rest() -> None:
    width, share = 64, 0.25
    torch.manual_seed(0)
    attention = Attention(width, dropout=share).double()
    identity_output(attention)
    nn.init.eye_(attention.w_v.weight)
    nn.init.zeros_(attention.w_v.bias)
    q, values = random(1, width, width), torch.eye(width, dtype=torch.float64)[None]
    seen = attention.keys_values(random(1, width, width, seed=1), values)
    weights = attention.weights(q, seen)[:, 0]
    out = attention.attend(q, seen)  # values are unit vectors: what comes out are the weights
    kept = out != 0
    assert abs(kept.double().mean().item() - (1 - share)) < 0.03
    torch.testing.assert_close(out[kept], weights[kept] / (1 - share), **EXACT)
    torch.testing.assert_close(attention.eval().attend(q, seen), weights, **EXACT)


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="16 does not divide by num_heads 5"):
        Attention(16, 5)


def test_gradients_in_bfloat16_are_those_of_float32_within_its_precision() -> None:
    torch.manual_seed(0)
    attention = Attention(32, 4, dropout=0.0)
    x = torch.randn(3, 7, 32)
    found = []
    for narrow in (False, True):
        attention.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
            y = attention(x, x, x, causal=True)
        assert y.dtype == (torch.bfloat16 if narrow else torch.float32)
        y.float().square().sum().backward()
        matrices = (p for p in attention.parameters() if p.dim() == 2)
        found.append([p.grad / p.grad.norm() for p in matrices])
    for narrow_grad, grad in zip(*reversed(found), strict=True):
        assert (narrow_grad - grad).norm() < 0.02
