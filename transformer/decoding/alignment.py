"""Word alignments from cross-attention: which source words a translation comes from.

A word comes from where the decoder looks when it says the word's first token, which decides what
the rest will be. Which layer aligns best differs from model to model: the one before the last in
a large model (Garg et al. 2019, section 4.1), the last in some small ones. So the mean over the
heads of all layers counts here, unless one layer is chosen, whose heads are then averaged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.data.batching import Batch, collate, micro_batches
from transformer.data.segmentation import SPACE
from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.decoding.results import Alignment
from transformer.model.attention_maps import source_mask, walk_decoder, walk_encoder
from transformer.model.transformer import Transformer

_CONTINUATION = re.compile("<0x[89AB][0-9A-F]>")
"""Pieces that are a byte, but not the first one of a character."""


@torch.inference_mode()
def align_pairs(
    models: Sequence[Transformer],
    tokenizers: Tokenizers,
    src: Sequence[Sequence[int]],
    tgt: Sequence[Sequence[int]],
    batch_tokens: int = 4096,
    layer: int | None = None,
) -> list[Alignment]:
    """Aligns the words of pairs of source and target ids, each with its end of sentence, in order.

    Args:
        models: several make an ensemble: their weights are averaged.
        tokenizers: their vocabularies.
        src: source ids.
        tgt: target ids.
        batch_tokens: bounds what is read at once: rows times the longest side.
        layer: the layer of the decoder whose heads are averaged, counted from 1; None = all heads.
    """
    device = next(models[0].parameters()).device
    lengths = np.array([max(len(s), len(t)) for s, t in zip(src, tgt, strict=True)], dtype=int)
    found: dict[int, Alignment] = {}
    for indices in micro_batches(lengths, batch_tokens):
        batch = collate(
            [np.asarray(src[i]) for i in indices], [np.asarray(tgt[i]) for i in indices]
        )
        weights = _weights(models, batch.to(device), layer).cpu().numpy()
        for row, i in zip(weights, indices.tolist(), strict=True):
            found[i] = _of_words(
                row[: len(tgt[i]), : len(src[i])],
                words_of(tokenizers.source, src[i]),
                words_of(tokenizers.target, tgt[i]),
            )
    return [found[i] for i in range(len(lengths))]


def _weights(models: Sequence[Transformer], batch: Batch, layer: int | None) -> Tensor:
    """Returns the weights of each target token on the source tokens: (B, T, S)."""
    means = []
    for model in models:
        mask = source_mask(batch.src)
        memory, _ = walk_encoder(model, batch.src, mask)
        layers = walk_decoder(model, batch.tgt, memory, mask)
        crosses = [cross.float().mean(1) for _, _, cross in layers]  # (B, H, T, S) -> (B, T, S)
        means.append(torch.stack(crosses).mean(0) if layer is None else crosses[layer - 1])
    return torch.stack(means).mean(0)


def words_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Returns for each token the number of its word in the decoded text, -1 if it is no text.

    A word is what stands between spaces. The end of sentence, a tag and the space itself are no
    text.
    """
    found: list[int] = []
    words: list[str] = []
    first = num_before = 0
    pieces = tokenizer.pieces(ids)
    for i, piece in enumerate(pieces):
        if piece.startswith(SPACE):  # opens a word: what came before is complete
            num_before += len(words)
            first, words = i, []
        if i + 1 < len(ids) and _CONTINUATION.fullmatch(pieces[i + 1]):
            continue  # the character is not complete
        before, words = words, tokenizer.decode([ids[first : i + 1]])[0].split()
        word = num_before + len(words) - 1 if words != before else -1
        found += [word] * (i + 1 - len(found))
    return found


def _of_words(weights: np.ndarray, source: Sequence[int], target: Sequence[int]) -> Alignment:
    """Takes weights (T, S) where target words begin, and sums them over the tokens of source
    words.
    """
    num_words = max(source, default=-1) + 1
    numbers = range(max(target, default=-1) + 1)  # a token may hold several words
    firsts = [next(t for t, word in enumerate(target) if word >= number) for number in numbers]
    members = np.asarray(source)[:, None] == np.arange(num_words)  # (S, S')
    words = weights[firsts] @ members
    unaligned = (1 - words.sum(1)).tolist()
    return Alignment(tuple(map(tuple, words.tolist())), tuple(unaligned), num_words)
