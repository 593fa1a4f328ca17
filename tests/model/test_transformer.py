"""The whole model: the laws of masks, its twin in torch, and its sizes."""

import math

import pytest
import torch
from losses import model_loss
from pydantic import ValidationError
from small_model import VARIANTS, V, make, small, tokens
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.ids import PAD
from transformer.model.attention import Attention
from transformer.model.transformer import Transformer

EXACT = {"rtol": 0.0, "atol": 1e-12}


def padded(ids: Tensor, *lengths: int) -> Tensor:
    return ids.masked_fill(torch.arange(ids.size(1)) >= torch.tensor(lengths)[:, None], PAD)


def widened(ids: Tensor, width: int) -> Tensor:
    return nn.functional.pad(ids, (0, width - ids.size(1)), value=PAD)


def embedded(model: Transformer, side: str) -> list[Tensor]:
    """Returns a list that the next passes fill with a side's embeddings and their gradients."""
    seen: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: tuple, output: Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    getattr(model, f"{side}_embedding").tokens.register_forward_hook(keep)
    return seen


# The laws of masks


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_no_logit_depends_on_later_target_tokens(variant: dict) -> None:
    model = make(**variant)
    src, tgt = tokens(2, 6), tokens(2, 8, seed=1)
    for t in range(8):
        inputs = embedded(model, "tgt")
        model(src, tgt)[:, t].sum().backward()
        gradient = inputs[0].grad
        assert torch.equal(gradient[:, t + 1 :], torch.zeros_like(gradient[:, t + 1 :]))
        assert (gradient[:, : t + 1] != 0).any(-1).all()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@torch.no_grad()
def test_changing_a_target_token_leaves_the_logits_before_it_exactly_equal(variant: dict) -> None:
    model = make(**variant)
    src, tgt = tokens(2, 6), tokens(2, 8, seed=1)
    before = model(src, tgt)
    for t in range(8):
        changed = tgt.clone()
        changed[:, t] = (changed[:, t] - 3) % (V - 4) + 4
        after = model(src, changed)
        assert torch.equal(after[:, :t], before[:, :t])
        assert (after[:, t] != before[:, t]).all()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_no_logit_depends_on_source_padding(variant: dict) -> None:
    model = make(**variant)
    src = padded(tokens(3, 9), 9, 5, 1)
    inputs = embedded(model, "src")
    (model(src, tokens(3, 7, seed=1)) ** 2).sum().backward()
    gradient = inputs[0].grad
    assert torch.equal(gradient[src == PAD], torch.zeros_like(gradient[src == PAD]))
    assert (gradient[src != PAD] != 0).any(-1).all()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@torch.no_grad()
def test_padding_changes_nothing(variant: dict) -> None:
    model = make(**variant)
    src, tgt = tokens(2, 12), tokens(2, 10, seed=1)
    alone = model(src, tgt)
    for width in (20, 200):
        wide = model(widened(src, width), widened(tgt, width))
        torch.testing.assert_close(wide[:, :10], alone, **EXACT)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@torch.no_grad()
def test_neighbours_in_the_batch_change_nothing(variant: dict) -> None:
    model = make(**variant)
    src, tgt = padded(tokens(3, 12), 12, 4, 7), tokens(3, 10, seed=1)
    together = model(src, tgt)
    for row, length in enumerate((12, 4, 7)):
        alone = model(src[row : row + 1, :length], tgt[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, **EXACT)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_source_of_only_padding_gives_finite_outputs_and_gradients(
    variant: dict, dtype: torch.dtype
) -> None:
    model = make(**variant, dropout=0.1, attention_dropout=0.1).to(dtype)
    src, tgt = padded(tokens(3, 9), 9, 0, 5), tokens(3, 7, seed=1)
    logits = model(src, tgt)
    assert torch.isfinite(logits).all()
    model_loss(model, src, tgt, tokens(3, 7, seed=2)).backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_half_precision_with_padding_is_finite_and_says_the_same(
    variant: dict, dtype: torch.dtype
) -> None:
    model = make(**variant)
    src, tgt = tokens(8, 12), tokens(8, 10, seed=1)
    logits = model(src, tgt)
    best = logits.topk(2, dim=-1)
    ahead = (best.values[..., 0] - best.values[..., 1]) / logits.std()
    clear = ahead > 0.1  # rounding may decide ties
    assert clear.double().mean() > 0.7
    wide = model.to(dtype)(widened(src, 200), widened(tgt, 200))
    assert torch.isfinite(wide).all()
    assert torch.equal(wide[:, :10].argmax(-1)[clear], best.indices[..., 0][clear])


# The twin in torch


def copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    parts = [ours.w_q, ours.w_k, ours.w_v]
    theirs.in_proj_weight.data = torch.cat([part.weight for part in parts]).detach().clone()
    theirs.in_proj_bias.data = torch.cat([part.bias for part in parts]).detach().clone()
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())


