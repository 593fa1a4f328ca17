"""Validation: loss over the validation pairs, and BLEU and chrF of real translations of them,
shared among the ranks.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from transformer.config import Config
from transformer.data.batching import collate, micro_batches
from transformer.data.corpus import EncodedCorpus
from transformer.data.tokenizer import Tokenizers
from transformer.decoding.options import SearchOptions
from transformer.decoding.quantization import in_precision
from transformer.decoding.translator import Translator
from transformer.errors import InterruptedRun
from transformer.evaluation import evaluate
from transformer.model.transformer import Transformer
from transformer.training.distributed import Ranks
from transformer.training.loss import batch_loss


@dataclass(frozen=True)
class Validation:
    """What a validation found.

    Attributes:
        loss: nats for each target token, without label smoothing.
        perplexity: exp(loss).
        bleu: corpus BLEU, None if nothing was translated.
        chrf: corpus chrF, None if nothing was translated.
        signature: sacreBLEU's signature of that BLEU.
        samples: (source, reference, translation) of a few lines.
    """

    loss: float
    perplexity: float
    bleu: float | None
    chrf: float | None
    signature: str | None
    samples: list[tuple[str, str, str]]

    def value(self, metric: str) -> float:
        """Returns the metric, turned so that higher is better."""
        value = getattr(self, metric)
        return -value if metric == "loss" else value

    def numbers(self) -> dict[str, float | str | None]:
        """Returns all but the samples."""
        return {key: value for key, value in asdict(self).items() if key != "samples"}


class Validator:
    """Validates a model on one corpus, as often as asked.

    Args:
        corpus: every validation pair.
        tokenizers: the vocabularies.
        config: of the run.
        ranks: who shares the work.
        autocast: makes the context of the run's precision.
        check: called between batches; raises `InterruptedRun` if the run is to stop.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        tokenizers: Tokenizers,
        config: Config,
        ranks: Ranks,
        autocast: Callable[[], AbstractContextManager[object]],
        check: Callable[[], None],
    ) -> None:
        self.corpus = corpus
        self.tokenizers = tokenizers
        self.config = config
        self.ranks = ranks
        self.autocast = autocast
        self.check = check

    def run(self, model: Transformer) -> Validation:
        """Validates; all ranks get the same result.

        Raises:
            InterruptedRun: on all ranks, if one of them was asked to stop.
        """
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                loss = self._loss(model)
                if not self.config.validation.translate:
                    return Validation(loss, _exp(loss), None, None, None, [])
                return self._with_translations(model, loss)
        finally:
            model.train(was_training)

    def _loss(self, model: Transformer) -> float:
        total = torch.zeros(2, dtype=torch.float64, device=self.ranks.device)
        parts = micro_batches(self.corpus.lengths, self.config.training.micro_batch_tokens)
        with self._interrupted_together():
            for indices in parts[self.ranks.rank :: self.ranks.size]:
                self.check()
                batch = collate(*self.corpus.ids(indices)).to(self.ranks.device)
                with self.autocast():
                    loss = batch_loss(model, batch).double()
                total += torch.stack((loss, loss.new_tensor(batch.num_tokens)))
        self.ranks.sum([total])
        return (total[0] / total[1].clamp(min=1)).item()

    @contextmanager
    def _interrupted_together(self) -> Iterator[None]:
        """Ends a part of the validation on all ranks if one of them was asked to stop in it."""
        asked = 0
        try:
            yield
        except InterruptedRun as interrupted:
            asked = interrupted.signal_number
        asked = max(self.ranks.gather(asked))
        if asked:
            raise InterruptedRun(asked)

    def _as_translating(self, model: Transformer) -> Transformer:
        """Returns the model with the numbers that `translate` and `evaluate` will compute with,
        which are not those of training, so that they find the same scores.
        """
        precision, device = self.config.decoding.precision, self.ranks.device
        if precision == "int8" and device.type != "cpu":
            return model
        return in_precision(copy.deepcopy(model), precision)

    def _with_translations(self, model: Transformer, loss: float) -> Validation:
        options = SearchOptions.from_config(self.config.decoding)
        beam = self.config.validation.beam_size or options.beam_size
        translator = Translator(
            [self._as_translating(model)],
            self.tokenizers,
            replace(options, beam_size=beam, n_best=1),
            batch_tokens=self.config.decoding.batch_tokens,
            check=self.check,
        )
        mine = np.arange(self.ranks.rank, len(self.corpus), self.ranks.size)
        with self._interrupted_together():
            share = translator.translate(self.corpus.texts(mine)[0])
        outputs = [""] * len(self.corpus)
        for rank, texts in enumerate(self.ranks.gather(share)):
            outputs[rank :: self.ranks.size] = texts
        sources, references = self.corpus.texts(np.arange(len(self.corpus)))
        found = evaluate(
            outputs,
            [references],
            target_language=self.config.data.target_language,
            metrics=("bleu", "chrf"),
        )
        num_samples = min(self.config.validation.samples, len(outputs))
        chosen = np.linspace(0, len(outputs) - 1, num_samples).astype(int)
        return Validation(
            loss,
            _exp(loss),
            found.metrics["bleu"].score,
            found.metrics["chrf"].score,
            found.metrics["bleu"].signature,
            [(sources[i], references[i], outputs[i]) for i in chosen],
        )


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
