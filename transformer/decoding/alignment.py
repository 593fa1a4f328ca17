"""Word alignments from cross-attention: which source words a translation comes from.

The weights of a token are those at the position where the decoder says it. Which heads align words
differs from model to model: in a small one it may be the last layer, in a large one the one before
it (Garg et al. 2019, section 4.1, take the mean of its heads). So all heads of all layers count
here, by the root of their mean square, in which heads that look at one place outweigh those that
look everywhere; a single layer can be chosen, and is then averaged as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.data.batching import Batch, collate, micro_batches
from transformer.data.segmentation import SPACE
from transformer.data.tokenizer import Tokenizer, Tokenizers
from transformer.decoding.results import Alignment
from transformer.model.attention_maps import walk_decoder
from transformer.model.transformer import Transformer


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
        memory, mask = model.encode(batch.src)
        crosses = (cross for _, _, cross in walk_decoder(model, batch.tgt, memory, mask))
        if layer is not None:
            means.append(list(crosses)[layer - 1].double().mean(1))  # (B, H, T, S) -> (B, T, S)
            continue
        squares = sum(cross.float().square().sum(1) for cross in crosses)
        assert isinstance(squares, Tensor)
        means.append(squares.sqrt() / squares.sqrt().sum(-1, keepdim=True))
    return torch.stack(means).mean(0)


def words_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Returns for each token the number of its word in the decoded text, -1 if it is no text.

    A word is what stands between spaces. The end of sentence, a tag and the space itself are no
    text.
    """
    found: list[int] = []
    words: list[str] = []
    first = num_before = 0
    for i, piece in enumerate(tokenizer.pieces(ids)):
        if piece.startswith(SPACE):  # opens a word: what came before is complete
            num_before += len(words)
            first, words = i, []
        before, words = words, tokenizer.decode([ids[first : i + 1]])[0].split()
        found.append(num_before + len(words) - 1 if words != before else -1)
    return found


def _of_words(weights: np.ndarray, source: Sequence[int], target: Sequence[int]) -> Alignment:
    """Sums weights (T, S) over the tokens of a source word, and averages over those of a target
    word.
    """
    to_source = _membership(source)  # (S, S')
    from_target = _membership(target)  # (T, T')
    from_target /= np.maximum(from_target.sum(0), 1)
    words = from_target.T @ weights @ to_source
    unaligned = (1 - words.sum(1)).tolist()
    return Alignment(tuple(map(tuple, words.tolist())), tuple(unaligned), to_source.shape[1])


def _membership(words: Sequence[int]) -> np.ndarray:
    """Returns a matrix with 1 where a token belongs to a word: (tokens, words)."""
    return (np.asarray(words)[:, None] == np.arange(max(words, default=-1) + 1)).astype(float)
