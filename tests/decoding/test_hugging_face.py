"""Against an independent implementation: the same weights in Hugging Face's MarianMTModel say the
same with the same scores, and look at the same places.

Marian's model has the norm last, sinusoids in halves, and all embeddings tied. Its search divides
by the length with the end counted, as ours does, and with `early_stopping=True` it stops when as
many hypotheses are finished as the beam has places. A hypothesis that comes to its limit is given
there without an end, so those are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from transformer.config import ModelConfig
from transformer.decoding.options import SearchOptions
from transformer.decoding.search import beam_search
from transformer.ids import BOS, EOS, PAD
from transformer.model.attention_maps import attention_maps
from transformer.model.transformer import Transformer

pytestmark = pytest.mark.slow  # loading the library alone takes seconds

V, LEAST, MOST = 24, 4, 16
SOURCES = [[9, 5, 17, EOS], [7, EOS], [8, 13, 6, 5, 4, 23, EOS], [20, 20, EOS], [11, 4, 19, 6, EOS]]
SRC = torch.tensor([[*ids, *[PAD] * (7 - len(ids))] for ids in SOURCES])
NAMES = {
    "self_attention.w_q": "self_attn.q_proj",
    "self_attention.w_k": "self_attn.k_proj",
    "self_attention.w_v": "self_attn.v_proj",
    "self_attention.w_o": "self_attn.out_proj",
    "self_attention_residual.norm": "self_attn_layer_norm",
    "cross_attention.w_q": "encoder_attn.q_proj",
    "cross_attention.w_k": "encoder_attn.k_proj",
    "cross_attention.w_v": "encoder_attn.v_proj",
    "cross_attention.w_o": "encoder_attn.out_proj",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
    "feed_forward.w_1": "fc1",
    "feed_forward.w_2": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}


def make_model(seed: int, activation: str = "relu") -> Transformer:
    """A small model that prefers some words clearly, and ends most of what it says."""
    torch.manual_seed(seed)
    config = ModelConfig(
        d_model=16,
        num_heads=2,
        d_ff=32,
        num_encoder_layers=2,
        num_decoder_layers=3,
        norm_first=False,
        activation=activation,  # type: ignore[arg-type]
    )
    model = Transformer(config, V, V).double().eval()
    for weights in model.parameters():
        weights.data.mul_(2)
    last = model.decoder.layers[-1].feed_forward_residual.norm
    end = model.output.weight.data[EOS]
    last.bias.data += 3 * end / end.norm() ** 2  # type: ignore[union-attr, operator]
    return model


def marian_weights(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights by the names that Marian's model has for them."""
    for stack in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(model, stack).layers):
            for name, weight in layer.named_parameters():
                ours, _, kind = name.rpartition(".")
                yield f"model.{stack}.layers.{i}.{NAMES[ours]}.{kind}", weight.detach()
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        yield f"{name}.weight", model.tgt_embedding.tokens.weight.detach()
    yield "lm_head.weight", model.output.weight.detach()


def to_marian(model: Transformer):  # type: ignore[no-untyped-def]
    from transformers import MarianConfig, MarianMTModel

    config = model.config
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=V,
            d_model=config.d_model,
            encoder_layers=config.num_encoder_layers,
            decoder_layers=config.num_decoder_layers,
            encoder_attention_heads=config.num_heads,
            decoder_attention_heads=config.num_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            activation_function=config.activation,
            scale_embedding=True,
            max_position_embeddings=64,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            forced_eos_token_id=None,
            decoder_start_token_id=BOS,
            attn_implementation="eager",
        )
    ).double()
    weights = dict(marian_weights(model))
    kept = {k: x for k, x in theirs.state_dict().items() if k not in weights}
    assert all("embed_positions" in name or name == "final_logits_bias" for name in kept), kept
    theirs.load_state_dict(weights | kept)
    return theirs.eval()


def generate(theirs, beam_size: int, length_penalty: float):  # type: ignore[no-untyped-def]
    """Searches with their program: ids (B * K, T), and scores if there is a beam."""
    settings = {} if beam_size == 1 else {"early_stopping": True, "length_penalty": length_penalty}
    found = theirs.generate(
        input_ids=SRC,
        attention_mask=(SRC != PAD).long(),
        num_beams=beam_size,
        num_return_sequences=beam_size,
        min_new_tokens=LEAST,
        max_new_tokens=MOST + 1,
        suppress_tokens=[PAD, BOS],
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    scores = None if beam_size == 1 else found.sequences_scores.tolist()
    return found.sequences[:, 1:].tolist(), scores


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_logits_and_attention_are_theirs(activation: str) -> None:
    model = make_model(1, activation)
    tgt = torch.tensor([[BOS, 5, 9, 11]] * len(SRC))
    maps = attention_maps(model, SRC, tgt)
    with torch.no_grad():
        theirs = to_marian(model)(
            input_ids=SRC,
            attention_mask=(SRC != PAD).long(),
            decoder_input_ids=tgt,
            output_attentions=True,
        )
        ours = model(SRC, tgt)
    torch.testing.assert_close(
        ours, theirs.logits, rtol=0, atol=1e-5
    )  # their sinusoids are float32
    real = (SRC != PAD)[:, None, :, None]
    for kind in ("encoder", "decoder", "cross"):
        every = getattr(theirs, f"{kind}_attentions")
        for mine, other in zip(getattr(maps, kind), every, strict=True):
            if kind == "encoder":
                mine, other = mine * real, other * real  # where padding looks means nothing
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("beam_size", "length_penalty"), [(1, 1.0), (4, 1.0), (4, 0.0), (5, 0.6)])
def test_greedy_and_beam_search_find_what_theirs_finds(
    beam_size: int, length_penalty: float
) -> None:
    num_compared = 0
    for seed in range(4):
        model = make_model(seed)
        sequences, scores = generate(to_marian(model), beam_size, length_penalty)
        options = SearchOptions(
            beam_size, beam_size, length_penalty, LEAST, max_length=MOST, max_length_ratio=0.0
        )
        found = beam_search([model], SRC, options)
        for i, hypotheses in enumerate(found):
            if not all(h.finished for h in hypotheses):
                continue
            first = i * beam_size
            for h, ids in zip(hypotheses, sequences[first : first + beam_size], strict=True):
                assert h.ids == ids[: ids.index(EOS) + 1]
            if scores is not None:
                expected = scores[first : first + beam_size]
                assert [h.score for h in hypotheses] == pytest.approx(expected, abs=1e-5)
            num_compared += 1
    assert num_compared >= 10, "else the claim is empty"
