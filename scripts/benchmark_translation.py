"""How fast sentences are translated: by our search, by loops of the usual kind, and by CTranslate2
with the same weights. Each function runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from benchmark_baselines import PlainTransformer, plain_greedy
from benchmark_hugging_face import to_m2m100
from benchmark_work import SyntheticCorpus, Work, now, peak_mib, resident_peak

from transformer import Translator
from transformer.allocator import keep_freed_memory
from transformer.data.batching import even_batches, micro_batches, pad
from transformer.data.lines import open_lines
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.batch_search import Task, search_batch
from transformer.decoding.options import SearchOptions
from transformer.decoding.parts import Part
from transformer.decoding.processes import Processes, num_processes
from transformer.decoding.quantization import in_precision
from transformer.decoding.shortlist import Shortlist
from transformer.errors import UserError
from transformer.evaluation import evaluate
from transformer.ids import EOS, PAD
from transformer.model.transformer import Transformer

OURS = {"greedy": 1, "greedy-shortlist": 1, "beam5": 5, "beam5-shortlist": 5}
BEAMS = {**OURS, "ct2-greedy": 1, "ct2-beam5": 5, "hf-greedy": 1, "hf-beam5": 5}
CT2_BATCH_TOKENS = 512
"""CTranslate2 is fastest with a batch for each core, small enough for its cache."""

Found = tuple[int, list[list[int]] | None]
"""Number of target tokens, and those of each sentence where the contender has our vocabulary."""
Translate = Callable[[Sequence[np.ndarray], SearchOptions], Found]
"""Translates sentences."""


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
    num_tokens, found = translate(sentences, options)
    seconds = now(device) - started_at
    figures = {
        "seconds": seconds,
        "sentences_per_s": len(sentences) / seconds,
        "tokens_per_s": num_tokens / seconds,
        "peak_mib": peak_mib(device, before),
    }
    if contender in OURS:
        figures["peak_mib"] += _peak_of_others(translate)
    if found is not None and work.references is not None:
        figures["bleu"] = _bleu(work, found)
    return figures


def _peak_of_others(translate: Translate) -> float:
    """Ends the processes of our search and returns what they took beyond what is shared, in MiB."""
    running = getattr(translate, "running", None)
    if running is None:
        return 0.0
    num, shared = running.num, resident_peak()
    running.close()
    return num * max(0.0, resident_peak(of_children=True) - shared)


def _bleu(work: Work, found: list[list[int]]) -> float:
    """Returns sacreBLEU's BLEU of translations, with its defaults."""
    target = Translator.load(str(work.run), device="cpu").tokenizers.target
    references = list(open_lines(Path(str(work.references))))
    return evaluate(target.decode(found), [references], metrics=["bleu"]).metrics["bleu"].score


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
        return _hugging_face(work, model, BEAMS[contender])
    if contender.startswith("ct2-"):
        return _ctranslate2(work, model, BEAMS[contender])
    return _Ours(work, contender, model, device)


class _Ours:
    """Our search, shared out to processes as `translate` does."""

    def __init__(
        self, work: Work, contender: str, model: Transformer, device: torch.device
    ) -> None:
        fast, shortlist, target = in_precision(model, work.precision), None, cast(Tokenizer, None)
        if contender.endswith("-shortlist"):
            if work.run is None or work.shortlist is None:
                raise UserError(f"{contender} needs --run and --shortlist")
            tokenizers = Translator.load(work.run, device="cpu").tokenizers
            shortlist = Shortlist.load(work.shortlist, tokenizers, device)
        self.beam_size = BEAMS[contender]
        self.search = partial(search_batch, [fast], target, shortlist)
        self.num = num_processes(0) if device.type == "cpu" else 1
        self.batch_tokens = work.batch_tokens // self.num
        self.running = Processes(self.search, self.num) if self.num > 1 else None

    def __call__(self, sentences: Sequence[np.ndarray], options: SearchOptions) -> Found:
        chosen = SearchOptions(**{**vars(options), "beam_size": self.beam_size})
        lengths = np.array([len(ids) for ids in sentences])
        batches = even_batches(lengths, self.batch_tokens, self.num)
        tasks = [Task([Part(sentences[i].tolist()) for i in batch], chosen) for batch in batches]
        answers = map(self.search, tasks) if self.running is None else self.running.map(tasks)
        ids: dict[int, list[int]] = {}
        for batch, hypotheses in zip(batches, answers, strict=True):
            ids |= {i: each[0].ids for i, each in zip(batch.tolist(), hypotheses, strict=True)}
        return sum(map(len, ids.values())), [ids[i] for i in range(len(sentences))]


def _plain(work: Work, device: torch.device) -> Translate:
    plain = PlainTransformer(*work.sizes).to(device).eval()

    @torch.inference_mode()
    def translate(sentences: Sequence[np.ndarray], options: SearchOptions) -> Found:
        batches = _batches(sentences, work.batch_tokens)
        return sum(
            int((plain_greedy(plain, pad([sentences[i] for i in batch]).to(device)) != 0).sum())
            for batch in batches
        ), None

    return translate


def _hugging_face(work: Work, model: Transformer, beam_size: int) -> Translate:
    """Returns `generate` of Hugging Face with the model's weights, on our batches."""
    if work.precision != "float32":
        raise UserError("hf computes in float32: leave out the precision")
    theirs, device = to_m2m100(model), model.output.weight.device

    @torch.inference_mode()
    def translate(sentences: Sequence[np.ndarray], options: SearchOptions) -> Found:
        ids: dict[int, list[int]] = {}
        num_tokens = 0
        for batch in _batches(sentences, work.batch_tokens):
            src = pad([sentences[i] for i in batch]).to(device)
            fewest, most = options.limits(src.size(1) - 1)
            found = theirs.generate(
                input_ids=src,
                attention_mask=(src != PAD).long(),
                num_beams=beam_size,
                length_penalty=options.length_penalty,
                early_stopping=beam_size > 1,
                min_new_tokens=fewest,
                max_new_tokens=most + 1,
                use_cache=True,
                do_sample=False,
            )
            for i, row in zip(batch.tolist(), found[:, 1:].tolist(), strict=True):
                ids[i] = [x for x in row if x not in (PAD, EOS)]
                num_tokens += row.count(EOS) + len(ids[i])
        return num_tokens, [ids[i] for i in range(len(sentences))]

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

    def translate(sentences: Sequence[np.ndarray], options: SearchOptions) -> Found:
        waiting, order = [], []
        for batch in _batches(sentences, CT2_BATCH_TOKENS):
            order += batch.tolist()
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
        ids = [[int(name) for name in x.result().hypotheses[0]] for x in waiting]
        found = dict(zip(order, ids, strict=True))
        num_tokens = sum(len(x) + 1 for x in ids)
        return num_tokens, [found[i] for i in range(len(sentences))]

    return translate


def _vocab_sizes(model: Transformer) -> tuple[int, int]:
    return model.src_embedding.tokens.num_embeddings, model.output.out_features
