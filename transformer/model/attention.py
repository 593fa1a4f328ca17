"""Attention: one class, which is self-attention or cross-attention by what it is given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.model.norms import RMSNorm
from transformer.model.packing import Packing
from transformer.model.positions import rotate


class Positions(NamedTuple):
    """Where tokens stand: sequences of one length follow each other, all from `start` on."""

    start: int = 0
    num_sequences: int = 1


class Room:
    """Storage of keys and values that has room for more positions than are in use.

    Attributes:
        storage: (B, 2, H, C, Dh), keys and values of up to C positions.
        used: positions that hold something.
    """

    def __init__(self, storage: Tensor, used: int) -> None:
        self.storage = storage
        self.used = used

    def view(self, length: int) -> KeysValues:
        """Returns what stands at the first positions."""
        keys, values = self.storage[:, :, :, :length].unbind(1)
        return KeysValues(keys, values, self)


@dataclass(frozen=True)
class KeysValues:
    """What is attended to, projected and split into heads: a value, never changed.

    Attributes:
        keys: (B, H, S, Dh).
        values: (B, H, S, Dh).
        room: where they lie, if there may be room behind them. The first to append to them fills
            it; whoever appends to them after that copies them.
    """

    keys: Tensor
    values: Tensor
    room: Room | None = field(default=None, repr=False)

    @property
    def length(self) -> int:
        """Number of positions S."""
        return self.keys.size(2)

    def append(self, other: KeysValues) -> KeysValues:
        """Returns these positions followed by those of `other`."""
        if torch.is_grad_enabled():  # which does not flow through what is filled in place
            keys = torch.cat((self.keys, other.keys), dim=2)
            return KeysValues(keys, torch.cat((self.values, other.values), dim=2))
        start, end, room = self.length, self.length + other.length, self.room
        if room is None or room.used != start or room.storage.size(3) < end:
            batch, heads, _, width = self.keys.shape
            room = Room(self.keys.new_empty(batch, 2, heads, end + 7 * other.length, width), start)
            room.storage[:, 0, :, :start] = self.keys
            room.storage[:, 1, :, :start] = self.values
        room.storage[:, 0, :, start:end] = other.keys
        room.storage[:, 1, :, start:end] = other.values
        room.used = end
        return room.view(end)

    def select(self, rows: Tensor) -> KeysValues:
        """Returns the sentences `rows`, which may repeat or be left out."""
        if self.room is None:
            return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))
        return Room(self.room.storage.index_select(0, rows), self.length).view(self.length)


class Attention(nn.Module):
    """Scaled dot-product attention with any number of heads (Vaswani et al. 2017, section 3.2).

    Who is asked decides its kind: `attention(x, x, x)` is self-attention,
    `attention(x, memory, memory)` is cross-attention.

    Args:
        d_model: width of queries, keys, values and output.
        num_heads: heads; must divide d_model.
        dropout: dropout of the attention weights, in training.
        qk_norm: normalises the queries and keys of each head by their root mean square, with a
            learned gain (after Henry et al. 2020), so that scores cannot grow without bound.
        rotary: turns queries and keys by their positions (Su et al. 2021); for self-attention.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int = 1,
        dropout: float = 0.0,
        qk_norm: bool = False,
        rotary: bool = False,
    ) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model {d_model} does not divide by num_heads {num_heads}")
        self.num_heads = num_heads
        self.dropout = dropout
        self.rotary = rotary
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        head_width = d_model // num_heads
        self.norm_q = RMSNorm(head_width) if qk_norm else nn.Identity()
        self.norm_k = RMSNorm(head_width) if qk_norm else nn.Identity()

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Looks from `q` at `k` and `v`: (B, T, D), (B, S, D), (B, S, D) -> (B, T, D).

        Args:
            mask: bool, True = may be attended, broadcasts to (B, H, T, S). A query that may attend
                to nothing gets zeros for what it sees.
            causal: lets each query see no later position than its own; the queries stand at the
                last T of the S positions.
        """
        return self.attend(q, self.keys_values(k, v), mask, causal)

    def keys_values(
        self,
        k: Tensor,
        v: Tensor,
        positions: Positions | None = None,
        packing: Packing | None = None,
    ) -> KeysValues:
        """Projects what is attended to, once: (B, S, D), (B, S, D) -> two of (B, H, S, Dh).

        Args:
            positions: where the keys stand, for rotary positions; None = from 0 on.
            packing: how k and v are packed, if they are: (N, D) instead of (B, S, D).
        """
        keys = _pad_heads(self.norm_k(self._split(self.w_k(k))), packing)
        if self.rotary:
            keys = _rotate(keys, positions or Positions())
        return KeysValues(keys, _pad_heads(self._split(self.w_v(v)), packing))

    def attend(
        self,
        q: Tensor,
        keys_values: KeysValues,
        mask: Tensor | None = None,
        causal: bool = False,
        packing: Packing | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        """Looks at projected keys and values, as often as needed: (B, T, D) -> (B, T, D).

        Args:
            packing: how q is packed, if it is: (N, D) -> (N, D).
            positions: where the queries stand, for rotary positions; None = at the end.
        """
        queries = self._queries(q, keys_values, packing, positions)
        num_queries, length = queries.size(2), keys_values.length
        whole = causal and mask is None and num_queries == length
        if causal and not whole and num_queries > 1:
            mask = _and(mask, causal_mask(num_queries, length, q.device))
        seen = F.scaled_dot_product_attention(
            queries,
            keys_values.keys,
            keys_values.values,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=whole,
        )
        seen = seen.transpose(1, 2)  # (B, H, T, Dh) -> (B, T, H, Dh)
        if packing is not None:
            seen = packing.pack(seen)
        return self.w_o(seen.flatten(-2))  # (..., H, Dh) -> (..., D)

    def weights(
        self,
        q: Tensor,
        keys_values: KeysValues,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Returns the attention weights, for plots and alignment: (B, T, D) -> (B, H, T, S).

        The formula written out, without dropout: softmax(q k^T / sqrt(Dh)). Each row sums to 1, or
        to 0 where nothing may be attended.
        """
        queries = self._queries(q, keys_values)
        scores = queries @ keys_values.keys.transpose(-2, -1) / math.sqrt(queries.size(-1))
        if causal:
            mask = _and(mask, causal_mask(q.size(1), keys_values.length, q.device))
        if mask is None:
            return scores.softmax(dim=-1)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1).masked_fill(~mask, 0.0)

    def _queries(
        self,
        q: Tensor,
        keys_values: KeysValues,
        packing: Packing | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        queries = _pad_heads(self.norm_q(self._split(self.w_q(q))), packing)
        if self.rotary:
            at_the_end = Positions(keys_values.length - queries.size(2))
            queries = _rotate(queries, positions or at_the_end)
        return queries

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1))  # (..., D) -> (..., H, Dh)


def _pad_heads(x: Tensor, packing: Packing | None) -> Tensor:
    """Lays heads out for attention: (B, T, H, Dh), or packed (N, H, Dh), -> (B, H, T, Dh)."""
    if packing is not None:
        x = packing.pad(x)
    return x.transpose(1, 2)


def _rotate(x: Tensor, positions: Positions) -> Tensor:
    """Turns heads by their positions: (B, H, T, Dh) -> same."""
    if positions.num_sequences == 1:
        return rotate(x, positions.start)
    return rotate(x.unflatten(2, (positions.num_sequences, -1)), positions.start).flatten(2, 3)


def causal_mask(num_queries: int, num_keys: int, device: torch.device | None = None) -> Tensor:
    """Returns (T, S), True where the query may look; the queries stand at the last T positions."""
    mask = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return mask.tril(num_keys - num_queries)


def _and(mask: Tensor | None, other: Tensor) -> Tensor:
    return other if mask is None else mask & other
