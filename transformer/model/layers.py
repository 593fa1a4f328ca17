"""The layers of encoder and decoder, made of attention and a feed-forward network."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.model.attention import Attention, KeysValues, Positions
from transformer.model.dropout import Dropout
from transformer.model.norms import RMSNorm
from transformer.model.packing import Packing


def make_norm(config: ModelConfig) -> nn.Module:
    """Returns layer normalisation (Ba et al. 2016) or RMS normalisation (Zhang and Sennrich
    2019).
    """
    if config.norm == "rms":
        return RMSNorm(config.d_model)
    return nn.LayerNorm(config.d_model, eps=1e-5)


def make_attention(config: ModelConfig, self_attention: bool) -> Attention:
    """Returns an attention as configured; rotary positions belong to self-attention alone."""
    return Attention(
        config.d_model,
        config.num_heads,
        config.attention_dropout,
        qk_norm=config.qk_norm,
        rotary=self_attention and config.positions == "rotary",
    )


class FeedForward(nn.Module):
    """Two linear maps with an activation between (Vaswani et al. 2017, section 3.3).

    With `swiglu` the activation is silu(gate) * value, two maps of the input (Shazeer 2020).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.w_1 = nn.Linear(config.d_model, config.d_ff)
        self.w_2 = nn.Linear(config.d_ff, config.d_model)
        if self.activation == "swiglu":
            self.w_gate = nn.Linear(config.d_model, config.d_ff)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        if self.activation == "swiglu":
            inner = F.silu(self.w_gate(x)) * self.w_1(x)  # (..., D) -> (..., F)
        elif self.activation == "gelu":
            inner = F.gelu(self.w_1(x))
        else:
            inner = F.relu(self.w_1(x))
        return self.w_2(self.dropout(inner))  # (..., F) -> (..., D)


class Residual(nn.Module):
    """The connection around a sublayer: x + f(norm(x)) with the norm first, norm(x + f(x)) with it
    last.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_first
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)

    def read(self, x: Tensor) -> Tensor:
        """Returns what the sublayer is given."""
        return self.norm(x) if self.norm_first else x

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the stream x with the sublayer's output y added."""
        x = x + self.dropout(y)
        return x if self.norm_first else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = make_attention(config, self_attention=True)
        self.feed_forward = FeedForward(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, mask: Tensor | None, packing: Packing | None = None) -> Tensor:
        """(B, S, D) -> (B, S, D); `mask` as in `Attention.forward`.

        With `packing`, which says how x is packed, it is (N, D) -> (N, D).
        """
        y = self.self_attention_residual.read(x)
        seen = self.self_attention.keys_values(y, y, packing=packing)
        y = self.self_attention.attend(y, seen, mask, packing=packing)
        x = self.self_attention_residual.add(x, y)
        y = self.feed_forward_residual.read(x)
        return self.feed_forward_residual.add(x, self.feed_forward(y))


class DecoderView(NamedTuple):
    """What the tokens that are decoded together see.

    Attributes:
        memory_mask: of the source: bool (B, 1, 1, S), True = a real token; None = all are.
        prefix_mask: of the tokens before and of each other: bool (B, 1, T, N + T); None = each sees
            those before it and itself.
        positions: where they stand.
        packing: how they are packed, if they are.
        watched: whether what they attend to in the source is asked for.
    """

    memory_mask: Tensor | None
    prefix_mask: Tensor | None = None
    positions: Positions = Positions()
    packing: Packing | None = None
    watched: bool = False


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = make_attention(config, self_attention=True)
        self.cross_attention = make_attention(config, self_attention=False)
        self.feed_forward = FeedForward(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x: Tensor, prefix: KeysValues | None, memory: KeysValues, view: DecoderView
    ) -> tuple[Tensor, KeysValues, Tensor | None]:
        """Decodes the tokens that follow `prefix`: (B, T, D) -> (B, T, D), and the longer prefix.

        If `view` asks for it, also how much they attend to each source token, as the mean of the
        heads: (B, T, S).

        Args:
            x: the tokens; packed, if `view` says so: (N, D) instead of (B, T, D).
            prefix: self-attention's keys and values of the tokens before x; None = there are none.
            memory: cross-attention's keys and values of the encoder's output.
            view: what the tokens see, and where they stand.
        """
        y = self.self_attention_residual.read(x)
        seen = self.self_attention.keys_values(y, y, view.positions, view.packing)
        if prefix is not None:
            seen = prefix.append(seen)
        mask, causal = view.prefix_mask, view.prefix_mask is None
        y = self.self_attention.attend(y, seen, mask, causal, view.packing, view.positions)
        x = self.self_attention_residual.add(x, y)

        y = self.cross_attention_residual.read(x)
        weights = None
        if view.watched:
            weights = self.cross_attention.weights(y, memory, view.memory_mask).mean(1)
        y = self.cross_attention.attend(y, memory, view.memory_mask, packing=view.packing)
        x = self.cross_attention_residual.add(x, y)

        y = self.feed_forward_residual.read(x)
        return self.feed_forward_residual.add(x, self.feed_forward(y)), seen, weights
