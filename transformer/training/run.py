"""From a configuration to a trained run directory: everything that comes before the first
update.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from transformer.config import Config
from transformer.config_file import dump_config
from transformer.data.corpus import EncodedCorpus, encode_corpus, load_corpora, prepare_tokenizers
from transformer.data.tokenizer import Tokenizers
from transformer.errors import UserError
from transformer.model.transformer import Transformer
from transformer.precision import choose_precision
from transformer.training.allocator import keep_freed_memory
from transformer.training.checkpoint import (
    BEST,
    FOLDER,
    Checkpoint,
    find_checkpoint,
    list_checkpoints,
    load_weights,
    read_checkpoint,
)
from transformer.training.distributed import Ranks, start_ranks
from transformer.training.logger import log, log_to_file
from transformer.training.state import Progress, TrainingState
from transformer.training.trainer import Trainer

FIXED = (
    "seed",
    "init_from",
    "data.train",
    "data.max_length",
    "data.max_ratio",
    "data.drop_duplicates",
    "tokenizer",
    "model",
    "training.batch_tokens",
    "training.optimizer",
    "training.ema_decay",
)
"""Settings that a run keeps for good: they say what its updates, weights and optimizer mean."""
MOST_NAMED = 3
"""Changed ones that are named in an error before they are only counted."""


def train(config: Config, resume: bool = False, overwrite: bool = False) -> None:
    """Trains what the configuration describes, from the start or from its newest checkpoint.

    Args:
        config: the run.
        resume: goes on from the newest checkpoint, or starts if there is none.
        overwrite: deletes the run that is there.

    Raises:
        UserError: the directory holds a run already, the data or the checkpoint is not right, or
            the configuration is not the one that the run was made with.
        InterruptedRun: a signal asked to stop; the state is saved.
    """
    run_dir = Path(config.run_dir)
    with start_ranks(config.training.device) as ranks, hold_run(run_dir, ranks):
        checkpoint = None
        with ranks.first_alone():
            if resume:
                checkpoint = newest_checkpoint(run_dir)
            elif not overwrite:
                _refuse_existing(run_dir)
        if checkpoint is not None:
            for line in changed_settings(checkpoint, config):
                log.info("%s", line)
            if checkpoint.step >= config.training.max_steps:
                steps = f"step {checkpoint.step} of training.max_steps {config.training.max_steps}"
                log.warning("%s: already done: %s; a larger one goes on", run_dir, steps)
                return
        trainer = _prepare_trainer(config, checkpoint, ranks)
        with ranks.first_alone():
            if ranks.is_first:
                if overwrite:
                    _delete_run(run_dir)
                _write_config(config)
        if ranks.device.type == "cpu":
            keep_freed_memory()
        trainer.run()


@contextmanager
def hold_run(run_dir: Path, ranks: Ranks) -> Iterator[None]:
    """Makes the run directory, keeps other runs out of it, and logs to its train.log.

    Raises:
        UserError: the directory cannot be written, or another run holds it.
    """
    if not ranks.is_first:
        log.setLevel(logging.ERROR)  # rank 0 speaks for all
        yield
        return
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = (run_dir / ".lock").open("a+", encoding="utf-8")
    except FileExistsError:
        raise UserError(f"{run_dir}: is a file; run_dir names a folder, new or of a run") from None
    except OSError as error:
        raise UserError(f"{run_dir}: cannot be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            raise UserError(f"{run_dir}: {holder} is training there; wait or stop it") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        for folder in (run_dir, run_dir / FOLDER):
            for left in (*folder.glob("*.partial"), *folder.glob(".tmp*")):
                left.unlink(missing_ok=True)  # of a process that was killed while it wrote
        with log_to_file(run_dir / "train.log"):
            yield


def _prepare_trainer(config: Config, checkpoint: Checkpoint | None, ranks: Ranks) -> Trainer:
    """Reads data and weights; nothing of a run that is there is touched yet."""
    start = checkpoint
    if start is None and config.init_from is not None:
        start = read_checkpoint(find_checkpoint(config.init_from))
    with ranks.first_alone():
        tokenizers, corpus, validation = _prepare(config, start)
    torch.manual_seed(config.seed)
    model = _make_model(config, tokenizers)
    if checkpoint is None and start is not None:
        load_weights(model, start.weights("ema.") or start.weights(), start.path)
        log.info("weights and vocabulary come from %s, step %d", start.path, start.step)
    state = TrainingState(model.to(ranks.device), config)
    if checkpoint is not None:
        _go_on(state, checkpoint, corpus)
    _say_what(config, state.model, corpus, ranks)
    return Trainer(state, corpus, validation, tokenizers, ranks)


def _go_on(state: TrainingState, checkpoint: Checkpoint, corpus: EncodedCorpus) -> None:
    """Takes the checkpoint's state, without what was best if that is now measured otherwise."""
    config, before = state.config, checkpoint.config
    if checkpoint.metadata["data"] != corpus.digest:
        raise UserError(
            f"{checkpoint.path}: the training data is not what it was when this run began;"
            f" start a new run on it with init_from={config.run_dir}"
        )
    state.load(checkpoint)
    log.info("resuming after step %d from %s", checkpoint.step, checkpoint.path)
    measures = [
        (c.validation.metric, c.validation.translate, c.data.validation) for c in (before, config)
    ]
    if measures[0] != measures[1]:
        state.progress.best_value = state.progress.best_step = None
        state.progress.validations_since_best = 0
        log.info("validation measures something else now: what was best so far is forgotten")


