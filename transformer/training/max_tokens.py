"""How many padded tokens a device takes at once, where `training.max_tokens` is `auto`.

The number changes no update, but the random numbers of dropout are those of a micro-batch: so a run
keeps the number that it began with, and on a CPU it is a rule that gives the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from transformer.config import Config
from transformer.data.batching import collate
from transformer.ids import EOS
from transformer.model.transformer import Transformer
from transformer.precision import choose_precision
from transformer.training.distributed import Ranks
from transformer.training.logger import log
from transformer.training.regularization import training_loss

CPU_TOKENS = 2000
"""Measured for d_model 128, 256 and 512 on two cores with 2 MB of cache each."""
MPS_TOKENS = 8192
USABLE_SHARE = 0.9
"""Of a GPU's memory; the rest is for what a trial does not see, such as fragments."""


def keep_max_tokens(config: Config, before: Config) -> Config:
    """Returns the configuration with the number that a run has so far, if it asks for `auto`."""
    if config.training.max_tokens != "auto" or before.training.max_tokens == "auto":
        return config
    return _with_number(config, before.training.max_tokens)


def choose_max_tokens(config: Config, model: Transformer, longest: int, ranks: Ranks) -> Config:
    """Returns the configuration with a number for `auto`, and says it.

    Args:
        config: of the run.
        model: on the device where it is trained.
        longest: tokens of the longest side of a pair.
        ranks: who shares the work; all come to the same number.
    """
    if config.training.max_tokens != "auto":
        return config
    passes = config.training.num_passes
    most = passes * config.training.batch_tokens
    if ranks.device.type == "cuda":
        most = max(passes * longest, most // ranks.size)  # work for every rank
        number, why = _largest_on_gpu(config, model, longest, most), "as the memory allows"
        number = min(ranks.gather(number))
    else:
        usual = CPU_TOKENS if ranks.device.type == "cpu" else MPS_TOKENS
        number, why = min(usual, most), "what suits the device"
    number = max(number, passes * config.data.max_length)
    log.info("training.max_tokens auto: %s padded tokens at a time, %s", f"{number:,}", why)
    return _with_number(config, number)


def _with_number(config: Config, number: int) -> Config:
    training = config.training.model_copy(update={"max_tokens": number})
    return config.model_copy(update={"training": training})


def _largest_on_gpu(config: Config, model: Transformer, longest: int, most: int) -> int:
    """Returns the largest micro-batch of sentences of the greatest length for which there is
    memory, beside gradients and optimizer."""
    device = next(model.parameters()).device
    least = config.training.num_passes * longest
    num_copies = 3 if config.training.ema_decay else 2  # Adam's two moments, the average
    torch.cuda.set_per_process_memory_fraction(USABLE_SHARE, device)
    try:
        kept = [torch.empty_like(p) for p in model.parameters() for _ in range(num_copies)]
        number = largest(lambda size: _fits(config, model, longest, size), least, most)
        del kept
    except torch.OutOfMemoryError:
        number = least
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()
    return number


def _fits(config: Config, model: Transformer, longest: int, num_tokens: int) -> bool:
    """Tells whether there is memory to train on so many tokens."""
    try:
        try_micro_batch(config, model, longest, num_tokens)
    except torch.OutOfMemoryError:
        return False
    finally:
        for p in model.parameters():
            p.grad = None
        torch.cuda.empty_cache()
    return True


def try_micro_batch(config: Config, model: Transformer, longest: int, num_tokens: int) -> Tensor:
    """Trains on sentences of the greatest length up to the gradient; returns the loss: ()."""
    device = next(model.parameters()).device
    passes = config.training.num_passes
    rows = passes * max(1, num_tokens // passes // longest)
    sentence = np.full(longest, EOS, dtype=np.int32)
    batch = collate([sentence] * rows, [sentence] * rows).to(device)
    is_narrow = choose_precision(config.training.precision, device) == "bfloat16"
    with torch.autocast(device.type, dtype=torch.bfloat16) if is_narrow else nullcontext():
        loss = training_loss(model.train(), batch, config.training)
        loss.backward()
    return loss


def largest(fits: Callable[[int], bool], least: int, most: int) -> int:
    """Returns the largest number from `least` to `most` that fits, or one that is less by at most
    an eighth: doubled until it fits no more, then halved in between. `least` is taken to fit.
    """
    good, bad = least, most + 1
    is_bounded = False
    while good < most and not (is_bounded and bad - good <= max(1, good // 8)):
        tried = (good + bad) // 2 if is_bounded else min(2 * good, most)
        if fits(tried):
            good = tried
        else:
            bad, is_bounded = tried, True
    return good