def torch_twin(model: Transformer) -> nn.Transformer:
    """Returns `torch.nn.Transformer` with the weights of our encoder and decoder."""
    config = model.config
    layer = {"norm_first": config.norm_first, "activation": config.activation, "batch_first": True}
    sizes = (config.d_model, config.num_heads, config.d_ff, 0.0)
    encoder_norm, decoder_norm = (
        nn.LayerNorm(config.d_model) if config.norm_first else None for _ in range(2)
    )
    twin = nn.Transformer(
        config.d_model,
        config.num_heads,
        custom_encoder=nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*sizes, **layer),
            config.num_encoder_layers,
            encoder_norm,
            enable_nested_tensor=False,
        ),
        custom_decoder=nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*sizes, **layer), config.num_decoder_layers, decoder_norm
        ),
        batch_first=True,
    ).double()
    for stack, other in ((model.encoder, twin.encoder), (model.decoder, twin.decoder)):
        for ours, theirs in zip(stack.layers, other.layers, strict=True):
            residuals = [ours.self_attention_residual, ours.feed_forward_residual]
            copy_attention(ours.self_attention, theirs.self_attn)
            if stack is model.decoder:
                copy_attention(ours.cross_attention, theirs.multihead_attn)
                residuals.insert(1, ours.cross_attention_residual)
            theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
            theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
            for i, residual in enumerate(residuals, start=1):
                getattr(theirs, f"norm{i}").load_state_dict(residual.norm.state_dict())
        if other.norm is not None:
            other.norm.load_state_dict(stack.norm.state_dict())
    return twin


