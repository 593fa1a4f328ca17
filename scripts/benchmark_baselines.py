"""What the benchmark compares with: a plain loop around `torch.nn.Transformer`, as one writes it
from PyTorch's tutorials, and Hugging Face's Marian model in the same loop.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.data.updates import Update
from transformer.errors import UserError
from transformer.ids import BOS, EOS, PAD


class PlainTransformer(nn.Module):
    """`torch.nn.Transformer` with tied embeddings and a table of sinusoidal positions."""

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, num_layers: int, vocab_size: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        position = torch.arange(512)[:, None]
        rate = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        table = torch.zeros(512, d_model)
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate)
        self.table: Tensor
        self.register_buffer("table", table)
        self.dropout = nn.Dropout(0.1)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self.transformer = nn.Transformer(
                d_model,
                num_heads,
                num_layers,
                num_layers,
                d_ff,
                dropout=0.1,
                batch_first=True,
                norm_first=True,
            )

    def embed(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, D)."""
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.table[: ids.shape[1]])

    def encode(self, src: Tensor) -> Tensor:
        """(B, S) -> memory (B, S, D)."""
        return self.transformer.encoder(self.embed(src), src_key_padding_mask=src == PAD)

    def decode(self, src: Tensor, tgt: Tensor, memory: Tensor) -> Tensor:
        """Reads a whole prefix: (B, S), (B, T), (B, S, D) -> (B, T, D)."""
        length = tgt.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=tgt.device).triu(1)
        return self.transformer.decoder(
            self.embed(tgt),
            memory,
            tgt_mask=future,
            tgt_is_causal=True,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
        )

    def logits(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., V)."""
        return F.linear(x, self.embedding.weight)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """(B, S), (B, T) -> logits (B, T, V)."""
        return self.logits(self.decode(src, tgt, self.encode(src)))


class MarianLogits(nn.Module):
    """Hugging Face's `MarianMTModel` of the same sizes, untrained.

    Raises:
        UserError: the library is not installed.
    """

    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, num_layers: int, vocab_size: int
    ) -> None:
        super().__init__()
        try:
            from transformers import MarianConfig, MarianMTModel
        except ImportError:
            raise UserError("marian needs a library: pip install transformers") from None
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=vocab_size,
                d_model=d_model,
                encoder_layers=num_layers,
                decoder_layers=num_layers,
                encoder_attention_heads=num_heads,
                decoder_attention_heads=num_heads,
                encoder_ffn_dim=d_ff,
                decoder_ffn_dim=d_ff,
                activation_function="relu",
                dropout=0.1,
                use_cache=False,
                pad_token_id=PAD,
                eos_token_id=EOS,
                forced_eos_token_id=EOS,
                decoder_start_token_id=BOS,
            )
        )

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """(B, S), (B, T) -> logits (B, T, V)."""
        mask = (src != PAD).long()
        return self.model(input_ids=src, attention_mask=mask, decoder_input_ids=tgt).logits


class PlainLoop:
    """The training loop of a tutorial: forward, cross-entropy, backward, clip, AdamW."""

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        autocast: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self.model = model
        self.device = device
        self.autocast = autocast
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
        self.criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1, reduction="sum")

    def __call__(self, update: Update) -> None:
        """Does one update."""
        self.optimizer.zero_grad()
        for _, batch in update.batches:
            batch = batch.to(self.device)
            with self.autocast():
                logits = self.model(batch.src, batch.tgt)
                loss = self.criterion(logits.flatten(0, 1), batch.labels.flatten())
            (loss / update.num_tokens).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def plain_greedy(model: PlainTransformer, src: Tensor) -> Tensor:
    """Translates by reading the whole prefix anew for each token: (B, S) -> ids (B, S).

    Every translation is made as long as its source, as untrained weights do not know when to stop.
    """
    memory = model.encode(src)
    tgt = torch.full_like(src[:, :1], BOS)
    for i in range(src.shape[1]):
        x = model.decode(src, tgt, memory)
        token = model.logits(x[:, -1]).argmax(-1)
        token = token.masked_fill(src[:, i] == PAD, PAD)
        tgt = torch.cat([tgt, token[:, None]], dim=1)
    return tgt[:, 1:]
