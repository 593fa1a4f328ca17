"""Where a model looks while it translates one line, with the tokens it looks at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.ids import BOS
from transformer.model.attention_maps import attention_maps

KINDS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class AttentionRecord:
    """The attention weights of one line.

    Attributes:
        source: its tokens, the end of sentence last.
        target: tokens that the decoder reads, the beginning of sentence first.
        said: the token that follows each of them, the end of sentence last; where the decoder reads
            the one, it says the other.
        encoder: for each layer the weights from each source token to all, (H, S, S).
        decoder: for each layer the weights from each target token to all, (H, T, T).
        cross: for each layer the weights from each target token to the source tokens, (H, T, S).
    """

    source: list[str]
    target: list[str]
    said: list[str]
    encoder: dict[int, Tensor]
    decoder: dict[int, Tensor]
    cross: dict[int, Tensor]

    def of_layer(self, layer: int | None) -> AttentionRecord:
        """Returns the weights of one layer, counted from 1; of a stack that is not so deep its
        last, and of each stack if layer is None.

        Raises:
            UserError: neither encoder nor decoder has such a layer.
        """
        deepest = max(max(getattr(self, kind)) for kind in KINDS)
        if layer is not None and not 1 <= layer <= deepest:
            raise UserError(f"layer {layer}: there are layers 1 to {deepest}")
        found: dict[str, Any] = {}
        for kind in KINDS:
            maps = getattr(self, kind)
            chosen = min(layer or deepest, max(maps))
            found[kind] = {chosen: maps[chosen]}
        return replace(self, **found)

    def to_json(self) -> dict[str, Any]:
        """Returns tokens, and weights by kind, layer, head, query and key; layers and heads are
        named by their numbers, from 1 on.
        """
        value: dict[str, Any] = {
            "source": self.source,
            "target": self.target,
            "said": self.said,
        }
        for kind in KINDS:
            value[kind] = {
                str(layer): {str(i): head.tolist() for i, head in enumerate(maps, 1)}
                for layer, maps in getattr(self, kind).items()
            }
        return value


def record_attention(
    translator: Translator, sentence: str, target: str | None = None
) -> AttentionRecord:
    """Reads a line and its translation and returns where the (first) model looks.

    Args:
        translator: the model.
        sentence: the line.
        target: its translation; None = what the translator says.

    Raises:
        UserError: the line is blank.
    """
    if not sentence.strip():
        raise UserError("the sentence is blank: there is nothing to look at")
    tokenizers, model = translator.tokenizers, translator.models[0]
    src = tokenizers.source.encode([sentence.strip()])[0]
    if target is None:
        ids = translator.translate_n_best([sentence])[0][0].ids
    else:
        (ids,) = tokenizers.target.encode([target.strip()])
    tgt = [BOS, *ids[:-1]]
    maps = attention_maps(
        model,
        torch.tensor([src], device=translator.device),
        torch.tensor([tgt], device=translator.device),
    )
    of_layers = [
        {i: x[0].float().cpu() for i, x in enumerate(layers, 1)}
        for layers in (maps.encoder, maps.decoder, maps.cross)
    ]
    source = tokenizers.source.pieces(src)
    read, said = (tokenizers.target.pieces(x) for x in (tgt, ids))
    return AttentionRecord(source, read, said, *of_layers)
