"""A model in the form of CTranslate2, an engine that translates on CPUs and GPUs.

The specification is filled directly from the weights; nothing is written in between in another
format. Positions beyond the table that it carries are the one thing that CTranslate2 does not know.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.ids import BOS, EOS, UNK
from transformer.model.attention import Attention
from transformer.model.layers import FeedForward
from transformer.model.positions import Learned, sinusoids
from transformer.model.transformer import Decoder, Embedding, Encoder, Transformer

try:
    import ctranslate2
    from ctranslate2.specs import common_spec, transformer_spec
except ImportError:
    raise UserError(
        "CTranslate2 is not installed: pip install 'transformer[ctranslate2]'"
    ) from None

NUM_POSITIONS = 4096
"""Entries of the table of positions; CTranslate2 refuses a longer source or translation."""
ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "swiglu": common_spec.Activation.SWISH,
}


def load_ctranslate2(
    model: Transformer,
    source: Sequence[str],
    target: Sequence[str],
    compute_type: str = "float32",
    **settings: Any,
) -> ctranslate2.Translator:
    """Returns the model as a CTranslate2 translator; takes what `write_ctranslate2` takes.

    CTranslate2 knows tokens by their pieces, and a source ends with that of the end of sentence.
    Our search never says padding nor the beginning of sentence; CTranslate2 has to be told, by
    `suppress_sequences`, and then shares their probability out among the other tokens. `settings`
    are those of `ctranslate2.Translator`, such as `device` and `intra_threads`.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2(model, source, target, folder, compute_type)
        return ctranslate2.Translator(folder, compute_type=compute_type, **settings)


def write_ctranslate2(
    model: Transformer,
    source: Sequence[str],
    target: Sequence[str],
    folder: str | Path,
    compute_type: str = "float32",
    num_positions: int = NUM_POSITIONS,
) -> None:
    """Writes the model as a CTranslate2 model directory, which must be there.

    Args:
        model: what to convert.
        source: the pieces of the source vocabulary, by id.
        target: the pieces of the target vocabulary, by id.
        folder: where to write.
        compute_type: how weights are stored: float32, float16, bfloat16, int16 or int8.
        num_positions: entries of the table of positions.

    Raises:
        UserError: the model has something that CTranslate2 has not.
    """
    spec = to_spec(model, num_positions)
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.config.unk_token = target[UNK]
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS]
    spec.config.eos_token = target[EOS]
    spec.validate()
    spec.optimize(quantization=compute_type)
    spec.save(os.fspath(folder))


def to_spec(model: Transformer, num_positions: int) -> transformer_spec.TransformerSpec:
    """Returns the weights as a CTranslate2 specification, without vocabularies.

    Raises:
        UserError: the model has something that CTranslate2 has not.
    """
    config = model.config
    if config.qk_norm:
        raise UserError(
            "CTranslate2 does not normalise queries and keys, as this model does: translate without"
            " --engine, or train with model.qk_norm=false"
        )
    shared: dict[str, Any] = {
        "pre_norm": config.norm_first,
        "activation": ACTIVATIONS[config.activation],
        "ffn_glu": config.activation == "swiglu",
        "rms_norm": config.norm == "rms",
    }
    if config.positions == "rotary":
        shared |= {"rotary_dim": 0, "rotary_interleave": False}  # 0 is the whole head
    heads = config.num_heads
    encoder = transformer_spec.TransformerEncoderSpec(config.num_encoder_layers, heads, **shared)
    decoder = transformer_spec.TransformerDecoderSpec(config.num_decoder_layers, heads, **shared)
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    spec.config.layer_norm_epsilon = 1e-6 if config.norm == "rms" else 1e-5
    with torch.no_grad():
        _set_embedding(encoder, encoder.embeddings[0], model.src_embedding, num_positions)
        _set_embedding(decoder, decoder.embeddings, model.tgt_embedding, num_positions)
        _set_stack(encoder, model.encoder, config)
        _set_stack(decoder, model.decoder, config)
        decoder.projection.weight = _array(model.output.weight)
    return spec


def _set_embedding(stack: Any, tokens: Any, module: Embedding, num_positions: int) -> None:
    tokens.weight = _array(module.tokens.weight)
    if not hasattr(stack, "position_encodings"):
        return
    if isinstance(module.positions, Learned):
        table = module.positions.table.weight
        last = table[-1:].expand(max(0, num_positions - len(table)), -1)
        stack.position_encodings.encodings = _array(torch.cat((table, last)))
    else:
        width = module.tokens.embedding_dim
        stack.position_encodings.encodings = _array(sinusoids(torch.empty(num_positions, width)))


def _set_stack(stack: Any, module: Encoder | Decoder, config: ModelConfig) -> None:
    layer: Any
    for spec, layer in zip(stack.layer, module.layers, strict=True):
        _set_self_attention(spec.self_attention, layer.self_attention)
        _set_norm(spec.self_attention.layer_norm, layer.self_attention_residual.norm)
        if hasattr(spec, "attention"):
            _set_cross_attention(spec.attention, layer.cross_attention)
            _set_norm(spec.attention.layer_norm, layer.cross_attention_residual.norm)
        _set_feed_forward(spec.ffn, layer.feed_forward)
        _set_norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)
    if config.norm_first:
        _set_norm(stack.layer_norm, module.norm)


def _set_self_attention(spec: Any, module: Attention) -> None:
    _set_linear(spec.linear[0], module.w_q, module.w_k, module.w_v)
    _set_linear(spec.linear[1], module.w_o)


def _set_cross_attention(spec: Any, module: Attention) -> None:
    _set_linear(spec.linear[0], module.w_q)
    _set_linear(spec.linear[1], module.w_k, module.w_v)
    _set_linear(spec.linear[2], module.w_o)


def _set_feed_forward(spec: Any, module: FeedForward) -> None:
    _set_linear(spec.linear_1, module.w_2)
    if module.activation == "swiglu":
        _set_linear(spec.linear_0, module.w_gate)
        _set_linear(spec.linear_0_noact, module.w_1)
    else:
        _set_linear(spec.linear_0, module.w_1)


def _set_linear(spec: Any, *modules: nn.Linear) -> None:
    """Sets one linear map that gives what these give, one after the other."""
    spec.weight = np.concatenate([_array(module.weight) for module in modules])
    spec.bias = np.concatenate([_array(module.bias) for module in modules])


def _set_norm(spec: Any, module: nn.Module) -> None:
    spec.gamma = _array(module.weight)  # type: ignore[arg-type]
    if hasattr(spec, "beta"):
        spec.beta = _array(module.bias)  # type: ignore[arg-type]


def _array(weight: Tensor) -> np.ndarray:
    return weight.detach().float().cpu().numpy().copy()  # quantisation works in place