def paper_embedding(weight: Tensor, ids: Tensor) -> Tensor:
    width = weight.size(1)
    table = torch.empty(ids.size(1), width, dtype=torch.float64)
    for position in range(ids.size(1)):
        for i in range(width // 2):
            angle = position / 10000 ** (2 * i / width)
            table[position, i], table[position, width // 2 + i] = math.sin(angle), math.cos(angle)
    return weight[ids] * math.sqrt(width) + table


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_logits_and_gradients_are_those_of_torchs_transformer(
    norm_first: bool, activation: str
) -> None:
    depths = {"num_encoder_layers": 3, "num_decoder_layers": 2}
    model = make(norm_first=norm_first, activation=activation, **depths)
    twin = torch_twin(model)
    src, tgt = padded(tokens(3, 9), 9, 5, 1), padded(tokens(3, 7, seed=1), 7, 3, 6)
    logits = model(src, tgt)
    table = model.tgt_embedding.tokens.weight.detach().clone().requires_grad_()
    hidden = twin(
        paper_embedding(table, src),
        paper_embedding(table, tgt),
        tgt_mask=torch.ones(7, 7, dtype=torch.bool).triu(1),
        src_key_padding_mask=src == PAD,
        memory_key_padding_mask=src == PAD,
    )
    expected = hidden @ table.T
    torch.testing.assert_close(logits, expected, **EXACT)

    labels = padded(tokens(3, 7, seed=2), 7, 3, 6)
    model_loss(model, src, tgt, labels, 0.1).backward()
    nn.functional.cross_entropy(
        expected.flatten(0, 1),
        labels.flatten(),
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=0.1,
    ).backward()
    torch.testing.assert_close(model.tgt_embedding.tokens.weight.grad, table.grad, **EXACT)
    for stack, other in ((model.encoder, twin.encoder), (model.decoder, twin.decoder)):
        for ours, theirs in zip(stack.layers, other.layers, strict=True):
            pairs: list[tuple[Tensor, Tensor]] = [
                (ours.feed_forward.w_1.weight, theirs.linear1.weight),
                (ours.feed_forward.w_2.bias, theirs.linear2.bias),
                (ours.self_attention_residual.norm.weight, theirs.norm1.weight),
                (ours.self_attention.w_o.weight, theirs.self_attn.out_proj.weight),
            ]
            for mine, their in pairs:
                torch.testing.assert_close(mine.grad, their.grad, **EXACT)
            attention = ours.self_attention
            parts = [attention.w_q, attention.w_k, attention.w_v]
            torch.testing.assert_close(
                torch.cat([part.weight.grad for part in parts]),
                theirs.self_attn.in_proj_weight.grad,
                **EXACT,
            )


# Sizes and ties


def formula(config: ModelConfig, src_vocab: int, tgt_vocab: int) -> int:
    """Counts weights as the paper's section 3 lists the parts, with biases in all projections."""
    d, ff = config.d_model, config.d_ff
    attention, norm = 4 * (d * d + d), 2 * d if config.norm == "layer" else d
    if config.qk_norm:
        attention += 2 * (d // config.num_heads)
    feed_forward = (d * ff + ff) + (ff * d + d)
    if config.activation == "swiglu":
        feed_forward += d * ff + ff
    encoder = config.num_encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = config.num_decoder_layers * (2 * attention + feed_forward + 3 * norm)
    matrices = {
        "all": tgt_vocab,
        "decoder": src_vocab + tgt_vocab,
        "none": src_vocab + 2 * tgt_vocab,
    }[config.tie_embeddings]
    positions = 2 * config.max_positions if config.positions == "learned" else 0
    last_norms = 2 * norm if config.norm_first else 0
    return encoder + decoder + (matrices + positions) * d + last_norms


@pytest.mark.parametrize(
    "variant",
    [
        *VARIANTS,
        {"num_encoder_layers": 5, "num_decoder_layers": 1},
        {"num_encoder_layers": 1, "num_decoder_layers": 4, "tie_embeddings": "none"},
        {"tie_embeddings": "decoder"},
    ],
    ids=str,
)
def test_number_of_weights_is_the_formulas(variant: dict) -> None:
    config = small(**variant)
    src_vocab = 20 if config.tie_embeddings == "all" else 33
    model = Transformer(config, src_vocab, 20)
    assert model.num_parameters == formula(config, src_vocab, 20)


def test_the_papers_base_model_has_its_65_million_weights() -> None:
    with torch.device("meta"):
        base = Transformer(ModelConfig(norm_first=False), 37_000, 37_000)
        big = Transformer(
            ModelConfig(norm_first=False, d_model=1024, num_heads=16, d_ff=4096), 37_000, 37_000
        )
    assert base.num_parameters == formula(base.config, 37_000, 37_000)
    assert base.num_parameters == pytest.approx(65e6, rel=0.04)  # table 3
    assert big.num_parameters == pytest.approx(213e6, rel=0.03)


@torch.no_grad()
def test_dropout_falls_on_the_sum_of_embedding_and_position() -> None:
    """Section 5.4 of the paper."""
    for side in ("src_embedding", "tgt_embedding"):
        embedding = getattr(make(dropout=0.25), side)
        ids = tokens(20, 30)
        whole, dropped = embedding.eval()(ids), embedding.train()(ids)
        kept = dropped != 0
        torch.testing.assert_close(dropped[kept], whole[kept] / 0.75, rtol=1e-4, atol=0.0)
        share = 1 - kept.double().mean().item()
        assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / kept.numel())


@pytest.mark.parametrize(("tie", "num_matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_three_uses_of_embeddings_are_one_two_or_three_matrices(
    tie: str, num_matrices: int
) -> None:
    model = make(tie_embeddings=tie)
    used = [model.src_embedding.tokens, model.tgt_embedding.tokens, model.output]
    assert len({module.weight.data_ptr() for module in used}) == num_matrices
    shared = used[1].weight.data_ptr() == used[2].weight.data_ptr()
    assert shared == (tie != "none")
    model.double().load_state_dict(make(seed=1, tie_embeddings=tie).state_dict())
    assert len({module.weight.data_ptr() for module in used}) == num_matrices


def test_one_matrix_for_two_vocabularies_is_refused() -> None:
    with pytest.raises(ValueError, match="20 and 21 cannot share"):
        Transformer(small(tie_embeddings="all"), 20, 21)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"d_model": 29, "num_heads": 1}, "29 must be even"),
        ({"d_model": 30, "num_heads": 4}, "30 does not divide by num_heads 4"),
        ({"d_model": 12, "num_heads": 4, "positions": "rotary"}, "3, must be even to rotate"),
    ],
)
def test_widths_that_cannot_be_split_are_refused(settings: dict, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ModelConfig(**settings)


def test_an_odd_width_is_fine_without_sinusoids() -> None:
    model = Transformer(small(d_model=29, num_heads=1, positions="learned"), V, V)
    assert torch.isfinite(model(tokens(2, 5), tokens(2, 4))).all()
