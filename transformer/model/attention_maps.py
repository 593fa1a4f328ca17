"""Where a Transformer looks: the attention weights of every layer and head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.ids import PAD
from transformer.model.layers import DecoderLayer, EncoderLayer
from transformer.model.transformer import Transformer


@dataclass(frozen=True)
class AttentionMaps:
    """The attention weights of a batch, layer by layer; each row sums to 1.

    Attributes:
        encoder: self-attention of the encoder, from each source token to all, (B, H, S, S).
        decoder: self-attention of the decoder, to itself and the tokens before, (B, H, T, T).
        cross: from each target token to the source tokens, (B, H, T, S).
        logits: of the token after each target token, (B, T, V).
    """

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]
    logits: Tensor


@torch.inference_mode()
def attention_maps(model: Transformer, src: Tensor, tgt: Tensor) -> AttentionMaps:
    """Reads source (B, S) and target (B, T) as `Transformer.forward` does, and returns where each
    layer looks. Padding is looked at with weight 0.

    Position t of the target is where the decoder reads token t; what it says there is the token
    after it.
    """
    mask = source_mask(src)
    memory, encoder = walk_encoder(model, src, mask)
    outputs, decoder, cross = zip(*walk_decoder(model, tgt, memory, mask), strict=True)
    logits = model.output(model.decoder.norm(outputs[-1]))
    return AttentionMaps(encoder, list(decoder), list(cross), logits)


def source_mask(src: Tensor) -> Tensor:
    """Tells which source tokens are real: (B, S) -> bool (B, 1, 1, S)."""
    return (src != PAD)[:, None, None, :]


def walk_encoder(model: Transformer, src: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Reads the source: (B, S) -> memory (B, S, D), and the weights of each layer."""
    x, weights = model.src_embedding(src), []
    for layer in model.encoder.layers:
        x, of_layer = _encode(layer, x, mask)  # type: ignore[arg-type]
        weights.append(of_layer)
    return model.encoder.norm(x), weights


def walk_decoder(
    model: Transformer, tgt: Tensor, memory: Tensor, mask: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yields for each layer what it gives (B, T, D), and its weights on target and source."""
    x = model.tgt_embedding(tgt)
    for layer in model.decoder.layers:
        x, own, cross = _decode(layer, x, memory, mask)  # type: ignore[arg-type]
        yield x, own, cross


def _encode(layer: EncoderLayer, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Runs a layer: (B, S, D) -> (B, S, D) and its weights."""
    attention = layer.self_attention
    y = layer.self_attention_residual.read(x)
    seen = attention.keys_values(y, y)
    x = layer.self_attention_residual.add(x, attention.attend(y, seen, mask))
    z = layer.feed_forward(layer.feed_forward_residual.read(x))
    return layer.feed_forward_residual.add(x, z), attention.weights(y, seen, mask)


def _decode(
    layer: DecoderLayer, x: Tensor, memory: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs a layer: (B, T, D) -> (B, T, D), its weights on the target and on the source."""
    own, cross = layer.self_attention, layer.cross_attention
    y = layer.self_attention_residual.read(x)
    seen = own.keys_values(y, y)
    own_weights = own.weights(y, seen, causal=True)
    x = layer.self_attention_residual.add(x, own.attend(y, seen, causal=True))

    y = layer.cross_attention_residual.read(x)
    source = cross.keys_values(memory, memory)
    cross_weights = cross.weights(y, source, mask)
    x = layer.cross_attention_residual.add(x, cross.attend(y, source, mask))

    z = layer.feed_forward(layer.feed_forward_residual.read(x))
    return layer.feed_forward_residual.add(x, z), own_weights, cross_weights
