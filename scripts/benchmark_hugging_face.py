"""Our weights in a model of Hugging Face's, so that both translate alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from transformer.errors import UserError
from transformer.ids import BOS, EOS, PAD
from transformer.model.positions import sinusoids
from transformer.model.transformer import Transformer

MOST_POSITIONS = 4096
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
"""Their names of the parts of a layer."""


def to_m2m100(model: Transformer) -> Any:
    """Returns an `M2M100ForConditionalGeneration` with a model's weights: as in our default, its
    norms come first, it has sinusoids, and all embeddings are tied.

    Raises:
        UserError: the library is not installed, or the model is built otherwise.
    """
    try:
        from transformers import M2M100Config, M2M100ForConditionalGeneration
    except ImportError:
        raise UserError("hf needs a library: pip install transformers") from None
    config = model.config
    is_alike = (
        config.norm_first
        and config.norm == "layer"
        and config.activation in ("relu", "gelu")
        and config.positions == "sinusoidal"
        and config.tie_embeddings == "all"
        and not config.qk_norm
    )
    if not is_alike:
        raise UserError("hf: only models with model.norm_first and no other variant fit")
    theirs: Any = M2M100ForConditionalGeneration(
        M2M100Config(
            vocab_size=model.output.out_features,
            d_model=config.d_model,
            encoder_layers=config.num_encoder_layers,
            decoder_layers=config.num_decoder_layers,
            encoder_attention_heads=config.num_heads,
            decoder_attention_heads=config.num_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            activation_function=config.activation,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
        )
    )
    theirs.load_state_dict(dict(_weights(model)))
    table = torch.zeros(MOST_POSITIONS + 1, config.d_model)
    table[PAD + 1 :] = sinusoids(table[PAD + 1 :])  # theirs count from the padding's number on
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weights = table
    return theirs.to(model.output.weight.device).eval()


def _weights(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    for stack in ("encoder", "decoder"):
        part = getattr(model, stack)
        for i, layer in enumerate(part.layers):
            for name, weight in layer.named_parameters():
                ours, _, kind = name.rpartition(".")
                yield f"model.{stack}.layers.{i}.{NAMES[ours]}.{kind}", weight.detach()
        for kind, weight in part.norm.named_parameters():
            yield f"model.{stack}.layer_norm.{kind}", weight.detach()
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        yield f"{name}.weight", model.tgt_embedding.tokens.weight.detach()
    yield "lm_head.weight", model.output.weight.detach()
