"""The encoder-decoder Transformer (Vaswani et al. 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer.config import ModelConfig
from transformer.ids import PAD
from transformer.model.attention import Attention, KeysValues, Positions
from transformer.model.dropout import Dropout
from transformer.model.layers import (
    DecoderLayer,
    DecoderView,
    EncoderLayer,
    FeedForward,
    make_norm,
)
from transformer.model.packing import Packing
from transformer.model.positions import Learned, Sinusoidal, Unmarked, make_embedding
from transformer.precision import widen


class Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), with positions, then dropout (section 3.4)."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = make_embedding(vocab_size, config.d_model)
        self.positions: nn.Module
        if config.positions == "sinusoidal":
            self.positions = Sinusoidal()
        elif config.positions == "learned":
            self.positions = Learned(config.max_positions, config.d_model)
        else:
            self.positions = Unmarked()
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        ids: Tensor,
        start: int = 0,
        packing: Packing | None = None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """Embeds tokens that stand at position `start` and after: (B, T) -> (B, T, D).

        With `packing`, the result is packed: (N, D). Where `kept`, bool (B, T), is False the token
        is hidden: only its position is told.
        """
        x = self.tokens(ids) * math.sqrt(self.tokens.embedding_dim)
        if kept is not None:
            x = x * kept[..., None]
        x = self.positions(x, start)
        return self.dropout(x if packing is None else packing.pack(x))


class Encoder(nn.Module):
    """A stack of encoder layers; with the norm first, a last norm closes it."""

    def __init__(self, config: ModelConfig, checkpointing: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.norm = make_norm(config) if config.norm_first else nn.Identity()
        self.checkpointing = checkpointing

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """(N, D) -> (N, D)."""
        for layer in self.layers:
            x = _run(self, layer, x, packing.attention_mask, packing)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of decoder layers; with the norm first, a last norm closes it."""

    def __init__(self, config: ModelConfig, checkpointing: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.norm = make_norm(config) if config.norm_first else nn.Identity()
        self.checkpointing = checkpointing

    def forward(
        self,
        x: Tensor,
        state: DecoderState,
        packing: Packing | None = None,
        real: Tensor | None = None,
    ) -> tuple[Tensor, DecoderState]:
        """Decodes the tokens after those that `state` has seen: (B * K, T, D) -> (B * K, T, D).

        Args:
            x: the tokens.
            state: what they follow.
            packing: how x is packed, if it is: (N, D) -> (N, D), of K = 1.
            real: which tokens count for what `state` watches: bool (B * K, T).
        """
        view, after = state.advance(x.size(-2), packing)
        shape, prefix = x.shape, []
        if packing is None:
            x = x.view(len(x) // state.num_hypotheses, -1, x.size(2))  # -> (B, K * T, D)
        for i, layer in enumerate(self.layers):
            before = state.prefix[i] if state.prefix else None
            x, seen, weights = _run(self, layer, x, before, state.memory[i], view)
            prefix.append(seen)
        if after.received is not None and real is not None:
            weights = weights.unflatten(1, (state.num_hypotheses, -1))  # (B, K, T, S)
            counted = weights * real.view(weights.shape[:3])[..., None]
            after = replace(after, received=after.received + counted.sum(2))
        return self.norm(x).view(shape), replace(after, prefix=prefix)


def _run(stack: Encoder | Decoder, layer: nn.Module, *args: object):  # type: ignore[no-untyped-def]
    """Runs a layer, keeping its activations for the backward pass or computing them again there."""
    if stack.checkpointing and stack.training and torch.is_grad_enabled():
        return checkpoint(layer, *args, use_reentrant=False)
    return layer(*args)


@dataclass(frozen=True)
class DecoderState:
    """All that decoding carries from one token to the next; a value, never changed in place.

    It is of B sentences with K hypotheses each, which stand side by side: K = 1 in training and
    greedy search. What belongs to a sentence is there once. The tokens of all its hypotheses make
    one sequence of N, and a mask tells which are whose: then hypotheses that change their order, or
    go on from the same one, need no copies of keys and values.

    Attributes:
        memory: for each layer, cross-attention's keys and values of the source, (B, H, S, Dh).
        memory_mask: bool (B, 1, 1, S), True = a real source token; None = all are.
        prefix: for each layer, self-attention's keys and values of the tokens so far,
            (B, H, N, Dh); empty at the start.
        length: tokens that each hypothesis has seen.
        descent: bool (B, K, N), True = a token of the hypothesis; None = K is 1 and all are.
        received: if it is watched: how much each source token has received of the attention of each
            hypothesis' tokens, (B, K, S), in the last layer, as the mean of its heads.
    """

    memory: list[KeysValues]
    memory_mask: Tensor | None
    prefix: list[KeysValues]
    length: int = 0
    descent: Tensor | None = None
    received: Tensor | None = None

    @property
    def num_hypotheses(self) -> int:
        """Hypotheses of each sentence, K."""
        return 1 if self.descent is None else self.descent.size(1)

    def select(self, rows: Tensor) -> DecoderState:
        """Returns the state of these of the B * K hypotheses, which may repeat or be left out."""
        parents = rows // self.num_hypotheses
        sentences, counts = parents.unique_consecutive(return_counts=True)
        if not (counts == counts[:1]).all():  # then each hypothesis takes a sentence of its own
            sentences = parents
        num = max(1, len(rows) // max(1, len(sentences)))
        descent = None
        if self.descent is not None:
            descent = self.descent.flatten(0, 1)[rows].unflatten(0, (len(sentences), num))
        elif num > 1:
            seen = self.prefix[0].length if self.prefix else 0
            descent = torch.ones(len(sentences), num, seen, dtype=torch.bool, device=rows.device)
        received = self.received
        if received is not None:
            received = received.flatten(0, 1)[rows].unflatten(0, (len(sentences), num))
        state = replace(self, descent=descent, received=received)
        all_in_order = torch.arange(len(self.memory[0].keys), device=rows.device)
        return state if sentences.equal(all_in_order) else state._of_sentences(sentences)

    def watch(self) -> DecoderState:
        """Returns this state before any target token, such that it counts the attention that source
        tokens receive.
        """
        keys = self.memory[-1].keys
        return replace(self, received=keys.new_zeros(len(keys), 1, keys.size(2)))

    def _of_sentences(self, sentences: Tensor) -> DecoderState:
        """Returns this state, whose hypotheses are those of `sentences` already."""
        mask = self.memory_mask
        return replace(
            self,
            memory=[kv.select(sentences) for kv in self.memory],
            memory_mask=None if mask is None else mask.index_select(0, sentences),
            prefix=[kv.select(sentences) for kv in self.prefix],
        )

    def advance(
        self, num_tokens: int, packing: Packing | None = None
    ) -> tuple[DecoderView, DecoderState]:
        """Returns what T more tokens of each hypothesis see, and the state after them but for its
        prefix.
        """
        num, after = self.num_hypotheses, replace(self, length=self.length + num_tokens)
        positions, watched = Positions(self.length, num), self.received is not None
        view = DecoderView(self.memory_mask, None, positions, packing, watched)
        if self.descent is None:
            return view, after
        own = torch.eye(num, dtype=torch.bool, device=self.descent.device)
        own = own.repeat_interleave(num_tokens, dim=1).expand(len(self.descent), -1, -1)
        descent = torch.cat((self.descent, own), dim=2)  # (B, K, N) -> (B, K, N + K * T)
        mask = descent.repeat_interleave(num_tokens, dim=1)  # -> (B, K * T, N + K * T)
        if num_tokens > 1:
            order = torch.arange(num_tokens, device=mask.device).repeat(num)
            mask[:, :, self.descent.size(2) :] &= order[:, None] >= order
        return view._replace(prefix_mask=mask[:, None]), replace(after, descent=descent)


class Transformer(nn.Module):
    """Encoder, decoder and the projection to the target vocabulary.

    Args:
        config: sizes and variants.
        src_vocab_size: entries of the source vocabulary.
        tgt_vocab_size: entries of the target vocabulary; the same one if all embeddings are tied.
        activation_checkpointing: recomputes each layer in the backward pass instead of keeping it.

    Raises:
        ValueError: all embeddings are tied, but the vocabularies differ in size.
    """

    def __init__(
        self,
        config: ModelConfig,
        src_vocab_size: int,
        tgt_vocab_size: int,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        if config.tie_embeddings == "all" and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"vocabularies of {src_vocab_size} and {tgt_vocab_size} cannot share one embedding"
            )
        self.config = config
        self.src_embedding = Embedding(config, src_vocab_size)
        self.tgt_embedding = Embedding(config, tgt_vocab_size)
        self.encoder = Encoder(config, activation_checkpointing)
        self.decoder = Decoder(config, activation_checkpointing)
        self.output = nn.Linear(config.d_model, tgt_vocab_size, bias=False)
        if config.tie_embeddings == "all":
            self.src_embedding.tokens.weight = self.tgt_embedding.tokens.weight
        if config.tie_embeddings in ("all", "decoder"):
            self.output.weight = self.tgt_embedding.tokens.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws fresh weights.

        Matrices are Xavier-uniform (Glorot and Bengio 2010), queries, keys and values as the parts
        of one matrix; embeddings are normal with deviation d_model ** -0.5 / 2, small enough that a
        model whose input and output share them does not begin by predicting the token that it has
        just read, whatever its width. With the norm first, each of the n additions to the residual
        stream is scaled by n ** -0.5 (Radford et al. 2019, section 2.3), which keeps the stream's
        size whatever the depth. On the meta device there is nothing to draw.
        """
        if self.output.weight.is_meta:
            return
        for module in self.modules():
            if isinstance(module, nn.Linear) and module is not self.output:
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5 / 2)
        if self.config.tie_embeddings == "none":
            nn.init.normal_(self.output.weight, std=self.config.d_model**-0.5)
        for module in self.modules():
            if isinstance(module, Attention):
                for linear in (module.w_q, module.w_k, module.w_v):
                    nn.init.xavier_uniform_(linear.weight, gain=2**-0.5)
        if self.config.norm_first:
            for stack, per_layer in ((self.encoder, 2), (self.decoder, 3)):
                _scale_additions(stack, (per_layer * len(stack.layers)) ** -0.5)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Predicts the token after each target token: (B, S), (B, T) -> logits (B, T, V).

        `tgt` starts with the beginning of sentence; padding is id 0 on both sides, at the end.
        """
        return self.decode(tgt, self.start(src))[0]

    def hidden(
        self,
        src: Tensor,
        tgt: Tensor,
        src_packing: Packing | None = None,
        tgt_packing: Packing | None = None,
        src_kept: Tensor | None = None,
        tgt_kept: Tensor | None = None,
    ) -> Tensor:
        """Returns what the logits of the real target tokens are made of: (B, S), (B, T) -> (N, D).

        This is how training asks: nothing is computed for padding, and the loss need not hold all
        logits at once. The packings are those of `src` and `tgt`, where the caller has them; where
        `src_kept` or `tgt_kept`, bool like `src` and `tgt`, is False the token is hidden.
        """
        packing = tgt_packing or Packing.of(tgt != PAD)
        x = self.tgt_embedding(tgt, packing=packing, kept=tgt_kept)
        return packing.real(self.decoder(x, self.start(src, src_packing, src_kept), packing)[0])

    def start(
        self, src: Tensor, packing: Packing | None = None, kept: Tensor | None = None
    ) -> DecoderState:
        """Reads source sentences (B, S) once and returns the state before any target token."""
        in_steps = packing is None and src.device.type == "cpu" and not torch.is_grad_enabled()
        packing = packing or Packing.of(src != PAD)
        memory = self.encoder(self.src_embedding(src, packing=packing, kept=kept), packing)
        keys_values = [
            layer.cross_attention.keys_values(memory, memory, packing=packing)  # type: ignore[operator, union-attr]
            for layer in self.decoder.layers
        ]
        if in_steps:  # fused attention, on GPUs and for whole sentences, wants rows
            keys_values = [each.at_rest() for each in keys_values]
        return DecoderState(keys_values, packing.attention_mask, [])

    def decode(self, tgt: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Predicts the token after each of `tgt`, which follows what `state` has seen.

        (B, T) -> logits (B, T, V) and the state that has seen these too. Training is this call with
        a fresh state and the whole target; decoding is the same call with one token.
        """
        x, state = self.decode_hidden(tgt, state)
        return self.output(x), state

    def log_probs(self, tgt: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Does as `decode`, and returns log-probabilities, in float32 or wider."""
        logits, state = self.decode(tgt, state)
        return widen(logits).log_softmax(-1), state

    def decode_hidden(self, tgt: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Does as `decode`, and returns what the logits are made of: (B, T, D)."""
        real = None if state.received is None else tgt != PAD
        return self.decoder(self.tgt_embedding(tgt, state.length), state, real=real)

    @property
    def num_parameters(self) -> int:
        """Number of weights, shared ones counted once."""
        return sum(p.numel() for p in self.parameters())


def _scale_additions(stack: Encoder | Decoder, factor: float) -> None:
    for module in stack.modules():
        if isinstance(module, Attention):
            module.w_o.weight.data.mul_(factor)
        elif isinstance(module, FeedForward):
            module.w_2.weight.data.mul_(factor)