def _make_model(config: Config, tokenizers: Tokenizers) -> Transformer:
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    try:
        return Transformer(config.model, *sizes, config.training.activation_checkpointing)
    except ValueError as error:  # a vocabulary that came with init_from
        raise UserError(f"model.tie_embeddings: {error}; try decoder or none") from None
    except (RuntimeError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else "out of memory"
        raise UserError(f"a model of this size cannot be made here: {reason}") from None


def _prepare(
    config: Config, start: Checkpoint | None
) -> tuple[Tokenizers, EncodedCorpus, EncodedCorpus | None]:
    """Reads, segments and filters the data; the vocabulary comes from `start` if there is one."""
    raw = load_corpora(config.data.train, config.data)
    if start is None:
        tokenizers = prepare_tokenizers(config, raw)
    else:
        tokenizers = start.tokenizers
        asked, size = config.tokenizer.vocab_size, tokenizers.source.vocab_size
        if asked not in (size, "auto") and config.init_from is not None:
            log.info("the vocabulary of %s has %d pieces, not %s", start.path, size, asked)
    corpus = encode_corpus(raw, tokenizers, config.data, filters=True)
    level = logging.WARNING if corpus.report.many_dropped else logging.INFO
    for line in corpus.report.lines():
        log.log(level, "%s", line)
    validation = None
    if config.data.validation:
        pairs = load_corpora(config.data.validation, config.data)
        validation = encode_corpus(pairs, tokenizers, config.data, filters=False)
    return tokenizers, corpus, validation


def _say_what(config: Config, model: Transformer, corpus: EncodedCorpus, ranks: Ranks) -> None:
    sizes = {model.src_embedding.tokens.num_embeddings, model.output.out_features}
    log.info(
        "%s pairs; %s parameters; vocabulary %s; %s; %s",
        f"{len(corpus):,}",
        f"{model.num_parameters:,}",
        " and ".join(f"{n:,}" for n in sorted(sizes)),
        f"{ranks.size} x {ranks.device.type}",
        choose_precision(config.training.precision, ranks.device),
    )


def newest_checkpoint(run_dir: Path) -> Checkpoint | None:
    """Returns the newest whole checkpoint of a run, naming damaged ones; None if there is none at
    all.

    Raises:
        UserError: there are checkpoints, but all are damaged.
    """
    checkpoints = list_checkpoints(run_dir)
    for _, path in reversed(checkpoints):
        try:
            checkpoint = read_checkpoint(path)
            Progress.of(checkpoint)
            if not isinstance(checkpoint.metadata.get("data"), str):
                raise UserError(f"{path}: does not say which data it was trained on")
            return checkpoint
        except UserError as error:
            log.warning("%s; trying the one before it", error)
    if checkpoints:
        raise UserError(f"{run_dir / FOLDER}: none of {len(checkpoints)} checkpoints can be read")
    return None


def changed_settings(checkpoint: Checkpoint, config: Config) -> list[str]:
    """Returns a line for each setting that differs from the run so far and is applied from here on.

    Raises:
        UserError: a setting differs that the run must keep.
    """
    before = _flat(checkpoint.config.model_dump(mode="json"))  # of today's settings, by default
    now = _flat(config.model_dump(mode="json"))
    lines, refused = [], []
    for key in before | now:
        if key == "run_dir" or before.get(key) == now.get(key):
            continue
        was, will_be = (_found(values.get(key)) for values in (before, now))
        if any(key == fixed or key.startswith(fixed + ".") for fixed in FIXED):
            refused.append(f"{key}: {was} so far, {will_be} now")
        else:
            lines.append(f"{key}: {was} so far, {will_be} from here on")
    if refused:
        more = len(refused) - MOST_NAMED
        told = refused[:MOST_NAMED] + ([f"and {more} more"] if more > 0 else [])
        raise UserError(
            f"{'; '.join(told)}; a run keeps what it was trained with. Start a new run from these"
            f" weights with init_from={config.run_dir}"
        )
    return lines


def _found(value: object) -> str:
    return "nothing" if value is None else repr(value)


def _flat(values: dict, prefix: str = "") -> dict[str, object]:
    """Returns settings by dotted names; those of sections in a list by its indices."""
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, list) and any(isinstance(x, dict) for x in value):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _own_files(run_dir: Path) -> list[Path]:
    """Returns what a run has left in its directory, its log apart."""
    names = (FOLDER, BEST, "metrics.jsonl", "tensorboard")
    return [path for name in names if (path := run_dir / name).exists()]


def _refuse_existing(run_dir: Path) -> None:
    if _own_files(run_dir):
        raise UserError(
            f"{run_dir}: holds a run already; --resume goes on with it, --overwrite deletes it,"
            " run_dir=OTHER starts beside it"
        )


def _delete_run(run_dir: Path) -> None:
    for path in _own_files(run_dir):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_config(config: Config) -> None:
    run_dir = Path(config.run_dir)
    try:
        aside = run_dir / "config.yaml.partial"
        aside.write_text(dump_config(config), encoding="utf-8")
        aside.replace(run_dir / "config.yaml")
    except OSError as error:
        raise UserError(f"{run_dir}: cannot be written: {error.strerror}") from None
