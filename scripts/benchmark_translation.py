"""How fast sentences are translated: by our search, by loops of the usual kind, and by CTranslate2
with the same weights. Each function runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmark_baselines import MarianLogits, PlainTransformer, plain_greedy
from benchmark_work import SyntheticCorpus, Work, now, peak_mib, resident_peak

from transformer import Translator
from transformer.allocator import keep_freed_memory
from transformer.data.batching import micro_batches, pad
from transformer.data.lines import open_lines
from transformer.decoding.options import SearchOptions
from transformer.decoding.quantization import in_precision
from transformer.decoding.search import beam_search
from transformer.errors import UserError
from transformer.ids import PAD
from transformer.model.transformer import Transformer

BEAMS = {"greedy": 1, "beam5": 5, "ct2-greedy": 1, "ct2-beam5": 5, "hf-greedy": 1, "hf-beam5": 5}
CT2_BATCH_TOKENS = 512
"""CTranslate2 is fastest with a batch for each core, small enough for its cache."""

Translate = Callable[[Sequence[np.ndarray], SearchOptions], int]
"""Translates sentences and returns the number of target tokens."""


def measure_translation(work: Work, contender: str) -> dict[str, float]:
    """Translates sentences; returns speeds and peak memory.

    The sentences are those of `work.lines` in the vocabulary of `work.run`; or random ids and
    untrained weights, and then each translation is made as long as its source, or as the longest
    of its batch for those who know but one length for all.
    """
    device = work.start()
    if device.type == "cpu":
        keep_freed_memory()
    model, sentences, options = _workload(work, device)
    before = resident_peak()
    translate = _translation(work, contender, model, device)
    translate(sentences[:20], options)
    started_at = now(device)
    num_tokens = translate(sentences, options)
    seconds = now(device) - started_at
    return {
        "seconds": seconds,
        "sentences_per_s": len(sentences) / seconds,
        "tokens_per_s": num_tokens / seconds,
        "peak_mib": peak_mib(device, before),
    }


def _workload(
    work: Work, device: torch.device
) -> tuple[Transformer, list[np.ndarray], SearchOptions]:
    """Returns a model, sentences with their ends, and limits of the search that suit them."""
    if work.run is None:
        corpus = SyntheticCorpus(work.sentences, work.vocab_size, work.seed)
        model = Transformer(work.model, work.vocab_size, work.vocab_size).to(device).eval()
        as_long = SearchOptions(min_length_ratio=1.0, max_length=1, max_length_ratio=1.0)
        return model, corpus.src, as_long
    translator = Translator.load(work.run, device=device.type)
    if work.lines is None:
        raise UserError("--run needs --lines, a file of source lines")
    lines = list(open_lines(Path(work.lines)))
    ids = translator.tokenizers.source.encode(lines)
    sentences = [np.array(x, dtype=np.int32) for x in ids if len(x) > 1]
    return translator.models[0], sentences, translator.options


def _batches(sentences: Sequence[np.ndarray], tokens: int) -> list[np.ndarray]:
    return micro_batches(np.array([len(x) for x in sentences]), tokens)


def _translation(work: Work, contender: str, model: Transformer, device: torch.device) -> Translate:
    """Returns what translates for a contender."""
    if contender == "plain":
        return _plain(work, device)
    if contender.startswith("hf-"):
        return _hugging_face(work, BEAMS[contender], device)
    if contender.startswith("ct2-"):
        return _ctranslate2(work, model, BEAMS[contender])
    fast = in_precision(model, work.precision)

    def translate(sentences: Sequence[np.ndarray], options: SearchOptions) -> int:
        chosen = SearchOptions(**{**vars(options), "beam_size": BEAMS[contender]})
        found = [
            hypotheses[0]
            for batch in _batches(sentences, work.batch_tokens)
            for hypotheses in beam_search(
                [fast], pad([sentences[i] for i in batch]).to(device), chosen
            )
        ]
        return sum(len(each.ids) for each in found)

    return translate


def _plain(work: Work, device: torch.device) -> Translate:
    plain = PlainTransformer(*work.sizes).to(device).eval()

    @torch.inference_mode()
    def translate(sentences: Sequence[np.ndarray], options: SearchOptions) -> int:
        batches = _batches(sentences, work.batch_tokens)
        return sum(
            int((plain_greedy(plain, pad([sentences[i] for i in batch]).to(device)) != 0).sum())
            for batch in batches
        )

    return translate


def _hugging_face(work: Work, beam_size: int, device: torch.device) -> Translate:
    """Returns `generate` of Hugging Face's `MarianMTModel` of the same sizes, on our batches."""
    if work.run is not None:
        raise UserError("hf has untrained weights of its own: leave out --run")
    marian: Any = MarianLogits(*work.sizes).to(device).eval().model

    @torch.inference_mode()
    def translate(sentences: Sequence[np.ndarray], options: SearchOptions) -> int:
        num_tokens = 0
        for batch in _batches(sentences, work.batch_tokens):
            src = pad([sentences[i] for i in batch]).to(device)
            fewest, most = options.limits(src.size(1) - 1)
            found = marian.generate(
                input_ids=src,
                attention_mask=(src != PAD).long(),
                num_beams=beam_size,
                min_new_tokens=fewest + 1,
                max_new_tokens=most + 1,
                use_cache=True,
                do_sample=False,
            )
            num_tokens += found[:, 1:].numel()
        return num_tokens

    return translate


def _ctranslate2(work: Work, model: Transformer, beam_size: int) -> Translate:
    """Returns CTranslate2 with the model's weights: a batch for each thread at once."""
    try:
        from transformer.export.ctranslate2 import load_ctranslate2
    except ImportError:
        raise UserError("ct2 needs a library: pip install ctranslate2") from None
    source, target = ([f"{i}" for i in range(size)] for size in _vocab_sizes(model))
    engine = load_ctranslate2(
        model,
        source,
        target,
        work.precision,
        inter_threads=torch.get_num_threads(),
        intra_threads=1,
    )

    def translate(sentences: Sequence[np.ndarray], options: SearchOptions) -> int:
        waiting = []
        for batch in _batches(sentences, CT2_BATCH_TOKENS):
            words = [[source[i] for i in sentences[j]] for j in batch]
            fewest, most = options.limits(max(len(x) for x in words) - 1)
            waiting += engine.translate_batch(
                words,
                beam_size=beam_size,
                length_penalty=options.length_penalty,
                min_decoding_length=fewest,
                max_decoding_length=most,
                return_scores=True,
                asynchronous=True,
            )
        return sum(len(x.result().hypotheses[0]) + 1 for x in waiting)

    return translate


def _vocab_sizes(model: Transformer) -> tuple[int, int]:
    return model.src_embedding.tokens.num_embeddings, model.output.out_features
