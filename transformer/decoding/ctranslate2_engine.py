"""CTranslate2 as the engine of a search: the same translations by another program.

What it cannot do alike is done by our own search: lines with a prefix or constraints of their own,
lines that are longer than its table of positions, and translations that come to their limit, where
it would neither add nor count an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch

from transformer.data.tokenizer import Tokenizers
from transformer.decoding.beams import Hypothesis
from transformer.decoding.options import SearchOptions
from transformer.decoding.parts import Part
from transformer.decoding.scoring import score_pairs
from transformer.errors import UserError
from transformer.export.ctranslate2 import NUM_POSITIONS, load_ctranslate2
from transformer.ids import BOS, EOS, PAD
from transformer.model.transformer import Transformer

KNOWN = {"beam_size", "n_best", "length_penalty", "max_length", "max_length_ratio"}
"""Options that mean the same there. What must not be said, such as an early end, CTranslate2 shares
out among the other tokens, where our search leaves their probabilities as they are.
"""


class CTranslate2Engine:
    """A model in CTranslate2.

    Args:
        model: what to convert; it also gives the log-probabilities of what was found, which
            CTranslate2 does not tell.
        tokenizers: its vocabularies.

    Raises:
        UserError: CTranslate2 is not installed, or lacks something that the model has.
    """

    def __init__(self, model: Transformer, tokenizers: Tokenizers) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.source = tokenizers.source.pieces(range(tokenizers.source.vocab_size))
        self.target = tokenizers.target.pieces(range(tokenizers.target.vocab_size))
        self.ids = {piece: i for i, piece in enumerate(self.target)}
        self.translator = load_ctranslate2(
            model,
            self.source,
            self.target,
            device=self.device.type,
            intra_threads=torch.get_num_threads(),
        )

    def search(
        self, parts: Sequence[Part], options: SearchOptions
    ) -> list[list[Hypothesis] | None]:
        """Returns the `n_best` hypotheses of each part, the best first, or None where our own
        search has to find them.

        Raises:
            UserError: there is an option that means something else to CTranslate2, or nothing.
        """
        for field in fields(options):
            if field.name not in KNOWN and getattr(options, field.name) != field.default:
                raise UserError(
                    f"the engine ctranslate2 has no {field.name} as our search has it;"
                    " leave out --engine"
                )
        found: list[list[Hypothesis] | None] = [None] * len(parts)
        asked = [
            i for i, part in enumerate(parts) if part.is_free and len(part.src) < NUM_POSITIONS
        ]
        ids = self._translate([parts[i] for i in asked], options) if asked else []
        kept = [i for i, each in zip(asked, ids, strict=True) if each]
        scores = self._score([parts[i] for i in kept], [each for each in ids if each], options)
        for i, hypotheses in zip(kept, scores, strict=True):
            found[i] = hypotheses
        return found

    def _translate(self, parts: Sequence[Part], options: SearchOptions) -> list[list[list[int]]]:
        """Returns the `n_best` translations of each part; none where the search did not end before
        the limit, with as many translations as the beam has places: there it would end otherwise.
        """
        limits = [options.limits(len(part.src) - 1) for part in parts]
        most = min(max(most for _, most in limits), NUM_POSITIONS - 2)
        results = self.translator.translate_batch(
            [[self.source[i] for i in part.src] for part in parts],
            beam_size=options.beam_size,
            num_hypotheses=options.beam_size,
            length_penalty=options.length_penalty,
            min_decoding_length=0,
            max_decoding_length=most + 1,
            max_input_length=0,
            suppress_sequences=[[self.target[PAD]], [self.target[BOS]]],
        )
        found = []
        for result, (_, limit) in zip(results, limits, strict=True):
            texts = [[*(self.ids[x] for x in text), EOS] for text in result.hypotheses]
            whole = len(texts) == options.beam_size and max(map(len, texts)) <= min(limit, most)
            found.append(texts[: options.n_best] if whole else [])
        return found

    def _score(
        self, parts: Sequence[Part], ids: Sequence[list[list[int]]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """Returns translations with their scores and log-probabilities, the best first."""
        scores = iter(
            score_pairs(
                [self.model],
                [part.src for part, each in zip(parts, ids, strict=True) for _ in each],
                [text for each in ids for text in each],
                options.formula,
                device=self.device,
            )
        )
        found = []
        for each in ids:
            hypotheses = []
            for text in each:
                score = next(scores)
                hypotheses.append(Hypothesis(text, score.score, score.log_probs, True))
            found.append(sorted(hypotheses, key=lambda h: -h.score))
        return found
