"""Attention: one class, which is self-attention or cross-attention by what it is given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.model.norms import RMSNorm
from transformer.model.packing import Packing
from transformer.model.positions import rotate

MOST_OF_STEP = 16
"""Queries of a sentence that are still few: the hypotheses of a beam, one token each."""


class Positions(NamedTuple):
    """Where tokens stand: sequences of one length follow each other, all from `start` on."""

    start: int = 0
    num_sequences: int = 1


class Room:
    """Storage of keys and values that has room for more positions than are in use.

    Attributes:
        keys: (B, H, C, Dh), of up to C positions.
        values: (B, H, C, Dh).
        used: positions that hold something.
    """

    def __init__(self, keys: Tensor, values: Tensor, used: int) -> None:
        self.keys = keys
        self.values = values
        self.used = used

    @classmethod
    def around(cls, seen: KeysValues, capacity: int) -> Room:
        """Returns a room that begins with a copy of what was seen."""
        batch, heads, length, width = seen.keys.shape
        keys, values = (seen.keys.new_empty(batch, heads, capacity, width) for _ in range(2))
        keys[:, :, :length] = seen.keys
        values[:, :, :length] = seen.values
        return cls(keys, values, length)

    def view(self, length: int) -> KeysValues:
        """Returns what stands at the first positions."""
        return KeysValues(self.keys[:, :, :length], self.values[:, :, :length], self)


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
        if room is None or room.used != start or room.keys.size(2) < end:
            room = Room.around(self, end + max(7 * other.length, start // 2))
        room.keys[:, :, start:end] = other.keys
        room.values[:, :, start:end] = other.values
        room.used = end
        return room.view(end)

    def select(self, rows: Tensor) -> KeysValues:
        """Returns the sentences `rows`, which may repeat or be left out."""
        room = self.room
        if room is None:
            keys = self.keys.mT.index_select(0, rows).mT  # which keeps their layout, see `at_rest`
            return KeysValues(keys, self.values.index_select(0, rows))
        keys, values = room.keys.index_select(0, rows), room.values.index_select(0, rows)
        return Room(keys, values, self.length).view(self.length)

    def at_rest(self) -> KeysValues:
        """Returns the same, laid out for being read often: the keys of each head as columns."""
        return KeysValues(self.keys.mT.contiguous().mT, self.values.contiguous())


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
        is_few = is_step(queries) and not self.training
        whole = causal and mask is None and num_queries == length and not is_few
        if causal and not whole and num_queries > 1:
            mask = _and(mask, causal_mask(num_queries, length, q.device))
        if is_few:
            seen = _weigh(queries, keys_values.keys, mask) @ keys_values.values
        else:
            dropout = self.dropout if self.training else 0.0
            seen = _attend(queries, keys_values.keys, keys_values.values, mask, dropout, whole)
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
        if causal:
            mask = _and(mask, causal_mask(q.size(1), keys_values.length, q.device))
        return _weigh(queries, keys_values.keys, mask)

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


def is_step(queries: Tensor) -> bool:
    """Tells whether few queries ask on a CPU without gradients: the products written out are then
    up to twice as fast as the fused operator, which is made for many.
    """
    is_alone = queries.device.type == "cpu" and not torch.is_grad_enabled()
    return is_alone and queries.size(2) <= MOST_OF_STEP


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool
) -> Tensor:
    """Returns PyTorch's fused attention: (B, H, T, Dh), (B, H, S, Dh) twice -> (B, H, T, Dh).

    Its gradient in bfloat16 on a CPU takes five times as long as in float32, so it gets float32.
    """
    fused = partial(
        F.scaled_dot_product_attention, attn_mask=mask, dropout_p=dropout, is_causal=causal
    )
    if q.device.type != "cpu" or q.dtype != torch.bfloat16 or not torch.is_grad_enabled():
        return fused(q, k, v)
    with torch.autocast("cpu", enabled=False):
        return fused(q.float(), k.float(), v.float()).to(q.dtype)


def _weigh(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """Returns softmax(q k^T / sqrt(Dh)): (B, H, T, Dh), (B, H, S, Dh) -> (B, H, T, S)."""
    scores = (queries / math.sqrt(queries.size(-1))) @ keys.mT
    if mask is None:
        return scores.softmax(dim=-1)
    hidden = torch.zeros_like(mask, dtype=scores.dtype)  # there are far fewer of it than of scores
    hidden.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    weights = (scores + hidden).softmax(dim=-1)
    sees_something = mask.any(dim=-1, keepdim=True)
    return weights if sees_something.all() else weights.masked_fill(~sees_something, 0.0)


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
